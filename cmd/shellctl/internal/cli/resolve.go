package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

// containerID returns the id of the container that which names: an id, or the
// name of a running container that no other running one has. Names need not be
// unique, so that several are an error, which lists them.
func (p *program) containerID(ctx context.Context, which string) (string, error) {
	if strings.HasPrefix(which, "cntr_") || which == "" {
		return which, nil // the daemon says whether it exists
	}
	var running, others []string
	for c, err := range p.client.AllContainers(ctx, client.ContainerList{Name: which}) {
		switch {
		case err != nil:
			return "", err
		case c.Status == "running":
			running = append(running, c.ID)
		default:
			others = append(others, c.ID+" ("+c.Status+")")
		}
	}
	if len(running) == 1 {
		return running[0], nil
	}
	message := fmt.Sprintf("no container has the id or the name %q; `shellctl container ls` lists them", which)
	status, code := http.StatusNotFound, "not_found"
	switch {
	case len(running) > 1:
		message = fmt.Sprintf("%d containers are named %q; give the id of one: %s", len(running), which, strings.Join(running, " "))
		status, code = http.StatusBadRequest, codeUsage
	case len(others) > 0:
		message = fmt.Sprintf("no running container is named %q; give an id of those that do not run: %s", which, strings.Join(others, " "))
	}
	return "", &rpc.Error{Message: message, Type: rpc.TypeInvalidRequest, Code: &code, Status: status}
}
