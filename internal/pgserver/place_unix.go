//go:build unix

package pgserver

import (
	"errors"
	"os"
	"path/filepath"
)

// socketPathLimit is below what any system allows for a socket's path.
const socketPathLimit = 100

const (
	socketName = "/.s.PGSQL.65535"
	dirPrefix  = "suisha-pg-"
)

// tempDir makes the directory for socket, log and throwaway data: in memory
// when there is room, else where temporary files go.
func tempDir(acc account) (string, error) {
	var bases []string
	if memoryHasRoom() {
		bases = append(bases, memoryDir)
	}
	bases = append(bases, os.TempDir(), "/tmp")
	var errs []error
	for _, base := range bases {
		if len(base)+len("/"+dirPrefix+"4294967295"+socketName) > socketPathLimit || !acc.reaches(base) {
			continue
		}
		dir, err := os.MkdirTemp(base, dirPrefix)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := acc.own(dir); err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
		return dir, nil
	}
	return "", errors.Join(append(errs, errors.New("pgserver: no temporary directory that the server's account can enter and whose path is short enough for a socket"))...)
}

// keptDir makes dir ready to hold data that is kept.
func keptDir(acc account, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
	}
	if !acc.reaches(dir) {
		return "", &os.PathError{Op: "enter", Path: dir, Err: os.ErrPermission}
	}
	return dir, acc.own(dir)
}
