#!/bin/bash
# demo.sh FOLDER: what mudev does, on real devices, seen in under 30 seconds. FOLDER holds mudev and its symlinks.
# Everything happens in private network and mount namespaces with their own /run and /dev; a loop device with
# a number of its own is the only thing that the machine sees, and it is removed at the end.
set -eu
if [ "${1:-}" != inside ]; then
	[ "$(id -u)" = 0 ] || { echo "demo: needs root, for namespaces and devices"; exit 1; }
	bin=$(cd "$1" && pwd)
	exec timeout -k 5 60 unshare --net --mount --pid --fork --kill-child "$0" inside "$bin"
fi
bin=$2
title() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
[ -t 1 ] || title() { printf '\n== %s\n' "$*"; }

# The place: own /proc, /sys (of this network namespace), /run, and /dev with copies of the nodes.
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/old-dev /run/demo /run/udev
mount --bind /dev /run/old-dev
mount -t tmpfs -o mode=755 tmpfs /dev
cp -a /run/old-dev/{null,zero,full,random,urandom,tty,loop-control} /dev/
ip link set lo up

mkdir /run/demo/rules
cat >/run/demo/rules/50-demo.rules <<'RULES'
# Link attributes come from the link table: no file of sysfs is opened for them.
SUBSYSTEM=="net", ACTION!="remove", ATTR{mtu}=="1500", ENV{DEMO_MTU}="$attr{mtu}", ENV{DEMO_ADDRESS}="$attr{address}"
SUBSYSTEM=="net", ACTION!="remove", IMPORT{builtin}="net_id"
SUBSYSTEM=="net", ACTION!="remove", IMPORT{builtin}="net_driver"
SUBSYSTEM=="net", KERNEL=="bridge0", TAG+="systemd", ENV{DEMO_TYPE}="$attr{type}"
SUBSYSTEM=="net", KERNEL=="plain0", ACTION=="add", NAME="renamed0"
SUBSYSTEM=="net", KERNEL=="a7", PROGRAM=="/bin/sh -c 'echo seven from a program'", ENV{DEMO_RESULT}="%c"
SUBSYSTEM=="net", KERNEL=="a8", ACTION=="add", RUN+="/bin/sh -c 'echo $name at $$(date +%%T) >>/run/demo/ran'"
SUBSYSTEM=="block", KERNEL=="loop*", ACTION!="remove", SYMLINK+="demo/by-name/$kernel demo/disk", TAG+="demo", ENV{DEMO_SIZE}="$attr{size}", MODE="0640"
RULES


# starts the daemon, in the background, and waits until it is ready; "$@" may be a tracer in front.
start() {
	mkfifo /run/demo/ready
	"$@" "$bin/mudevd" --rules-dir=/run/demo/rules --ready-fd=9 9>/run/demo/ready 2>/run/demo/log &
	daemon=$!
	read -r -t 10 </run/demo/ready || { echo "demo: the daemon was not ready"; cat /run/demo/log; exit 1; }
	rm /run/demo/ready
}
stop() { "$bin/mudevadm" control --exit; wait "$daemon" 2>/dev/null || true; }
loopdev=""
cleanup() { if [ -n "$loopdev" ]; then losetup -d "$loopdev" 2>/dev/null || true; fi; }
trap cleanup EXIT

fifty_pairs() {
	for n in $(seq 0 49); do echo "link add a$n type veth peer name b$n"; done | ip -batch -
}
# CPU time of the daemon itself so far, in microseconds.
cpu_time() { awk '{print int($1 / 1000)}' "/proc/$1/schedstat"; }
numbers() { cat /sys/kernel/uevent_seqnum; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

title "The rules"
cat /run/demo/rules/50-demo.rules

start
title "Announcements as they come: 50 veth pairs, a bridge with a port, a rename by rule, a loop device"
stdbuf -oL "$bin/mudevadm" monitor --udev --subsystem-match=net --subsystem-match=block &
monitor=$!
sleep 0.2
first=$(numbers) cpu=$(cpu_time $daemon) begin=$(milliseconds)
fifty_pairs
ip link add bridge0 type bridge
ip link set a0 master bridge0
ip link add plain0 type veth peer name plain1
"$bin/mudevadm" settle --timeout=10
end=$(milliseconds) last=$(numbers)
cpu=$(($(cpu_time $daemon) - cpu))

truncate -s 4M /run/demo/image
loopdev=$(losetup -f)
name=${loopdev##*/}
if [ ! -e "$loopdev" ]; then
	IFS=: read -r major minor <"/sys/block/$name/dev" 2>/dev/null || { major=7; minor=${name#loop}; }
	mknod "$loopdev" b "$major" "$minor"
fi
losetup "$loopdev" /run/demo/image
"$bin/mudevadm" trigger --action=change --settle "/sys/block/$name"
sleep 0.2
kill $monitor && wait $monitor 2>/dev/null || true

title "The link table (mudevadm links), its first lines and those of the bridge"
"$bin/mudevadm" links >/run/demo/links
head -n 8 /run/demo/links
grep -E 'bridge0|renamed0|plain1' /run/demo/links || true

title "The record of the bridge (/run/udev/data/n$(cat /sys/class/net/bridge0/ifindex))"
cat "/run/udev/data/n$(cat /sys/class/net/bridge0/ifindex)"

title "The record of $name, and its symlinks"
cat "/run/udev/data/b$(cat "/sys/block/$name/dev")"
find /dev/demo -type l -printf '%p -> %l\n'
ls -l "$loopdev"

title "What RUN did"
cat /run/demo/ran

title "Status"
"$bin/mudevadm" status
losetup -d "$loopdev"
loopdev=""
"$bin/mudevadm" settle --timeout=10
stop

# The same load once more under strace, to count; on its own, because tracing costs time.
ip -o link | sed -n 's/^[0-9]*: \(a[0-9]*\)@.*/link del \1/p' | ip -batch -
start strace -D -f -qq -o /run/demo/trace
from=$(wc -l </run/demo/trace)
third=$(numbers)
fifty_pairs
"$bin/mudevadm" settle --timeout=20
fourth=$(numbers)
stop
calls=$(($(wc -l </run/demo/trace) - from))
opened=$(grep -cE 'open(at|at2)?\(.*"/sys/class/net/' /run/demo/trace || true)

events=$((last - first))
title "Summary"
echo "events:                              $events"
echo "wall, creation included:             $((end - begin)) ms"
echo "CPU of the daemon:                   $((cpu / 1000)) ms"
echo "system calls per event (strace):     $((calls / (fourth - third)))"
echo "files opened below /sys/class/net:   $opened"
