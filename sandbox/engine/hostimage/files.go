package hostimage

import (
	"fmt"
	"io/fs"
)

// entries is the tree that every sandbox with the image "host" starts from.
// Directories come before what they contain.
func entries(shell string) []entry {
	dir := func(path string, mode fs.FileMode) entry { return entry{path: path, mode: fs.ModeDir | mode} }
	file := func(path, text string) entry { return entry{path: path, mode: 0o644, text: text} }
	link := func(path, target string) entry { return entry{path: path, mode: fs.ModeSymlink, text: target} }
	own := func(path string, mode fs.FileMode) entry {
		return entry{path: path, mode: fs.ModeDir | mode, user: true}
	}
	return []entry{
		dir("etc", 0o755), dir("home", 0o755), dir("mnt", 0o755), dir("opt", 0o755), dir("srv", 0o755),
		dir("root", 0o755), dir("run", 0o755), dir("var", 0o755),
		dir("proc", 0o555), dir("sys", 0o555), dir("dev", 0o755),
		dir("tmp", 0o777|fs.ModeSticky), dir("var/tmp", 0o777|fs.ModeSticky),
		dir("var/lib", 0o755), dir("var/cache", 0o755), dir("var/log", 0o755),
		link("var/run", "/run"), dir("run/lock", 0o777|fs.ModeSticky), link("var/lock", "/run/lock"),
		// 0711: nobody but PID 1 has to list it.
		dir(GuestRoot[1:], 0o711),
		{path: GuestBinary[1:], mode: 0o644},
		dir(GuestDir[1:], 0o700),
		own(WorkDir[1:], 0o755), own(HomeDir[1:], 0o700),

		file("etc/passwd", passwd(shell)),
		file("etc/group", group()),
		file("etc/shells", "/bin/sh\n/bin/bash\n"),
		file("etc/hostname", Hostname+"\n"),
		file("etc/hosts", "127.0.0.1 localhost "+Hostname+"\n::1 localhost ip6-localhost ip6-loopback\n"),
		file("etc/host.conf", "multi on\n"),
		file("etc/resolv.conf", "nameserver 127.0.0.1\n"),
		file("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nrpc: files\n"),
		file("etc/profile", profile()),
		file("etc/environment", ""),
		link("etc/mtab", "/proc/self/mounts"),
	}
}

func passwd(shell string) string {
	return fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\n%s:x:%d:%d:%s:%s:%s\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
		UserName, UserID, UserID, UserName, HomeDir, shell)
}

func group() string {
	return fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", UserName, UserID)
}

// profile is what a login shell reads; without it the shell's PATH lacks the
// directories of locally installed programs.
func profile() string {
	return `PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
if [ -n "$BASH_VERSION" ] && [ -n "$PS1" ] && [ -r /etc/bash.bashrc ]; then
	. /etc/bash.bashrc
fi
`
}
