package runner

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/output"
)

// conclude makes the result of a command that has ended. The reason is empty
// unless shelld has ended it.
func (r *run) conclude(ctx context.Context, reason sandbox.Reason) sandbox.Result {
	result := r.outcome(reason)
	result.Duration = time.Since(r.began)
	text, err := output.Cut(r.stdout, r.stderr, r.cmd.MaxOutput)
	if err != nil {
		r.box.opts.Log.WarnContext(ctx, "output not readable", "container_id", r.box.id, "run", r.id, "err", err)
		result.Note = strings.TrimSpace(result.Note + " its output could not be read back: " + err.Error())
	}
	result.Stdout, result.Stderr = text.Stdout.Text, text.Stderr.Text
	result.StdoutBytes, result.StderrBytes = text.Stdout.Bytes, text.Stderr.Bytes
	result.Truncated = text.Stdout.Truncated || text.Stderr.Truncated
	if reason == "" && r.group != nil {
		pids, err := r.group.PIDs()
		if err != nil {
			r.box.opts.Log.WarnContext(ctx, "background processes not listed", "container_id", r.box.id, "run", r.id, "err", err)
		}
		result.Background = innerPIDs(pids)
	}
	return result
}

// outcome says how the command ended. A command that exited before the kill
// reached it has exited, whatever shelld was about to do.
func (r *run) outcome(reason sandbox.Reason) sandbox.Result {
	var exited bool
	var status syscall.WaitStatus
	var cpu time.Duration
	select {
	case <-r.proc.Done():
		if exit, err := r.proc.Exit(); err == nil {
			exited, status, cpu = true, exit.Status, exit.UserTime+exit.SystemTime
		}
	default:
	}
	switch {
	case exited && status.Exited():
		return sandbox.Result{Reason: sandbox.ReasonExit, ExitCode: status.ExitStatus(), CPU: cpu}
	case exited && reason == "":
		sig := status.Signal()
		return sandbox.Result{
			Reason: sandbox.ReasonSignal, ExitCode: 128 + int(sig), Signal: sig, CPU: cpu,
			Note: fmt.Sprintf("ended by signal %s (exit code %d)", sandbox.SignalName(sig), 128+int(sig)),
		}
	case reason == "":
		return sandbox.Lost("the sandbox ended while the command ran; whether it did its work is not known")
	}
	note := "canceled: it was killed with everything that it had started; what it wrote until then is kept"
	if reason == sandbox.ReasonTimeout {
		note = fmt.Sprintf("timed out after %s: it was killed with everything that it had started; what it wrote until then is kept; give more time with timeout_ms (shellctl: --timeout)", r.cmd.Timeout)
	}
	sig := syscall.SIGKILL
	if exited {
		sig = status.Signal()
	}
	return sandbox.Result{Reason: reason, ExitCode: 128 + int(sig), Signal: sig, CPU: cpu, Note: note}
}

// innerPIDs translates process ids of the host into those of the sandbox. A
// process that has ended meanwhile is left out.
func innerPIDs(pids []int) []int {
	var inner []int
	for _, pid := range pids {
		if id, ok := innerPID(pid); ok {
			inner = append(inner, id)
		}
	}
	return inner
}

func innerPID(pid int) (int, bool) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(ids)
			id, err := strconv.Atoi(fields[len(fields)-1]) // the innermost namespace is last
			return id, err == nil
		}
	}
	return 0, false
}
