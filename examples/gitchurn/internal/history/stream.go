package history

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape writes a path as text that JSON, PostgreSQL and a terminal can hold.
// What is not printable UTF-8, and the percent sign, becomes %XX byte by byte,
// so that different paths stay different and url.PathUnescape gives the path back.
func Escape(path string) string {
	var b strings.Builder
	for path != "" {
		r, n := utf8.DecodeRuneInString(path)
		if r == '%' || r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			for i := range n {
				fmt.Fprintf(&b, "%%%02X", path[i])
			}
		} else {
			b.WriteString(path[:n])
		}
		path = path[n:]
	}
	return b.String()
}

// maxKey leaves room for the category and its dash in kiroku's 512 bytes.
const maxKey = 512 - len("file-")

// Key is the part of the stream's name that stands for a path: the escaped
// path, or, when that is too long, its beginning and a hash of all of it.
func Key(path string) string {
	key := Escape(path)
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(path))
	tail := "~" + hex.EncodeToString(sum[:])
	cut := maxKey - len(tail)
	for !utf8.RuneStart(key[cut]) {
		cut--
	}
	return key[:cut] + tail
}
