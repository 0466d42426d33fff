package limit

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// holderName is the leaf for the scope's holder, since the scope itself must
// be free of processes to have controllers below.
const holderName = "holder"

// ScopeOptions say which systemd scope to find or to make.
type ScopeOptions struct {
	// Unit is the name of the scope, such as "shelld-sandboxes.scope".
	// Required.
	Unit string
	// Hold starts the process that keeps the scope and returns its process id.
	// It must outlive shelld and do nothing but wait. It is called only when
	// the scope is not there; when that cannot be made the process is killed.
	// Required.
	Hold func(context.Context) (pid int, err error)
}

// StartScope returns the path of a cgroup that systemd has delegated to us, to
// be used as [Options].Parent on cgroup v2: that of a scope which sandboxes
// live in apart from shelld and its engine, so that these units can be
// restarted. A scope that exists is taken as it is. Root asks the system's
// systemd, others their own.
//
// The error says so when no systemd answers; then open the tree without a
// parent.
func StartScope(ctx context.Context, opts ScopeOptions) (string, error) {
	conn, err := connectSystemd(ctx)
	if err != nil {
		return "", fmt.Errorf("ask systemd for scope %s: %w", opts.Unit, err)
	}
	defer conn.Close()
	active, err := conn.GetUnitPropertyContext(ctx, opts.Unit, "ActiveState")
	if err != nil {
		return "", fmt.Errorf("look for scope %s: %w", opts.Unit, err)
	}
	if state, ok := active.Value.Value().(string); ok && state == "active" {
		return scopeCgroup(ctx, conn, opts.Unit)
	}
	pid, err := opts.Hold(ctx)
	if err != nil {
		return "", fmt.Errorf("start the holder of scope %s: %w", opts.Unit, err)
	}
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitContext(ctx, opts.Unit, "fail", scopeProperties(pid), done)
	if err == nil {
		err = awaitJob(ctx, done)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("start scope %s: %w", opts.Unit, err), endProcess(pid))
	}
	return scopeCgroup(ctx, conn, opts.Unit)
}

// StopScope ends the scope with all that lives in it and returns when it is
// gone. One that is not there is no error.
func StopScope(ctx context.Context, unit string) error {
	conn, err := connectSystemd(ctx)
	if err != nil {
		return fmt.Errorf("stop scope %s: %w", unit, err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err = conn.StopUnitContext(ctx, unit, "replace", done); err == nil {
		err = awaitJob(ctx, done)
	}
	if refusal, ok := errors.AsType[godbus.Error](err); ok && refusal.Name == "org.freedesktop.systemd1.NoSuchUnit" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop scope %s: %w", unit, err)
	}
	return nil
}

func connectSystemd(ctx context.Context) (*dbus.Conn, error) {
	if os.Geteuid() == 0 {
		return dbus.NewSystemConnectionContext(ctx)
	}
	return dbus.NewUserConnectionContext(ctx)
}

// awaitJob returns when systemd has done what it was asked for.
func awaitJob(ctx context.Context, done <-chan string) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("systemd says %q", result)
		}
		return nil
	}
}

// endProcess kills a holder that has nothing to hold.
func endProcess(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end holder: %w", err)
	}
	return nil
}

func scopeProperties(pid int) []dbus.Property {
	return []dbus.Property{
		dbus.PropDescription("Sandboxes of shelld"),
		dbus.PropPids(uint32(pid)),
		{Name: "Delegate", Value: godbus.MakeVariant(true)},
		// A scope whose processes were killed must not stay as failed, or it
		// could not be made again.
		{Name: "CollectMode", Value: godbus.MakeVariant("inactive-or-failed")},
	}
}

// scopeCgroup returns the cgroup of the active scope, free of processes.
func scopeCgroup(ctx context.Context, conn *dbus.Conn, unit string) (string, error) {
	p, err := conn.GetUnitTypePropertyContext(ctx, unit, "Scope", "ControlGroup")
	if err != nil {
		return "", fmt.Errorf("find the cgroup of scope %s: %w", unit, err)
	}
	path, ok := p.Value.Value().(string)
	if !ok || path == "" {
		return "", fmt.Errorf("find the cgroup of scope %s: systemd names none", unit)
	}
	scope := group{hs: []hierarchy{{dir: defaultMountRoot, root: "/", v2: true}}, rel: path}
	if err := scope.vacate(ctx, scope.child(holderName)); err != nil {
		return "", fmt.Errorf("move the holder of scope %s to a leaf: %w", unit, err)
	}
	return path, nil
}
