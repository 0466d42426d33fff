package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/engine/hostimage"
)

const (
	// ImageHost is the image made of the host's own programs.
	ImageHost = "host"

	snapshotter = "native"
	runtimeName = "io.containerd.runc.v2"
	// leaseTime is when containerd may collect what a create that died with
	// the daemon left without a container.
	leaseTime = time.Hour
	// guestPoll is the pause between two looks for the guest's socket.
	guestPoll = time.Millisecond
)

// Create makes and starts a sandbox; see [sandbox.Backend].
func (e *Engine) Create(ctx context.Context, spec sandbox.BoxSpec) (_ sandbox.Instance, err error) {
	if !spec.ID.Valid() {
		return sandbox.Instance{}, sandbox.Invalid("", "container id %q is not valid", spec.ID)
	}
	if spec.Image != ImageHost {
		return sandbox.Instance{}, &sandbox.Error{
			Class: sandbox.ErrInvalid, Code: sandbox.CodeUnsupported, Param: "image",
			Message: fmt.Sprintf("image %q is not supported; the only image is %q", spec.Image, ImageHost),
		}
	}
	var undo undoStack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.run(ctx))
		}
	}()
	image, err := e.hostImage()
	if err != nil {
		return sandbox.Instance{}, err
	}
	slot, err := e.takeSlot(ctx)
	if err != nil {
		return sandbox.Instance{}, err
	}
	undo.add(func(context.Context) error { e.giveSlot(slot.number); return nil })
	box := &box{engine: e, spec: spec, key: spec.ID.Key(), image: image, slot: slot, last: time.Now()}
	task, err := box.start(withNamespace(ctx), &undo)
	if err != nil {
		return sandbox.Instance{}, err
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
	return image, nil
}

// box is a sandbox that is being made.
type box struct {
	engine *Engine
	spec   sandbox.BoxSpec
	key    string
	image  *hostimage.Image
	slot   idSlot

	// steps are the names of the steps and how long they took, for the log.
	steps []any
	last  time.Time
}

// step notes that the step of that name has been done.
func (b *box) step(name string) {
	now := time.Now()
	b.steps = append(b.steps, name+"_ms", float64(now.Sub(b.last).Microseconds())/1000)
	b.last = now
}

// start makes everything of the sandbox and returns when its guest listens.
func (b *box) start(ctx context.Context, undo *undoStack) (containerd.Task, error) {
	client := b.engine.client
	// Without a lease a collection at this moment would take the snapshot,
	// which no container refers to yet.
	leased, release, err := client.WithLease(ctx, leases.WithRandomID(), leases.WithExpiration(leaseTime))
	if err != nil {
		return nil, wrap(ctx, "lease", err)
	}
	b.step("lease")
	task, err := b.startLeased(leased, undo)
	detached, cancel := undoContext(ctx)
	defer cancel()
	if releaseErr := release(detached); releaseErr != nil {
		// It lapses by itself.
		b.engine.logger.Warn("lease not released", "sandbox_id", b.spec.ID, "err", releaseErr)
	}
	b.step("release")
	return task, err
}

func (b *box) startLeased(ctx context.Context, undo *undoStack) (containerd.Task, error) {
	if err := b.prepareRoot(ctx, undo); err != nil {
		return nil, err
	}
	b.step("root")
	container, err := b.newContainer(ctx)
	if err != nil {
		return nil, wrap(ctx, "create container", err)
	}
	undo.add(func(ctx context.Context) error { return container.Delete(ctx) })
	b.step("container")
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return nil, wrap(ctx, "create task", err)
	}
	undo.add(func(ctx context.Context) error {
		_, err := task.Delete(ctx, containerd.WithProcessKill)
		return err
	})
	b.step("task")
	exited, err := task.Wait(ctx)
	if err != nil {
		return nil, wrap(ctx, "watch task", err)
	}
	if err := task.Start(ctx); err != nil {
		return nil, wrap(ctx, "start task", err)
	}
	b.step("start")
	if err := b.awaitGuest(ctx, exited); err != nil {
		return nil, err
	}
	b.step("guest")
	return task, nil
}

// prepareRoot makes the snapshot with the sandbox's root and the directory of
// the guest's socket.
func (b *box) prepareRoot(ctx context.Context, undo *undoStack) error {
	e := b.engine
	service := e.client.SnapshotService(snapshotter)
	mounts, err := service.Prepare(ctx, b.key, "")
	if err != nil {
		return wrap(ctx, "prepare snapshot", err)
	}
	undo.add(e.collect)
	undo.add(func(ctx context.Context) error { return service.Remove(ctx, b.key) })
	if len(mounts) != 1 || mounts[0].Type != "bind" {
		return fmt.Errorf("prepare snapshot: the snapshotter %s gives %d mounts instead of one directory", snapshotter, len(mounts))
	}
	undo.add(func(context.Context) error { return os.RemoveAll(e.opts.guestDir(b.key)) })
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
		containerd.WithContainerLabels(e.labels(b.spec, b.slot.number)),
		containerd.WithSnapshotter(snapshotter),
		containerd.WithSnapshot(b.key),
		containerd.WithRuntime(runtimeName, runtimeOptions),
		containerd.WithSpec(spec),
	)
}

// awaitGuest returns when the guest accepts connections.
func (b *box) awaitGuest(ctx context.Context, exited <-chan containerd.ExitStatus) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.engine.opts.GuestTimeout, errors.New("the guest did not listen in time"))
	defer cancel()
	tick := time.NewTicker(guestPoll)
	defer tick.Stop()
	for {
		conn, err := b.engine.OpenGuest(ctx, b.spec.ID)
		if err == nil {
			return conn.Close()
		}
		select {
		case status := <-exited:
			return fmt.Errorf("start guest: it ended with status %d: %w", status.ExitCode(), status.Error())
		case <-ctx.Done():
			return fmt.Errorf("start guest: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// OpenGuest connects to the guest; see [sandbox.Backend].
func (e *Engine) OpenGuest(ctx context.Context, id sandbox.ID) (*net.UnixConn, error) {
	if !id.Valid() {
		return nil, sandbox.NotFound("container", string(id))
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(e.opts.guestDir(id.Key()), GuestSocket))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Class: sandbox.ErrNotFound, Code: sandbox.CodeNotFound, Message: fmt.Sprintf("container %s does not run", id), Cause: err}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to guest of %s: %w", id, err)
	}
	return conn.(*net.UnixConn), nil
}
