package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// activated returns the listener that systemd passed by its protocol
// (sd_listen_fds(3)), or nil if it passed none. The variables of the protocol
// are removed from the environment, so that no child takes them for its own.
func activated() (*Listener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // "none" is the usual case, not an error
	}
	l, err := fromFile(files)
	for _, file := range files {
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func fromFile(files []*os.File) (*Listener, error) {
	if len(files) > 1 {
		return nil, fmt.Errorf("%d descriptors were passed and shelld takes one; keep one ListenStream= in its socket unit", len(files))
	}
	// FileListener duplicates the descriptor and never unlinks its path.
	ln, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("the descriptor is no listening socket: %w", err)
	}
	unixListener, ok := ln.(*net.UnixListener)
	if !ok || ln.Addr().Network() != "unix" || !listening(files[0]) {
		return nil, errors.Join(
			fmt.Errorf("the descriptor is not a listening Unix stream socket but %s %s; use ListenStream= with a path", ln.Addr().Network(), ln.Addr()),
			ln.Close(),
		)
	}
	l := &Listener{UnixListener: unixListener, path: ln.Addr().String()}
	l.close = sync.OnceValue(l.shut)
	return l, nil
}

func listening(file *os.File) bool {
	on, err := unix.GetsockoptInt(int(file.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && on == 1
}
