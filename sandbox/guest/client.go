package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// helloTimeout is how long a new connection waits for the guest.
	helloTimeout = 10 * time.Second
	// writeTimeout is how long a message waits for the guest to take it.
	writeTimeout = 10 * time.Second
	// answerTimeout is how long the guest may take to answer a message. A fork
	// on a machine under heavy load takes a second at most, and a kill in the
	// guest half of this.
	answerTimeout = 10 * time.Second
	// maxRuns caps the list of a hello, which is the guest's word only, and
	// each run of which costs shelld descriptors. An honest guest lists runs
	// that processes live in, and those that ended a moment ago.
	maxRuns = 1 << 10
)

// A Client is shelld's end of a connection to a guest. Its methods are safe
// for concurrent use.
type Client struct {
	conn *net.UnixConn
	runs []RunState
	// patience is answerTimeout, less in tests.
	patience time.Duration

	wmu sync.Mutex // guards tx and the order of frames
	tx  encoder

	mu        sync.Mutex
	calls     map[call]*pending
	processes map[string]*Process
	pings     uint64
	err       error // set once, before done is closed

	done   chan struct{}
	reader sync.WaitGroup
}

// A call is what an answer is expected to.
type call struct {
	op string
	id string
}

// A pending call stays until its answer came, even when nobody waits for that
// any more.
type pending struct {
	fds       int         // how many descriptors the answer brings
	answered  chan answer // has room for the only answer
	abandoned bool        // guarded by Client.mu
}

type answer struct {
	process *Process
	left    int
	pids    []int
	err     error
}

const opPing = "ping"

// RunState is a run as the guest knew it when the connection was made.
type RunState struct {
	ID  string
	PID int
	// Exit is nil while the command runs.
	Exit *Exit
}

// NewClient takes over conn and waits for the guest's list of runs, ten
// seconds at most. It fails with [ErrViolation] or [ErrDisconnected], and has
// closed conn then. Otherwise the caller closes the Client.
func NewClient(conn *net.UnixConn) (*Client, error) {
	c := &Client{
		conn:      conn,
		patience:  answerTimeout,
		calls:     make(map[call]*pending),
		processes: make(map[string]*Process),
		done:      make(chan struct{}),
	}
	rx := &receiver{recv: c.recv, maxPayload: maxFromGuest, maxFDs: maxFDsFromGuest}
	if err := c.readHello(rx); err != nil {
		rx.close()
		return nil, errors.Join(err, conn.Close())
	}
	c.reader.Go(func() { c.read(rx) })
	return c, nil
}

// Runs returns what the guest knew when the connection was made: runs that
// were started over earlier connections and not forgotten.
func (c *Client) Runs() []RunState { return c.runs }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil before Done is closed and then why: [ErrViolation],
// [ErrDisconnected] or [ErrClosed].
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits until nothing of it is left. Commands
// run on, and the guest remembers them.
func (c *Client) Close() error {
	c.end(ErrClosed)
	c.reader.Wait()
	return nil
}

// Setup says how the guest shall start commands. It is the first thing to do
// with a connection, and only once.
type Setup struct {
	Mode Mode
	// Home are, for [CgroupV1], the guest's own cgroups: the tasks file of
	// each hierarchy, open for writing. The caller closes them.
	Home []*os.File
}

// Setup sets the guest up for [Client.Start]. It fails with a [StartError] or
// as [Client.Err] says.
func (c *Client) Setup(ctx context.Context, s Setup) error {
	_, err := c.call(ctx, call{op: opSetup}, 0, kindSetup, setupMessage{Mode: s.Mode}, s.Home)
	if err != nil {
		return fmt.Errorf("set up guest: %w", err)
	}
	return nil
}

