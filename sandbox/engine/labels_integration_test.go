package engine

import (
	"maps"
	"slices"
	"testing"
)

// containerd and its plugins act on labels, so a container has ours alone.
func TestEngineLabels(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	instance := create(t, e)
	container, err := e.client.LoadContainer(withNamespace(t.Context()), instance.ID.Key())
	if err != nil {
		t.Fatal(err)
	}
	labels, err := container.Labels(withNamespace(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{labelContainer, labelSlot, labelInstance}
	if got := slices.Sorted(maps.Keys(labels)); !slices.Equal(got, want) {
		t.Errorf("labels = %v; want %v", got, want)
	}
}
