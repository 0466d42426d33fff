package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

const (
	execSamples = 60
	execWarm    = 3
)

// measureExec is P3: `shellctl exec -- true` as a whole process, against the
// lightest sandbox that hosts have, and against podman.
func measureExec(ctx context.Context, d *daemon, scale int) ([]row, error) {
	socket, err := d.client.Socket()
	if err != nil {
		return nil, err
	}
	program, err := filepath.Abs(filepath.Join(d.bin, "shellctl"))
	if err != nil {
		return nil, err
	}
	ours := command(ctx, program, "--socket", socket, "exec", "--", "true")
	var rows []row
	for _, ref := range []struct {
		name   string
		argv   []string
		limit  float64
		target string
	}{
		{"bwrap", []string{
			"bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
			"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "true",
		}, 2, "<= 2 (with a pool)"},
		{"podman run", []string{
			"podman", "--cgroup-manager=cgroupfs", "--runtime", "runc", "run", "--rm", "--network", "none",
			"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--rootfs", "/", "/bin/true",
		}, 0.1, "<= 0.1 (with a pool)"},
	} {
		what := "`shellctl exec -- true`, no pool / " + ref.name
		reference := command(ctx, ref.argv[0], ref.argv[1:]...)
		if err := reference(); err != nil {
			rows = append(rows, row{ID: "P3", What: what, Target: ref.target, Skipped: err.Error()})
			continue
		}
		a, b, err := alternate(execSamples/scale, execWarm, ours, reference)
		if err != nil {
			return nil, err
		}
		for _, q := range []float64{.50, .95} {
			rows = append(rows, compare("P3", fmt.Sprintf("%s, p%.0f", what, 100*q), a, b, q, ref.limit, ref.target))
		}
	}
	return rows, nil
}

// command returns a function that runs the program and fails when it does.
func command(ctx context.Context, program string, args ...string) func() error {
	return func() error {
		out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %.200s", program, err, out)
		}
		return nil
	}
}
