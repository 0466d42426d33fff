package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// engineProcess finds a process of the instance's engine by what its command
// line begins with and has somewhere.
func (i *instance) engineProcess(t *testing.T, program string, has ...string) int {
	t.Helper()
	pid := 0
	eventually(t, program+" is found", patience, func() bool {
		pid = 0
		for _, p := range processesOf(i.dir) {
			args := cmdline(p.pid)
			name := filepath.Base(args[0])
			if strings.HasPrefix(args[0], "/proc/self/fd/") { // a holder that was started by descriptor
				name = "shelld"
			}
			if name == program && containsAll(args, has) {
				pid = p.pid
			}
		}
		return pid != 0
	})
	return pid
}

func containsAll(args, has []string) bool {
	text := strings.Join(args, " ") + " "
	for _, h := range has {
		if !strings.Contains(text, " "+h+" ") {
			return false
		}
	}
	return true
}

func (i *instance) containerd(t *testing.T) int {
	t.Helper()
	return i.engineProcess(t, "containerd")
}

func (i *instance) holder(t *testing.T) int {
	t.Helper()
	return i.engineProcess(t, "shelld", "engine holder")
}

func (i *instance) engine(t *testing.T) int {
	t.Helper()
	return i.engineProcess(t, "shelld", "engine --root")
}

// shim is the process that holds a sandbox.
func (i *instance) shim(t *testing.T, container string) int {
	t.Helper()
	return i.engineProcess(t, "containerd-shim-runc-v2", "-id "+key(container))
}

// guest is process 1 of a sandbox.
func (i *instance) guest(t *testing.T, container string) int {
	t.Helper()
	shim := i.shim(t, container)
	for _, pid := range pids() {
		if parent(pid) == shim {
			return pid
		}
	}
	t.Fatalf("the shim %d of %s has no child", shim, container)
	return 0
}

// key is the name of a sandbox in containerd and among the cgroups.
func key(container string) string { return strings.TrimPrefix(container, "cntr_")[:16] }

// members are the processes that live in a sandbox, by its pid namespace:
// there is no way out of that, with or without cgroups.
func (i *instance) members(t *testing.T, container string) []int {
	t.Helper()
	guest := i.guest(t, container)
	ns := pidNamespace(guest)
	var list []int
	for _, pid := range pids() {
		if pid != guest && pidNamespace(pid) == ns {
			list = append(list, pid)
		}
	}
	return list
}

func pidNamespace(pid int) string {
	ns, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return ns
}

// cgroupProcesses are the processes in all cgroups of runs of the daemon.
func (i *instance) cgroupProcesses(t *testing.T) []int {
	t.Helper()
	seen := map[int]bool{}
	for _, dir := range cgroupsOf(i.root) {
		if !strings.Contains(dir, "/runs") {
			continue
		}
		data, err := os.ReadFile(dir + "/cgroup.procs")
		if err != nil {
			continue // it went
		}
		for text := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(text); err == nil {
				seen[pid] = true
			}
		}
	}
	var list []int
	for pid := range seen {
		list = append(list, pid)
	}
	return list
}

func pids() []int {
	entries, _ := os.ReadDir("/proc") // there is always one
	var list []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

func cmdline(pid int) []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
}

// withArgument returns the processes that have that word on their command
// line.
func withArgument(word string) []int {
	var list []int
	for _, pid := range pids() {
		for _, arg := range cmdline(pid) {
			if arg == word && startTime(pid) != "" {
				list = append(list, pid)
				break
			}
		}
	}
	return list
}

// parent is the process id of a process's parent, 0 for none.
func parent(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

// exec1 runs a program of the host as a person and returns what it prints.
func exec1(t *testing.T, as *person, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: as.uid, Gid: as.gid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}
