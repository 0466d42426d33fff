#!/bin/bash
# Shows shelld at work: starts a private daemon from this build, runs real
# commands in real sandboxes, then stops it and removes all it made.
# `make demo` builds first.
set -euo pipefail

cd "$(dirname "$0")/.."
for file in bin/shelld bin/shellctl libexec/shelld/containerd libexec/shelld/shelld-init; do
	[ -x "$file" ] || {
		echo "$file is missing: run \`make build\` first" >&2
		exit 1
	}
done

# Short, because Unix socket paths are.
dir=$(mktemp -d /tmp/shelld-demo.XXXXXX)
config=$dir/config.toml
log=$dir/daemon.log
daemon=
export SHELLD_SOCKET=$dir/run/shelld.sock

bold='' dim='' plain=''
if [ -t 1 ]; then
	bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

# A reader that has seen enough ends the demo without a word.
say() { printf '%s\n' "$*" 2>/dev/null || exit 141; }
heading() { say "
$bold$*$plain"; }

# wait_until SECONDS COMMAND… succeeds when the command does, in time.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# ours lists processes that name our folder, the engine's among them.
ours() {
	local proc
	for proc in /proc/[0-9]*; do
		if tr '\0' ' ' 2>/dev/null <"$proc/cmdline" | grep -qF "$dir/"; then
			echo "${proc#/proc/}"
		fi
	done
}

nothing_of_ours() { [ -z "$(ours)" ]; }

# kill_tree PID kills a process and its descendants, which it stops first so
# that none is started meanwhile.
kill_tree() {
	local child
	kill -STOP "$1" 2>/dev/null || return 0
	for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
		kill_tree "$child"
	done
	kill -KILL "$1" 2>/dev/null || :
}

# remove_dir deletes our folder. What rootless sandboxes wrote belongs to
# subordinate ids, which only a user namespace that has them may remove.
remove_dir() {
	if grep -qF " $dir/" /proc/self/mountinfo; then
		say "Something is still mounted below $dir; it is left as it is." >&2
		return 1
	fi
	rm -rf --one-file-system "$dir" 2>/dev/null ||
		unshare --user --map-root-user --map-auto rm -rf --one-file-system "$dir"
}

# clean_up runs at every end, on Ctrl-C too. The daemon is asked to take its
# sandboxes and its engine with it; what is left after that is killed.
clean_up() {
	local status=$? pid
	trap - EXIT
	# Nothing stops the cleaning, not even that nobody reads its words.
	trap '' INT TERM HUP PIPE
	set +e
	say() { printf '%s\n' "$*" 2>/dev/null; }
	case $status in
	0 | 130 | 141 | 143) ;; # who ends the demo knows why
	*)
		heading "The daemon's last words"
		tail -n 20 "$log"
		;;
	esac
	heading "Cleaning up"
	if [ -n "$daemon" ]; then
		timeout 40 bin/shellctl shutdown --sandboxes >/dev/null 2>&1 || kill -TERM "$daemon" 2>/dev/null
		wait_until 15 gone "$daemon"
	fi
	local failed=
	if ! wait_until 5 nothing_of_ours; then
		say "The daemon left processes behind; ending them."
		failed=1
		for pid in $(ours); do kill_tree "$pid"; done
		wait_until 5 nothing_of_ours || say "Some do not go away: $(ours | tr '\n' ' ')" >&2
	fi
	remove_dir || failed=1
	if [ -z "$failed" ]; then
		say "Nothing is left behind."
	elif [ "$status" = 0 ]; then
		status=1
	fi
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
trap 'exit 141' PIPE

# limits_work tells whether cgroups can be used by us to enforce limits.
limits_work() {
	local controllers=/sys/fs/cgroup/cgroup.controllers
	if [ "$(id -u)" = 0 ]; then
		[ -w /sys/fs/cgroup/memory ] || [ -w /sys/fs/cgroup/cgroup.subtree_control ]
	else
		# An ordinary user gets a cgroup of his own from his systemd.
		[ -e "$controllers" ] && [ -S "${XDG_RUNTIME_DIR:-/nonexistent}/systemd/private" ]
	fi
}

start() {
	say "version = 1" >"$config"
	if ! limits_work; then
		printf '[limits]\nallow_unenforced = true\n' >>"$config"
		say "This user has no cgroups of his own here, so memory, process and CPU limits cannot be"
		say "enforced. The demo runs without them (allow_unenforced = true); shelld itself would refuse."
	fi
	# A session of its own: Ctrl-C is for the demo, which then stops the daemon.
	setsid bin/shelld --config "$config" --root "$dir/state" --run "$dir/run" >"$log" 2>&1 </dev/null &
	daemon=$!
	if ! wait_until 60 ready_or_dead || gone "$daemon"; then
		say "The daemon does not get ready:" >&2
		bin/shellctl info >&2 || :
		exit 1
	fi
	bin/shellctl info
}

ready_or_dead() { bin/shellctl info | grep -q '^ready *yes' || gone "$daemon"; }

# show_container makes a container and shows what holds it.
show_container() {
	local id
	heading "What holds a sandbox? Limits, each with whether this machine enforces it"
	say "$dim\$ id=\$(shellctl container create demo); shellctl container inspect \$id$plain"
	id=$(bin/shellctl container create demo)
	bin/shellctl container inspect "$id"
	bin/shellctl container rm "$id" >/dev/null
}

# show STATUS TITLE ARG… runs shellctl exec with the arguments, for everyone to
# see, and stops the demo when it ends with another status.
show() {
	local want=$1 title=$2 status=0 word line=
	shift 2
	for word in "$@"; do
		case $word in
		*[!A-Za-z0-9_./=:-]*) line+=" '${word//\'/\'\\\'\'}'" ;;
		*) line+=" $word" ;;
		esac
	done
	heading "$title"
	say "$dim\$ shellctl exec$line$plain"
	bin/shellctl exec "$@" || status=$?
	case $status in
	0 | 137) ;; # of a signal shelld itself tells the code
	130 | 141 | 143) exit "$status" ;;
	*) say "$dim(exit code $status)$plain" ;;
	esac
	if [ "$status" != "$want" ]; then
		say "This should have ended with exit code $want." >&2
		exit 1
	fi
}

heading "A private shelld under $dir"
start

show 0 "Who am I? A user that exists only in the sandbox" -- id
show_container
show 0 "What is visible? The system's programs, nobody's files" -c 'ls / /home'
show 1 "The network? Refused at once" -c 'echo hello >/dev/tcp/192.0.2.1/80'
show 124 "A command that takes too long keeps what it printed" --timeout 1s -c 'echo begun; sleep 60; echo never printed'
show 7 "Exit codes are the command's own" -c 'exit 7'
show 137 "Signals, as in a shell" -c 'kill -KILL $$'
show 127 "A program that is not there" -- no-such-program
show 0 "Two commands at once" -c 'sleep 0.3; echo the first, done last' -c 'echo the second, done first'