// StartRequest is a command to start.
type StartRequest struct {
	// ID names the run, in this sandbox for ever. At most 64 bytes.
	ID string
	// Argv are the arguments; the first is also the path of the program.
	Argv []string
	// Env is the whole environment, as NAME=value.
	Env []string
	// Dir is the working directory.
	Dir string
	// Stdin asks for a pipe to write input to. False: /dev/null.
	Stdin bool
	// UID and GID are the user and the only group.
	UID, GID uint32
	// Cgroup is what the mode of [Setup] asks for: nothing, the run's cgroup
	// directory, or its tasks files in as many hierarchies as Setup.Home,
	// open for writing. The caller closes them.
	Cgroup []*os.File
}

// Start starts a command and returns when it runs. A [StartError] says why it
// can't; other errors are those of [Client.Err], [ErrTooLarge], and those of
// ctx. When ctx ends first the command may still come to run, unseen: then its
// cgroup is to be killed (or [Client.Kill] called) and the id forgotten.
func (c *Client) Start(ctx context.Context, r StartRequest) (*Process, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("start run %s: %w", r.ID, err)
	}
	fds := 2
	if r.Stdin {
		fds = 3
	}
	a, err := c.call(ctx, call{opStart, r.ID}, fds, kindStart, startMessage{
		ID: r.ID, Argv: r.Argv, Env: r.Env, Dir: r.Dir, Stdin: r.Stdin, UID: r.UID, GID: r.GID,
	}, r.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("start run %s: %w", r.ID, err)
	}
	return a.process, nil
}

// validate refuses what would not reach the command as it is.
func (r *StartRequest) validate() error {
	if r.ID == "" || len(r.ID) > maxIDLen || len(r.Argv) == 0 || r.Argv[0] == "" {
		return errors.New("no id, or too long a one, or no program")
	}
	for _, list := range [][]string{{r.ID, r.Dir}, r.Argv, r.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
				return fmt.Errorf("%w: NUL or invalid UTF-8 in %.40q", syscall.EINVAL, s)
			}
		}
	}
	return nil
}

// Attach returns the Process of a run that was started over an earlier
// connection. It has no Stdin. A run that the guest does not know is a
// [StartError] with ENOENT.
func (c *Client) Attach(ctx context.Context, id string) (*Process, error) {
	a, err := c.call(ctx, call{opAttach, id}, 2, kindAttach, attachMessage{ID: id}, nil)
	if err != nil {
		return nil, fmt.Errorf("attach to run %s: %w", id, err)
	}
	return a.process, nil
}

// Processes returns the process ids, in the sandbox's own pid namespace, of
// all that lives of a run under [Anchored], be it forgotten. In other modes
// the run's cgroup tells, and Processes finds none.
func (c *Client) Processes(ctx context.Context, id string) ([]int, error) {
	a, err := c.call(ctx, call{opList, id}, 0, kindList, listMessage{ID: id}, nil)
	if err != nil {
		return nil, fmt.Errorf("list processes of run %s: %w", id, err)
	}
	return a.pids, nil
}

// Kill kills all that a run started under [Anchored], be it forgotten or still
// being started, and returns when it is gone. In other modes the run's cgroup
// is there for that, and Kill fails. A [StartError] with ESRCH says that
// nothing of the run lives and the guest does not know it, one with EBUSY that
// something was left after five seconds.
func (c *Client) Kill(ctx context.Context, id string) error {
	a, err := c.call(ctx, call{opKill, id}, 0, kindKill, killMessage{ID: id}, nil)
	if err == nil && a.left > 0 {
		err = &StartError{Stage: StageRequest, Errno: syscall.EBUSY, Text: fmt.Sprintf("%d processes left", a.left)}
	}
	if err != nil {
		return fmt.Errorf("kill run %s: %w", id, err)
	}
	return nil
}

// Forget lets the guest drop its duplicates of the run's pipes and its record
// of the exit. It does not wait, and does not end the command.
func (c *Client) Forget(id string) error {
	c.mu.Lock()
	p := c.processes[id]
	delete(c.processes, id)
	c.mu.Unlock()
	if p != nil {
		// No exit will be heard of. It mostly was: then this does nothing.
		p.finish(Exit{}, fmt.Errorf("run %s forgotten: %w", id, ErrClosed))
	}
	if err := c.send(kindForget, forgetMessage{ID: id}, nil); err != nil {
		return fmt.Errorf("forget run %s: %w", id, err)
	}
	return nil
}

