package guest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errStranded says that the calling thread is in a run's cgroup and could not
// leave it. It must end.
var errStranded = errors.New("thread stranded in a run's cgroup")

// spawnV1 starts c in the cgroup v1 cgroups whose tasks files are run, one per
// hierarchy. Writing a pid into a cgroup takes a lock that is slow to get,
// whereas a thread moves itself, by "0" into tasks, in a tenth of a
// millisecond. So the calling thread, which the goroutine must be locked to,
// goes there and forks. It stays there until goHome, which comes after the
// answer: a thread that leaves a cgroup with the cpu controller may have to wait
// for the command it has started, and the answer would with it.
func spawnV1(c *command, run []int) (pid int, err error) {
	if err := enter(run); err != nil {
		return 0, &StartError{Stage: StageCgroup, Errno: errnoOf(err)}
	}
	return spawn(c)
}

// goHome brings the calling thread back into the guest's own cgroups.
func goHome(home []int) error {
	if err := enter(home); err != nil {
		return fmt.Errorf("%w: %w", errStranded, err)
	}
	return nil
}

// enter moves the calling thread.
func enter(tasks []int) error {
	for _, fd := range tasks {
		if _, err := unix.Pwrite(fd, []byte{'0'}, 0); err != nil {
			return err
		}
	}
	return nil
}
