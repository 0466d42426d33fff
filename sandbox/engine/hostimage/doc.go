// Package hostimage describes the image "host": a root file system made of the
// host's own programs and a small tree of files written for the sandbox.
//
// [Detect] looks at the host and says what to mount; [Write] makes the tree.
// What is taken from the host is an explicit list (see mounts.go and files.go);
// everything else of the host does not exist in a sandbox. The package knows
// nothing of containerd, so that all of it can be tested on a plain directory.
package hostimage
