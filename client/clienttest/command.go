package clienttest

import (
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shelld/shelld/rpc"
)

// drain is how long output is read on after a command's shell has ended.
const drain = 250 * time.Millisecond

// command is one command on the host, in a process group of its own.
type command struct {
	server         *Server
	text           string
	cmd            *exec.Cmd
	timeout        time.Duration
	stdin          io.WriteCloser // nil unless streamed
	stdout, stderr *spool
	exited         chan struct{}
	started        time.Time
}

func (s *Server) newCommand(text string, req *rpc.ShellCallCreate) *command {
	c := &command{server: s, text: text, started: time.Now(), exited: make(chan struct{}), timeout: time.Hour}
	c.stdout, c.stderr = &spool{server: s}, &spool{server: s}
	if ms := req.Action.TimeoutMS; ms != nil {
		c.timeout = time.Duration(*ms) * time.Millisecond
	}
	if strings.HasPrefix(text, ": standin ") {
		c.misbehave()
		return c
	}
	c.cmd = exec.CommandContext(s.life, "sh", "-c", text)
	c.cmd.Dir = s.dir
	if req.WorkingDirectory != nil {
		c.cmd.Dir = *req.WorkingDirectory
	}
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, name := range slices.Sorted(maps.Keys(req.Env)) {
		c.cmd.Env = append(c.cmd.Env, name+"="+req.Env[name])
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if req.Stdin != nil && *req.Stdin == "stream" {
		c.stdin, _ = c.cmd.StdinPipe() // fails only when called twice
	}
	out := c.pipe(&c.cmd.Stdout, c.stdout)
	err := c.pipe(&c.cmd.Stderr, c.stderr)
	if startErr := c.cmd.Start(); startErr != nil {
		c.stderr.write([]byte(startErr.Error()))
		c.cmd = nil
		close(c.exited)
	} else {
		s.wait.Go(func() {
			_ = c.cmd.Wait() // the state tells
			close(c.exited)
		})
	}
	_, _ = out.Close(), err.Close()
	return c
}

// misbehave sets up a command that only seems to run.
func (c *command) misbehave() {
	switch c.text {
	case Gap:
		c.stdout.write([]byte("0123456789"))
		c.stdout.gap = "3-7"
	case Short:
		c.stdout.write([]byte("0123456789"))
		c.stdout.cut = 3
	}
	c.stdout.close()
	c.stderr.close()
	if c.text != Stubborn && c.text != Cut {
		close(c.exited)
	}
}

// pipe sets *to to a pipe whose other end feeds the spool, and returns the
// write end.
func (c *command) pipe(to *io.Writer, into *spool) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		into.close()
		return nil
	}
	*to = w
	c.server.wait.Go(func() {
		defer r.Close()
		defer into.close()
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			into.write(buf[:n])
			if err != nil {
				return
			}
		}
	})
	return w
}

// end waits for the command's end, or brings it about.
func (c *command) end(cancel <-chan struct{}) rpc.ShellResult {
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	r := rpc.ShellResult{Reason: "exit", BackgroundPIDs: []int{}}
	select {
	case <-c.exited:
	case <-timer.C:
		r.Reason = "timeout"
		c.note(&r, "the command was ended after "+c.timeout.String()+", its time limit")
	case <-cancel:
		r.Reason = "canceled"
		c.note(&r, "the command was canceled")
	case <-c.server.life.Done():
		r.Reason = "lost"
	}
	if r.Reason != "exit" {
		c.kill()
	} else {
		c.leaveBehind()
	}
	c.outcome(&r)
	c.stdout.settle(drain)
	c.stderr.settle(drain)
	r.StdoutBytes, r.StderrBytes = c.stdout.len(), c.stderr.len()
	r.DurationMS = time.Since(c.started).Milliseconds()
	return r
}

func (c *command) note(r *rpc.ShellResult, text string) {
	text = "[shelld] " + text
	r.Note = &text
}

