package pgserver

import (
	"context"
	"errors"
	"os"
)

// account has nothing to say on Windows, where no server is started.
type account struct{}

func (account) reaches(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

type local struct{}

func startLocal(context.Context, Options) (*local, error) {
	return nil, errors.New("pgserver: no server is started on Windows: set " + EnvURL)
}

func (*local) dsn(string) string             { return "" }
func (*local) crash() error                  { return nil }
func (*local) restart(context.Context) error { return nil }
func (*local) stop() error                   { return nil }
func (*local) bin() string                   { return "" }
