#!/bin/sh
# static.sh EXECUTABLE: runs the static build where nothing else is: in an empty chroot. The daemon
# reads one event there, with one rule, and must leave its record, and an attribute that a helper writes.
set -eu
[ "$(id -u)" = 0 ] || { echo "static.sh: needs root for chroot"; exit 1; }
if ldd "$1" 2>&1 | grep -q '=>'; then
	echo "static.sh: $1 is not static"
	exit 1
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/sys/devices/virtual/mem/null" "$root/dev" "$root/run" "$root/proc" "$root/etc" "$root/rules"
cp "$1" "$root/mudev"
printf 'MAJOR=1\nMINOR=3\nDEVNAME=null\n' >"$root/sys/devices/virtual/mem/null/uevent"
# A helper writes the attribute: there is no /proc to start it from.
printf 'KERNEL=="null", ENV{SEEN}="yes", ATTR{written}="by a helper"\n' >"$root/rules/50-test.rules"
: >"$root/sys/devices/virtual/mem/null/written"
printf 'ACTION=add\nDEVPATH=/devices/virtual/mem/null\nSUBSYSTEM=mem\nMAJOR=1\nMINOR=3\nDEVNAME=null\nSEQNUM=1\n' >"$root/events"
chroot "$root" /mudev adm --version
chroot "$root" /mudev daemon --sys-dir=/sys --dev-dir=/dev --run-dir=/run --proc-dir=/proc --etc-dir=/etc \
	--rules-dir=/rules --events=/events
grep -q '^E:SEEN=yes$' "$root/run/udev/data/c1:3"
grep -q '^by a helper' "$root/sys/devices/virtual/mem/null/written"
echo "static: runs in an empty chroot, $(stat -c %s "$1") bytes"
