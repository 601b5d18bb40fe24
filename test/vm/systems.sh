#!/bin/bash
# service.sh MUDEV-STATIC SYSTEM...|all: runs mudevd under a real init system as the first process of a guest (QEMU, Debian's kernel),
# from the service files that `make install INIT=SYSTEM` puts into its tree, and has that system start, restart, stop,
# reload it and start it again when it was killed (test/vm/check). What each system needs to get that far is in
# test/vm/systems/. Exit status 1 when a demand is not met; where a system cannot be had it says so and goes on.
set -eu -o pipefail
mudev=$(realpath "$1")
. "$(dirname "$0")/lib.sh"
shift

run() { # SYSTEM
	local system=$1 tree=$work/tree-$1 base label
	. "$here/systems/$system"
	# shellcheck disable=SC2154
	packages "${base:-$system}" $needs
	base=${base:-$system}
	rm -rf "$tree"
	cp -a "$work/packages-$base" "$tree"
	mkdir -p "$tree"/etc/udev/rules.d "$tree"/usr/lib/udev
	cp -r "$peer/lib/udev/rules.d" "$tree/usr/lib/udev/"
	accounts "$tree"
	head -c 1048576 /dev/zero >"$tree/image"
	# shellcheck disable=SC2086
	modules "$tree" $drivers
	DESTDIR=$tree INIT=$system "$top/init/install.sh" "$mudev"
	cp "$here/preinit" "$here/check" "$tree/"
	prepare "$tree"
	tools "$tree"
	pack "$tree" >"$work/initramfs-$system"
	rm -rf "$tree"
	partitioned "$work/disk"
	label="$system ($(for package in $needs; do echo "$package $(version "$base" "$package")"; done | paste -sd,))"
	local status=0
	boot "$system" "$work/initramfs-$system" "$work/disk" "rdinit=/preinit ${cmdline:-}" || status=$?
	rm -f "$work/initramfs-$system"
	tr -d '\r' <"$work/$system.dump" >"$work/$system.facts"
	echo "vm: $label"
	sed 's/^/vm:   /' "$work/$system.facts"
	if ! grep -q '^end of check' "$work/$system.facts"; then
		echo "vm: the guest with $system did not finish; the end of its console ($work/$system.log):"
		tail -30 "$work/$system.log"
		return 1
	fi
	[ $status = 0 ] || { echo "vm: the guest with $system did not shut down"; return 1; }
	! grep -q '^FAIL' "$work/$system.facts"
}

need_machine
get_kernel
failed=""
if [ "$*" = all ]; then
	# shellcheck disable=SC2046
	set -- $(ls "$here/systems")
fi
for system in "$@"; do
	[ -e "$here/systems/$system" ] || { echo "vm: INIT=$system is not known here; known: $(ls "$here/systems" | paste -sd' ')"; exit 1; }
	# In a process of its own: each defines the same functions, and a skip ends that process only.
	(run "$system") || failed="$failed $system"
done
[ -z "$failed" ] || { echo "vm: failed:$failed"; exit 1; }
