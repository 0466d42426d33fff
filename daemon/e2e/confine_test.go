package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestShows prints and checks what a user would look at first.
func TestShows(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		out := call(t, i, in(id, `id -u; cat /proc/self/status | grep -E "^Cap|NoNewPrivs|Seccomp:"; grep core /proc/self/limits; ls /home /root; ls -A /root; cat /etc/shadow`)).Output.Output[0]
		t.Logf("stdout:\n%sstderr:\n%s", out.Stdout, out.Stderr)
		got := strings.Join(strings.Fields(out.Stdout), " ")
		want := "1000 CapInh: 0000000000000000 CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 0000000000000000 CapAmb: 0000000000000000 " +
			"NoNewPrivs: 1 Seccomp: 2 Max core file size 1 1 bytes /home: sandbox /root:"
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if want := "cat: /etc/shadow: No such file or directory\n"; out.Stderr != want {
			t.Errorf("stderr %q", out.Stderr)
		}
	})
}

// plant writes a secret that all may read to places of the host.
func plant(t *testing.T) (paths []string, secret string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, ""
	}
	name := filepath.Base(base) + "-secret-" + strings.ReplaceAll(t.Name(), "/", "-")
	secret = "planted-" + name
	for _, dir := range []string{"/root", "/home", "/tmp", "/var", "/var/tmp", "/var/lib", "/run", "/etc", "/srv", "/dev/shm"} {
		path := filepath.Join(dir, name)
		plantedAt(t, path)
		if err := os.WriteFile(path, []byte(secret), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths, secret
}

// plantedAt notes that the test makes something at a path outside the base,
// which is removed with the test, or by the sweep after it.
func plantedAt(t *testing.T, path string) {
	t.Helper()
	list, err := os.OpenFile(filepath.Join(base, plantedList), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(list, path)
	if err := errors.Join(err, list.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
}

func TestHostFilesAreOutOfReach(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		planted, secret := plant(t)
		read := slices.Concat(planted, []string{
			i.root, i.run, i.dir, filepath.Join(i.root, "state.db"), bundleDir, base,
			"/etc/shadow", "/etc/gshadow", "/etc/ssl/private", "/etc/ssh", "/root/.ssh", "/root/.bashrc", "/root", "/boot", "/var/log",
			"/var/lib/dpkg", "/run/containerd", "/run/shelld", "/run/dbus", "/run/user", "/var/run/docker.sock", "/sys/fs/cgroup", "/sys/firmware",
			"/proc/kcore", "/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/fd", "/proc/1/fdinfo", "/proc/1/map_files", "/proc/1/stack", "/proc/1/auxv",
			"/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/console", "/proc/keys", "/proc/kmsg",
		})
		for _, path := range slices.Clone(read) {
			for _, root := range []string{"/proc/1/root", "/proc/1/cwd", "/proc/self/cwd/../../..", "/proc/self/root/.."} {
				read = append(read, root+path)
			}
		}
		write := []string{
			"/", "/usr", "/usr/bin", "/usr/bin/env", "/etc", "/etc/passwd", "/etc/resolv.conf", "/etc/alternatives", "/bin/sh", "/root", "/home", "/mnt",
			"/var", "/run", "/.shelld", "/.shelld/init", "/dev", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/net/ipv4/ip_forward",
			"/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/1/comm", "/proc/1/attr/current", "/proc/1/setgroups",
			"/proc/1/uid_map", "/proc/1/timerslack_ns", "/proc/1/clear_refs", "/proc/1/coredump_filter", "/proc/1/autogroup", "/proc/1/sched",
			"/sys/kernel/uevent_helper", "/sys/fs/cgroup", "/sys/power/state", "/dev/mem", "/dev/kmsg", "/lib/x", "/opt", "/srv", "/boot",
		}
		for _, r := range probe(t, i, id, plan{Read: read, Write: write}) {
			if r[1] == "done" && r[0] != "read /etc/ssl" {
				t.Errorf("%s works", r[0])
			}
		}
		// By name and by content, wherever it may show.
		if secret != "" {
			out := call(t, i, in(id, "find / -name '*"+filepath.Base(planted[0])+"*' 2>/dev/null; grep -rls "+secret+" /etc /home /root /run /tmp /var /mnt /dev /srv /opt 2>/dev/null; true")).Output.Output[0]
			if out.Stdout != "" {
				t.Errorf("found in the sandbox: %s", out.Stdout)
			}
			for _, path := range planted {
				if data, err := os.ReadFile(path); err != nil || string(data) != secret {
					t.Errorf("%s on the host is %q, %v", path, data, err)
				}
			}
		}
		if out := call(t, i, in(id, "env; cat /proc/[0-9]*/environ 2>/dev/null; cat /proc/[0-9]*/cmdline 2>/dev/null; true")).Output.Output[0]; strings.Contains(out.Stdout, hostSecret) || strings.Contains(out.Stdout, base) {
			t.Errorf("the environment or a command line of the host shows: %q", out.Stdout)
		}
	})
}

func TestSocketsAreOutOfReach(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		name := filepath.Base(base) + "-" + string(i.mode)
		abstract := listen(t, "unix", "@"+name)
		loopback := listen(t, "tcp", "127.0.0.1:0")
		loopback6 := listen(t, "tcp", "[::1]:0")

		guest := filepath.Join(i.run, "sb", key(id), "guest.sock")
		hostPaths := []string{i.sock, filepath.Join(i.run, "containerd.sock"), filepath.Join(i.run, "containerd.sock.ttrpc"), filepath.Join(i.run, "holder.sock"), guest}
		p := plan{
			Interfaces: true,
			Abstract:   []string{name, "/.shelld/run/guest.sock", guest},
			Socket: append(slices.Clone(hostPaths),
				"/.shelld/run/guest.sock", "/.shelld/guest.sock", "/run/shelld/shelld.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
				"/run/systemd/private", "/var/run/docker.sock", "/run/user/1000/bus", "/tmp/.X11-unix/X0", "/proc/1/root/.shelld/run/guest.sock",
				"/proc/1/cwd/.shelld/run/guest.sock", "/proc/1/fd/3", "/proc/1/fd/4", "/proc/1/fd/5", "/proc/1/fd/6"),
			Dial: [][2]string{
				{"tcp", loopback.Addr().String()},
				{"tcp", loopback6.Addr().String()},
				{"tcp", "192.0.2.1:80"},
				{"tcp", "1.1.1.1:443"},
				{"tcp", "10.0.2.2:80"},
				{"tcp", "169.254.169.254:80"},
				{"tcp", "[2606:4700::1111]:443"},
				{"udp", "8.8.8.8:53"},
				{"udp", "[2001:db8::1]:53"},
				{"tcp", "example.com:80"},
			},
		}
		// All of these are there for the host: else they would prove nothing.
		for _, path := range hostPaths[:4] { // a second one to the guest would take it from the daemon
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Errorf("the host cannot reach %s: %v", path, err)
				continue
			}
			conn.Close()
		}
		var interfaces []string
		for _, r := range probe(t, i, id, p) {
			t.Log(r[0], "→", r[1])
			switch {
			case r[0] == "interface":
				interfaces = append(interfaces, r[1])
			case r[1] == "done":
				t.Errorf("%s works", r[0])
			case strings.Contains(r[1], "slow"):
				t.Errorf("%s: %s", r[0], r[1])
			case strings.HasPrefix(r[0], "dial tcp 1") && !strings.Contains(r[0], "127.0.0.1") && !strings.Contains(r[1], "network is unreachable"):
				t.Errorf("%s: %s", r[0], r[1])
			}
		}
		if !slices.Equal(interfaces, []string{"lo"}) {
			t.Errorf("the interfaces are %v", interfaces)
		}
		if n, err := abstract.(*net.UnixListener).File(); err == nil {
			n.Close()
		}
		// The sandbox still works, so PID 1 has not been hurt.
		sh(t, i, id, "true")
	})
}

