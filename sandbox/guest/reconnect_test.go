package guest

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReconnect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		living, err := r.Start(t.Context(), r.command(t, "living", "echo before; read x </proc/self/fd/0; sleep 0.2; echo after; exit 5"))
		if err != nil {
			t.Fatal(err)
		}
		ended, err := r.Start(t.Context(), r.command(t, "ended", "echo unread; exit 6"))
		if err != nil {
			t.Fatal(err)
		}
		<-ended.Done()

		// The daemon dies: all that it had is closed.
		if err := errors.Join(living.Close(), ended.Close(), r.Close()); err != nil {
			t.Fatal(err)
		}
		again := b.connect(t)
		if err := again.Setup(t.Context(), Setup{Mode: r.cgroups.mode, Home: r.cgroups.home}); err != nil {
			t.Fatal(err)
		}
		known := make(map[string]RunState)
		for _, run := range again.Runs() {
			known[run.ID] = run
		}
		if len(known) != 2 || known["living"].PID != living.PID {
			t.Fatalf("got %+v", known)
		}
		if e := known["ended"].Exit; e == nil || e.Status.ExitStatus() != 6 {
			t.Errorf("exit of the ended run: %+v", e)
		}
		for id, want := range map[string]struct {
			out  string
			code int
		}{"living": {"before\nafter\n", 5}, "ended": {"unread\n", 6}} {
			p, err := again.Attach(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			got, err := collect(p)
			if err != nil || got.stdout != want.out || got.exit.Status.ExitStatus() != want.code {
				t.Errorf("%s: got %q, status %#x, error %v", id, got.stdout, got.exit.Status, err)
			}
			if err := again.Forget(id); err != nil {
				t.Error(err)
			}
		}
		if _, err := again.Attach(t.Context(), "living"); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("attach after forget: %v", err)
		}
		b.quiet(t)
	})
}

func TestNewConnectionEndsOlder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		p, err := r.Start(t.Context(), r.command(t, "kept", "sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		again := b.connect(t)
		<-r.Done()
		if err := r.Err(); !errors.Is(err, ErrDisconnected) {
			t.Errorf("got %v", err)
		}
		if _, err := p.Exit(); !errors.Is(err, ErrDisconnected) {
			t.Errorf("exit of a run whose connection ended: %v", err)
		}
		if got := again.Runs(); len(got) != 1 || got[0].ID != "kept" || got[0].Exit != nil {
			t.Errorf("got %+v", got)
		}
		if err := again.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestGarbageEndsOnlyTheConnection(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		for name, garbage := range map[string][]byte{
			"text":           []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
			"unknown kind":   {0, 0, 0, 2, 99, 0, '{', '}'},
			"no json":        {0, 0, 0, 2, byte(kindPing), 0, 'x', 'x'},
			"early start":    {0, 0, 0, 2, byte(kindStart), 0, '{', '}'},
			"phantom fds":    {0, 0, 0, 2, byte(kindSetup), 4, '{', '}'},
			"unknown mode":   append([]byte{0, 0, 0, 12, byte(kindSetup), 0}, `{"mode":"x"}`...),
			"setup w/o home": append([]byte{0, 0, 0, 13, byte(kindSetup), 0}, `{"mode":"v1"}`...),
			"early end":      {0, 0, 0, 9},
		} {
			conn := b.dial(t)
			if _, err := conn.Write(garbage); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// The hello, then the end.
			if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%s: %v", name, err)
			}
			_ = conn.Close()
		}
		again := &runner{Client: b.connect(t), cgroups: r.cgroups}
		if err := again.Setup(t.Context(), Setup{Mode: r.cgroups.mode, Home: r.cgroups.home}); err != nil {
			t.Fatal(err)
		}
		if got := again.run(t, "alive", "echo alive"); got.stdout != "alive\n" {
			t.Errorf("got %q", got.stdout)
		}
		b.quiet(t)
	})
}
