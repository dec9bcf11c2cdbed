//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is who runs the server: PostgreSQL refuses root. The zero account
// is the process's own.
type account struct {
	cred *syscall.Credential
}

// serverAccount returns the process's own account, or for root that of
// postgres, else nobody.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("pgserver: account %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("pgserver: account %s: %w", name, err)
		}
		return account{cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("pgserver: PostgreSQL does not run as root, and there is neither an account postgres nor nobody")
}

// attributes put a program into a session of its own, so that Ctrl-C reaches
// this process only, and under the account.
func (a account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Credential: a.cred}
}

// own makes the account the owner of path.
func (a account) own(path string) error {
	if a.cred == nil {
		return nil
	}
	return os.Lchown(path, int(a.cred.Uid), int(a.cred.Gid))
}

// reaches reports whether the account can enter dir. For an account that is
// not ours only what everybody may do counts.
func (a account) reaches(dir string) bool {
	if a.cred == nil {
		info, err := os.Stat(dir)
		return err == nil && info.IsDir()
	}
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for d := target; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if d == filepath.Dir(d) {
			return true
		}
	}
}
