package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/engine/hostimage"
	"github.com/shelld/shelld/sandbox/engine/rundir"
)

const (
	snapshotter = "native"
	runtimeName = "io.containerd.runc.v2"
	// leaseTime is when containerd may collect what a create that died with
	// the daemon left without a container.
	leaseTime = time.Hour
	// createBudget bounds the making of one sandbox.
	createBudget = time.Minute
	// guestPoll is the pause between two looks for the guest's socket.
	guestPoll = time.Millisecond
)

// Create makes and starts a sandbox; see [sandbox.Backend].
func (e *Engine) Create(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Instance, error) {
	if !spec.ID.Valid() {
		return sandbox.Instance{}, sandbox.Invalid("", "container id %q is not valid", spec.ID)
	}
	if spec.Image != sandbox.ImageHost {
		return sandbox.Instance{}, &sandbox.Error{
			Class: sandbox.ErrInvalid, Code: sandbox.CodeUnsupported, Param: "image",
			Message: fmt.Sprintf("image %q is not supported; the only image is %q", spec.Image, sandbox.ImageHost),
		}
	}
	image, err := e.hostImage()
	if err != nil {
		return sandbox.Instance{}, err
	}
	slot, err := e.takeSlot(ctx)
	if err != nil {
		return sandbox.Instance{}, err
	}
	// A step that is canceled half-way may yet come to be done, after it was
	// taken back. So steps are whole, and a caller that leaves counts between
	// them.
	work, cancel := context.WithTimeoutCause(withNamespace(context.WithoutCancel(ctx)), createBudget, errors.New("the engine took too long"))
	defer cancel()
	box := &box{
		engine: e, spec: spec, key: spec.ID.Key(), image: image, slot: slot, last: time.Now(),
		left: func() error { return context.Cause(ctx) },
	}
	task, err := box.start(work)
	if err != nil {
		return sandbox.Instance{}, errors.Join(err, box.undo(ctx))
	}
	e.logger.Debug("sandbox made", append([]any{"sandbox_id", spec.ID}, box.steps...)...)
	return sandbox.Instance{ID: spec.ID, Running: true, PID: int(task.Pid())}, nil
}

