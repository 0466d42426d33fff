// Package sandboxtest helps to test what is built on package sandbox. It has
// contract suites that every implementation of its interfaces must pass
// ([RunBackend], [RunStore]), and a [World]: implementations in memory that
// pass them too, in which a test makes things slow, fail or die at will.
//
// Only tests import it.
package sandboxtest
