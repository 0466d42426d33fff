package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// roleVar makes the test binary something else than a test.
const roleVar = "SHELLD_E2E_ROLE"

// TestMain gives every test a place and a user, and takes both away again,
// with whatever a test has left, however the tests end.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "janitor" {
		os.Exit(janitor()) //nolint:forbidigo // a main function
	}
	os.Exit(testMain(m)) //nolint:forbidigo // a main function
}

func testMain(m *testing.M) (code int) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	if err := sweepStale(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: leftovers of an earlier run:", err)
	}
	if err := makeBase(); err != nil {
		fail(err)
		return code
	}
	stopJanitor, err := startJanitor()
	if err != nil {
		fail(err)
		return code
	}
	if err := setUp(); err != nil {
		fail(err)
	} else {
		code = m.Run()
		for _, err := range closeShared() {
			fail(err)
		}
	}
	if err := sweep(base); err != nil {
		fail(err)
	}
	if err := stopJanitor(); err != nil {
		fail(err)
	}
	return code
}

// startJanitor starts a process that cleans up should this one be killed. The
// function it returns ends it.
func startJanitor() (func() error, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"=janitor")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start janitor: %w", err)
	}
	// Not on its command line, where a sweep would find it.
	if _, err := fmt.Fprintln(stdin, base); err != nil {
		return nil, err
	}
	return func() error {
		if err := stdin.Close(); err != nil {
			return err
		}
		return cmd.Wait()
	}, nil
}

func janitor() int {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return 1
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return 1
	}
	if err := sweep(strings.TrimSpace(line)); err != nil {
		fmt.Fprintln(os.Stderr, "e2e janitor:", err)
		return 1
	}
	return 0
}

// Where the programs are, for every user to execute.
var binDir, bundleDir, probePath string

// notBuilt and noClient say which program of the daemon, and of the client, is
// missing; "" when all are there.
var notBuilt, noClient string

// setUp copies the programs to where an ordinary user can execute them; a
// checkout often lies in a home that he cannot enter.
func setUp() error {
	top, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	binDir, bundleDir = filepath.Join(base, "bin"), filepath.Join(base, "libexec", "shelld")
	bin := envOr("SHELLD_BIN", filepath.Join(top, "bin"))
	bundle := envOr("SHELLD_BUNDLE", filepath.Join(top, "libexec", "shelld"))
	for from, to := range map[string]string{
		filepath.Join(bin, "shelld"):                     binDir,
		filepath.Join(bundle, "containerd"):              bundleDir,
		filepath.Join(bundle, "containerd-shim-runc-v2"): bundleDir,
		filepath.Join(bundle, "runc"):                    bundleDir,
		filepath.Join(bundle, "shelld-init"):             bundleDir,
	} {
		if _, err := os.Stat(from); err != nil {
			notBuilt = from
			continue
		}
		if err := copyFile(from, filepath.Join(to, filepath.Base(from))); err != nil {
			return err
		}
	}
	client := filepath.Join(bin, "shellctl")
	if _, err := os.Stat(client); err != nil {
		noClient = client
	} else if err := copyFile(client, filepath.Join(binDir, "shellctl")); err != nil {
		return err
	}
	probePath = filepath.Join(binDir, "probe")
	build := exec.Command("go", "build", "-o", probePath, "./probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build probe: %w: %s", err, out)
	}
	return makeUser()
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
