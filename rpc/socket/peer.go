package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ErrForeignPeer says that the process at the other end is of another user.
var ErrForeignPeer = errors.New("foreign peer")

// Peer is the process that made a connection, as the kernel saw it then.
type Peer struct {
	// UID and GID are its effective ids.
	UID, GID uint32
	// PID may be gone or another process by now; for logs only. 0: not of
	// our pid namespace.
	PID int32
}

// ReadPeer asks the kernel who made the connection, which must be a Unix
// socket.
func ReadPeer(conn net.Conn) (Peer, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("read peer: %T is no Unix socket", conn)
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("read peer: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return Peer{}, fmt.Errorf("read peer: %w", err)
	}
	return Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}

type peerKey struct{}

// ConnContext is for the field of that name of http.Server: it puts the peer
// into the context of every request of the connection. A peer that cannot be
// told is left out, and so refused by [Authorize].
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	peer, err := ReadPeer(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

// PeerFrom returns the peer that [ConnContext] put into ctx.
func PeerFrom(ctx context.Context) (Peer, bool) {
	peer, ok := ctx.Value(peerKey{}).(Peer)
	return peer, ok
}

// Authorize returns nil if the peer in ctx is the user of this process, or
// root, who could become that user anyway. Otherwise the error matches
// [ErrForeignPeer] and can be shown to the peer.
func Authorize(ctx context.Context) error {
	peer, ok := PeerFrom(ctx)
	if !ok {
		return fmt.Errorf("%w: the user of this connection is not known", ErrForeignPeer)
	}
	if owner := os.Geteuid(); peer.UID != 0 && int(peer.UID) != owner {
		return fmt.Errorf("%w: this shelld serves user %d and you are user %d; start your own", ErrForeignPeer, owner, peer.UID)
	}
	return nil
}
