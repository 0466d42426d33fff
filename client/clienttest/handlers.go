package clienttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shelld/shelld/rpc"
)

const (
	octets = "application/octet-stream"
	// stopDelay is how long after a shutdown was asked for the server serves.
	stopDelay = 200 * time.Millisecond
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/containers", s.createContainer)
	mux.HandleFunc("GET /v1/containers", s.listContainers)
	mux.HandleFunc("GET /v1/containers/{id}", s.container)
	mux.HandleFunc("DELETE /v1/containers/{id}", s.deleteContainer)
	mux.HandleFunc("POST /v1/shell_calls", s.createCall)
	mux.HandleFunc("GET /v1/shell_calls", s.listCalls)
	mux.HandleFunc("GET /v1/shell_calls/{id}", s.getCall)
	mux.HandleFunc("POST /v1/shell_calls/{id}/cancel", s.cancelCall)
	mux.HandleFunc("PUT /v1/shell_calls/{id}/commands/{index}/stdin", s.writeStdin)
	mux.HandleFunc("GET /v1/shell_calls/{id}/commands/{index}/{stream}", s.readOutput)
	mux.HandleFunc("GET /v1/info", s.info)
	mux.HandleFunc("POST /v1/shutdown", s.stop)
	status := func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"status": "ok"}) }
	mux.HandleFunc("GET /healthz", status)
	mux.HandleFunc("GET /readyz", status)
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(rpc.OpenAPI)
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone is no fault
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	kind := rpc.TypeInvalidRequest
	if status >= 500 {
		kind = rpc.TypeServer
	}
	_ = json.NewEncoder(w).Encode(rpc.ErrorResponse{Error: rpc.Error{Message: message, Type: kind, Code: &code}})
}

func missing(w http.ResponseWriter, kind, id string) {
	fail(w, http.StatusNotFound, "not_found", fmt.Sprintf("no %s with id %q; it never existed or was deleted", kind, id))
}

func (s *Server) createContainer(w http.ResponseWriter, r *http.Request) {
	var req rpc.ContainerCreate
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, "invalid_value", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, s.newContainerLocked(req, false))
}

func (s *Server) newContainerLocked(req rpc.ContainerCreate, auto bool) *rpc.Container {
	now := time.Now().Unix()
	c := &rpc.Container{
		ID: s.newIDLocked("cntr"), Object: "container", CreatedAt: now, LastActiveAt: now,
		Name: req.Name, Status: "running", ExpiresAfter: rpc.ExpiresAfter{Anchor: "last_active_at", Minutes: 20},
		MemoryLimit: "1g", NetworkPolicy: rpc.NetworkPolicy{Type: "disabled"}, Image: "host",
		Limits: rpc.Limits{Memory: rpc.Limit{Value: 1 << 30, Enforced: true}, Pids: rpc.Limit{Value: 512}},
		Labels: map[string]string{}, Auto: auto,
	}
	if req.Labels != nil {
		c.Labels = req.Labels
	}
	if req.MemoryLimit != nil {
		c.MemoryLimit = *req.MemoryLimit
		if n, err := strconv.ParseInt(strings.TrimSuffix(c.MemoryLimit, "m"), 10, 64); err == nil {
			c.Limits.Memory.Value = n << 20
		}
	}
	if req.ExpiresAfter != nil {
		c.ExpiresAfter = *req.ExpiresAfter
	}
	switch c.Labels[Pretend] {
	case Unenforced:
		c.Limits.Memory.Enforced = false
	case Expired:
		c.Status = "expired"
	}
	s.containers = append(s.containers, c)
	s.changedLocked()
	return c
}

func (s *Server) containerLocked(id string) *rpc.Container {
	for _, c := range s.containers {
		if c.ID == id && c.Status != "deleted" {
			return c
		}
	}
	return nil
}

func (s *Server) listContainers(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []rpc.Container
	for _, c := range slices.Backward(s.containers) {
		name := r.URL.Query().Get("name")
		if c.Status != "deleted" && (name == "" || name == c.Name) {
			live = append(live, *c)
		}
	}
	answer(w, page(r, live, func(c rpc.Container) string { return c.ID }))
}

// page cuts the page that the request asks for out of all objects.
func page[T any](r *http.Request, objects []T, id func(T) string) rpc.List[T] {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		limit = 20
	}
	if after := r.URL.Query().Get("after"); after != "" {
		at := slices.IndexFunc(objects, func(o T) bool { return id(o) == after })
		objects = objects[at+1:]
	}
	list := rpc.List[T]{Object: "list", Data: []T{}, HasMore: len(objects) > limit}
	list.Data = append(list.Data, objects[:min(limit, len(objects))]...)
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = id(list.Data[0]), id(list.Data[n-1])
	}
	return list
}

func (s *Server) container(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containerLocked(r.PathValue("id")); c != nil {
		answer(w, c)
		return
	}
	missing(w, "container", r.PathValue("id"))
}

func (s *Server) deleteContainer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containerLocked(r.PathValue("id"))
	if c == nil {
		missing(w, "container", r.PathValue("id"))
		return
	}
	c.Status = "deleted"
	s.changedLocked()
	answer(w, rpc.Deleted{ID: c.ID, Object: "container.deleted", Deleted: true})
}

func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cgroup := rpc.Cgroup{Version: 1}
	if slices.ContainsFunc(s.containers, func(c *rpc.Container) bool { return c.Labels[Pretend] == Unenforced }) {
		reason := "no cgroups here"
		cgroup = rpc.Cgroup{Reason: &reason}
	}
	answer(w, rpc.Info{
		Object: "info", Version: "1.2.3", PID: 42, Mode: "root", Ready: true,
		Engine: rpc.Engine{Status: "running", Version: "2.4.2", Address: "/run/containerd.sock"},
		Cgroup: cgroup, Containers: len(s.containers), Config: []string{}, Extensions: []string{},
	})
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	req := new(rpc.Shutdown)
	if err := json.NewDecoder(r.Body).Decode(req); err != nil && err != io.EOF { // an empty body is no shutdown of sandboxes
		fail(w, http.StatusBadRequest, "invalid_value", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shutdown = req
	s.changedLocked()
	answer(w, map[string]string{"status": "stopping"})
	s.wait.Go(s.stopServing)
}

// stopServing refuses connections from now on, a moment late, as daemons do
// that have something to put away. Requests under way are answered.
func (s *Server) stopServing() {
	late := time.NewTimer(stopDelay)
	defer late.Stop()
	select {
	case <-late.C:
	case <-s.life.Done():
	}
	_ = s.http.Shutdown(s.life) // Close waits for what this does not
}
