package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// headerLen is the fixed part of a frame. Unit: bytes.
	headerLen = 6

	// maxToGuest caps a payload for the guest. Unit: bytes. The kernel takes
	// 2 MiB of arguments and environment at most (execve(2)), and JSON makes
	// up to six bytes of one. A little more than that goes through, to be
	// refused by the kernel.
	maxToGuest = 16 << 20
	// maxFromGuest caps a payload from the guest. Unit: bytes.
	maxFromGuest = 64 << 10

	// maxFDsToGuest is one descriptor per cgroup v1 hierarchy, generously.
	maxFDsToGuest = 16
	// maxFDsFromGuest is stdin, stdout and stderr of one run.
	maxFDsFromGuest = 3

	// keepBuffer is the largest buffer that is kept between frames; larger
	// ones are left to the garbage collector. Unit: bytes.
	keepBuffer = 32 << 10
)

// errFrame says that the peer broke the rules of the wire format.
var errFrame = errors.New("malformed frame")

// A frame is one message as it came. Payload is valid until the next call of
// [receiver.next]; whoever takes the frame closes its descriptors.
type frame struct {
	kind    kind
	payload []byte
	fds     []int
}

func (f frame) decode(into any) error {
	if err := json.Unmarshal(f.payload, into); err != nil {
		return fmt.Errorf("%w: %s: %w", errFrame, f.kind, err)
	}
	return nil
}

func (f frame) close() { closeAll(f.fds) }

// A receiver cuts a byte stream with descriptors into frames. It is not safe
// for concurrent use.
type receiver struct {
	// recv is recvmsg(2) with MSG_CMSG_CLOEXEC on the connection; n is 0 at
	// the end of the stream.
	recv       func(p, oob []byte) (n, oobn, flags int, err error)
	maxPayload int
	maxFDs     int

	buf   []byte // buf[start:end] is received and not yet returned
	start int
	end   int
	oob   []byte
	fds   []int // received and not yet returned
}

// next returns the next frame. It returns io.EOF when the stream ends between
// two frames and an error that matches errFrame when the peer broke the rules.
func (r *receiver) next() (frame, error) {
	for {
		f, need, err := r.cut()
		if err != nil || need == 0 {
			return f, err
		}
		if err := r.fill(need); err != nil {
			return frame{}, err
		}
	}
}

// cut returns the first buffered frame, or how many bytes it has at least.
func (r *receiver) cut() (f frame, need int, err error) {
	have := r.buf[r.start:r.end]
	if len(have) < headerLen {
		return frame{}, headerLen, nil
	}
	size := binary.BigEndian.Uint32(have)
	count := int(have[5])
	switch {
	case uint64(size) > uint64(r.maxPayload):
		return frame{}, 0, fmt.Errorf("%w: payload of %d bytes", errFrame, size)
	case count > r.maxFDs:
		return frame{}, 0, fmt.Errorf("%w: %d descriptors", errFrame, count)
	case count > len(r.fds):
		return frame{}, 0, fmt.Errorf("%w: %d descriptors announced, %d came", errFrame, count, len(r.fds))
	}
	total := headerLen + int(size)
	if len(have) < total {
		return frame{}, total, nil
	}
	f = frame{kind: kind(have[4]), payload: have[headerLen:total]}
	if count > 0 {
		f.fds = append([]int(nil), r.fds[:count]...)
		r.fds = append(r.fds[:0], r.fds[count:]...)
	}
	r.start += total
	if r.start == r.end && len(r.fds) > 0 {
		f.close()
		return frame{}, 0, fmt.Errorf("%w: %d descriptors that no frame announced", errFrame, len(r.fds))
	}
	return f, 0, nil
}

// fill receives once, into a buffer with room for need bytes.
func (r *receiver) fill(need int) error {
	r.makeRoom(need)
	if r.oob == nil {
		r.oob = make([]byte, unix.CmsgSpace(4*r.maxFDs))
	}
	n, oobn, flags, err := r.recv(r.buf[r.end:], r.oob)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if oobn > 0 {
		if err := r.takeRights(r.oob[:oobn]); err != nil {
			return err
		}
	}
	if flags&unix.MSG_CTRUNC != 0 || len(r.fds) > 2*r.maxFDs {
		return fmt.Errorf("%w: too many descriptors", errFrame)
	}
	if n == 0 {
		if r.start < r.end {
			return fmt.Errorf("receive: %w", io.ErrUnexpectedEOF)
		}
		return io.EOF
	}
	r.end += n
	return nil
}

func (r *receiver) makeRoom(need int) {
	if r.start == r.end {
		r.start, r.end = 0, 0
		if len(r.buf) > keepBuffer {
			r.buf = nil
		}
	}
	if len(r.buf)-r.start >= need && r.end < len(r.buf) {
		return
	}
	to := r.buf
	if len(to) < need {
		to = make([]byte, max(need, 4<<10))
	}
	r.end = copy(to, r.buf[r.start:r.end])
	r.buf, r.start = to, 0
}

func (r *receiver) takeRights(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: control message: %w", errFrame, err)
	}
	var odd error
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			odd = fmt.Errorf("%w: control message: %w", errFrame, err)
			continue
		}
		r.fds = append(r.fds, fds...)
	}
	return odd
}

// close closes the descriptors that no frame took.
func (r *receiver) close() {
	closeAll(r.fds)
	r.fds = nil
}

// An encoder makes frames in a buffer that it reuses. It is not safe for
// concurrent use.
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

// encode returns the frame, valid until the next call.
func (e *encoder) encode(k kind, message any, fds, limit int) ([]byte, error) {
	if e.json == nil || e.buf.Cap() > keepBuffer {
		e.buf = bytes.Buffer{}
		e.json = json.NewEncoder(&e.buf)
		e.json.SetEscapeHTML(false)
	}
	e.buf.Reset()
	e.buf.Write([]byte{0, 0, 0, 0, byte(k), byte(fds)})
	if err := e.json.Encode(message); err != nil {
		return nil, fmt.Errorf("encode %s: %w", k, err)
	}
	b := e.buf.Bytes()
	size := len(b) - headerLen
	if size > limit {
		return nil, fmt.Errorf("%s of %d bytes: %w", k, size, ErrTooLarge)
	}
	binary.BigEndian.PutUint32(b, uint32(size))
	return b, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // read ends and cgroup files: nothing to lose
	}
}
