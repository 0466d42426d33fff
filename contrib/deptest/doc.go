// Package deptest holds the tests that keep the repository in its shape: which
// package may import which, that each package says what it is for, what lies at
// the top level, and how long a file may grow. It has no code of its own.
package deptest
