package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/rpc/socket/flock"
)

// HostOptions are the options of an engine process.
type HostOptions struct {
	Dirs
	// HolderCommand is the command line that runs [RunHolder]; arguments are
	// appended. Nil: this executable with "engine holder".
	HolderCommand []string
	// Host is where the requirements are looked up; zero: this machine.
	Host Host
	// Ready is called whenever a holder answers, at the start and after each
	// one that died. Nil: nobody is told.
	Ready func()
	// Logger gets state changes; nil discards them.
	Logger *slog.Logger
}

const (
	// holderStart is how long a holder may take to answer.
	holderStart = 10 * time.Second
	// holderPoll is the pause between two looks for an answer.
	holderPoll = 5 * time.Millisecond
)

// Run is the engine process. It finds the holder of dirs or starts one, starts
// another when it dies, and returns nil when ctx ends, leaving the holder, or
// when the holder was told to stop ([Engine.Stop]).
//
// Errors that match [sandbox.ErrUnavailable] say what this machine lacks.
func Run(ctx context.Context, opts HostOptions) (err error) {
	if err := opts.validate(); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.HolderCommand == nil {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own executable: %w", err)
		}
		opts.HolderCommand = []string{exe, "engine", "holder"}
	}
	mode := hostMode()
	if err := Require(opts.Host, opts.Dirs, mode); err != nil {
		return err
	}
	if err := prepareDirs(opts.Dirs); err != nil {
		return err
	}
	lock, err := flock.Try(opts.engineLock())
	if errors.Is(err, flock.ErrHeld) {
		return fmt.Errorf("another engine process serves %s: %w", opts.Run, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	h := &host{HostOptions: opts, mode: mode, client: newHolderClient(opts.Dirs)}
	defer h.client.close()
	return h.run(ctx)
}

type host struct {
	HostOptions
	mode   Mode
	client *holderClient
}

func (h *host) run(ctx context.Context) error {
	var pauses backoff
	for {
		started := time.Now()
		err := h.holderLife(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case h.wasStopped():
			h.Logger.Info("engine stopped")
			return nil
		}
		pause := pauses.next(time.Since(started))
		h.Logger.Warn("holder died, starting another", "pause_ms", pause.Milliseconds())
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

// wasStopped reports whether the last holder was told to stop: it then has
// removed its record.
func (h *host) wasStopped() bool {
	_, err := os.Stat(h.holderState())
	return errors.Is(err, os.ErrNotExist)
}

// holderLife finds or starts a holder and returns when it has ended.
func (h *host) holderLife(ctx context.Context) error {
	state, err := h.client.state(ctx)
	if err != nil {
		if state, err = h.startHolder(ctx); err != nil {
			return err
		}
	}
	h.Logger.Info("holder is up", "pid", state.PID, "mode", state.Mode)
	if h.Ready != nil {
		h.Ready()
	}
	return waitProcess(ctx, state.PID)
}

// waitProcess returns when the process has ended, or ctx.
func waitProcess(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	ended := make(chan error, 1)
	stop, err := newWaker()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	go func() {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(stop.read.Fd()), Events: unix.POLLIN}}
		for {
			_, err := unix.Poll(fds, -1)
			if !errors.Is(err, unix.EINTR) {
				ended <- err
				return
			}
		}
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = errors.Join(stop.wake(), <-ended)
	}
	return errors.Join(err, file.Close(), stop.close())
}

// waker ends a poll.
type waker struct{ read, write *os.File }

func newWaker() (*waker, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return &waker{read, write}, nil
}

func (w *waker) wake() error {
	_, err := w.write.Write([]byte{0})
	return err
}

func (w *waker) close() error { return errors.Join(w.read.Close(), w.write.Close()) }
