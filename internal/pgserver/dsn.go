package pgserver

import (
	"net/url"
	"strings"
)

// quote writes a value of a keyword/value connection string.
func quote(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// withDatabase returns the connection string dsn, in either spelling, for
// another database of the same server.
func withDatabase(dsn, database string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		// The last of several equal keywords counts.
		return dsn + " dbname=" + quote(database), nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Del("dbname")
	q.Del("database")
	u.RawQuery = q.Encode()
	u.Path, u.RawPath = "/"+database, ""
	return u.String(), nil
}
