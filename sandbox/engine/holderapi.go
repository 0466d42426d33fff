package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/shelld/shelld/rpc/socket"
)

// holderState is the answer of GET /state.
type holderState struct {
	PID        int       `json:"pid"`
	Containerd int       `json:"containerd_pid"`
	Mode       Mode      `json:"mode"`
	UIDs       []idRange `json:"uids"`
	GIDs       []idRange `json:"gids"`
}

const (
	// maxRequest bounds a request's body. Unit: bytes.
	maxRequest = 1 << 20
	// requestTime bounds one request to the holder.
	requestTime = 30 * time.Second
)

// serveHTTP answers on listener, which it closes, until ctx ends.
func (h *holder) serveHTTP(ctx context.Context, listener *net.UnixListener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { reply(w, h.state(), nil) })
	mux.HandleFunc("POST /rootfs", func(w http.ResponseWriter, r *http.Request) {
		var req rootRequest
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req)
		if err == nil {
			err = prepareRoot(h.dirs, req)
		}
		reply(w, struct{}{}, err)
	})
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, h.state(), nil)
		h.stop(errStopped)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Second, ReadTimeout: requestTime, WriteTimeout: requestTime,
		IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		budget, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), requestTime, errors.New("holder requests did not end"))
		defer cancel()
		stopped <- server.Shutdown(budget)
	}()
	err := server.Serve(sameUserListener{listener})
	if !errors.Is(err, http.ErrServerClosed) {
		h.stop(err)
		return errors.Join(fmt.Errorf("serve holder socket: %w", err), <-stopped)
	}
	return <-stopped
}

func (h *holder) state() holderState {
	return holderState{
		PID: os.Getpid(), Containerd: h.containerd.process(), Mode: h.mode,
		UIDs: h.uids, GIDs: h.gids,
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

func reply(w http.ResponseWriter, value any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		value = map[string]string{"error": err.Error()}
	}
	// A peer that has gone does not read the answer.
	_ = json.NewEncoder(w).Encode(value)
}

// sameUserListener drops connections of other users. The socket's mode keeps
// them out already; this holds when someone has opened its directory.
type sameUserListener struct{ *net.UnixListener }

// Accept implements [net.Listener].
func (l sameUserListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if peer, err := socket.ReadPeer(conn); err == nil && int(peer.UID) == os.Geteuid() {
			return conn, nil
		}
		// Nothing was written that Close could lose.
		_ = conn.Close()
	}
}
