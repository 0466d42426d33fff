#!/bin/sh
# Looks for what building, testing and running shelld needs beside Go.
#
#   prereq.sh [--check] [build]
#
# As root on a Debian-like system it installs what is missing; otherwise, and
# always with --check, it prints the exact line that does and exits 1. "build"
# asks only for what `make build` needs. GO names the go command.
set -eu

check=no
scope=all
for word in "$@"; do
	case $word in
	--check) check=yes ;;
	build) scope=build ;;
	*)
		echo "usage: ${0##*/} [--check] [build]" >&2
		exit 2
		;;
	esac
done

missing=
# need PACKAGE COMMAND… adds the Debian package unless the command succeeds.
need() {
	package=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $package"
}

look() {
	missing=
	need gcc command -v gcc
	need libc6-dev has_libc
	need make command -v make
	need pkg-config command -v pkg-config
	need libseccomp-dev has_libseccomp
	[ "$scope" = build ] && return
	need git command -v git
	need uidmap command -v newuidmap
	need iproute2 command -v ip
}

# gcc without its headers is what a minimal installation has.
has_libc() {
	echo '#include <stdio.h>' | gcc -E -
}

# Without pkg-config the header itself tells.
has_libseccomp() {
	pkg-config --exists libseccomp || [ -e /usr/include/seccomp.h ]
}

install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

if ! command -v "${GO:-go}" >/dev/null 2>&1; then
	echo "shelld: Go is missing from PATH; get it from https://go.dev/dl/" >&2
	exit 1
fi

look
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	echo "shelld: missing:$missing" >&2
	echo "These are Debian's names; install what holds them on your system, then try again." >&2
	exit 1
fi
if [ "$check" = yes ] || [ "$(id -u)" != 0 ]; then
	sudo="sudo "
	[ "$(id -u)" = 0 ] && sudo=
	echo "shelld: some Debian packages are missing. Install them with:" >&2
	echo "  ${sudo}apt-get install -y$missing" >&2
	exit 1
fi

echo "Installing Debian packages:$missing"
# shellcheck disable=SC2086 # a list of words
install $missing >/dev/null 2>&1 || {
	apt-get update -qq
	install $missing
}
look
if [ -n "$missing" ]; then
	echo "shelld: still missing after the installation:$missing" >&2
	exit 1
fi
