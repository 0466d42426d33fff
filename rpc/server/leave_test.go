package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

// abandon sends a request and leaves when gone says so.
func (a *api) abandon(path, body string, gone func() bool) {
	a.t.Helper()
	ctx, cancel := context.WithCancelCause(a.t.Context())
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := a.client.Do(req); err == nil {
			_ = resp.Body.Close() // nobody reads it
			a.t.Errorf("POST %s answered %d before its client left", path, resp.StatusCode)
		}
	}()
	eventually(a.t, "the request is under way", gone)
	cancel(errors.New("client left"))
	<-done
}

// A call whose client leaves is canceled, and a container that nobody waits for
// is not made.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	a := ready(t)
	started := func() bool { return a.world.Boxes.Count(sandboxtest.OpStart) > 0 }
	a.abandon("/v1/shell_calls", callBody("", `,"call_id":"left"`, "out x; hang"), started)
	eventually(t, "the call is canceled", func() bool {
		var list rpc.List[rpc.ShellCall]
		a.get("/v1/shell_calls?status=canceled", &list)
		return len(list.Data) == 1 && list.Data[0].Results[0].Reason == "canceled"
	})

	a.world.Backend.On(sandboxtest.OpCreate, sandboxtest.Hang())
	creates := a.world.Backend.Count(sandboxtest.OpCreate)
	a.abandon("/v1/containers", `{"name":"x"}`, func() bool { return a.world.Backend.Count(sandboxtest.OpCreate) > creates })
	eventually(t, "nothing is left of the create", func() bool {
		n, runs := a.manager.Counts()
		return n == 1 && runs == 0 // the container of the call is kept
	})
}

// The same call sent by many clients, some of whom leave, runs once.
func TestSameCall(t *testing.T) {
	t.Parallel()
	a := ready(t)
	body := callBody("", `,"call_id":"same"`, "out x; sleep 300ms")
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			var call rpc.ShellCall
			a.post("/v1/shell_calls", body, &call)
			ids[i] = call.ID
		})
	}
	wg.Go(func() {
		a.abandon("/v1/shell_calls", body, func() bool { return a.world.Boxes.Count(sandboxtest.OpStart) > 0 })
	})
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("two calls: %s and %s", id, ids[0])
		}
	}
	if n := a.world.Boxes.Count(sandboxtest.OpStart); n != 1 {
		t.Errorf("%d commands started, want 1", n)
	}
}
