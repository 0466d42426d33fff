package engine

import (
	"context"
	"fmt"
	"os"
	"strconv"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"

	"github.com/shelld/shelld/sandbox"
)

// Delete kills and removes a sandbox; see [sandbox.Backend].
func (e *Engine) Delete(ctx context.Context, id sandbox.ID) error {
	if !id.Valid() {
		return nil
	}
	ctx = withNamespace(ctx)
	key := id.Key()
	container, err := e.client.LoadContainer(ctx, key)
	if err != nil && !absent(err) {
		return wrap(ctx, "load container", err)
	}
	slot := -1
	if err == nil {
		labels, err := container.Labels(ctx)
		if err != nil {
			return wrap(ctx, "read labels", err)
		}
		// Two ids with the same key would be one chance in 2^64; another
		// instance's container in a shared containerd is not ours to delete.
		if labels[labelInstance] != e.opts.instance() || labels[labelContainer] != string(id) {
			return nil
		}
		if n, err := strconv.Atoi(labels[labelSlot]); err == nil {
			slot = n
		}
		if err := deleteTask(ctx, container); err != nil {
			return wrap(ctx, fmt.Sprintf("delete task of %s", id), err)
		}
		if err := container.Delete(ctx); err != nil && !absent(err) {
			return wrap(ctx, fmt.Sprintf("delete container %s", id), err)
		}
	}
	// A half that lacks its container may have left these.
	if err := e.client.SnapshotService(snapshotter).Remove(ctx, key); err != nil && !absent(err) {
		return wrap(ctx, fmt.Sprintf("delete root of %s", id), err)
	}
	if err := os.RemoveAll(e.opts.guestDir(key)); err != nil {
		return fmt.Errorf("delete guest directory of %s: %w", id, err)
	}
	if err := e.collect(ctx); err != nil {
		return wrap(ctx, fmt.Sprintf("delete data of %s", id), err)
	}
	if slot >= 0 {
		e.giveSlot(slot)
	}
	return nil
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

// deleteTask kills all processes of the container and removes its task. PID 1
// of a pid namespace takes everything in it along, whether it hangs or not.
func deleteTask(ctx context.Context, container containerd.Container) error {
	task, err := container.Task(ctx, nil)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = task.Delete(ctx, containerd.WithProcessKill)
	if absent(err) {
		return nil
	}
	return err
}
