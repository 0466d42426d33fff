package engine

import (
	"testing"
)

func TestLife(t *testing.T) {
	e := openEngine(t)
	info := e.Info(t.Context())
	t.Logf("%+v", info)
	in := create(t, e)
	answers(t, e, in.ID)
	if err := e.Delete(t.Context(), in.ID); err != nil {
		t.Fatal(err)
	}
}
