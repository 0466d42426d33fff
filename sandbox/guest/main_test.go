package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary executes itself to become process 1 of a test sandbox.
// roleVar says as what, dirVar and programVar with what.
const (
	roleVar    = "GUEST_TEST_ROLE"
	dirVar     = "GUEST_TEST_DIR"
	programVar = "GUEST_TEST_PROGRAM"

	roleInit   = "init"   // mounts, then executes shelld-init
	roleServer = "server" // serves itself, under the race detector
)

// programs are the directory of the built shelld-init.
type programs struct{ dir string }

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case roleInit:
		exit(becomeInit())
	case roleServer:
		exit(becomeServer())
	}
	m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, "test guest:", err)
	os.Exit(1) //nolint:forbidigo // this is a main
}

// becomeInit does what a container runtime does before process 1 starts.
func becomeInit() error {
	dir := os.Getenv(dirVar)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", dir, err)
	}
	program := os.Getenv(programVar)
	return unix.Exec(program, []string{program, "--dir", dir}, nil)
}

func becomeServer() error {
	catchSignals()
	if err := keepDescriptors(); err != nil {
		return err
	}
	listener, err := listen(filepath.Join(os.Getenv(dirVar), SocketName))
	if err != nil {
		return err
	}
	s, err := newServer()
	if err != nil {
		return err
	}
	return s.serve(listener)
}

// built is written once, by buildInit.
var built programs

// buildInit builds shelld-init as it is shipped, once for all tests.
func buildInit(tb testing.TB) string {
	tb.Helper()
	buildOnce.Do(func() {
		dir, err := os.MkdirTemp("", "guest-test-bin-")
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		built.dir = dir
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "shelld-init"), "../../cmd/shelld-init")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("build shelld-init: %v\n%s", err, out)
		}
	})
	if built.dir == "" {
		tb.Fatal("shelld-init was not built")
	}
	return filepath.Join(built.dir, "shelld-init")
}
