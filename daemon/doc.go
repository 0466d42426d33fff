// Package daemon puts shelld together and runs it: it claims the state folder,
// opens the store and the socket, serves the API, connects to the engine, and
// takes all of it down again in order.
//
// The daemon can be killed at any moment. Its state is in the store, in the
// engine and in the sandboxes, and the next daemon reconciles the three.
package daemon
