#!/bin/sh
# Fuzzes every target for a while: fuzz.sh [time per target].
set -eu
time=${1:-30s}
go=${GO:-go}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# The directory decides which module it is.
fuzz() (
	cd "$1"
	"$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$time" . </dev/null >"$out" 2>&1 && ok=0 || ok=$?
	cat "$out"
	exit "$ok"
)

# Go now and then takes the end of -fuzztime for an error of the target's
# (golang/go#75804). It says nothing else then: an input that fails is written
# down and named, and a target that hangs or dies says that.
endedByTheClock() {
	grep -q '^ *context deadline exceeded$' "$out" && ! grep -qE 'Failing input|panic:|fuzzing process|_test\.go:' "$out"
}

grep -rlE --include='*_test.go' --exclude-dir=testdata --exclude-dir=bin '^func Fuzz[A-Z0-9_]\w*\(' . | sort | while read -r file; do
	dir=$(dirname "$file")
	sed -nE 's/^func (Fuzz[A-Z0-9_][A-Za-z0-9_]*)\(.*/\1/p' "$file" | while read -r target; do
		echo "$dir $target"
		fuzz "$dir" "$target" || { endedByTheClock && echo "once more: the clock ended it" && fuzz "$dir" "$target"; } || exit 1
	done
done
