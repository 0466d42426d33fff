#!/bin/bash
# Boots the test machine with this build, runs the checks in it and reports.
#
#   run.sh FOLDER SECONDS REGEXP
#
# The folder holds debian.img and gets the logs of the run. `make test-vm`
# builds all that is needed first.
set -euo pipefail

cd "$(dirname "$0")/../.."
dist=$(realpath "$1")
limit=$2 checks=$3

exec 9>"$dist/lock"
flock --nonblock 9 || {
	echo "another run uses $dist" >&2
	exit 1
}

results=$dist/results
rm -rf "$dist"/run.* "$results"
mkdir "$results"
work=$(mktemp -d "$dist/run.XXXXXX")
# For the machine's control socket, whose path must be short.
control=$(mktemp -d /tmp/shelld-vm.XXXXXX)
machine=
clean_up() {
	trap - EXIT
	if [ -n "$machine" ]; then
		kill -KILL -- "-$machine" 2>/dev/null || :
		wait "$machine" 2>/dev/null || :
	fi
	rm -rf "$work" "$control"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The second disk is /usr/local, as `make install` fills it by default.
local=$work/local/usr/local
make -s install DESTDIR="$work/local" PREFIX=/usr/local
mkdir -p "$local/libexec/shelld-vm" "$local/etc"
CGO_ENABLED=0 "${GO:-go}" test -c -tags vm -o "$local/libexec/shelld-vm/check" ./packaging/vm/check
CGO_ENABLED=0 "${GO:-go}" test -c -o "$local/libexec/shelld-vm/limit" ./sandbox/limit
# A minute less, so that a check that hangs is named and the machine powers off.
printf 'TIMEOUT=%ds\nCHECKS=%s\n' $((limit - 60)) "$checks" >"$local/etc/shelld-vm.env"
own=()
[ "$(id -u)" = 0 ] || own=(--user --map-root-user)
# See there why it is needed.
"${CC:-cc}" -shared -fPIC -O2 -o "$work/xstate.so" packaging/vm/xstate.c
unshare "${own[@]}" mke2fs -q -t ext4 -m 0 -O ^has_journal -L local -d "$local" "$work/local.img" 512M

# In a process namespace of its own, which ends with its first process.
start=$SECONDS
setsid timeout --signal=KILL "$limit" unshare "${own[@]}" --pid --fork --kill-child --mount-proc \
	sh -c '"$@"; exit $?' machine \
	env LD_PRELOAD="$work/xstate.so" linux.uml mem=2048M umid=vm uml_dir="$control" root=/dev/ubda rw \
	ubd0="$work/debian.cow,$dist/debian.img" ubd1r="$work/local.img" hostfs="$results" \
	con=null con0=null,fd:1 ssl=null selinux=0 quiet systemd.show_status=no \
	</dev/null >"$results/console.log" 2>&1 9>&- &
machine=$!

logs=("$results/limit.log" "$results/check.log")
touch "${logs[@]}"
# Not in the foreground, where it would keep a signal waiting; it ends with the
# machine.
{ tail --quiet --pid="$machine" -n +1 -f "${logs[@]}" | grep --line-buffered -E '^(---|panic:)'; } 9>&- &
report=$!
status=0
wait "$machine" || status=$?
machine=
wait "$report" || :

# failed tells whether a log is not that of a test that passed.
failed() { [ "$(tail -n 1 "$1")" != PASS ]; }

if [ "$status" = 0 ] && ! failed "${logs[0]}" && ! failed "${logs[1]}"; then
	echo "The checks passed in $((SECONDS - start)) s; logs are in ${results#"$PWD"/}."
	exit 0
fi
for log in "${logs[@]}"; do
	if failed "$log"; then
		printf '\n%s:\n' "${log##*/}"
		grep -v '^===' "$log" || tail -n 30 "$results/console.log"
	fi
done >&2
echo "The checks FAILED after $((SECONDS - start)) s (machine ended with $status); logs are in ${results#"$PWD"/}." >&2
exit 1
