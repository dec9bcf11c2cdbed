//go:build linux || darwin || freebsd || netbsd || openbsd

package screen

import (
	"os"
	"syscall"
	"unsafe"
)

// Size returns the size of the terminal that f is; false when it is none.
func Size(f *os.File) (width, height int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size))) //nolint:gosec // what the call takes
	if errno != 0 {
		return 0, 0, false
	}
	if size.rows == 0 || size.columns == 0 { // a terminal that does not say
		return 80, 24, true
	}
	return int(size.columns), int(size.rows), true
}
