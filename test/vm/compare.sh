#!/bin/bash
# compare.sh OURS THEIRS DIFFERENCES: compares two sorted dumps. DIFFERENCES has lines "SIDE REGEX # reason",
# where SIDE is < (only ours has the line) or > (only the peer has it). A difference without a reason is a
# fault, and so is a reason that explains nothing.
set -u -o pipefail
export LC_ALL=C
ours=$1 theirs=$2 reasons=$3
found=$(mktemp)
trap 'rm -f "$found"' EXIT
sort -u "$ours" >"$found.a"
sort -u "$theirs" >"$found.b"
{
	comm -23 "$found.a" "$found.b" | sed 's/^/< /'
	comm -13 "$found.a" "$found.b" | sed 's/^/> /'
} >"$found"
same=$(comm -12 "$found.a" "$found.b" | wc -l)
rm -f "$found.a" "$found.b"
total=$(wc -l <"$found")
status=0
while IFS= read -r line; do
	case $line in '' | '#'*) continue ;; esac
	pattern=${line%% # *} reason=${line#* # }
	count=$(grep -cE "^$pattern" "$found")
	if [ "$count" = 0 ]; then
		echo "vm: explains nothing any more: $line"
		status=1
	else
		printf 'vm: %4d lines  %s\n' "$count" "$reason"
	fi
	grep -vE "^$pattern" "$found" >"$found.rest"
	mv "$found.rest" "$found"
done <"$reasons"
if [ -s "$found" ]; then
	echo "vm: differences without a reason (< only mudev, > only the peer):"
	head -100 "$found"
	status=1
fi
echo "vm: $same facts are the same, $total differ"
exit $status
