package engine

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/rpc/socket/flock"
	"github.com/shelld/shelld/sandbox/engine/rundir"
)

// stage says how far a holder's namespaces are.
type stage string

const (
	// stageUnmapped: new namespaces, whose id maps the parent is writing. A
	// byte on descriptor mapsFD says that they are there.
	stageUnmapped stage = "unmapped"
	// stageFresh: new namespaces with the host's mounts.
	stageFresh stage = "fresh"
	// stageJoined: namespaces that an earlier holder has arranged.
	stageJoined stage = "joined"
)

const (
	// firstFD is the first descriptor that a parent passes besides 0-2.
	firstFD = 3
	// mapsFD is the descriptor on which a holder in [stageUnmapped] waits.
	mapsFD = firstFD
)

// holderArgs are the arguments of "shelld engine holder".
type holderArgs struct {
	dirs  Dirs
	mode  Mode
	stage stage
}

func (a holderArgs) args() []string {
	return []string{
		"--root", a.dirs.Root, "--run", a.dirs.Run, "--libexec", a.dirs.Libexec,
		"--mode", string(a.mode), "--stage", string(a.stage),
	}
}

func parseHolderArgs(args []string) (holderArgs, error) {
	var a holderArgs
	flags := flag.NewFlagSet("holder", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.dirs.Root, "root", "", "")
	flags.StringVar(&a.dirs.Run, "run", "", "")
	flags.StringVar(&a.dirs.Libexec, "libexec", "", "")
	flags.StringVar((*string)(&a.mode), "mode", "", "")
	flags.StringVar((*string)(&a.stage), "stage", "", "")
	if err := flags.Parse(args); err != nil {
		return a, fmt.Errorf("holder arguments: %w", err)
	}
	if err := a.dirs.validate(); err != nil {
		return a, fmt.Errorf("holder arguments: %w", err)
	}
	if a.mode != ModeRoot && a.mode != ModeRootless {
		return a, fmt.Errorf("holder arguments: mode %q", a.mode)
	}
	return a, nil
}

// RunHolder is the main function of "shelld engine holder", which only [Run]
// calls; args are what follows these words on the command line. It returns nil
// when it was told to stop, and otherwise runs until it is killed.
//
// ctx ending stops it as well, with containerd but not the sandboxes.
func RunHolder(ctx context.Context, args []string) error {
	a, err := parseHolderArgs(args)
	if err != nil {
		return err
	}
	if a.stage == stageUnmapped {
		return becomeMapped(a)
	}
	// The namespaces' descriptors of a joined holder, and whatever else was
	// inherited, end here instead of in containerd and every shim.
	if err := unix.CloseRange(firstFD, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors from programs: %w", err)
	}
	log, err := openRotating(a.dirs.log(), maxLog)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(log, nil)).With("part", "holder", "pid", os.Getpid())
	h := &holder{holderArgs: a, logger: logger}
	err = h.run(ctx, log)
	if err != nil {
		logger.Error("holder ended", "err", err)
	} else {
		logger.Info("holder stopped")
	}
	return errors.Join(err, log.Close())
}

// becomeMapped waits for the id maps and starts this program again: only an
// exec after that gives user id 0 its rights in the new namespace.
func becomeMapped(a holderArgs) error {
	maps := os.NewFile(mapsFD, "maps")
	if _, err := io.ReadFull(maps, make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for id maps: %w", err)
	}
	if err := maps.Close(); err != nil {
		return fmt.Errorf("wait for id maps: %w", err)
	}
	next := a
	next.stage = stageFresh
	argv := append(os.Args[:len(os.Args)-len(a.args()):len(os.Args)-len(a.args())], next.args()...)
	if err := unix.Exec("/proc/self/exe", argv, os.Environ()); err != nil {
		return fmt.Errorf("start holder again: %w", err)
	}
	return nil
}

type holder struct {
	holderArgs
	logger     *slog.Logger
	containerd *supervisor
	uids, gids []idRange
	// stop ends the holder.
	stop context.CancelCauseFunc
}

