package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// plan is what the probe is to try; see probe/main.go.
type plan struct {
	Calls                         bool
	Read, Write, Socket, Abstract []string
	Dial                          [][2]string
	Interfaces, EUID              bool
}

func (p plan) command(t *testing.T, probe string) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return probe + " '" + strings.ReplaceAll(string(text), "'", `'\''`) + "'"
}

// probe runs the plan in a container.
func probe(t *testing.T, i *instance, container string, p plan) [][2]string {
	t.Helper()
	const path = "/mnt/data/probe"
	file, err := os.Open(probePath)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	put(t, i, container, path, file)
	return results(sh(t, i, container, p.command(t, path)))
}

// probeHost runs the plan as root outside all sandboxes, in namespaces that
// keep its effects from the host: what works there could work in a sandbox.
func probeHost(t *testing.T, p plan) [][2]string {
	t.Helper()
	script := "trap : INT; mount --make-rprivate / && mount -t proc proc /proc && " + p.command(t, probePath)
	cmd := exec.Command("sh", "-c", script+"; exit $?") // no exec: process 1 stays the shell
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("probe the host: %v\n%s", err, out)
	}
	return results(string(out))
}

func results(text string) [][2]string {
	var list [][2]string
	for _, line := range lines(text) {
		if name, result, ok := strings.Cut(line, "\t"); ok {
			list = append(list, [2]string{name, result})
		}
	}
	return list
}
