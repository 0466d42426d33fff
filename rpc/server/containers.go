package server

import (
	"net/http"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

func (s *server) createContainer(w http.ResponseWriter, r *http.Request) error {
	var req rpc.ContainerCreate
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	if req.Name == "" {
		return missing("name", "name is required and must not be empty")
	}
	spec, err := s.containerSpec(req, "")
	if err != nil {
		return err
	}
	c, err := s.opts.Manager.Create(r.Context(), spec)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, containerObject(c))
	return nil
}

func (s *server) listContainers(w http.ResponseWriter, r *http.Request) error {
	q, err := listQuery(r.URL.Query())
	if err != nil {
		return err
	}
	q.Name = r.URL.Query().Get("name")
	containers, more, err := s.opts.Manager.Containers(r.Context(), q)
	if err != nil {
		return err
	}
	objects := make([]rpc.Container, len(containers))
	for i, c := range containers {
		objects[i] = containerObject(c)
	}
	s.writeJSON(w, r, http.StatusOK, page(objects, func(c rpc.Container) string { return c.ID }, more))
	return nil
}

func (s *server) getContainer(w http.ResponseWriter, r *http.Request) error {
	c, err := s.opts.Manager.Container(r.Context(), sandbox.ID(r.PathValue("container_id")))
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, containerObject(c))
	return nil
}

func (s *server) deleteContainer(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("container_id")
	if err := s.opts.Manager.Delete(r.Context(), sandbox.ID(id)); err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, rpc.Deleted{ID: id, Object: "container.deleted", Deleted: true})
	return nil
}

func containerObject(c sandbox.Container) rpc.Container {
	labels := c.Spec.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return rpc.Container{
		ID:            string(c.ID),
		Object:        "container",
		CreatedAt:     c.CreatedAt.Unix(),
		Name:          c.Spec.Name,
		Status:        string(c.Status),
		StatusReason:  optional(oneLine(c.StatusReason)),
		LastActiveAt:  c.LastActiveAt.Unix(),
		ExpiresAfter:  rpc.ExpiresAfter{Anchor: anchor, Minutes: c.Spec.IdleMinutes},
		MemoryLimit:   c.Spec.MemoryLimit,
		NetworkPolicy: rpc.NetworkPolicy{Type: policyDisabled},
		Image:         c.Spec.Image,
		Limits:        rpc.Limits{Memory: rpc.Limit(c.Limits.Memory), Pids: rpc.Limit(c.Limits.Pids)},
		Labels:        labels,
		Auto:          c.Auto,
	}
}

// optional returns nil for the zero value, which JSON shows as null.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
