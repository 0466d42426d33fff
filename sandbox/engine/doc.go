// Package engine is the [sandbox.Backend] on containerd, and the engine process
// that runs a containerd of our own for it. Nothing else of the module imports
// containerd.
//
// Three processes belong to it:
//
//   - the daemon holds an [Engine], which [Open] makes: a containerd client
//     that starts the engine when none runs;
//   - the engine process, [Run], makes the namespaces, or joins those that live
//     sandboxes still hold, and starts the holder in them again when it dies;
//   - the holder, [RunHolder], is the first process of those namespaces. It
//     runs containerd, restarts it when it dies, and does the few things that
//     only a process inside can do, on the daemon's request.
//
// Each of them, and containerd, can be killed at any time without harm to a
// sandbox: a sandbox belongs to its shim, and a shim to nobody.
package engine