// listen makes a listener of the host that nobody may reach.
func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{})
	go func() {
		defer close(reached)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Errorf("a sandbox has reached %s of the host", address)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-reached
	})
	return l
}

func TestDescriptors(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		// Two runs and one in the background, so that there are descriptors to leak.
		sh(t, i, id, "sleep 300 & true")
		c := call(t, i, in(id, "ls -l /proc/$$/fd; true", "ls /proc/$$/fd; true"))
		var numbers []string
		for _, line := range lines(c.Output.Output[0].Stdout)[1:] {
			fields := strings.Fields(line)
			numbers = append(numbers, fields[8])
			if fields[8] == "0" && fields[10] != "/dev/null" {
				t.Errorf("standard input is %s", fields[10])
			}
		}
		if !slices.Equal(numbers, []string{"0", "1", "2"}) {
			t.Errorf("the descriptors are:\n%s", c.Output.Output[0].Stdout)
		}
		if got := c.Output.Output[1].Stdout; got != "0\n1\n2\n" {
			t.Errorf("the descriptors of the second command are %q", got)
		}
	})
}

func TestDevices(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		// A look at each: find goes by what is below a mounted device.
		got := lines(sh(t, i, id, "find /dev /mnt /tmp /home /run /var /etc 2>/dev/null | while read -r f; do if test -c $f -o -b $f; then echo $f; fi; done | sort"))
		want := []string{"/dev/full", "/dev/null", "/dev/ptmx", "/dev/pts/ptmx", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"}
		if !slices.Equal(got, want) {
			t.Errorf("the devices are %v", got)
		}
	})
}

