# lib.sh: what the scripts beside it share: Debian's kernel and packages, unpacked below target/vm or VM_WORK (nothing is installed),
# trees, initramfs images and booting them under QEMU. To be sourced, with bash. Each script says why it cannot run
# where it cannot, and exits 0.
# VM_WORK is another folder to work in, for the packages of another release (APT_CONFIG).
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$top/test/vm
work=${VM_WORK:-$top/target/vm}
peer=$top/target/peer/root
kernel="" busybox="" # set by get_kernel

skip() {
	echo "vm: skipped: $*"
	exit 0
}

# Fails where the machine itself is the wrong one.
need_machine() {
	[ "$(uname -m)" = x86_64 ] || skip "the guest's kernel is for x86_64"
	"$top/test/need.sh" qemu >/dev/null 2>&1 || skip "no qemu-system-x86_64 here"
	"$top/test/need.sh" peer >/dev/null 2>&1 || skip "Debian's udev package, whose rules are used, cannot be had here"
	command -v apt-get >/dev/null || skip "Debian's packages cannot be had here (no apt-get)"
}

# The newest cloud kernel of the distribution, by the dependency of its meta package, and busybox-static.
get_kernel() {
	if [ ! -x "$work/root/bin/busybox" ]; then
		local name
		name=$(apt-cache depends linux-image-cloud-amd64 | sed -nE 's/.*Depends: (linux-image-[^ ]*).*/\1/p' | head -1)
		[ -n "$name" ] || skip "no package linux-image-cloud-amd64 here"
		mkdir -p "$work/packages"
		(cd "$work/packages" && apt-get -qq -o APT::Sandbox::User=root download "$name" busybox-static >/dev/null 2>&1) ||
			skip "the packages $name and busybox-static cannot be downloaded"
		rm -rf "$work/root.new"
		for package in "$work"/packages/*.deb; do dpkg -x "$package" "$work/root.new"; done
		rm -rf "$work/root" "$work/packages"
		mv "$work/root.new" "$work/root"
	fi
	kernel=$(echo "$work"/root/boot/vmlinuz-*)
	busybox=$work/root/bin/busybox
}

# merged TREE: makes an empty tree whose /bin, /sbin, /lib and /lib64 are those of /usr.
merged() {
	mkdir -p "$1"/{dev,proc,sys,run,tmp,etc,var,root,usr/bin,usr/sbin,usr/lib,usr/lib64}
	local folder
	for folder in bin sbin lib lib64; do ln -sfn "usr/$folder" "$1/$folder"; done
}

# packages NAME PACKAGE...: the packages with all that they depend on, unpacked once as $work/packages-NAME.
# Debian's udev is left out although some depend on it: ours stands in for it. A file `versions` in the tree says what was unpacked.
packages() {
	local tree=$work/packages-$1 download=$work/download-$1 package folder
	shift
	if [ -e "$tree/versions" ]; then return 0; fi
	apt-get -qq update >/dev/null 2>&1 || true
	for package in "$@"; do
		[ -n "$(apt-cache show "$package" 2>/dev/null)" ] || skip "this release of Debian has no package $package"
	done
	rm -rf "$tree" "$download"
	mkdir -p "$download/partial" "$tree.raw"
	# With an empty list of installed packages, so that the machine's own do not count.
	: >"$download/status"
	apt-get -qq -y -o "Dir::State::status=$download/status" -o "Dir::Cache::archives=$download" -o APT::Sandbox::User=root \
		--no-install-recommends --download-only install "$@" >/dev/null 2>&1 || skip "these packages cannot be downloaded: $*"
	merged "$tree"
	rm -f "$download"/udev_*.deb
	for package in "$download"/*.deb; do
		dpkg -x "$package" "$tree.raw"
		dpkg-deb -W "$package" | tr '\t' ' ' >>"$tree.versions"
	done
	rm -rf "$tree.raw"/usr/share/{doc,man,locale,info,lintian,bash-completion,zsh,bug}
	for folder in bin sbin lib lib64; do
		if [ -d "$tree.raw/$folder" ]; then
			cp -a "$tree.raw/$folder/." "$tree/usr/$folder/"
			rm -rf "${tree:?}.raw/$folder"
		fi
	done
	cp -a "$tree.raw/." "$tree/"
	mv "$tree.versions" "$tree/versions"
	rm -rf "$tree.raw" "$download"
}

# version NAME PACKAGE: which version `packages NAME` unpacked.
version() { sed -n "s/^$2 //p" "$work/packages-$1/versions"; }

# accounts TREE: the users and groups of a Debian system, with those that its udev package makes.
accounts() {
	printf '%s\n' root:x:0:0::/root:/bin/sh messagebus:x:101:101::/:/bin/false >"$1/etc/passwd"
	printf '%s\n' root:x:0: tty:x:5: disk:x:6: lp:x:7: kmem:x:15: dialout:x:20: cdrom:x:24: floppy:x:25: tape:x:26: \
		audio:x:29: video:x:44: input:x:101: sgx:x:102: kvm:x:103: render:x:104: >"$1/etc/group"
}

# modules TREE NAME...: kernel modules in the order to load them, to /modules of the tree.
modules() {
	local tree=$1 module file
	shift
	mkdir -p "$tree/modules"
	: >"$tree/modules/order"
	for module in "$@"; do
		file=$(find "$work/root/lib/modules" -name "$module.ko" | head -1)
		[ -n "$file" ] || skip "the kernel package has no module $module"
		cp "$file" "$tree/modules/"
		echo "$module" >>"$tree/modules/order"
	done
}

# tools TREE: busybox, under the names of its tools that the tree has no program for.
tools() {
	local applet at
	cp "$busybox" "$1/usr/bin/busybox"
	for applet in $("$busybox" --list); do
		for at in "$1/usr/bin/$applet" "$1/usr/sbin/$applet"; do
			# An absolute symlink of the tree leads nowhere from outside of it.
			if [ -e "$at" ] || [ -L "$at" ]; then continue 2; fi
		done
		ln -s /bin/busybox "$1/usr/bin/$applet"
	done
}

# pack TREE: an initramfs on standard output.
pack() { (cd "$1" && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -1; }

# partitioned FILE: a disk with a partition table of two partitions: type 83, 2048 + 4096 and 8192 + 4096 sectors.
partitioned() {
	rm -f "$1"
	truncate -s 16M "$1"
	{
		head -c 440 /dev/zero
		printf '\x78\x56\x34\x12\0\0'
		printf '\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x10\0\0'
		printf '\0\0\0\0\x83\0\0\0\0\x20\0\0\0\x10\0\0'
		head -c 32 /dev/zero
		printf '\x55\xaa'
	} | dd of="$1" conv=notrunc status=none
}

# boot NAME INITRAMFS DISK COMMANDLINE [SERIAL]: runs the guest until it ends. Its console goes to $work/NAME.log, what it
# writes to its second serial port to $work/NAME.dump.
boot() {
	rm -f "$work/$1.dump" "$work/$1.log"
	# shellcheck disable=SC2086
	timeout 200 qemu-system-x86_64 -accel tcg -m ${MEMORY:-512} -nodefaults -display none -no-reboot \
		-kernel "$kernel" -initrd "$2" -append "console=ttyS0 panic=-1 $4" \
		-serial "file:$work/$1.log" -serial "file:$work/$1.dump" \
		-drive "file=$3,if=none,format=raw,id=d,snapshot=on" -device "virtio-blk-pci,drive=d,serial=VM0001,romfile=" \
		-netdev user,id=n,restrict=on -device virtio-net-pci,netdev=n,romfile= </dev/null >"$work/$1.qemu" 2>&1 || {
		local status=$?
		[ -s "$work/$1.log" ] || skip "qemu does not start here: $(tail -1 "$work/$1.qemu")"
		return $status
	}
}

# Enough of a cloud guest's devices for both disks and interfaces.
drivers="virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk failover net_failover virtio_net
	evdev loop dummy"
