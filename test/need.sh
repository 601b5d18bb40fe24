#!/bin/sh
# need.sh TOOL...: makes sure that each tool is there. On Debian, as root, a missing one is installed from
# the distribution; elsewhere it is named and the exit status is 1.
# "peer" is a special word: Debian's udev and libudev, downloaded and unpacked (never installed) below
# target/peer/root, as the judge in comparisons.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/sbin:/usr/sbin:$HOME/.cargo/bin
missing=""

apt_ready=0
apt() {
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then return 1; fi
	if [ $apt_ready = 0 ]; then
		apt-get -qq update >/dev/null 2>&1 || true
		apt_ready=1
	fi
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null 2>&1
}

# The oldest Rust that knows edition 2024 and what the code uses; see rust-version in Cargo.toml.
rust_is_new_enough() {
	version=$(cargo --version 2>/dev/null | cut -d' ' -f2 | cut -d. -f2)
	[ "${version:-0}" -ge 88 ]
}

fetch_peer() {
	root=$top/target/peer/root
	if [ -x "$root/bin/udevadm" ]; then return 0; fi
	command -v apt-get >/dev/null || return 1
	mkdir -p "$top/target/peer"
	cd "$top/target/peer"
	apt-get -qq update >/dev/null 2>&1 || true
	# As root apt would drop to a user that may not write here, and says so on standard error.
	apt-get -qq -o APT::Sandbox::User=root download udev libudev1 >/dev/null 2>&1 || return 1
	rm -rf root.new
	for package in ./*.deb; do dpkg -x "$package" root.new; done
	# What the unpacked daemon is linked with: plain libraries that most machines have.
	# One by one, because apt installs none of them when one name is unknown to a release.
	if ldd root.new/bin/udevadm | grep -q 'not found'; then
		for library in libkmod2 libblkid1 libacl1 libcap2 libselinux1 libssl3 libssl3t64; do apt $library || true; done
	fi
	rm -rf root && mv root.new root
}

for tool in "$@"; do
	case $tool in
	cargo)
		rust_is_new_enough && continue
		{ apt cargo-web rustc-web ca-certificates && rust_is_new_enough; } ||
			{ apt cargo rustc ca-certificates && rust_is_new_enough; } && continue
		tool="cargo (Rust 1.88 or newer)"
		;;
	# With rustup the commands are there even where the component is not.
	rustfmt)
		cargo fmt --version >/dev/null 2>&1 && continue
		{ rustup component add rustfmt >/dev/null 2>&1 || apt rustfmt-web || apt rustfmt; } && continue
		;;
	clippy)
		cargo clippy --version >/dev/null 2>&1 && continue
		{ rustup component add clippy >/dev/null 2>&1 || apt rust-web-clippy || apt rust-clippy; } && continue
		;;
	cc) command -v cc >/dev/null && continue; apt gcc libc6-dev && continue ;;
	ip) command -v ip >/dev/null && continue; apt iproute2 && continue ;;
	losetup) command -v losetup >/dev/null && continue; apt mount && continue ;;
	mke2fs) command -v mke2fs >/dev/null && continue; apt e2fsprogs && continue ;;
	groff) command -v groff >/dev/null && continue; apt groff && continue ;;
	qemu) command -v qemu-system-x86_64 >/dev/null && continue; apt qemu-system-x86 && continue ;;
	peer) fetch_peer && continue ;;
	*) command -v "$tool" >/dev/null && continue; apt "$tool" && continue ;;
	esac
	missing="$missing $tool"
done
if [ -n "$missing" ]; then
	echo "need:$missing - not found and could not be installed here; please install it" >&2
	exit 1
fi