func TestKernelRefuses(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		refused := map[string]string{}
		for _, r := range probe(t, i, id, plan{Calls: true}) {
			refused[r[0]] = r[1]
			if r[1] == "done" {
				t.Errorf("%s works", r[0])
			}
			if !strings.HasPrefix(r[0], "signal") {
				t.Log(r[0], "→", r[1])
			}
		}
		sh(t, i, id, "true") // process 1 lives
		if i.mode != asRoot {
			return
		}
		// The same on the host must work, or its refusal means nothing. These
		// depend on how the kernel is built, or cannot be had in the control.
		maybe := []string{"setns net of 1", "init_module", "kexec_load", "iopl", "gain capability", "fanotify", "open_by_handle_at", "swapon", "acct", "set clock", "raise core limit", "oom score below"}
		works := 0
		for _, r := range probeHost(t, plan{Calls: true}) {
			if _, tried := refused[r[0]]; !tried {
				t.Errorf("%s was not tried in the sandbox", r[0])
			}
			if r[1] == "done" {
				works++
			} else if !slices.Contains(maybe, r[0]) {
				t.Errorf("control: root of the host cannot %s: %s", r[0], r[1])
			} else {
				t.Logf("no control for %s: %s", r[0], r[1])
			}
		}
		t.Logf("%d of %d attempts work for root of the host", works, len(refused))
	})
}

// TestMounts: what comes from the host is read-only, without devices and set-id
// programs, and the guest's directory is not mounted any more.
func TestMounts(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		own := []string{"/", "/proc", "/dev", "/sys", "/mnt", "/tmp", "/home", "/var"}
		seen := 0
		for _, line := range lines(sh(t, i, id, "cat /proc/self/mountinfo")) {
			fields := strings.Fields(line)
			point, options := fields[4], strings.Split(fields[5], ",")
			if strings.HasPrefix(point, "/.shelld/run") || strings.Contains(line, "guest") || strings.Contains(line, "cgroup") {
				t.Errorf("mounted: %s", line)
			}
			if slices.ContainsFunc(own, func(p string) bool { return point == p || p != "/" && strings.HasPrefix(point, p+"/") }) {
				continue
			}
			seen++
			for _, want := range []string{"ro", "nosuid", "nodev"} {
				if !slices.Contains(options, want) {
					t.Errorf("not %s: %s", want, line)
				}
			}
		}
		if seen < 2 { // /usr and /.shelld/init at least
			t.Errorf("only %d mounts were looked at", seen)
		}
	})
}

