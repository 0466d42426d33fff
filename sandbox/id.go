package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// ID names a container. It is "cntr_" followed by 32 lower-case hexadecimal
// digits, the prefix being that of the OpenAI API. The zero value names none.
type ID string

// CallID names a shell call: "shc_" and 32 hexadecimal digits.
type CallID string

const (
	containerPrefix = "cntr_"
	callPrefix      = "shc_"
	outputPrefix    = "sho_"

	// idBytes is the random part of an id. Unit: bytes; 128 bits never collide.
	idBytes = 16
	// keyLen is the length of [ID.Key]. Unit: characters. It is short because
	// socket paths are limited to 107 bytes (unix(7)), and 64 bits are enough
	// to tell the containers of one daemon apart.
	keyLen = 16
)

// NewID returns a fresh random container id.
func NewID() ID { return ID(containerPrefix + randomHex()) }

// NewCallID returns a fresh random shell call id.
func NewCallID() CallID { return CallID(callPrefix + randomHex()) }

// Key returns the short form of the id that names its directories, cgroup and
// containerd objects: the first 16 hexadecimal digits.
func (id ID) Key() string {
	digits := strings.TrimPrefix(string(id), containerPrefix)
	return digits[:min(keyLen, len(digits))]
}

// Valid reports whether id has the form that [NewID] makes.
func (id ID) Valid() bool { return validID(string(id), containerPrefix) }

// Valid reports whether id has the form that [NewCallID] makes.
func (id CallID) Valid() bool { return validID(string(id), callPrefix) }

// OutputID returns the id of the output item of the call, "sho_" and the
// call's own digits.
func (id CallID) OutputID() string {
	return outputPrefix + strings.TrimPrefix(string(id), callPrefix)
}

func validID(s, prefix string) bool {
	digits, ok := strings.CutPrefix(s, prefix)
	if !ok || len(digits) != 2*idBytes {
		return false
	}
	return strings.Trim(digits, "0123456789abcdef") == ""
}

func randomHex() string {
	var b [idBytes]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
