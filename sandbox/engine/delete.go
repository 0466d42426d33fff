package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"

	"github.com/shelld/shelld/sandbox"
)

// Delete kills and removes a sandbox; see [sandbox.Backend].
func (e *Engine) Delete(ctx context.Context, id sandbox.ID) error {
	if !id.Valid() {
		return nil
	}
	slot, err := e.remove(ctx, id)
	if err == nil && slot != noSlot {
		e.giveSlot(slot)
	}
	return err
}

// noSlot says that a sandbox had got no ids on record.
const noSlot = -1

// remove is Delete, but leaves it to the caller to give back the slot that the
// sandbox had.
func (e *Engine) remove(ctx context.Context, id sandbox.ID) (slot int, err error) {
	ctx = withNamespace(ctx)
	key := id.Key()
	container, err := e.client.LoadContainer(ctx, key)
	if err != nil && !absent(err) {
		return slot, wrap(ctx, "load container", err)
	}
	slot = noSlot
	if err == nil {
		labels, err := container.Labels(ctx)
		if err != nil {
			return slot, wrap(ctx, "read labels", err)
		}
		// Two ids with the same key would be one chance in 2^64; another
		// instance's container in a shared containerd is not ours to delete.
		if labels[labelInstance] != e.opts.instance() || labels[labelContainer] != string(id) {
			return noSlot, nil
		}
		if n, err := strconv.Atoi(labels[labelSlot]); err == nil {
			slot = n
		}
		if err := e.deleteTask(ctx, container); err != nil {
			return slot, wrap(ctx, fmt.Sprintf("delete task of %s", id), err)
		}
		if err := container.Delete(ctx); err != nil && !absent(err) {
			return slot, wrap(ctx, fmt.Sprintf("delete container %s", id), err)
		}
	}
	if container == nil {
		if err := e.killShim(key); err != nil {
			return slot, err
		}
	}
	// A half that lacks its container may have left these.
	if err := e.client.SnapshotService(snapshotter).Remove(ctx, key); err != nil && !absent(err) {
		return slot, wrap(ctx, fmt.Sprintf("delete root of %s", id), err)
	}
	if err := os.RemoveAll(e.opts.guestDir(key)); err != nil {
		return slot, fmt.Errorf("delete guest directory of %s: %w", id, err)
	}
	if err := e.collect(ctx); err != nil {
		return slot, wrap(ctx, fmt.Sprintf("delete data of %s", id), err)
	}
	return slot, nil
}

// collect returns when nothing is left on disk of what was removed. Removing a
// snapshot only takes it off the books; the collection that a synchronous
// removal of a lease brings deletes its files.
func (e *Engine) collect(ctx context.Context) error {
	service := e.client.LeasesService()
	lease, err := service.Create(ctx, leases.WithRandomID(), leases.WithExpiration(leaseTime))
	if err != nil {
		return err
	}
	return service.Delete(ctx, lease, leases.SynchronousDelete)
}

// deleteTask kills all processes of the container and removes its task, if
// need be by way of its shim.
func (e *Engine) deleteTask(ctx context.Context, container containerd.Container) error {
	inTime, cancel := context.WithTimeoutCause(ctx, e.taskBudget, errors.New("the shim does not answer"))
	defer cancel()
	found, err := killTask(inTime, container)
	if err == nil && !found {
		return e.killShim(container.ID())
	}
	if err == nil || ctx.Err() != nil || away(err) {
		return err
	}
	e.logger.Warn("shim hangs, killing it", "container", container.ID(), "err", err)
	if err := e.killShim(container.ID()); err != nil {
		return err
	}
	// containerd sees the shim's end and cleans up after it.
	ctx, cancelRest := context.WithTimeoutCause(ctx, undoBudget, errors.New("cleaning up after the shim took too long"))
	defer cancelRest()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := container.Task(ctx, nil)
		if absent(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// killTask kills PID 1 of the container, which takes everything in its pid
// namespace along whether it hangs or not, and removes the task. It reports
// whether there was one.
func killTask(ctx context.Context, container containerd.Container) (found bool, err error) {
	task, err := container.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, containerd.WithProcessKill)
	}
	if absent(err) {
		return false, nil
	}
	return true, err
}

// killShim kills the shim of the container with that id, if there is one. A
// containerd that dies while it starts a shim knows nothing of it afterwards.
func (e *Engine) killShim(id string) error {
	found, err := e.shims()
	if err != nil {
		return err
	}
	return found.kill(id)
}

// shims finds the shims of the containerd in use.
func (e *Engine) shims() (shims, error) {
	if e.own() {
		return shimsOf(e.opts.Dirs, e.mode)
	}
	return shims{address: e.address(), mode: e.mode}, nil
}
