package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shelld/shelld/sandbox"
)

// envWriter makes the test binary a writer of the file that it names.
const envWriter = "SHELLD_TEST_STORE_WRITER"

func TestMain(m *testing.M) {
	if file := os.Getenv(envWriter); file != "" {
		if err := writeForEver(context.Background(), file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this is a main
		}
	}
	m.Run()
}

// writeForEver says on stdout, after each write, what has been written.
func writeForEver(ctx context.Context, file string) error {
	s, err := Open(ctx, file)
	if err != nil {
		return err
	}
	for {
		c := container()
		call := sandbox.Call{
			ID: sandbox.NewCallID(), ContainerID: c.ID, Status: sandbox.CallInProgress, CreatedAt: time.Now(),
			Spec: sandbox.CallSpec{CallID: string(c.ID), Commands: []string{strings.Repeat("x", 10_000)}},
		}
		err := s.PutContainer(ctx, c)
		if err == nil {
			_, _, err = s.AddCall(ctx, "", call)
		}
		if err == nil {
			call.Status, call.CompletedAt = sandbox.CallCompleted, time.Now()
			err = s.PutCall(ctx, call)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(os.Stdout, call.ID); err != nil {
			return err
		}
	}
}

// A writer that is killed at any moment has lost nothing of what it said to be
// written, and the next one goes on.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state.db")
	var acknowledged []sandbox.CallID
	for round := range 5 {
		acknowledged = append(acknowledged, killWriter(t, file, 20+17*round)...)
		s, err := Open(t.Context(), file)
		if err != nil {
			t.Fatalf("open after kill: %v", err)
		}
		for _, id := range acknowledged {
			if call, err := s.Call(t.Context(), id); err != nil || call.Status != sandbox.CallCompleted {
				t.Errorf("acknowledged call %s is %q: %v", id, call.Status, err)
			}
		}
		var result string
		if err := s.read.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
			t.Errorf("integrity: %s, %v", result, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// killWriter kills a writer after it has acknowledged n writes and returns all
// that it acknowledged.
func killWriter(t *testing.T, file string, n int) (ids []sandbox.CallID) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("the writer is stuck"))
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0]) // the test itself
	cmd.Env = append(os.Environ(), envWriter+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		ids = append(ids, sandbox.CallID(lines.Text()))
		if len(ids) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Errorf("kill: %v", err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(ids) < n {
		t.Fatalf("the writer ended by itself after %d writes: %v", len(ids), err)
	}
	if last := len(ids) - 1; !ids[last].Valid() {
		ids = ids[:last] // half a line
	}
	return ids
}
