#!/bin/bash
# run.sh MUDEV-STATIC: boots Debian's kernel under QEMU twice, with mudev and with Debian's own udev, runs
# the same scenario (test/vm/init) in both, and compares what they leave: records, tags, symlinks and their owners, nodes,
# interface names. Each difference must be explained in test/vm/differences, and each explanation must
# explain something; otherwise the exit status is 1. Where this cannot run it says why and exits 0.
# Nothing is installed: the kernel, busybox and the peer are unpacked below target/.
set -eu -o pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/test/vm
work=$top/target/vm
mudev=$(realpath "$1")
peer=$top/target/peer/root

skip() {
	echo "vm: skipped: $*"
	exit 0
}
[ "$(uname -m)" = x86_64 ] || skip "the guest's kernel is for x86_64"
"$top/test/need.sh" qemu >/dev/null 2>&1 || skip "no qemu-system-x86_64 here"
"$top/test/need.sh" peer >/dev/null 2>&1 || skip "Debian's udev package cannot be had here"

# The newest cloud kernel of the distribution, by the dependency of its meta package.
fetch() {
	command -v apt-get >/dev/null || skip "Debian's kernel package cannot be had here (no apt-get)"
	local kernel
	kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -nE 's/.*Depends: (linux-image-[^ ]*).*/\1/p' | head -1)
	[ -n "$kernel" ] || skip "no package linux-image-cloud-amd64 here"
	mkdir -p "$work/packages"
	cd "$work/packages"
	apt-get -qq -o APT::Sandbox::User=root download "$kernel" busybox-static >/dev/null 2>&1 ||
		skip "the packages $kernel and busybox-static cannot be downloaded"
	rm -rf "$work/root.new"
	for package in ./*.deb; do dpkg -x "$package" "$work/root.new"; done
	cd "$top"
	rm -rf "$work/root" "$work/packages"
	mv "$work/root.new" "$work/root"
}
[ -x "$work/root/bin/busybox" ] || fetch
kernel=$(echo "$work"/root/boot/vmlinuz-*)
busybox=$work/root/bin/busybox

modules="virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk failover
	net_failover virtio_net evdev loop dummy"

# What both guests share.
tree=$work/tree
rm -rf "$tree"
mkdir -p "$tree"/{dev,proc,sys,run,tmp,etc/udev/rules.d,modules,usr/bin,usr/sbin,usr/lib/systemd,usr/lib/udev,usr/lib64}
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$tree/$folder"; done
cp "$here/init" "$tree/init"
cp "$busybox" "$tree/bin/busybox"
for module in $modules; do
	file=$(find "$work/root/lib/modules" -name "$module.ko" | head -1)
	[ -n "$file" ] || skip "the kernel package has no module $module"
	cp "$file" "$tree/modules/"
	echo "$module" >>"$tree/modules/order"
done
cp -r "$peer/lib/udev/rules.d" "$tree/lib/udev/"
cp "$here"/*.rules "$tree/etc/udev/rules.d/"
# The users and groups of a Debian system, with those that its udev package makes.
printf 'root:x:0:0::/:/bin/sh\n' >"$tree/etc/passwd"
printf '%s\n' root:x:0: tty:x:5: disk:x:6: lp:x:7: kmem:x:15: dialout:x:20: cdrom:x:24: floppy:x:25: tape:x:26: \
	audio:x:29: video:x:44: input:x:101: sgx:x:102: kvm:x:103: render:x:104: >"$tree/etc/group"
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

(cd "$tree" && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$work/initramfs"

# A disk with a partition table of two partitions: type 83, 2048 + 4096 and 8192 + 4096 sectors.
disk=$work/disk
truncate -s 16M "$disk"
{
	head -c 440 /dev/zero
	printf '\x78\x56\x34\x12\0\0'
	printf '\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x10\0\0'
	printf '\0\0\0\0\x83\0\0\0\0\x20\0\0\0\x10\0\0'
	head -c 32 /dev/zero
	printf '\x55\xaa'
} | dd of="$disk" conv=notrunc status=none

boot() { # MANAGER
	rm -f "$work/$1.dump"
	timeout 300 qemu-system-x86_64 -accel tcg -m 512 -nodefaults -display none -no-reboot \
		-kernel "$kernel" -initrd "$work/initramfs" \
		-append "console=ttyS0 panic=-1 manager=$1" \
		-serial "file:$work/$1.log" -serial "file:$work/$1.dump" \
		-drive "file=$disk,if=none,format=raw,id=d,snapshot=on" -device virtio-blk-pci,drive=d,serial=VM0001,romfile= \
		-netdev user,id=n,restrict=on -device virtio-net-pci,netdev=n,romfile= </dev/null >"$work/$1.qemu" 2>&1 || {
		grep -q 'end of dump' "$work/$1.dump" 2>/dev/null || skip "qemu does not start here: $(tail -1 "$work/$1.qemu")"
	}
	tr -d '\r' <"$work/$1.dump" >"$work/$1.facts"
	if ! grep -q '^end of dump' "$work/$1.facts"; then
		echo "vm: the guest with $1 did not finish; the end of its console ($work/$1.log):"
		tail -20 "$work/$1.log"
		exit 1
	fi
}
boot mudev
boot peer
"$here/compare.sh" "$work/mudev.facts" "$work/peer.facts" "$here/differences"