// Ping returns when the guest has answered.
func (c *Client) Ping(ctx context.Context) error {
	c.mu.Lock()
	c.pings++
	seq := c.pings
	c.mu.Unlock()
	if _, err := c.call(ctx, call{opPing, pingID(seq)}, 0, kindPing, pingMessage{Seq: seq}, nil); err != nil {
		return fmt.Errorf("ping guest: %w", err)
	}
	return nil
}

func pingID(seq uint64) string { return fmt.Sprint(seq) }

// call sends a message and waits for its answer, which brings fds descriptors.
// A guest that does not answer in time loses the connection.
func (c *Client) call(ctx context.Context, key call, fds int, k kind, message any, files []*os.File) (answer, error) {
	p := &pending{fds: fds, answered: make(chan answer, 1)}
	if err := c.expect(key, p); err != nil {
		return answer{}, err
	}
	if err := c.send(k, message, files); err != nil {
		c.mu.Lock()
		delete(c.calls, key)
		c.mu.Unlock()
		return answer{}, err
	}
	silence := time.NewTimer(c.patience)
	defer silence.Stop()
	select {
	case a := <-p.answered:
		return a, a.err
	case <-ctx.Done():
		c.abandon(p)
		return answer{}, context.Cause(ctx)
	case <-silence.C:
		c.end(fmt.Errorf("%w: no answer to %s in %s", ErrDisconnected, k, c.patience))
	case <-c.done:
	}
	// What came just before the end is not to be lost.
	select {
	case a := <-p.answered:
		return a, a.err
	default:
		c.abandon(p)
		return answer{}, c.Err()
	}
}

func (c *Client) expect(key call, p *pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if _, taken := c.calls[key]; taken {
		return &StartError{Stage: StageRequest, Errno: syscall.EEXIST, Text: "still being answered"}
	}
	c.calls[key] = p
	return nil
}

// abandon makes the answer, which may be there already, nobody's.
func (c *Client) abandon(p *pending) {
	c.mu.Lock()
	p.abandoned = true
	c.mu.Unlock()
	select {
	case a := <-p.answered:
		c.discard(a)
	default:
	}
}

// discard closes what an answer brought and nobody waits for.
func (c *Client) discard(a answer) {
	if a.process == nil {
		return
	}
	_ = a.process.Close() // pipes that were never used
	c.mu.Lock()
	if c.processes[a.process.ID] == a.process {
		delete(c.processes, a.process.ID)
	}
	c.mu.Unlock()
}

// send sends one frame whole. When a part was sent the connection ends.
func (c *Client) send(k kind, message any, files []*os.File) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	b, err := c.tx.encode(k, message, len(files), maxToGuest)
	if err != nil {
		return err
	}
	var oob []byte
	if len(files) > 0 {
		if len(files) > maxFDsToGuest {
			return fmt.Errorf("%d descriptors: %w", len(files), ErrTooLarge)
		}
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only when closed, as writing does then
	for len(b) > 0 {
		n, _, err := c.conn.WriteMsgUnix(b, oob, nil)
		if err != nil {
			c.end(fmt.Errorf("%w: send %s: %w", ErrDisconnected, k, err))
			return c.Err()
		}
		b, oob = b[n:], nil
	}
	return nil
}

// end ends the connection with the first reason given.
func (c *Client) end(reason error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = reason
	}
	processes := c.processes
	if first {
		c.processes = make(map[string]*Process)
	}
	c.mu.Unlock()
	if !first {
		return
	}
	_ = c.conn.Close() // the reason is known already
	close(c.done)
	for _, p := range processes {
		p.finish(Exit{}, reason)
	}
}

// recv is the receiver's way to read.
func (c *Client) recv(p, oob []byte) (n, oobn, flags int, err error) {
	n, oobn, flags, _, err = c.conn.ReadMsgUnix(p, oob)
	if errors.Is(err, io.EOF) {
		err = nil // the receiver's form of it
	}
	return n, oobn, flags, err
}
