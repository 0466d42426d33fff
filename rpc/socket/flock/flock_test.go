package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTake(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), path); !errors.Is(err, ErrHeld) {
		t.Fatalf("second Take: %v, want ErrHeld", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Take(t.Context(), path)
	if err != nil {
		t.Fatalf("Take after Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTryDoesNotWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Errorf("second Try: %v, want ErrHeld", err)
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("second Try took %v", took)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Try(path)
	if err != nil {
		t.Fatalf("Try after Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestTakeWaitsForAHolderThatEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	timer := time.AfterFunc(5*pause, func() { released <- first.Close() })
	defer timer.Stop()
	second, err := Take(t.Context(), path)
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	if err := errors.Join(<-released, second.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestTakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	reason := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if _, err := Take(ctx, path); !errors.Is(err, reason) {
		t.Fatalf("Take: %v, want the context's cause", err)
	}
}

func TestTakeRefusesALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), path); err != nil {
		t.Fatal(err)
	}
	if lock, err := Take(t.Context(), path); err == nil {
		t.Fatalf("Take followed a link: %v", lock.Close())
	}
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the link's target was made: %v", err)
	}
}
