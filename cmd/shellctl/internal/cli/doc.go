// Package cli is shellctl's commands. Each lives in cmd_<verb>.go as an options
// struct, which knows the flags, and a run function, which does not.
//
// The voice: errors are "shellctl: what is wrong and what to do (code)" on one
// line of stderr, lower case, no full stop, followed by "hint:" lines where
// there is something to add. What concerns a run rather than shellctl is
// "[shelld] …". Results are on stdout; exec and logs put nothing of their own
// there.
package cli
