#!/bin/sh
# The peers of the benchmark take minutes to build. integration/bench/peers.sum
# names the sources that they were last tested with, so that only a change of
# these asks for it again.
#
#   peers.sh same     whether the sources are those of the sum
#   peers.sh write    write the sum, after the tests
set -eu
cd "$(dirname "$0")/../.."

sum() {
	find integration/bench internal/bench \( -name '*.go' -o -name '*.sql' -o -name 'go.*' \) -type f | LC_ALL=C sort |
		while read -r file; do
			echo "$file"
			cat "$file"
		done | git hash-object --stdin
}

case "${1:-}" in
same) [ "$(sum)" = "$(cat integration/bench/peers.sum 2>/dev/null)" ] ;;
write) sum >integration/bench/peers.sum ;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
