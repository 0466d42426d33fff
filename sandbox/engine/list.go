package engine

import (
	"context"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"

	"github.com/shelld/shelld/sandbox"
)

// List returns our sandboxes; see [sandbox.Backend].
func (e *Engine) List(ctx context.Context) ([]sandbox.Instance, error) {
	ctx = withNamespace(ctx)
	containers, err := e.client.ContainerService().List(ctx, e.ours())
	if err != nil {
		return nil, wrap(ctx, "list containers", err)
	}
	resp, err := e.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, wrap(ctx, "list tasks", err)
	}
	processes := make(map[string]*task.Process, len(resp.Tasks))
	for _, t := range resp.Tasks {
		processes[t.ID] = t
	}
	instances := make([]sandbox.Instance, 0, len(containers))
	for _, c := range containers {
		instance := sandbox.Instance{ID: sandbox.ID(c.Labels[labelContainer])}
		// A container without a task is one whose shim died, or whose create
		// never came that far.
		if p := processes[c.ID]; p != nil && alive(p.Status) {
			instance.Running, instance.PID = true, int(p.Pid)
		}
		instances = append(instances, instance)
	}
	return instances, nil
}

func alive(status task.Status) bool {
	return status == task.Status_RUNNING || status == task.Status_PAUSED || status == task.Status_PAUSING
}
