// Package instance guards the state folder of a shelld: that it is a folder
// fit to hold state, that it is shelld's own and of a layout that this version
// knows, and that one daemon at a time uses it.
//
// The daemon claims its folder first of all, before it opens anything in it.
package instance
