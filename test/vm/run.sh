#!/bin/bash
# run.sh MUDEV-STATIC: boots Debian's kernel under QEMU twice, with mudev and with Debian's own udev, runs
# the same scenario (test/vm/init) in both, and compares what they leave: records, tags, symlinks and their owners, nodes,
# interface names. Each difference must be explained in test/vm/differences, and each explanation must
# explain something; otherwise the exit status is 1. Where this cannot run it says why and exits 0.
set -eu -o pipefail
mudev=$(realpath "$1")
. "$(dirname "$0")/lib.sh"
need_machine
get_kernel

# What both guests share.
tree=$work/tree
rm -rf "$tree"
merged "$tree"
mkdir -p "$tree"/etc/udev/rules.d "$tree"/usr/lib/{systemd,udev}
cp "$here/init" "$tree/init"
cp "$busybox" "$tree/bin/busybox"
# shellcheck disable=SC2086
modules "$tree" $drivers
cp -r "$peer/lib/udev/rules.d" "$tree/lib/udev/"
cp "$here"/*.rules "$tree/etc/udev/rules.d/"
accounts "$tree"
head -c 1048576 /dev/zero >"$tree/image"

# Debian's daemon, with what it is linked with.
cp "$peer/bin/udevadm" "$tree/bin/udevadm"
ln -s /bin/udevadm "$tree/lib/systemd/systemd-udevd"
for library in $(ldd "$peer/bin/udevadm" | grep -oE '/[^ ]+\.so[^ ]*'); do
	mkdir -p "$tree$(dirname "$library")"
	cp -L "$library" "$tree$library"
done
# Ours, with nothing.
cp "$mudev" "$tree/bin/mudev"
ln -s mudev "$tree/bin/mudevadm"
ln -s ../bin/mudev "$tree/sbin/mudevd"
mkdir "$tree/scripts"
# This guest stays what it is, so groups are looked up, which an initramfs leaves to the real system.
for script in init-top init-bottom; do
	sed 's/ --resolve-names=never//' "$top/init/initramfs-tools/scripts/$script/mudev" >"$tree/scripts/$script"
done
pack "$tree" >"$work/initramfs"
partitioned "$work/disk"

for manager in mudev peer; do
	boot $manager "$work/initramfs" "$work/disk" "manager=$manager" || true
	tr -d '\r' <"$work/$manager.dump" >"$work/$manager.facts"
	if ! grep -q '^end of dump' "$work/$manager.facts"; then
		echo "vm: the guest with $manager did not finish; the end of its console ($work/$manager.log):"
		tail -20 "$work/$manager.log"
		exit 1
	fi
done
"$here/compare.sh" "$work/mudev.facts" "$work/peer.facts" "$here/differences"
