package sandboxtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shelld/shelld/sandbox"
)

// RunStore tests that a store keeps the promises of [sandbox.Store]. open
// returns an empty store, which it closes at the end of the test.
func RunStore(t *testing.T, open func(t *testing.T) sandbox.Store) {
	t.Helper()
	for name, test := range map[string]func(storeSuite){
		"containers":             storeContainers,
		"order of containers":    storeContainerOrder,
		"calls":                  storeCalls,
		"same call id":           storeSameCallID,
		"call by its key":        storeCallByKey,
		"same call id at once":   storeSameCallIDAtOnce,
		"pages":                  storePages,
		"pages of a selection":   storeSelection,
		"open and old calls":     storeOpenAndOld,
		"absent objects":         storeAbsent,
		"writers and readers":    storeConcurrent,
		"texts of every kind":    storeTexts,
		"copies, not references": storeCopies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(storeSuite{t, open(t)})
		})
	}
}

// storeSuite is one test of the suite.
type storeSuite struct {
	t     *testing.T
	store sandbox.Store
}

// epoch is the time of the first record; times in records are whole
// nanoseconds without a monotonic clock.
func epoch() time.Time { return time.Unix(1_790_000_000, 123_456_789) }

func sampleContainer(i int) sandbox.Container {
	at := epoch().Add(time.Duration(i) * time.Second)
	return sandbox.Container{
		ID: sandbox.NewID(), Status: sandbox.StatusRunning, StatusReason: "", CreatedAt: at, LastActiveAt: at, Auto: i%2 == 1,
		Spec: sandbox.Spec{
			Name: fmt.Sprint("c", i), Image: sandbox.ImageHost, IdleMinutes: 20, MemoryLimit: "1g", MemoryBytes: 1 << 30,
			Env: map[string]string{"A": "b"}, Labels: map[string]string{"l": "m"},
		},
		Limits: sandbox.Limits{Memory: sandbox.Limit{Value: 1 << 30, Enforced: true}, Pids: sandbox.Limit{Value: 512}},
	}
}

func sampleCall(container sandbox.ID, callID string) sandbox.Call {
	spec := sandbox.CallSpec{
		CallID: callID, Commands: []string{"true", "false"}, Timeout: time.Minute, MaxOutput: 65536,
		Env: map[string]string{"K": "v"}, Dir: "/mnt/data", Background: true, ContainerID: container,
	}
	return sandbox.Call{
		ID: sandbox.NewCallID(), ContainerID: container, Status: sandbox.CallInProgress, CreatedAt: epoch(),
		Spec: spec, Fingerprint: spec.Fingerprint(),
	}
}

