package engine

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/shelld/shelld/sandbox"
)

// The labels of our containers in containerd.
const (
	labelInstance  = "io.shelld/instance"
	labelContainer = "io.shelld/container"
	labelSlot      = "io.shelld/id-slot"
)

func (e *Engine) labels(spec sandbox.BoxSpec, slot int) map[string]string {
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelInstance] = e.opts.instance()
	labels[labelContainer] = string(spec.ID)
	labels[labelSlot] = strconv.Itoa(slot)
	return labels
}

// ours is the filter for our containers.
func (e *Engine) ours() string {
	return fmt.Sprintf("labels.%q==%s", labelInstance, e.opts.instance())
}
