#!/bin/sh
# Prints the flag that turns the race detector on, or nothing where it cannot
# work, and says so.
go=${GO:-go}
compiler=$("$go" env CC | cut -d' ' -f1)
if [ "$("$go" env CGO_ENABLED)" != 1 ] || ! command -v "$compiler" >/dev/null; then
	echo "The race detector is off: it needs cgo and a C compiler ($compiler)." >&2
elif ! "$go" build -race -o /dev/null runtime/race 2>/dev/null; then
	echo "The race detector is off: this platform has none." >&2
else
	echo -race
fi