// hostImage looks at the host anew each time: packages come and go.
func (e *Engine) hostImage() (*hostimage.Image, error) {
	image, err := hostimage.Detect(hostimage.Options{
		HostPaths: e.opts.HostPaths,
		Private:   []string{e.opts.Root, e.opts.Run},
	})
	if errors.Is(err, hostimage.ErrLayout) || errors.Is(err, hostimage.ErrHostPath) {
		return nil, sandbox.Unavailable(sandbox.CodeNotReady, nil, "%v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("look at host: %w", err)
	}
	if len(image.Missing) > 0 {
		e.logger.Warn("host paths left out, because they are missing or closed to shelld", "paths", image.Missing)
	}
	return image, nil
}

// box is a sandbox that is being made.
type box struct {
	engine *Engine
	spec   sandbox.BoxSpec
	key    string
	image  *hostimage.Image
	slot   idSlot

	// claimed says that the snapshot with the sandbox's key is ours, and so
	// is everything else with that key.
	claimed bool
	// left says why the caller does not want the sandbox any more.
	left func() error
	// steps are the names of the steps and how long they took, for the log.
	steps []any
	last  time.Time
}

// did notes that the step of that name has been done. The error says that
// there is no need for another.
func (b *box) did(name string) error {
	now := time.Now()
	b.steps = append(b.steps, name+"_ms", float64(now.Sub(b.last).Microseconds())/1000)
	b.last = now
	return b.left()
}

// undo removes what start has made.
func (b *box) undo(ctx context.Context) error {
	ctx, cancel := undoContext(ctx)
	defer cancel()
	if b.claimed {
		if _, err := b.engine.remove(ctx, b.spec.ID); err != nil {
			return err // its ids stay taken
		}
	}
	b.engine.giveSlot(b.slot.number)
	return nil
}

// start makes everything of the sandbox and returns when its guest listens.
// What it made stays when it fails.
func (b *box) start(ctx context.Context) (containerd.Task, error) {
	client := b.engine.client
	// Without a lease a collection at this moment would take the snapshot,
	// which no container refers to yet.
	leased, release, err := client.WithLease(ctx, leases.WithRandomID(), leases.WithExpiration(leaseTime))
	if err != nil {
		return nil, wrap(ctx, "lease", err)
	}
	err = b.did("lease")
	var task containerd.Task
	if err == nil {
		task, err = b.startLeased(leased)
	}
	if releaseErr := release(ctx); releaseErr != nil {
		// It lapses by itself.
		b.engine.logger.Warn("lease not released", "sandbox_id", b.spec.ID, "err", releaseErr)
	}
	return task, errors.Join(err, b.did("release"))
}

func (b *box) startLeased(ctx context.Context) (containerd.Task, error) {
	if err := b.prepareRoot(ctx); err != nil {
		return nil, err
	}
	if err := b.did("root"); err != nil {
		return nil, err
	}
	container, err := b.newContainer(ctx)
	if err != nil {
		return nil, wrap(ctx, "create container", err)
	}
	if err := b.did("container"); err != nil {
		return nil, err
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return nil, wrap(ctx, "create task", err)
	}
	if err := b.did("task"); err != nil {
		return nil, err
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return nil, wrap(ctx, "watch task", err)
	}
	if err := task.Start(ctx); err != nil {
		return nil, wrap(ctx, "start task", err)
	}
	if err := b.did("start"); err != nil {
		return nil, err
	}
	if err := b.awaitGuest(ctx, exited); err != nil {
		return nil, err
	}
	return task, b.did("guest")
}

// prepareRoot makes the snapshot with the sandbox's root and the directory of
// the guest's socket.
func (b *box) prepareRoot(ctx context.Context) error {
	e := b.engine
	mounts, err := e.client.SnapshotService(snapshotter).Prepare(ctx, b.key, "")
	if err != nil {
		return wrap(ctx, "prepare snapshot", err)
	}
	b.claimed = true
	if len(mounts) != 1 || mounts[0].Type != "bind" {
		return fmt.Errorf("prepare snapshot: the snapshotter %s gives %d mounts instead of one directory", snapshotter, len(mounts))
	}
	req := rootRequest{Key: b.key, Root: mounts[0].Source, Image: b.image, Owner: hostimage.Owner{
		RootUID: b.hostID(b.slot.uids, 0), RootGID: b.hostID(b.slot.gids, 0),
		UserUID: b.hostID(b.slot.uids, hostimage.UserID), UserGID: b.hostID(b.slot.gids, hostimage.UserID),
	}}
	if !e.own() {
		return prepareRoot(e.opts.Dirs, req)
	}
	err = e.holder.prepareRoot(ctx, req)
	var answered *holderError
	if err == nil || errors.As(err, &answered) || ctx.Err() != nil {
		return wrap(ctx, "prepare root", err)
	}
	return sandbox.Unavailable(sandbox.CodeEngineUnavailable, err, "the engine is away for a moment; try again")
}

// hostID is an id of the sandbox in the engine's user namespace. Both ids that
// are asked for are in every slot.
func (b *box) hostID(m []idRange, id uint32) int {
	host, _ := outside(m, id)
	return int(host)
}

func (b *box) newContainer(ctx context.Context) (containerd.Container, error) {
	e := b.engine
	runtimeOptions := &options.Options{}
	if e.own() {
		runtimeOptions.BinaryName = e.opts.binary(binRunc)
	}
	spec := buildSpec(specInput{
		dirs: e.opts.Dirs, key: b.key, image: b.image, slot: b.slot,
		cgroupPath: b.spec.CgroupPath, clone3: e.opts.Clone3, mode: e.mode,
	})
	return e.client.NewContainer(ctx, b.key,
		containerd.WithContainerLabels(e.labels(b.spec.ID, b.slot.number)),
		containerd.WithSnapshotter(snapshotter),
		containerd.WithSnapshot(b.key),
		containerd.WithRuntime(runtimeName, runtimeOptions),
		containerd.WithSpec(spec),
	)
}

// awaitGuest returns when the guest can be connected to: it puts its socket in
// place when it listens.
func (b *box) awaitGuest(ctx context.Context, exited <-chan containerd.ExitStatus) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.engine.opts.GuestTimeout, errors.New("the guest did not listen in time"))
	defer cancel()
	tick := time.NewTicker(guestPoll)
	defer tick.Stop()
	for {
		_, err := os.Lstat(rundir.GuestSocket(b.engine.opts.Run, b.key))
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for guest: %w", err)
		}
		select {
		case status := <-exited:
			return fmt.Errorf("start guest: it ended with status %d: %w", status.ExitCode(), status.Error())
		case <-ctx.Done():
			return fmt.Errorf("start guest: %w", context.Cause(ctx))
		case <-tick.C:
		}
		if err := b.left(); err != nil {
			return err
		}
	}
}

// OpenGuest connects to the guest; see [sandbox.Backend].
func (e *Engine) OpenGuest(ctx context.Context, id sandbox.ID) (*net.UnixConn, error) {
	if !id.Valid() {
		return nil, sandbox.NotFound("container", string(id))
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", rundir.GuestSocket(e.opts.Run, id.Key()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Class: sandbox.ErrNotFound, Code: sandbox.CodeNotFound, Message: fmt.Sprintf("container %s does not run", id), Cause: err}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to guest of %s: %w", id, err)
	}
	return conn.(*net.UnixConn), nil
}
