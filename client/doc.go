// Package client is the Go client of shelld's API. Editors, agents and
// shellctl use it to make containers and to run commands in them.
//
// Which function do I want?
//
//   - Run commands and have the results: [Client.CreateShellCall].
//   - Run commands and read their output while they run:
//     [Client.StartShellCall], then [Client.Output] for each stream.
//   - Give a command input: "stdin": "stream" in the call, then
//     [Client.WriteStdin].
//   - Keep a sandbox between calls: [Client.CreateContainer], and name it in
//     the call's environment.
//
// A call that names no environment makes a container of its own and leaves it
// running; "container_auto" with DeleteAfter deletes it with the call.
//
// A [Client] finds the daemon by SHELLD_SOCKET or the default socket path. It
// connects when a request needs it, so it outlives restarts of the daemon.
// Nothing is sent twice: only the connecting itself is tried again.
//
// An answer that is not a success is an [*rpc.Error]; test for one failure
// with errors.Is and [rpc.WithCode], or read Code. [ErrNotRunning] says that
// nobody serves the socket.
//
// A client that goes away cancels its call: the daemon ends the commands of a
// call one second after its last waiting client is gone, however it went.
//
// The package keeps compatible: names and meanings only grow.
package client
