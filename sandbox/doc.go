// Package sandbox is the domain of shelld: what a container, a shell call and
// a run are, which states they pass through, and what may go wrong.
//
// It holds the plain types, the [Manager] that moves them through their
// states, and the small interfaces through which the Manager reaches the
// world: a [Backend] that starts and removes sandboxes, a [Box] in which
// commands run, and a [Store] that remembers. Those are implemented in
// packages below and beside it and are put together by package daemon. The
// package itself imports nothing of this module, so that every other part can
// depend on it.
package sandbox
