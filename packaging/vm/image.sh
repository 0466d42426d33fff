#!/bin/bash
# Builds the disk of the test machine from Debian's packages.
#
#   image.sh FILE
#
# It holds nothing of ours but the files below root/; our programs come on a
# disk of their own, so that they change without this one.
set -euo pipefail

out=$(realpath -m "$1")
cd "$(dirname "$0")"
packages=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,udev,uidmap,procps,kmod,curl
size=2G # sparse

mkdir -p "$(dirname "$out")"
dir=$(mktemp -d "$out.XXXXXX")

# owner runs a command as the owner of the files in the image.
owner() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		unshare --user --map-root-user --map-auto "$@"
	fi
}

trap 'owner rm -rf "$dir"' EXIT

echo "Building the machine from Debian's packages"
mmdebstrap --quiet --variant=apt --include="$packages" \
	--customize-hook='chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash desk' \
	--customize-hook='mkdir -p "$1/var/lib/systemd/linger" && touch "$1/var/lib/systemd/linger/desk"' \
	--customize-hook='mkdir -p "$1/results" "$1/usr/lib/modules" && echo vm >"$1/etc/hostname"' \
	--customize-hook='sync-in root /' \
	--customize-hook='sync-in /usr/lib/uml/modules /usr/lib/modules' \
	--customize-hook='chroot "$1" systemctl --quiet enable shelld-vm.service shelld-vm-limit.service' \
	--customize-hook='chroot "$1" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty@tty1.service' \
	bookworm "$dir/debian.tar"

mkdir "$dir/root"
# The machine makes its own device files.
owner tar -C "$dir/root" --numeric-owner --exclude='./dev/*' -xf "$dir/debian.tar"
owner mke2fs -q -t ext4 -m 0 -O ^has_journal -L debian -d "$dir/root" "$dir/debian.img" "$size"
mv "$dir/debian.img" "$out"
