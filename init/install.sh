#!/bin/sh
# install.sh EXECUTABLE: what `make install` does. Reads DESTDIR, PREFIX (default /usr), INIT (service files and
# hooks, see README.md beside this) and WITH_UDEV_NAMES (1: also the names of udev).
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
executable=$1
prefix=${PREFIX:-/usr}
root=${DESTDIR:-}
bin=$prefix/bin sbin=$prefix/sbin

# put MODE FILE TARGET: installs FILE with the folders named in it replaced.
put() {
	mkdir -p "$root$(dirname "$3")"
	sed -e "s,@BINDIR@,$bin,g" -e "s,@SBINDIR@,$sbin,g" "$top/init/$2" >"$root$3"
	chmod "$1" "$root$3"
}

# The table of names and files. Unknown names end the installation before anything is written.
for system in ${INIT:-}; do
	case $system in
	openrc | runit | s6 | dinit | systemd | systemd-drop-in | initramfs-tools | mkinitcpio | dracut) ;;
	*)
		echo "install: INIT=$system is not known; see init/README.md" >&2
		exit 1
		;;
	esac
done

install -D -m 755 "$executable" "$root$bin/mudev"
mkdir -p "$root$sbin"
ln -sfn mudev "$root$bin/mudevadm"
ln -sfn ../bin/mudev "$root$sbin/mudevd"
for page in "$top"/man/*.8; do install -D -m 644 "$page" "$root$prefix/share/man/man8/$(basename "$page")"; done
if [ "${WITH_UDEV_NAMES:-0}" = 1 ]; then
	mkdir -p "$root$prefix/lib/systemd"
	ln -sfn mudev "$root$bin/udevadm"
	ln -sfn ../bin/mudev "$root$sbin/udevd"
	ln -sfn ../../bin/mudev "$root$prefix/lib/systemd/systemd-udevd"
fi

for system in ${INIT:-}; do
	case $system in
	openrc) put 755 openrc/mudevd /etc/init.d/mudevd ;;
	runit) for file in run check; do put 755 runit/mudevd/$file /etc/sv/mudevd/$file; done ;;
	s6)
		put 755 s6/mudevd/run /etc/s6/sv/mudevd/run
		for file in type notification-fd; do put 644 s6/mudevd/$file /etc/s6/sv/mudevd/$file; done
		;;
	dinit) put 644 dinit/mudevd /etc/dinit.d/mudevd ;;
	systemd)
		for unit in "$top"/init/systemd/units/*; do
			put 644 "systemd/units/${unit##*/}" "$prefix/lib/systemd/system/${unit##*/}"
		done
		for unit in systemd-udevd-control.socket systemd-udevd-kernel.socket; do
			mkdir -p "$root$prefix/lib/systemd/system/sockets.target.wants"
			ln -sfn ../$unit "$root$prefix/lib/systemd/system/sockets.target.wants/$unit"
		done
		for unit in systemd-udevd.service systemd-udev-trigger.service; do
			mkdir -p "$root$prefix/lib/systemd/system/sysinit.target.wants"
			ln -sfn ../$unit "$root$prefix/lib/systemd/system/sysinit.target.wants/$unit"
		done
		;;
	systemd-drop-in) put 644 systemd/drop-in/mudev.conf /etc/systemd/system/systemd-udevd.service.d/mudev.conf ;;
	initramfs-tools)
		for file in hooks/mudev scripts/init-top/mudev scripts/init-bottom/mudev; do
			put 755 initramfs-tools/$file "$prefix/share/initramfs-tools/$file"
		done
		;;
	mkinitcpio)
		for file in install/mudev hooks/mudev; do put 644 mkinitcpio/$file "$prefix/lib/initcpio/$file"; done
		;;
	dracut)
		put 755 dracut/96mudev/module-setup.sh "$prefix/lib/dracut/modules.d/96mudev/module-setup.sh"
		put 644 dracut/50-mudev.conf "$prefix/lib/dracut/dracut.conf.d/50-mudev.conf"
		;;
	esac
done
