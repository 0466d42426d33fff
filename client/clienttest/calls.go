package clienttest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shelld/shelld/rpc"
)

// call is a shell call and what runs for it. The server's lock guards it.
type call struct {
	object   rpc.ShellCall
	commands []*command
	cancel   chan struct{} // closed to end the commands
	canceled bool
	done     chan struct{}
	stubborn bool
}

func (c *call) cancelLocked() {
	if !c.canceled && c.object.Status == "in_progress" {
		c.canceled = true
		close(c.cancel)
	}
}

func (s *Server) createCall(w http.ResponseWriter, r *http.Request) {
	var req rpc.ShellCallCreate
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, "unknown_field", err.Error())
		return
	}
	has := func(text string) bool { return slices.Contains(req.Action.Commands, text) }
	switch {
	case has(Refused):
		w.Header().Set("Retry-After-Ms", "1500")
		fail(w, http.StatusTooManyRequests, "too_many_runs", "128 commands are running, the most that limits.max_runs allows; wait for some to end")
		return
	case has(Garbled):
		w.(*recorder).foreign = true
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<h1>no</h1>\n")
		return
	case has(Unannounced):
		s.noteContainer(&req)
		<-r.Context().Done()
		w.(*recorder).foreign = true
		return
	}
	c, status, message := s.start(&req)
	if c == nil {
		fail(w, status, "not_found", message)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("X-Shelld-Announce") == "1" {
		w.Header().Set("X-Shelld-Call", c.object.ID)
		w.Header().Set("X-Shelld-Container", c.object.ContainerID)
		_ = http.NewResponseController(w).Flush()
	}
	if has(Cut) {
		w.(*recorder).foreign = true
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return
	}
	if req.Background == nil || !*req.Background {
		select {
		case <-c.done:
		case <-r.Context().Done():
			w.(*recorder).foreign = true
			s.left(c)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, c.object)
}

// left cancels the call when its grace is over.
func (s *Server) left(c *call) {
	grace := time.NewTimer(leaveGrace)
	defer grace.Stop()
	select {
	case <-grace.C:
	case <-c.done:
	case <-s.life.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.cancelLocked()
}

// noteContainer makes the call's container as far as a call that never starts
// gets.
func (s *Server) noteContainer(req *rpc.ShellCallCreate) *rpc.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := req.Environment; e != nil {
		if e.Type == "container_reference" {
			return s.containerLocked(e.ContainerID)
		}
		return s.newContainerLocked(e.ContainerCreate, true)
	}
	return s.newContainerLocked(rpc.ContainerCreate{}, true)
}

func (s *Server) start(req *rpc.ShellCallCreate) (c *call, status int, message string) {
	container := s.noteContainer(req)
	if container == nil {
		return nil, http.StatusNotFound, "no container with id \"" + req.Environment.ContainerID + "\"; it never existed or was deleted"
	}
	c = &call{cancel: make(chan struct{}), done: make(chan struct{})}
	for _, text := range req.Action.Commands {
		c.commands = append(c.commands, s.newCommand(text, req))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.object = rpc.ShellCall{
		ID: s.newIDLocked("shc"), Object: "shell_call", CreatedAt: time.Now().Unix(), Status: "in_progress",
		ContainerID: container.ID, CallID: "call_standin", Action: *req.Action, Results: []rpc.ShellResult{},
	}
	if req.CallID != nil {
		c.object.CallID = *req.CallID
	}
	c.stubborn = slices.Contains(req.Action.Commands, Stubborn)
	s.calls = append(s.calls, c)
	s.changedLocked()
	deleteAfter := req.Environment == nil || req.Environment.DeleteAfter
	s.wait.Go(func() { s.run(c, container, deleteAfter) })
	return c, 0, ""
}

// run waits for the commands and writes the outcome down.
func (s *Server) run(c *call, container *rpc.Container, deleteAfter bool) {
	results := make([]rpc.ShellResult, len(c.commands))
	for i, cmd := range c.commands {
		results[i] = cmd.end(c.cancel)
		results[i].CommandIndex = i
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Unix()
	c.object.CompletedAt, c.object.Results, c.object.Status = &now, results, "completed"
	out := &rpc.ShellCallOutput{
		Type: "shell_call_output", ID: s.newIDLocked("sho"), CallID: c.object.CallID, Status: "completed", MaxOutputLength: 65536,
	}
	for i, r := range results {
		chunk := rpc.OutputChunk{Stdout: c.commands[i].stdout.text(r.StdoutBytes), Stderr: c.commands[i].stderr.text(r.StderrBytes)}
		chunk.Outcome = rpc.Outcome{Type: "exit", ExitCode: r.ExitCode}
		switch r.Reason {
		case "timeout":
			chunk.Outcome = rpc.Outcome{Type: "timeout"}
		case "lost":
			unknown := -1
			chunk.Outcome.ExitCode = &unknown
			c.object.Status, out.Status = "failed", "incomplete"
		case "canceled":
			c.object.Status, out.Status = "canceled", "incomplete"
		}
		if r.Note != nil {
			chunk.Stderr += *r.Note + "\n"
		}
		out.Output = append(out.Output, chunk)
	}
	c.object.Output = out
	if deleteAfter {
		container.Status = "deleted"
	}
	close(c.done)
	s.changedLocked()
}

func (s *Server) find(r *http.Request) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.object.ID == r.PathValue("id") {
			return c
		}
	}
	return nil
}

func (s *Server) getCall(w http.ResponseWriter, r *http.Request) {
	c := s.find(r)
	if c == nil {
		missing(w, "shell call", r.PathValue("id"))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, c.object)
}

func (s *Server) listCalls(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := []rpc.ShellCall{}
	q := r.URL.Query()
	for _, c := range slices.Backward(s.calls) {
		if (q.Get("status") == "" || q.Get("status") == c.object.Status) &&
			(q.Get("container_id") == "" || q.Get("container_id") == c.object.ContainerID) {
			objects = append(objects, c.object)
		}
	}
	answer(w, page(r, objects, func(c rpc.ShellCall) string { return c.ID }))
}

func (s *Server) cancelCall(w http.ResponseWriter, r *http.Request) {
	c := s.find(r)
	if c == nil {
		missing(w, "shell call", r.PathValue("id"))
		return
	}
	if c.stubborn {
		<-r.Context().Done()
		w.(*recorder).foreign = true
		return
	}
	s.mu.Lock()
	c.cancelLocked()
	s.mu.Unlock()
	<-c.done
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, c.object)
}

// command returns the command that the path names, and answers when there is
// none.
func (s *Server) command(w http.ResponseWriter, r *http.Request) *command {
	c := s.find(r)
	index, err := strconv.Atoi(r.PathValue("index"))
	if c == nil || err != nil || index >= len(c.commands) {
		missing(w, "command", r.PathValue("id")+"/"+r.PathValue("index"))
		return nil
	}
	return c.commands[index]
}

func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request) {
	cmd := s.command(w, r)
	if cmd == nil {
		return
	}
	if cmd.stdin == nil {
		fail(w, http.StatusConflict, "in_use", "the call was made without \"stdin\": \"stream\"")
		return
	}
	n, err := io.Copy(cmd.stdin, r.Body)
	err = errors.Join(err, cmd.stdin.Close())
	if err != nil && !strings.Contains(err.Error(), "broken pipe") && !strings.Contains(err.Error(), "closed") {
		fail(w, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	answer(w, map[string]int64{"bytes": n})
}
