package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/shelld/shelld/rpc"
)

// CreateContainer makes a container and starts it.
func (c *Client) CreateContainer(ctx context.Context, req rpc.ContainerCreate) (*rpc.Container, error) {
	r, err := request{method: http.MethodPost, path: "/v1/containers"}.jsonBody(req)
	if err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	container := new(rpc.Container)
	if err := c.call(ctx, r, container); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	return container, nil
}

// Container returns the container with that id. It counts as activity of the
// container. A code of "not_found" says that it never existed or was deleted.
func (c *Client) Container(ctx context.Context, id string) (*rpc.Container, error) {
	container := new(rpc.Container)
	r := request{method: http.MethodGet, path: containerPath(id)}
	if err := c.call(ctx, r, container); err != nil {
		return nil, fmt.Errorf("get container: %w", err)
	}
	return container, nil
}

// ContainerList selects the containers of a list. The zero value is the newest
// of all.
type ContainerList struct {
	Page
	// Name keeps only containers with exactly this name. Empty: all.
	Name string
}

// Containers returns one page of containers, expired ones included.
func (c *Client) Containers(ctx context.Context, which ContainerList) (*rpc.List[rpc.Container], error) {
	q := which.values()
	set(q, "name", which.Name)
	list := new(rpc.List[rpc.Container])
	r := request{method: http.MethodGet, path: "/v1/containers", query: q}
	if err := c.call(ctx, r, list); err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return list, nil
}

// AllContainers yields the containers of every page. After an error, which
// comes with a zero container, it ends.
func (c *Client) AllContainers(ctx context.Context, which ContainerList) iter.Seq2[rpc.Container, error] {
	return all(ctx, which.Page, func(ctx context.Context, p Page) (*rpc.List[rpc.Container], error) {
		which.Page = p
		return c.Containers(ctx, which)
	})
}

// DeleteContainer ends everything that runs in the container and deletes it
// with its files.
func (c *Client) DeleteContainer(ctx context.Context, id string) error {
	var deleted rpc.Deleted
	r := request{method: http.MethodDelete, path: containerPath(id)}
	if err := c.call(ctx, r, &deleted); err != nil {
		return fmt.Errorf("delete container: %w", err)
	}
	return nil
}

func containerPath(id string) string { return "/v1/containers/" + segment(id) }

// segment makes one path segment of an id that came from anywhere. One that
// would change the path instead goes out in quotes: it names nothing, and the
// daemon says so.
func segment(id string) string {
	if id == "" || id == "." || id == ".." {
		id = strconv.Quote(id)
	}
	return url.PathEscape(id)
}