func completed(c sandbox.Call, at time.Time) sandbox.Call {
	c.Status, c.CompletedAt = sandbox.CallCompleted, at
	c.Results = []sandbox.Result{
		{Reason: sandbox.ReasonExit, Duration: time.Second, CPU: time.Millisecond, Stdout: "o", StdoutBytes: 1, Background: []int{4}, StdoutMeta: []byte(`{"a":1}`)},
		{Reason: sandbox.ReasonSignal, ExitCode: 137, Signal: syscall.SIGKILL, Note: "n", Truncated: true},
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, s sandbox.Store, scope string, c sandbox.Call) {
	t.Helper()
	if existing, added, err := s.AddCall(t.Context(), scope, c); err != nil || !added {
		t.Fatalf("add call: %+v, %t, %v; want it to be added", existing, added, err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
}

func storeContainers(suite storeSuite) {
	t, s := suite.t, suite.store
	ctx := t.Context()
	c := sampleContainer(1)
	must(t, s.PutContainer(ctx, c))
	list, err := s.Containers(ctx)
	must(t, err)
	same(t, "containers", list, []sandbox.Container{c})

	c.Status, c.StatusReason, c.EndedAt = sandbox.StatusFailed, "it broke", epoch().Add(time.Hour)
	must(t, s.PutContainer(ctx, c))
	c.LastActiveAt = epoch().Add(2 * time.Hour)
	must(t, s.TouchContainer(ctx, c.ID, c.LastActiveAt))
	list, err = s.Containers(ctx)
	must(t, err)
	same(t, "containers", list, []sandbox.Container{c})

	must(t, s.DeleteContainer(ctx, c.ID, epoch()))
	list, err = s.Containers(ctx)
	must(t, err)
	same(t, "number of containers", len(list), 0)
}

func storeCallByKey(suite storeSuite) {
	t, s := suite.t, suite.store
	c := sampleCall(sandbox.NewID(), "a")
	add(t, s, "scope", c)
	got, err := s.CallByKey(t.Context(), "scope", "a")
	must(t, err)
	same(t, "calls", got, c)
	for _, key := range [][2]string{{"scope", "b"}, {"", "a"}, {"SCOPE", "a"}} {
		if _, err := s.CallByKey(t.Context(), key[0], key[1]); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("call with key %q: %v, want ErrNotFound", key, err)
		}
	}
}

func storeContainerOrder(suite storeSuite) {
	t, s := suite.t, suite.store
	ctx := t.Context()
	var want []sandbox.Container
	for i := range 5 {
		want = append(want, sampleContainer(i))
	}
	for _, i := range []int{3, 0, 4, 1, 2} {
		must(t, s.PutContainer(ctx, want[i]))
	}
	list, err := s.Containers(ctx)
	must(t, err)
	same(t, "containers", list, want)
}

func storeCalls(suite storeSuite) {
	t, s := suite.t, suite.store
	ctx := t.Context()
	c := sampleCall(sandbox.NewID(), "one")
	add(t, s, string(c.ContainerID), c)
	got, err := s.Call(ctx, c.ID)
	must(t, err)
	same(t, "calls", got, c)

	c = completed(c, epoch().Add(time.Second))
	c.ContainerID = sandbox.NewID() // the container of an automatic call is known later
	must(t, s.PutCall(ctx, c))
	got, err = s.Call(ctx, c.ID)
	must(t, err)
	same(t, "calls", got, c)

	must(t, s.DeleteCall(ctx, c.ID))
	if _, err := s.Call(ctx, c.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("deleted call: error %v, want ErrNotFound", err)
	}
}

func storeSameCallID(suite storeSuite) {
	t, s := suite.t, suite.store
	ctx := t.Context()
	id := sandbox.NewID()
	first := sampleCall(id, "same")
	add(t, s, "scope", first)
	second := sampleCall(id, "same")
	existing, added, err := s.AddCall(ctx, "scope", second)
	must(t, err)
	if added {
		t.Error("the same call id was added twice")
	}
	same(t, "calls", existing, first)
	if _, err := s.Call(ctx, second.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the second call was recorded: %v", err)
	}
	add(t, s, "other scope", second)
	add(t, s, "scope", sampleCall(id, "other"))
	must(t, s.DeleteCall(ctx, first.ID))
	add(t, s, "scope", sampleCall(id, "same"))
}

func storeSameCallIDAtOnce(suite storeSuite) {
	t, s := suite.t, suite.store
	var mu sync.Mutex
	var winners, ids []sandbox.CallID
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c := sampleCall("", "same")
			existing, added, err := s.AddCall(t.Context(), "", c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("add call: %v", err)
			case added:
				winners, ids = append(winners, c.ID), append(ids, c.ID)
			default:
				ids = append(ids, existing.ID)
			}
		})
	}
	wg.Wait()
	if slices.Sort(ids); len(winners) != 1 || len(slices.Compact(ids)) != 1 {
		t.Errorf("%d calls were added and %d different ones returned, want 1 and 1", len(winners), len(slices.Compact(ids)))
	}
}

// walk reads all pages of a query.
func walk(t *testing.T, s sandbox.Store, q sandbox.Query) (ids []sandbox.CallID) {
	t.Helper()
	for range 1000 {
		page, more, err := s.Calls(t.Context(), q)
		must(t, err)
		if len(page) > q.Limit || more && len(page) != q.Limit {
			t.Fatalf("page of %d calls (more: %t), limit %d", len(page), more, q.Limit)
		}
		for _, c := range page {
			ids = append(ids, c.ID)
		}
		if !more {
			return ids
		}
		q.After = string(page[len(page)-1].ID)
	}
	t.Fatal("the pages have no end")
	return nil
}

func storePages(suite storeSuite) {
	t, s := suite.t, suite.store
	var want []sandbox.CallID
	for i := range 7 {
		c := sampleCall("", fmt.Sprint(i)) // all are created at the same moment
		add(t, s, "", c)
		want = append(want, c.ID)
	}
	for limit := 1; limit <= 8; limit++ {
		same(t, "ascending ids", walk(t, s, sandbox.Query{Limit: limit, Ascending: true}), want)
		got := walk(t, s, sandbox.Query{Limit: limit})
		slices.Reverse(got)
		same(t, "descending ids", got, want)
	}
	// A call that is added between two pages neither repeats nor hides one.
	page, _, err := s.Calls(t.Context(), sandbox.Query{Limit: 3})
	must(t, err)
	add(t, s, "", sampleCall("", "new"))
	rest := walk(t, s, sandbox.Query{Limit: 3, After: string(page[2].ID)})
	same(t, "number of calls on later pages", len(rest), 4)
	if _, _, err := s.Calls(t.Context(), sandbox.Query{Limit: 1, After: "shc_unknown"}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("unknown after: error %v, want ErrInvalid", err)
	}
}

func storeSelection(suite storeSuite) {
	t, s := suite.t, suite.store
	a, b := sandbox.NewID(), sandbox.NewID()
	var ofA, doneOfA []sandbox.CallID
	for i := range 6 {
		id := a
		if i%3 == 0 {
			id = b
		}
		c := sampleCall(id, fmt.Sprint(i))
		add(t, s, string(id), c)
		if i%2 == 0 {
			must(t, s.PutCall(t.Context(), completed(c, epoch())))
		}
		if id == a {
			ofA = append(ofA, c.ID)
			if i%2 == 0 {
				doneOfA = append(doneOfA, c.ID)
			}
		}
	}
	same(t, "ids of a container", walk(t, s, sandbox.Query{Limit: 1, Ascending: true, Container: a}), ofA)
	same(t, "ids of a status", walk(t, s, sandbox.Query{Limit: 1, Ascending: true, Container: a, Status: sandbox.CallCompleted}), doneOfA)
}

