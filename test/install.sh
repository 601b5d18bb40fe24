#!/bin/bash
# install.sh EXECUTABLE: installs everything into an empty folder and looks at it: names lead to the
# executable and act by name, no placeholder is left, scripts parse, and every command line of ours in
# them is one that the executable accepts.
set -eu -o pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
executable=$(realpath "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
	echo "install: $*"
	exit 1
}

all="openrc runit s6 dinit systemd systemd-drop-in initramfs-tools mkinitcpio dracut"
if DESTDIR=$root/none INIT="openrc upstart" "$top/init/install.sh" "$executable" 2>"$root/said"; then fail "INIT=upstart went through"; fi
grep -q 'upstart is not known' "$root/said" || fail "no word about an unknown INIT"
[ ! -e "$root/none" ] || fail "wrote something in spite of an unknown INIT"

DESTDIR=$root/plain "$top/init/install.sh" "$executable"
[ "$(cd "$root/plain" && find . -type f -o -type l | sort | tr '\n' ' ')" = "./usr/bin/mudev ./usr/bin/mudevadm ./usr/sbin/mudevd \
./usr/share/man/man8/mudevadm.8 ./usr/share/man/man8/mudevd.8 " ] || fail "plain: $(cd "$root/plain" && find . -type f -o -type l)"

DESTDIR=$root/full PREFIX=/opt/m INIT=$all WITH_UDEV_NAMES=1 "$top/init/install.sh" "$executable"
cd "$root/full"
version=$("$executable" adm --version)
for name in opt/m/bin/{mudevadm,udevadm} opt/m/sbin/{mudevd,udevd} opt/m/lib/systemd/systemd-udevd; do
	[ "$("./$name" --version)" = "$version" ] || fail "$name does not act by its name"
done
if grep -rIl '@S\?BINDIR@' .; then fail "placeholders are left in these files"; fi
if find . -xtype l | grep .; then fail "these symlinks lead nowhere"; fi

count=0
while read -r file; do
	case $(head -1 "$file") in
	'#!/bin/bash') bash -n "$file" || fail "$file does not parse" ;;
	'#!'*) sh -n "$file" || fail "$file does not parse" ;;
	*) ;;
	esac
	# The words after mudevd or mudevadm up to the end of the command; --help makes it print and end.
	while read -r name words; do
		case $name in *mudevd) as="daemon" ;; *) as="adm" ;; esac
		# shellcheck disable=SC2086
		"$executable" $as $words --help >/dev/null || fail "$file: $name $words: not accepted"
		count=$((count + 1))
	done < <(grep -vE '^ *#' "$file" | grep -oE '(^|[ =/@-])(mudevd|mudevadm) +(--|control|info|settle|trigger)[^;&|"]*' | sed -E 's/^[ =\/@-]//; s/ [0-9]*[<>].*//')
done < <(find . -type f ! -name '*.8' -size -64k)
[ "$count" -ge 15 ] || fail "found only $count command lines"
echo "install: names, files and $count command lines are right"
