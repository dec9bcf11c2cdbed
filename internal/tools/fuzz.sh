#!/bin/sh
# Fuzzes every target for a while: fuzz.sh [time per target].
set -eu
time=${1:-30s}
grep -rlE --include='*_test.go' --exclude-dir=testdata --exclude-dir=bin '^func Fuzz[A-Z0-9_]\w*\(' . | sort | while read -r file; do
	dir=$(dirname "$file")
	sed -nE 's/^func (Fuzz[A-Z0-9_][A-Za-z0-9_]*)\(.*/\1/p' "$file" | while read -r target; do
		echo "$dir $target"
		# The directory decides which module it is.
		(cd "$dir" && "${GO:-go}" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" . </dev/null)
	done
done
