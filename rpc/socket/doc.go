// Package socket is the Unix socket between shelld and its clients: where it
// is, how it is made without ever taking one from a live daemon, how clients
// reach it, and who is at the other end.
//
// The server side promises: the socket is 0600 in a folder that nobody else
// can enter; at most one process of ours serves a path, and a second one
// leaves the first alone even while that is stopped or slow; nothing but a
// dead socket is ever removed from the path; a socket that systemd passes is
// used as it is and never removed.
//
// The daemon uses [Listen], [ConnContext] and [Authorize], clients use
// [DefaultPath] and [Dial].
package socket