// outcome fills in how the shell ended.
func (c *command) outcome(r *rpc.ShellResult) {
	zero := 0
	switch {
	case c.text == Lost:
		r.Reason = "lost"
		c.note(r, "shelld lost sight of the command; whether it ended, and how, is not known")
	case c.cmd == nil && r.Reason == "exit":
		r.ExitCode = &zero
	case c.cmd == nil:
	default:
		status, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
		code := status.ExitStatus()
		if status.Signaled() {
			code = 128 + int(status.Signal())
			name := map[syscall.Signal]string{syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM"}[status.Signal()]
			r.Signal = &name
			if r.Reason == "exit" {
				r.Reason = "signal"
				c.note(r, "the command was ended by signal "+name)
			}
		}
		r.ExitCode = &code
	}
}

// kill ends everything in the command's process group.
func (c *command) kill() {
	if c.cmd == nil {
		return
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // gone already is fine
	<-c.exited
}

// leaveBehind lets the command's background processes live until the server
// ends.
func (c *command) leaveBehind() {
	if c.cmd == nil {
		return
	}
	c.server.wait.Go(func() {
		select {
		case <-c.server.life.Done():
			c.kill()
		case <-c.closed():
		}
	})
}

// closed is closed when nobody holds the command's streams any more.
func (c *command) closed() <-chan struct{} {
	closed := make(chan struct{})
	c.server.wait.Go(func() {
		defer close(closed)
		for !c.stdout.ended() || !c.stderr.ended() {
			if !c.stdout.await() {
				return
			}
		}
	})
	return closed
}

// spool is a stream's bytes. The server's lock guards it.
type spool struct {
	server *Server
	bytes  []byte
	done   bool
	gap    string
	cut    int // pretends to end here; 0: does not
}

func (p *spool) write(b []byte) {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.bytes = append(p.bytes, b...)
	p.server.changedLocked()
}

func (p *spool) close() {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.done = true
	p.server.changedLocked()
}

func (p *spool) ended() bool {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.done
}

func (p *spool) len() int64 {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return int64(len(p.bytes))
}

// text is the first n bytes; the caller holds the lock.
func (p *spool) text(n int64) string { return strings.ToValidUTF8(string(p.bytes[:n]), "\uFFFD") }

// await waits for any change of the server; false when the server ends.
func (p *spool) await() bool {
	p.server.mu.Lock()
	changed := p.server.changed
	p.server.mu.Unlock()
	select {
	case <-changed:
		return true
	case <-p.server.life.Done():
		return false
	}
}

// settle waits for the end of the stream, for at most d.
func (p *spool) settle(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		p.server.mu.Lock()
		done, changed := p.done, p.server.changed
		p.server.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

func (s *Server) readOutput(w http.ResponseWriter, r *http.Request) {
	cmd := s.command(w, r)
	if cmd == nil {
		return
	}
	p := cmd.stdout
	if r.PathValue("stream") == "stderr" {
		p = cmd.stderr
	}
	from, to, status := 0, -1, http.StatusOK
	if spec, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
		first, last, _ := strings.Cut(spec, "-")
		from, _ = strconv.Atoi(first)
		if n, err := strconv.Atoi(last); err == nil {
			to = n + 1
		}
		status = http.StatusPartialContent
	}
	w.Header().Set("Content-Type", octets)
	if p.gap != "" {
		w.Header().Set("Trailer", "X-Shelld-Gap")
	}
	w.WriteHeader(status)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		s.mu.Lock()
		all, done, changed := p.bytes, p.done, s.changed
		s.mu.Unlock()
		if p.cut > 0 {
			all = all[:p.cut]
		}
		if to >= 0 && len(all) >= to {
			all, done = all[:to], true
		}
		if len(all) > from {
			piece := all[from:]
			if p.gap != "" {
				piece = []byte("01289")
			}
			if _, err := w.Write(piece); err != nil {
				return
			}
			from = len(all)
			if flush() != nil {
				return
			}
		}
		if done || r.URL.Query().Get("follow") != "true" {
			if p.gap != "" {
				w.Header().Set("X-Shelld-Gap", p.gap)
			}
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.life.Done():
			return
		}
	}
}
