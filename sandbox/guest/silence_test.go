package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// requests are all that a guest has to answer.
var requests = map[string]func(context.Context, *Client) error{
	"setup": func(ctx context.Context, c *Client) error { return c.Setup(ctx, Setup{Mode: Anchored}) },
	"start": func(ctx context.Context, c *Client) error {
		_, err := c.Start(ctx, StartRequest{ID: "a", Argv: []string{"/bin/true"}})
		return err
	},
	"attach": func(ctx context.Context, c *Client) error { _, err := c.Attach(ctx, "a"); return err },
	"kill":   func(ctx context.Context, c *Client) error { return c.Kill(ctx, "a") },
	"list":   func(ctx context.Context, c *Client) error { _, err := c.Processes(ctx, "a"); return err },
	"ping":   func(ctx context.Context, c *Client) error { return c.Ping(ctx) },
}

// TestSilence: a guest that takes a message and does not answer is given up.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			client, _, err := fakeGuest(t, helloMessage{Version: Version})
			if err != nil {
				t.Fatal(err)
			}
			client.patience = 20 * time.Millisecond
			if err := request(t.Context(), client); !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "no answer to "+name) {
				t.Errorf("got %v", err)
			}
			<-client.Done()
			if err := client.Err(); !errors.Is(err, ErrDisconnected) {
				t.Errorf("the connection ended with %v", err)
			}
		})
	}
}

// TestStoppedGuest stops process 1 under a run.
func TestStoppedGuest(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.runner(t, Anchored)
	p, err := r.Start(t.Context(), r.command(t, "before", "sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r.patience = 200 * time.Millisecond
	if err := b.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(t.Context(), r.command(t, "after", "true")); !errors.Is(err, ErrDisconnected) {
		t.Errorf("start: %v", err)
	}
	if _, err := p.Exit(); !errors.Is(err, ErrDisconnected) {
		t.Errorf("exit of the older run: %v", err)
	}
}

func TestHelloIsLimited(t *testing.T) {
	t.Parallel()
	hello := helloMessage{Version: Version}
	for i := range maxRuns {
		hello.Runs = append(hello.Runs, startedMessage{ID: fmt.Sprint(i), PID: 2})
	}
	for _, c := range []struct {
		name  string
		extra []startedMessage
		want  error
	}{
		{"as many as may be", nil, nil},
		{"one too many", []startedMessage{{ID: "x", PID: 2}}, ErrViolation},
	} {
		hello := helloMessage{Version: Version, Runs: append(c.extra, hello.Runs...)}
		if _, _, err := fakeGuest(t, hello); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	twice := helloMessage{Version: Version, Runs: []startedMessage{{ID: "a"}, {ID: "a"}}}
	if _, _, err := fakeGuest(t, twice); !errors.Is(err, ErrViolation) {
		t.Errorf("the same run twice: got %v", err)
	}
}
