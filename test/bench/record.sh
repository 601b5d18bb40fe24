#!/bin/sh
# record.sh FILE: makes the output of `make bench` the recorded results: all of it in test/bench/RESULTS.md, and ten
# figures in README.md between its two marks (test/bench/summary.awk).
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
grep -q '^|---' "$1" || { echo "record.sh: $1 has no table" >&2; exit 1; }
if grep -q VOID "$1"; then echo "record.sh: the comparison in $1 is void" >&2; exit 1; fi
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
awk -f "$top/test/bench/summary.awk" "$1" >"$summary"
{
	echo "Output of \`make bench\`, $(date -u +%Y-%m-%d):"
	echo
	cat "$1"
} >"$top/test/bench/RESULTS.md"
awk -v summary="$summary" '
	/^<!-- results: end -->/ { inside = 0 }
	!inside { print }
	/^<!-- results: begin/ {
		inside = 1
		print ""
		while ((getline line < summary) > 0) print line
		print ""
	}
' "$top/README.md" >"$top/README.md.new"
mv "$top/README.md.new" "$top/README.md"
