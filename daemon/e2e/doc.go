// Package e2e tests shelld as its users meet it: the built binaries, a real
// containerd, real cgroups and namespaces, over the socket.
//
// It has tests only. SHELLD_BIN names the folder of the built programs
// (default: bin at the top of the tree), SHELLD_BUNDLE that of containerd, its
// shim, runc and shelld-init (default: libexec/shelld). Most tests run twice:
// as root, and as an ordinary user that is made for them. What a machine lacks
// skips a test, or fails it with SHELLD_REQUIRE=1.
package e2e
