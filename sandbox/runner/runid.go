package runner

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shelld/shelld/sandbox"
)

const (
	// keySuffix makes the name of the key's file of that of the spool folder.
	keySuffix = ".key"
	// keyLen is the size of the key. Unit: bytes.
	keyLen = 32
	// sealLen is the size of the seal of an id. Unit: bytes.
	sealLen = 8
)

// runIDs makes the ids by which guests know their runs, "call.index.seal".
// After a restart of shelld a guest says which runs it has, and their output
// goes on into the spools of the calls that it names. The seal, a keyed hash
// over the container, the call and the index, keeps a guest that is not to be
// trusted any more from naming what it was never told, such as the calls of
// another container.
type runIDs struct{ key []byte }

// openRunIDs reads the key from a file, which is made when it is needed.
func openRunIDs(file string) (runIDs, error) {
	key, err := os.ReadFile(file)
	if err == nil && len(key) == keyLen {
		return runIDs{key}, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return runIDs{}, fmt.Errorf("read key of run ids: %w", err)
	}
	// A file of another size was cut off before anything was started under it.
	key = make([]byte, keyLen)
	_, _ = rand.Read(key) // never fails since Go 1.24
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return runIDs{}, fmt.Errorf("make key of run ids: %w", err)
	}
	if err := os.WriteFile(file, key, 0o600); err != nil {
		return runIDs{}, fmt.Errorf("make key of run ids: %w", err)
	}
	return runIDs{key}, nil
}

// name returns the id of a run, the same for ever.
func (k runIDs) name(container sandbox.ID, call sandbox.CallID, index int) string {
	name := string(call) + "." + strconv.Itoa(index)
	mac := hmac.New(sha256.New, k.key)
	mac.Write([]byte(container))
	mac.Write([]byte{0})
	mac.Write([]byte(name))
	return name + "." + hex.EncodeToString(mac.Sum(nil)[:sealLen])
}

// parse is the reverse of name. It returns false for an id that name has not
// made for this container.
func (k runIDs) parse(container sandbox.ID, id string) (call sandbox.CallID, index int, ok bool) {
	name, rest, _ := strings.Cut(id, ".")
	number, _, _ := strings.Cut(rest, ".")
	call = sandbox.CallID(name)
	index, err := strconv.Atoi(number)
	if err != nil || index < 0 || !call.Valid() {
		return "", 0, false
	}
	if !hmac.Equal([]byte(k.name(container, call, index)), []byte(id)) {
		return "", 0, false
	}
	return call, index, true
}
