package pgserver

import (
	"maps"
	"slices"
	"strconv"
)

// EnvURL is the environment variable that names a running server. EnvBin is
// the one that names the directory with initdb and postgres.
const (
	EnvURL = "DATABASE_URL"
	EnvBin = "SUISHA_PGBIN"
)

// MinMajor is the oldest major version of PostgreSQL that is accepted.
const MinMajor = 15

const defaultMaxConnections = 200

// Options say what kind of server Start starts. The zero value is a throwaway
// server on a unix socket.
type Options struct {
	// Dir keeps the data there across runs. It is created when it is missing,
	// and belongs to the account that runs the server. Empty means a new
	// directory that is removed with the server.
	Dir string

	// TCP makes the server listen on 127.0.0.1 and a free port besides its
	// socket, for proxies that speak TCP only.
	TCP bool

	// MaxConnections is max_connections; 0 means 200.
	MaxConnections int

	// Durable leaves fsync and its companions on, so that data outlives a crash
	// of the machine. Throwaway servers do not need it.
	Durable bool

	// Settings are further server settings, by name. They win over ours.
	Settings map[string]string
}

// settings returns the server's settings in a fixed order, as name=value.
func (o Options) settings(socketDir string, port int) []string {
	set := map[string]string{
		"listen_addresses":        "",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": socketDir,
		"max_connections":         strconv.Itoa(defaultMaxConnections),
		"shared_buffers":          "32MB",
		"log_min_messages":        "warning",
	}
	if o.TCP {
		set["listen_addresses"] = "127.0.0.1"
	}
	if o.MaxConnections > 0 {
		set["max_connections"] = strconv.Itoa(o.MaxConnections)
	}
	if !o.Durable {
		maps.Copy(set, map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
			// A directory on tmpfs may have little more than 1 GiB.
			"max_wal_size": "256MB",
			// With posix memory a crash of the server leaves segments behind
			// outside its directory.
			"dynamic_shared_memory_type": "mmap",
		})
	}
	maps.Copy(set, o.Settings)
	out := make([]string, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}
