package sandboxtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/shelld/shelld/sandbox"
)

// Backend implements [sandbox.Backend] in memory. Its guests read what they are
// sent and answer nothing.
type Backend struct {
	hooks

	mu    sync.Mutex
	boxes map[sandbox.ID]*instance
	pid   int
}

var _ sandbox.Backend = (*Backend)(nil)

// instance is a sandbox, or the half of one that a create is making.
type instance struct {
	sandbox.Instance
	guest net.Conn // the guest's end of the newest connection; may be nil
}

// Create implements [sandbox.Backend].
func (b *Backend) Create(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Instance, error) {
	if !spec.ID.Valid() {
		return sandbox.Instance{}, sandbox.Invalid("", "%q is no container id", spec.ID)
	}
	if spec.Image != sandbox.ImageHost {
		return sandbox.Instance{}, sandbox.Invalid("image", "no image %q", spec.Image)
	}
	if err := b.run(ctx, OpCreate, string(spec.ID)); err != nil {
		return sandbox.Instance{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boxes[spec.ID] != nil {
		return sandbox.Instance{}, &sandbox.Error{Class: sandbox.ErrConflict, Code: sandbox.CodeInUse, Message: "sandbox exists"}
	}
	b.pid++
	made := sandbox.Instance{ID: spec.ID, Running: true, PID: b.pid}
	b.boxes[spec.ID] = &instance{Instance: made}
	return made, nil
}

// List implements [sandbox.Backend].
func (b *Backend) List(ctx context.Context) ([]sandbox.Instance, error) {
	if err := b.run(ctx, OpList, ""); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []sandbox.Instance
	for _, id := range sorted(b.boxes) {
		list = append(list, b.boxes[id].Instance)
	}
	return list, nil
}

// Delete implements [sandbox.Backend].
func (b *Backend) Delete(ctx context.Context, id sandbox.ID) error {
	if err := b.run(ctx, OpDelete, string(id)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if box := b.boxes[id]; box != nil {
		box.hangUp()
		delete(b.boxes, id)
	}
	return nil
}

// OpenGuest implements [sandbox.Backend].
func (b *Backend) OpenGuest(ctx context.Context, id sandbox.ID) (*net.UnixConn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	box := b.boxes[id]
	if box == nil || !box.Running {
		return nil, sandbox.NotFound("sandbox", string(id))
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	box.hangUp()
	box.guest = theirs
	return ours, nil
}

// Kill ends PID 1 of a sandbox.
func (b *Backend) Kill(id sandbox.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if box := b.boxes[id]; box != nil {
		box.hangUp()
		box.Running, box.PID = false, 0
	}
}

// Plant puts a sandbox there that nobody has asked for.
func (b *Backend) Plant(id sandbox.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pid++
	b.boxes[id] = &instance{Instance: sandbox.Instance{ID: id, Running: true, PID: b.pid}}
}

// Leftovers names what is there.
func (b *Backend) Leftovers() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, id := range sorted(b.boxes) {
		left = append(left, "sandbox "+string(id))
	}
	return left
}

func (i *instance) hangUp() {
	if i.guest != nil {
		_ = i.guest.Close() // nothing was written to it
		i.guest = nil
	}
}

// pair returns two connected sockets of the kind that guests use.
func pair() (ours *net.UnixConn, theirs net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "guest")
		conns[i], err = net.FileConn(file)
		_ = file.Close() // FileConn has its own descriptor
		if err != nil {
			return nil, nil, fmt.Errorf("use socket pair: %w", err)
		}
	}
	return conns[0].(*net.UnixConn), conns[1], nil
}
