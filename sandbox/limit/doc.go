// Package limit arranges the cgroups of sandboxes and of the commands in them,
// sets limits on them, and kills by them.
//
// A [Tree] belongs to one instance of shelld and holds one cgroup for each
// [Sandbox], in which every command is a [Run]:
//
//	<parent>/<name>            the tree; limits of all sandboxes together
//	    <key>                  a sandbox, made by the container runtime; the
//	                           root of the sandbox's cgroup namespace
//	        init               the guest (v2 only)
//	        runs               limits of all commands of the sandbox together
//	            r<random>      one command and all that it started
//
// On cgroup v2 a cgroup with controllers for its children may not hold
// processes, so the guest moves to init before the controllers are enabled.
// On cgroup v1 there is no such rule and moving a process costs 5 to 17 ms, so
// the guest stays where the runtime put it. Limits sit on runs and below, so
// that an out-of-memory kill never selects the guest.
//
// The guest puts commands into their cgroup through descriptors that shelld
// opens; no cgroup file system is mounted in a sandbox. On v2 it clones into
// the directory, on v1 one locked thread writes "0" to each tasks file, forks,
// and goes back home the same way.
//
// Package daemon opens the tree; the runner of commands takes runs from it.
package limit
