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
// goes there, forks, and is back in the cgroups of home when it returns.
func spawnV1(c *command, run, home []int) (pid int, err error) {
	err = enter(run)
	if err != nil {
		err = &StartError{Stage: StageCgroup, Errno: errnoOf(err)}
	} else {
		pid, err = spawn(c)
	}
	if homeErr := enter(home); homeErr != nil {
		return pid, errors.Join(err, fmt.Errorf("%w: %w", errStranded, homeErr))
	}
	return pid, err
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
