#!/bin/bash
# service.sh MUDEV-STATIC SYSTEM...|all: runs mudevd under a real init system as the first process of a guest (QEMU, Debian's kernel),
# from the service files that `make install INIT=SYSTEM` puts into its tree, and has that system start, restart, stop,
# reload it and start it again when it was killed (test/vm/check). What each system needs to get that far is in
# test/vm/systems/. For the tools that build an initramfs: builds one by the tool, boots it with a root on a disk, and looks at what
# it has handed over to that root (test/vm/image/root). Exit status 1 when a demand is not met; where a system cannot be had it says so and goes on.
set -eu -o pipefail
mudev=$(realpath "$1")
# make hands its variables on; what is installed where is decided here.
unset INIT PREFIX DESTDIR WITH_UDEV_NAMES
. "$(dirname "$0")/lib.sh"
shift

run() { # SYSTEM
	system=$1
	. "$here/systems/$system"
	base=${base:-$system}
	# shellcheck disable=SC2154,SC2086
	packages "$base" $needs
	tree=$work/tree-$system
	rm -rf "$tree"
	cp -a "$work/packages-$base" "$tree"
	mkdir -p "$tree"/etc/udev/rules.d "$tree"/usr/lib/udev
	cp -r "$peer/lib/udev/rules.d" "$tree/usr/lib/udev/"
	accounts "$tree"
	if [ "${kind:-service}" = image ]; then make_image; else make_guest; fi
	local status=0
	boot "$system" "$work/initramfs-$system" "$work/disk-$system" "$line" || status=$?
	rm -rf "$work/initramfs-$system" "$work/disk-$system" "$tree"
	tr -d '\r' <"$work/$system.dump" >"$work/$system.facts"
	echo "vm: $system ($(version "$base" "${needs%% *}"))"
	sed 's/^/vm:   /' "$work/$system.facts"
	if ! grep -q '^end of check' "$work/$system.facts"; then
		echo "vm: the guest with $system did not finish; the end of its console ($work/$system.log):"
		tail -30 "$work/$system.log"
		return 1
	fi
	[ $status = 0 ] || { echo "vm: the guest with $system did not shut down"; return 1; }
	! grep -q '^FAIL' "$work/$system.facts"
}

# The tree itself is what the guest runs.
make_guest() {
	head -c 1048576 /dev/zero >"$tree/image"
	# shellcheck disable=SC2086
	modules "$tree" $drivers
	DESTDIR=$tree INIT=$system "$top/init/install.sh" "$mudev" >/dev/null
	cp "$here/preinit" "$here/check" "$tree/"
	prepare "$tree"
	tools "$tree"
	pack "$tree" >"$work/initramfs-$system"
	partitioned "$work/disk-$system"
	line="rdinit=/preinit ${cmdline:-}"
}

# The tree builds the initramfs, by the tool under test; the guest runs that, and then a small root of its own.
make_image() {
	"$top/test/need.sh" mke2fs >/dev/null 2>&1 || skip "no mke2fs here, to make a root"
	local version root=$work/root-$system
	version=$(basename "$work"/root/lib/modules/*)
	cp -r "$work/root/lib/modules" "$tree/usr/lib/"
	cp "$work/root/boot/config-$version" "$tree/usr/lib/modules/$version/config"
	mkdir -p "$tree/boot" "$tree/etc/systemd/network" "$tree/var/tmp"
	cp "$work/root/boot/config-$version" "$tree/boot/"
	cp "$here/image/10-vm.link" "$tree/etc/systemd/network/"
	cp "$here/image/60-root.rules" "$tree/etc/udev/rules.d/"
	DESTDIR=$tree INIT=${install:-$system} WITH_UDEV_NAMES=1 "$top/init/install.sh" "$mudev" >/dev/null
	prepare "$tree"
	tools "$tree"
	# In a mount namespace of its own: only /dev/null and the like are there.
	# shellcheck disable=SC2154
	unshare --mount --net --pid --fork --kill-child bash -eu -c '
		mount --make-rprivate /
		mount -t tmpfs -o mode=755 tmpfs "$1/run"
		mkdir "$1/run/dev"
		cp -a /dev/null /dev/zero /dev/random /dev/urandom /dev/tty "$1/run/dev/"
		ln -s /proc/self/fd "$1/run/dev/fd"
		mount --bind "$1/run/dev" "$1/dev"
		mount -t proc proc "$1/proc"
		mount -t sysfs sysfs "$1/sys"
		depmod -b "$1" "$2" 2>/dev/null || chroot "$1" depmod "$2"
		cd /
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C VERSION="$2" chroot "$1" /bin/sh -euc "$3"
	' sh "$tree" "$version" "$build" >"$work/$system.build" 2>&1 || {
		echo "vm: $system did not build an initramfs ($work/$system.build):"
		tail -30 "$work/$system.build"
		exit 1
	}
	mv "$tree/initramfs" "$work/initramfs-$system"

	rm -rf "$root"
	merged "$root"
	accounts "$root"
	cp "$busybox" "$root/usr/bin/busybox"
	tools "$root"
	cp -r "$tree/etc/udev" "$tree/etc/systemd" "$root/etc/"
	mkdir -p "$root/usr/lib/udev"
	cp -r "$peer/lib/udev/rules.d" "$root/usr/lib/udev/"
	DESTDIR=$root "$top/init/install.sh" "$mudev" >/dev/null
	install -m 755 "$here/image/root" "$root/root-init"
	ln -sfn ../../root-init "$root/usr/sbin/init"
	# systemd hands over to what has this file only.
	echo ID=vm >"$root/etc/os-release"
	# The guest's kernel has dummy as a module.
	install -D "$(find "$work/root/lib/modules" -name dummy.ko)" "$root/modules/dummy.ko"
	echo "${control:-}" >"$root/control"
	rm -f "$work/disk-$system"
	mke2fs -q -t ext4 -L vmroot -d "$root" "$work/disk-$system" 48M >/dev/null
	rm -rf "$root"
	line="root=${device:-/dev/disk/by-id/virtio-VM0001} rw ${cmdline:-}"
}

need_machine
get_kernel
if [ "$*" = all ]; then
	# shellcheck disable=SC2046
	set -- $(ls "$here/systems")
fi
for system in "$@"; do
	[ -e "$here/systems/$system" ] || { echo "vm: INIT=$system cannot be run here, only: $(ls "$here/systems" | paste -sd' ')"; exit 1; }
done
if [ $# = 1 ]; then
	run "$1"
	exit
fi
# Each in a process of its own: they define the same functions, and a skip ends that process only.
failed=""
for system in "$@"; do "$0" "$mudev" "$system" || failed="$failed $system"; done
[ -z "$failed" ] || { echo "vm: failed:$failed"; exit 1; }
