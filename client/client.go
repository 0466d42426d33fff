package client

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/shelld/shelld/rpc/socket"
)

// ErrNotRunning is in the chain of the errors of every method when nobody
// serves the socket: it does not exist or refuses connections.
var ErrNotRunning = socket.ErrNotRunning

const (
	// host is what requests carry in their Host header; the daemon refuses
	// names other than its own, as a guard against web pages.
	host = "shelld"
	// maxIdleConns is how many connections wait for another request: one for
	// the call and one for each stream of a usual call.
	maxIdleConns = 4
	// idleTimeout is after how long a connection without requests is closed.
	idleTimeout = 30 * time.Second
)

// Options configure a [Client]. The zero value is the usual choice.
type Options struct {
	// Socket is the path of the daemon's Unix socket. Empty: SHELLD_SOCKET,
	// else the default path.
	Socket string
	// HTTPClient sends the requests instead of one that dials Socket, which is
	// then ignored. Its Timeout must be zero or longer than any call. Nil: the
	// client makes its own.
	HTTPClient *http.Client
	// UserAgent names the program in the daemon's log. Empty: "shelld-client".
	UserAgent string
}

// Client speaks to one daemon. The zero value is ready to use. It is safe for
// concurrent use and must not be copied after first use.
type Client struct {
	opts Options

	once sync.Once
	http *http.Client
}

// New returns a client. It neither connects nor fails.
func New(opts Options) *Client { return &Client{opts: opts} }

// Close closes the connections that wait for another request. The client stays
// usable.
func (c *Client) Close() { c.httpClient().CloseIdleConnections() }

// Socket returns the path that the client dials. The error says which variable
// to set when no path can be found.
func (c *Client) Socket() (string, error) {
	if c.opts.Socket != "" {
		return c.opts.Socket, nil
	}
	return socket.DefaultPath()
}

func (c *Client) httpClient() *http.Client {
	c.once.Do(func() {
		if c.http = c.opts.HTTPClient; c.http != nil {
			return
		}
		c.http = &http.Client{
			Transport: &http.Transport{
				DialContext:         c.dial,
				DisableCompression:  true,
				MaxIdleConnsPerHost: maxIdleConns,
				IdleConnTimeout:     idleTimeout,
			},
			// The API has no redirects; following one could repeat a request.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	})
	return c.http
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	path, err := c.Socket()
	if err != nil {
		return nil, err
	}
	return socket.Dial(ctx, path)
}
