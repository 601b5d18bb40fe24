#!/bin/bash
# dracut: mudev in place of systemd-udevd. The modules udev-rules and systemd-udevd bring hooks, units and some of the rules, which
# call systemd-udevd and udevadm; these names become mudev.

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
	local name file
	for name in usr/bin/mudevadm usr/bin/udevadm usr/sbin/mudevd usr/lib/systemd/systemd-udevd .@BINDIR@/mudevadm .@SBINDIR@/mudevd; do
		mkdir -p "$initdir/${name%/*}"
		ln -sfn /usr/bin/mudev "$initdir/$name"
	done

	# The modules bring rules by a list of names, which has none of the administrator's and not those that name interfaces on every
	# distribution; what a module has changed for the initramfs stays as it is.
	# inst_rules copies the programs that they call, too.
	for file in /usr/lib/udev/rules.d/*.rules; do
		[[ -e $file && ! -e $initdir$file ]] && inst_rules "${file##*/}"
	done
	for file in /usr/local/lib/udev/rules.d/*.rules /etc/udev/rules.d/*.rules; do
		[[ -e $file && ! -e $initdir$file ]] && inst_simple "$file"
	done
	for file in /etc/udev/udev.conf /etc/udev/udev.conf.d/*.conf /usr/lib/systemd/network/*.link /etc/systemd/network/*.link; do
		[[ -e $file ]] && inst_simple "$file"
	done
	if dracut_module_included systemd && [[ ! -e $initdir/usr/lib/systemd/system/systemd-udevd.service ]]; then
		# Such an image would wait for its root for ever.
		derror "mudev: systemd is in this image, but systemd-udevd.service is not: install mudev with INIT=\"dracut systemd\""
	fi
	# What the last test said is no failure of the module.
	return 0
}
