package server

import (
	"net/http"

	"github.com/shelld/shelld/rpc"
)

func (s *server) getInfo(w http.ResponseWriter, r *http.Request) error {
	info := s.opts.Info(r.Context())
	info.Object = "info"
	info.Ready = true
	if err := s.opts.Manager.Ready(); err != nil {
		info.Ready, info.NotReady = false, optional(err.Error())
	}
	info.Containers, info.Runs = s.opts.Manager.Counts()
	s.writeJSON(w, r, http.StatusOK, info)
	return nil
}

func (s *server) shutdown(w http.ResponseWriter, r *http.Request) error {
	var req rpc.Shutdown
	if r.ContentLength != 0 {
		if err := decode(w, r, &req, true); err != nil {
			return err
		}
	}
	s.log.InfoContext(r.Context(), "shutdown requested", "sandboxes", req.Sandboxes)
	s.opts.Shutdown(req.Sandboxes)
	s.writeJSON(w, r, http.StatusOK, rpc.Status{Status: "stopping"})
	return nil
}

func (s *server) healthz(w http.ResponseWriter, r *http.Request) error {
	s.writeJSON(w, r, http.StatusOK, rpc.Status{Status: "ok"})
	return nil
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Manager.Ready(); err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, rpc.Status{Status: "ready"})
	return nil
}

func (s *server) openAPI(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	if _, err := w.Write(rpc.OpenAPI); err != nil {
		s.log.DebugContext(r.Context(), "document not sent", "err", err)
	}
	return nil
}
