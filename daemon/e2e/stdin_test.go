package e2e

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestNoInputUnlessAsked is case C04.
func TestNoInputUnlessAsked(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		within(t, 2*time.Second, "commands that read", func() {
			c := call(t, i, in(id, "cat; echo after", "read -r x; echo rc=$?", "command -v python3 >/dev/null || exit 1; python3 -c 'input()'"))
			for n, want := range []string{"0 after\n", "0 rc=1\n", "1 "} {
				if got := exitCode(c.Output.Output[n]) + " " + c.Output.Output[n].Stdout; got != want {
					t.Errorf("command %d: got %q, want %q", n, got, want)
				}
			}
			status, code, _, _ := refused(t, i, http.MethodPut, stdinPath(c.ID, 0), nil)
			if status != http.StatusNotFound && status != http.StatusConflict {
				t.Errorf("input for a command that has ended: %d %s", status, code)
			}
		})
		p := begin(t, i, in(id, "sleep 100"))
		if status, code, _, _ := refused(t, i, http.MethodPut, stdinPath(p.id, 0), nil); status != http.StatusConflict || code != "in_use" {
			t.Errorf("input that was not asked for: %d %s", status, code)
		}
	})
}

func stdinPath(call string, index int) string {
	return fmt.Sprintf("/v1/shell_calls/%s/commands/%d/stdin", call, index)
}

// TestStreamedInput sends input piece by piece and sees each arrive.
func TestStreamedInput(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		p := begin(t, i, with(in(id, "while read -r x; do echo got $x; done; echo end", "wc -c"), "stdin", "stream"))
		read, write := io.Pipe()
		sent := make(chan error, 1)
		go func() {
			_, _, err := i.send(t.Context(), http.MethodPut, stdinPath(p.id, 0), read)
			sent <- err
		}()
		for _, word := range []string{"one", "two"} {
			if _, err := io.WriteString(write, word+"\n"); err != nil {
				t.Fatal(err)
			}
			eventually(t, word+" is echoed", patience, func() bool {
				out := lines(stdoutOf(t, i, p.id, 0))
				return out[len(out)-1] == "got "+word
			})
		}
		if status, code, _, _ := refused(t, i, http.MethodPut, stdinPath(p.id, 0), nil); status != http.StatusConflict || code != "in_use" {
			t.Errorf("a second input: %d %s", status, code)
		}
		if err := write.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		ask[map[string]int64](t, i, http.MethodPut, stdinPath(p.id, 1), io.LimitReader(zeros{}, 3<<20))
		c, ok := p.result(t)
		if !ok {
			t.Fatal("no result")
		}
		if got := c.Output.Output[0].Stdout + c.Output.Output[1].Stdout; got != "got one\ngot two\nend\n3145728\n" {
			t.Errorf("got %q", got)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// put stores a file in a container.
func put(t *testing.T, i *instance, container, path string, content io.Reader) {
	t.Helper()
	p := begin(t, i, with(in(container, "cat > "+path+" && chmod +x "+path), "stdin", "stream"))
	ask[map[string]int64](t, i, http.MethodPut, stdinPath(p.id, 0), content)
	if c, ok := p.result(t); !ok || exitCode(c.Output.Output[0]) != "0" {
		t.Fatalf("store %s: %v %+v", path, ok, c)
	}
}
