#!/bin/sh
# man.sh PAGE...: each manual page must go through groff without a warning and have the sections people look for.
set -eu
status=0
for page in "$@"; do
	warnings=$(groff -man -Tutf8 -ww -z "$page" 2>&1) || true
	if [ -n "$warnings" ]; then
		echo "$warnings"
		status=1
	fi
	for section in NAME SYNOPSIS DESCRIPTION OPTIONS; do
		grep -q "^\.SH $section" "$page" || { echo "$page: no section $section"; status=1; }
	done
done
exit $status
