package socket

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestHTTPServer uses the package as the daemon and its clients do.
func TestHTTPServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	server := &http.Server{
		ConnContext: ConnContext,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := Authorize(r.Context()); err != nil {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}),
	}
	l := listenAt(t, path)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return Dial(ctx, path)
	}}}
	get := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shelld/", nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(request)
	}
	response, err := get()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", response.StatusCode, err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket after Shutdown: %v", err)
	}
	if response, err := get(); !errors.Is(err, ErrNotRunning) {
		if err == nil {
			err = response.Body.Close()
		}
		t.Errorf("request after Shutdown: %v, want ErrNotRunning", err)
	}
}