var errStopped = errors.New("told to stop")

func (h *holder) run(ctx context.Context, log io.Writer) (err error) {
	lock, err := flock.Take(ctx, h.dirs.rootLock())
	if errors.Is(err, flock.ErrHeld) {
		return fmt.Errorf("another engine uses %s: %w", h.dirs.Root, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if h.stage == stageFresh {
		if err := arrangeMounts(h.dirs); err != nil {
			return err
		}
		if err := recordNamespace(h.dirs); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if h.uids, err = readIDMap("/proc/self/uid_map"); err != nil {
		return err
	}
	if h.gids, err = readIDMap("/proc/self/gid_map"); err != nil {
		return err
	}
	if err := removeHalves(h.dirs); err != nil {
		return err
	}
	config, err := renderConfig(h.dirs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(h.dirs.containerdConfig(), config, 0o600); err != nil {
		return fmt.Errorf("write containerd configuration: %w", err)
	}
	if err := h.prepareRun(); err != nil {
		return err
	}
	h.containerd = &supervisor{
		path:   h.dirs.binary(binContainerd),
		args:   []string{"--config", h.dirs.containerdConfig()},
		env:    []string{"PATH=" + h.dirs.Libexec + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		output: log,
		logger: h.logger,
	}
	return h.serve(ctx)
}

// prepareRun makes the directory of the guests' sockets. Root of a sandbox
// passes through it, so it may be entered but not listed.
func (h *holder) prepareRun() error {
	if err := os.MkdirAll(rundir.Guests(h.dirs.Run), 0o711); err != nil { //nolint:gosec // to be entered
		return fmt.Errorf("make guest directory: %w", err)
	}
	return nil
}

// serve runs containerd and answers the daemon until it is told to stop.
func (h *holder) serve(ctx context.Context) error {
	ctx, h.stop = context.WithCancelCause(ctx)
	defer h.stop(nil)
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, syscall.SIGCHLD)
	defer signal.Stop(sigchld)

	// We hold the lock, so a socket that is there is a dead holder's.
	if err := os.Remove(h.dirs.holderSocket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old holder socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: h.dirs.holderSocket()})
	if err != nil {
		return fmt.Errorf("listen for the daemon: %w", err)
	}
	if err := os.Chmod(h.dirs.holderSocket(), 0o600); err != nil {
		return errors.Join(fmt.Errorf("close holder socket to others: %w", err), listener.Close())
	}
	if err := h.record(); err != nil {
		return errors.Join(err, listener.Close())
	}

	var group sync.WaitGroup
	group.Go(func() {
		// It ends only with ctx.
		_ = h.containerd.run(ctx)
	})
	group.Go(func() {
		reapOrphans(ctx, sigchld, func(pid int) bool { return pid == h.containerd.process() })
	})
	h.logger.Info("holder started", "mode", h.mode, "stage", h.stage, "version", version())
	err = h.serveHTTP(ctx, listener)
	h.stop(err)
	group.Wait()
	if err == nil || errors.Is(context.Cause(ctx), errStopped) {
		return h.cleanUp()
	}
	return err
}

// cleanUp removes what a stopped engine leaves in the run directory.
func (h *holder) cleanUp() error {
	var errs []error
	for _, path := range []string{
		h.dirs.holderState(), h.dirs.holderSocket(),
		h.dirs.containerdSocket(), h.dirs.containerdSocket() + ".ttrpc",
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// holderRecord is what a holder leaves for those who come after it.
type holderRecord struct {
	PID     int       `json:"pid"`
	Mode    Mode      `json:"mode"`
	Started time.Time `json:"started"`
}

// record writes the record. It exists from when a holder has started until it
// was told to stop, so a record without a holder means that one was killed.
func (h *holder) record() error {
	data, err := json.Marshal(holderRecord{PID: os.Getpid(), Mode: h.mode, Started: time.Now()})
	if err != nil {
		return fmt.Errorf("encode holder record: %w", err)
	}
	return replaceFile(h.dirs.holderState(), data)
}
