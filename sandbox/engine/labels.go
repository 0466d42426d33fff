package engine

import (
	"fmt"
	"strconv"

	"github.com/shelld/shelld/sandbox"
)

// The labels of our containers in containerd.
const (
	labelInstance  = "io.shelld/instance"
	labelContainer = "io.shelld/container"
	labelSlot      = "io.shelld/id-slot"
)

// labels are all labels of a container. Those that users give their sandboxes
// are not among them: containerd and its plugins act on labels.
func (e *Engine) labels(id sandbox.ID, slot int) map[string]string {
	return map[string]string{
		labelInstance:  e.opts.instance(),
		labelContainer: string(id),
		labelSlot:      strconv.Itoa(slot),
	}
}

// ours is the filter for our containers.
func (e *Engine) ours() string {
	return fmt.Sprintf("labels.%q==%s", labelInstance, e.opts.instance())
}
