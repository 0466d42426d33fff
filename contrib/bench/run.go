package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

const (
	runSamples = 1000
	runWarm    = 100
)

// commandEnv is the environment of a command in a sandbox; the reference gets
// the same, since a shell that reads locales starts more slowly.
func commandEnv() []string {
	return []string{
		"HOME=/", "LANG=C.UTF-8", "LOGNAME=sandbox", "SHELL=/bin/bash", "USER=sandbox",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
}

// measureRun is P1: one command by API in a running sandbox, over a connection
// that is kept, against a fork and exec of the same shell on the host.
func measureRun(ctx context.Context, d *daemon, scale int) (rows []row, err error) {
	id, remove, err := d.container(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	ours, host, err := alternate(runSamples/scale, runWarm/scale,
		func() error { return call(ctx, d.client, id) },
		func() error {
			cmd := exec.CommandContext(ctx, "/bin/bash", "-c", "true")
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, commandEnv()
			return cmd.Run()
		})
	if err != nil {
		return nil, err
	}
	const what = "command `true` in a running sandbox / fork+exec of bash, "
	return []row{
		compare("P1", what+"p50", ours, host, .50, 1.8, "<= 1.8"),
		compare("P1", what+"p95", ours, host, .95, 0, "-"),
		compare("P1", what+"p99", ours, host, .99, 3, "<= 3"),
	}, nil
}

// call runs `true` and insists that it ran.
func call(ctx context.Context, c *client.Client, id string) error {
	answer, err := c.CreateShellCall(ctx, rpc.ShellCallCreate{
		Action:      &rpc.ShellAction{Commands: []string{"true"}},
		Environment: &rpc.Environment{Type: "container_reference", ContainerID: id},
	})
	if err != nil {
		return err
	}
	if r := answer.Results[0]; r.Reason != "exit" || r.ExitCode == nil || *r.ExitCode != 0 {
		return fmt.Errorf("`true` ended with %+v", r)
	}
	return nil
}
