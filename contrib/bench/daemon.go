package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

const (
	startBudget = 30 * time.Second
	stopBudget  = 60 * time.Second
	poll        = 20 * time.Millisecond
)

// daemon is a private shelld for the measurements.
type daemon struct {
	dir, bin string
	client   *client.Client
	cmd      *exec.Cmd
}

// start starts a daemon and returns when it is ready.
func start(ctx context.Context, bin string) (*daemon, error) {
	dir, err := os.MkdirTemp("/tmp", "shelld-bench-") // short: sockets live below it
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, bin: bin}
	d.client = client.New(client.Options{Socket: filepath.Join(dir, "run", "shelld.sock")})
	config := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(config, []byte("version = 1\n[limits]\nallow_unenforced = true\n"), 0o600); err != nil {
		return nil, err
	}
	d.cmd = exec.Command(filepath.Join(bin, "shelld"), "--config", config, //nolint:noctx // stop ends it
		"--root", filepath.Join(dir, "root"), "--run", filepath.Join(dir, "run"), "--log-level", "warn")
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startBudget, errors.New("the daemon was not ready in time"))
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := d.client.Ready(ctx)
		if err == nil {
			return d, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err, d.stop(ctx))
		}
	}
}

// stop stops the daemon with its sandboxes and removes its folder, also when ctx
// has ended.
func (d *daemon) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopBudget, errors.New("the daemon did not stop in time"))
	defer cancel()
	err := d.client.Shutdown(ctx, rpc.Shutdown{Sandboxes: true})
	if err != nil {
		err = errors.Join(err, d.cmd.Process.Kill())
	}
	return errors.Join(err, d.cmd.Wait(), os.RemoveAll(d.dir))
}

// container makes a container and returns its id and a function that deletes
// it.
func (d *daemon) container(ctx context.Context) (id string, remove func() error, err error) {
	c, err := d.client.CreateContainer(ctx, rpc.ContainerCreate{Name: "bench"})
	if err != nil {
		return "", nil, fmt.Errorf("create container: %w", err)
	}
	return c.ID, func() error { return d.client.DeleteContainer(context.WithoutCancel(ctx), c.ID) }, nil
}
