#!/bin/bash
# dracut: mudev in place of systemd-udevd. The module udev-rules brings rules and hooks, which call
# systemd-udevd and udevadm; these names become mudev.

check() {
	[[ -x @BINDIR@/mudev ]] || return 1
	# Only when asked for: dracut --add mudev.
	return 255
}

depends() {
	echo udev-rules
}

install() {
	inst_binary @BINDIR@/mudev /usr/bin/mudev
	local name
	for name in usr/bin/mudevadm usr/bin/udevadm usr/bin/mudevd usr/lib/systemd/systemd-udevd; do
		mkdir -p "$initdir/$(dirname "$name")"
		ln -sfn /usr/bin/mudev "$initdir/$name"
	done
}