func storeOpenAndOld(suite storeSuite) {
	t, s := suite.t, suite.store
	ctx := t.Context()
	c := sampleContainer(0)
	must(t, s.PutContainer(ctx, c))
	open, kept, old := sampleCall(c.ID, "open"), sampleCall(c.ID, "kept"), sampleCall(sandbox.NewID(), "old")
	for _, call := range []sandbox.Call{open, kept, old} {
		add(t, s, string(call.ContainerID), call)
	}
	must(t, s.PutCall(ctx, completed(kept, epoch())))
	must(t, s.PutCall(ctx, completed(old, epoch())))

	list, err := s.OpenCalls(ctx)
	must(t, err)
	same(t, "open calls", list, []sandbox.Call{open})

	ids, err := s.OldCalls(ctx, epoch().Add(-time.Nanosecond))
	must(t, err)
	same(t, "number of old calls before they ended", len(ids), 0)
	ids, err = s.OldCalls(ctx, epoch().Add(time.Nanosecond))
	must(t, err)
	same(t, "old calls", ids, []sandbox.CallID{old.ID})
	must(t, s.DeleteContainer(ctx, c.ID, epoch().Add(time.Hour)))
	ids, err = s.OldCalls(ctx, epoch().Add(time.Minute))
	must(t, err)
	same(t, "number of old calls before their container ended", len(ids), 1)
	ids, err = s.OldCalls(ctx, epoch().Add(time.Hour))
	must(t, err)
	same(t, "number of old calls", len(ids), 2) // the open one never grows old
}

func storeAbsent(suite storeSuite) {
	t, s := suite.t, suite.store
	ctx := t.Context()
	must(t, s.DeleteContainer(ctx, sandbox.NewID(), epoch()))
	must(t, s.TouchContainer(ctx, sandbox.NewID(), epoch()))
	must(t, s.DeleteCall(ctx, sandbox.NewCallID()))
	must(t, s.PutCall(ctx, sampleCall("", "never added")))
	if _, err := s.Call(ctx, sandbox.NewCallID()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("call: error %v, want ErrNotFound", err)
	}
	page, more, err := s.Calls(ctx, sandbox.Query{Limit: 10})
	must(t, err)
	if len(page) > 0 || more {
		t.Errorf("an empty store has calls: %v, %t", page, more)
	}
	list, err := s.Containers(ctx)
	must(t, err)
	same(t, "number of containers", len(list), 0)
}

func storeConcurrent(suite storeSuite) {
	t, s := suite.t, suite.store
	const writers, each = 8, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				c := sampleContainer(i)
				call := sampleCall(c.ID, fmt.Sprint(w, ".", i))
				_, _, err := s.AddCall(t.Context(), string(c.ID), call)
				if err := errors.Join(s.PutContainer(t.Context(), c), err, s.PutCall(t.Context(), completed(call, epoch()))); err != nil {
					t.Errorf("write: %v", err)
				}
				// What has been written is read at once.
				if got, err := s.Call(t.Context(), call.ID); err != nil || got.Status != sandbox.CallCompleted {
					t.Errorf("read after write: %s, %v", got.Status, err)
				}
			}
		})
		wg.Go(func() {
			for range each {
				_, err := s.Containers(t.Context())
				_, _, err2 := s.Calls(t.Context(), sandbox.Query{Limit: 100})
				if err := errors.Join(err, err2); err != nil {
					t.Errorf("read: %v", err)
				}
			}
		})
	}
	wg.Wait()
	list, err := s.Containers(t.Context())
	must(t, err)
	same(t, "number of containers", len(list), writers*each)
	same(t, "number of calls", len(walk(t, s, sandbox.Query{Limit: 33})), writers*each)
}

func storeTexts(suite storeSuite) {
	t, s := suite.t, suite.store
	for i, text := range []string{"", "'; DROP TABLE calls; --", "日本🙂\u2028<&>", "a\x01\x1b[31m\t\r\n", string(make([]byte, 64<<10))} {
		key := string([]rune(text)[:min(9, len([]rune(text)))])
		c := sampleCall("", fmt.Sprint("id", key, i))
		c.Spec.Commands = []string{text}
		add(t, s, key, c)
		got, err := s.Call(t.Context(), c.ID)
		must(t, err)
		if got.Spec.Commands[0] != text || got.Spec.CallID != c.Spec.CallID {
			t.Errorf("text %d came back changed", i)
		}
	}
}

func storeCopies(suite storeSuite) {
	t, s := suite.t, suite.store
	c := sampleContainer(0)
	must(t, s.PutContainer(t.Context(), c))
	c.Spec.Env["A"] = "changed"
	list, err := s.Containers(t.Context())
	must(t, err)
	if got := list[0].Spec.Env["A"]; got != "b" {
		t.Errorf("the record changed with its writer's copy: %q", got)
	}
}
