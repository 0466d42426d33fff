// Package runner runs commands in started sandboxes. It puts together what
// stands alone below it: the guest that starts commands (sandbox/guest), the
// cgroups that hold and kill them (sandbox/limit) and the spools that keep
// what they write (sandbox/output). It implements [sandbox.Boxes],
// [sandbox.Box], [sandbox.Run] and [sandbox.Outputs].
//
// Nothing here trusts the guest: deadlines run in shelld, kills go to the
// run's cgroup from outside, and output flows from the command's pipes into
// files without passing through the guest.
package runner
