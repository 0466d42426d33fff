// Package clienttest is a stand-in for the daemon, for tests of the client and
// of programs that use it. It serves the contract over a real Unix socket,
// checks every request and every JSON answer against rpc/openapi.yaml, and runs
// the commands by sh on the host: nothing is contained, so only a test's own
// commands may be sent to it.
//
// A few commands make it misbehave; see [Misbehaviour].
package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shelld/shelld/rpc"
)

// Misbehaviour is a command text that is not run but makes the server act as
// daemons do on a bad day.
type Misbehaviour = string

// The misbehaviours.
const (
	// Lost ends its command as lost.
	Lost Misbehaviour = ": standin lost"
	// Cut cuts the connection of the call after it has been announced.
	Cut Misbehaviour = ": standin cut"
	// Unannounced keeps the call's headers back until the client leaves.
	Unannounced Misbehaviour = ": standin unannounced"
	// Stubborn runs until the server ends: canceling it does not answer.
	Stubborn Misbehaviour = ": standin stubborn"
	// Gap has a stdout of which bytes 3-7 of 10 were not kept.
	Gap Misbehaviour = ": standin gap"
	// Short has a stdout that ends after 3 bytes of 10.
	Short Misbehaviour = ": standin short"
	// Refused is answered by 429 too_many_runs.
	Refused Misbehaviour = ": standin refused"
	// Garbled is answered by a 502 page that is not shelld's.
	Garbled Misbehaviour = ": standin garbled"
)

// A container whose label [Pretend] has one of these values pretends: that the
// machine has no cgroups, which the info then says as well, or that it has
// expired.
const (
	Pretend    = "standin"
	Unenforced = "unenforced"
	Expired    = "expired"
)

// leaveGrace is how long a call outlives its last waiting client. Source: the
// contract, "Disconnect".
const leaveGrace = time.Second

// Server is a running stand-in.
type Server struct {
	// Socket is the path that it serves.
	Socket string

	dir       string
	http      *http.Server
	contract  *contract
	life      context.Context //nolint:containedctx // the server is a life
	end       context.CancelCauseFunc
	wait      sync.WaitGroup
	listening chan error

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at every change
	containers []*rpc.Container
	calls      []*call
	requests   []string
	violations []string
	shutdown   *rpc.Shutdown
	next       int
}

// Start serves a socket below a new temporary folder, whose path is short
// enough for one.
func Start() (*Server, error) {
	doc, err := loadContract()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "shelld-standin-")
	if err != nil {
		return nil, err
	}
	s := &Server{
		Socket:    filepath.Join(dir, "s"),
		dir:       dir,
		contract:  doc,
		changed:   make(chan struct{}),
		listening: make(chan error, 1),
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	l, err := (&net.ListenConfig{}).Listen(s.life, "unix", s.Socket)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // another may have the path by then
	s.http = &http.Server{Handler: s.checked(s.routes()), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.listening <- s.http.Serve(l) }()
	return s, nil
}

var errClosed = errors.New("stand-in closed")

// Close kills what still runs and ends the server. Its error lists every
// violation of the contract that was seen.
func (s *Server) Close() error {
	s.end(errClosed)
	err := s.http.Close()
	if served := <-s.listening; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.wait.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.violations {
		err = errors.Join(err, fmt.Errorf("contract: %s", v))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Requests returns method and path of every request so far, in order.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Await waits until what is true of the server: "call STATUS" and "stdout TEXT"
// speak of the newest call, "container STATUS" of the newest container
// ("deleted" included), "request METHOD PATH" of any request so far, where *
// stands for the id, and "shutdown SANDBOXES" of a shutdown.
func (s *Server) Await(ctx context.Context, what string) error {
	for {
		s.mu.Lock()
		changed := s.changed
		holds, state := s.holdsLocked(what)
		s.mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("await %q: %w; at last %s", what, context.Cause(ctx), state)
		}
	}
}

func (s *Server) holdsLocked(what string) (holds bool, state string) {
	kind, want, _ := strings.Cut(what, " ")
	switch kind {
	case "call", "stdout":
		if len(s.calls) == 0 {
			return false, "no call"
		}
		newest := s.calls[len(s.calls)-1]
		if kind == "call" {
			return newest.object.Status == want, newest.object.Status
		}
		text := string(newest.commands[0].stdout.bytes)
		return strings.Contains(text, want), text
	case "container":
		if len(s.containers) == 0 {
			return want == "deleted", "no container"
		}
		got := s.containers[len(s.containers)-1].Status
		return got == want, got
	case "request":
		return slices.ContainsFunc(s.requests, func(r string) bool { return r == want }), fmt.Sprint(s.requests)
	case "shutdown":
		return s.shutdown != nil && fmt.Sprint(s.shutdown.Sandboxes) == want, fmt.Sprint(s.shutdown)
	}
	return false, "a condition that is not known"
}

// changedLocked wakes everyone who waits for a change.
func (s *Server) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) newIDLocked(prefix string) string {
	s.next++
	return fmt.Sprintf("%s_%032x", prefix, s.next)
}

// CutConnections closes the listener and every connection, as a daemon that was
// killed does. What runs goes on.
func (s *Server) CutConnections() { _ = s.http.Close() } // Close reports what matters