// TestKillAll: a command that signals everything reaches only its own.
func TestKillAll(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		c := call(t, i, in(id, "for s in HUP INT QUIT ABRT TERM USR1 SEGV TRAP STOP KILL; do kill -$s 1 2>/dev/null && echo $s; done; kill -KILL -1; echo alive"))
		if out := c.Output.Output[0]; strings.Contains(out.Stdout, "HUP") || strings.Contains(out.Stdout, "KILL") {
			t.Errorf("a signal was sent: %q", out.Stdout)
		}
		if got := sh(t, i, id, "echo works"); got != "works\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestSetID: a set-user-id program of root changes nothing in a sandbox.
func TestSetID(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		if os.Geteuid() != 0 {
			notHere(t, "only root can make such a program")
		}
		i := newInstance(t, m)
		tools := filepath.Join("/opt", filepath.Base(base)+"-"+string(m))
		plantedAt(t, tools)
		setID := filepath.Join(tools, "probe")
		if err := copyFile(probePath, setID); err != nil {
			t.Fatal(err)
		}
		open := filepath.Join(tools, "open") // to everyone, on the host
		if err := os.WriteFile(open, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for path, mode := range map[string]uint32{setID: 0o6755, tools: 0o777, open: 0o666} {
			if err := syscall.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		i.config += fmt.Sprintf("[image]\nhost_paths = [%q]\n", tools)
		i.start(t)
		id := create(t, i)
		ask := plan{EUID: true, Read: []string{"/proc/1/environ"}, Write: []string{tools, setID, open}}
		for _, r := range results(sh(t, i, id, ask.command(t, setID))) {
			if r[0] == "euid" && r[1] != "1000" || r[1] == "done" {
				t.Errorf("%s: %s", r[0], r[1])
			}
		}
		if ordinary.uid == 0 {
			return
		}
		control := exec1(t, ordinary, setID, `{"EUID":true}`)
		if control != "euid\t0\n" {
			t.Errorf("control: on the host it prints %q", control)
		}
	})
}

// TestOthersAreInvisible: what runs in one sandbox does not show in another.
func TestOthersAreInvisible(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		one, two := create(t, i), create(t, i)
		mark := markOf(t, 5)
		begin(t, i, in(one, "echo secret > /mnt/data/f; echo secret > /tmp/f; echo secret > /dev/shm/f; sleep "+mark))
		eventually(t, "it sleeps", patience, func() bool { return len(withArgument(mark)) > 0 })
		if seen := sh(t, i, one, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); !strings.Contains(seen, mark) {
			t.Errorf("control: its own sandbox sees %q", seen)
		}
		seen := sh(t, i, two, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; cat /mnt/data/f /tmp/f /dev/shm/f 2>/dev/null; ls /proc | grep -c '^[0-9]'; true")
		if strings.Contains(seen, mark) || strings.Contains(seen, "secret") {
			t.Errorf("the other sees %q", seen)
		}
		for _, a := range i.members(t, one) {
			if slices.Contains(i.members(t, two), a) {
				t.Errorf("process %d is in both", a)
			}
		}
		// They do not share a user either, who could trace or signal.
		if a, b := owner(t, i.guest(t, one)), owner(t, i.guest(t, two)); a == b {
			t.Errorf("both run as user %d of the host", a)
		}
	})
}

func owner(t *testing.T, pid int) uint32 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}
