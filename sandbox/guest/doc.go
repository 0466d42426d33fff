// Package guest is the protocol between shelld and shelld-init, the process 1
// of every sandbox, and both of its ends.
//
// shelld uses [Client]: it starts commands in a sandbox, receives the pipes
// they write to, and learns how they end. shelld-init uses [Run]: it makes
// the pipes, forks, and reaps, and does nothing else. The guest is a
// convenience and not trusted: limits and kills are enforced from outside,
// and whatever it sends is checked before it is used.
//
// # Wire format
//
// The two talk over one SOCK_STREAM Unix socket in frames:
//
//	offset 0  length of the payload, 4 bytes, big-endian
//	offset 4  kind, 1 byte
//	offset 5  number of descriptors, 1 byte
//	offset 6  payload: one JSON value
//
// Descriptors travel as SCM_RIGHTS with the first byte of their frame.
// Anything else (a frame above its limit, descriptors that nobody announced,
// other control messages) is a violation, which ends the connection.
//
// The guest keeps each run, its pipes and its exit until it is told to forget
// it, whatever becomes of connections. A new connection replaces the older
// one and begins with the list of all runs, so a restarted shelld can adopt
// them.
//
// The package imports nothing but the standard library and x/sys, because all
// of it is in the memory of every sandbox.
package guest
