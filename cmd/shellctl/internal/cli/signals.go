package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupt is the cause of a context that a signal ended.
type interrupt struct{ signal syscall.Signal }

func (i *interrupt) Error() string { return fmt.Sprintf("ended by signal %d", int(i.signal)) }

// interruption returns the signal that ended ctx as an error, or nil.
func interruption(ctx context.Context) error {
	var i *interrupt
	if errors.As(context.Cause(ctx), &i) {
		return i
	}
	return nil
}

// withSignals returns a context that the first of the signals that end programs
// cancels; the second calls exit. Signals that are ignored already stay so:
// nohup and background jobs of scripts rely on it.
func withSignals(ctx context.Context, exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	got := make(chan os.Signal, 2) // the first two count
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(got, sig)
		}
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := 0; ; n++ {
			select {
			case sig := <-got:
				number, _ := sig.(syscall.Signal)
				if n > 0 {
					exit(128 + int(number))
					return
				}
				cancel(&interrupt{signal: number})
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(got)
		close(done)
		wait.Wait()
		cancel(nil)
	}
}
