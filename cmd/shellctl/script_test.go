package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shelld/shelld/client/clienttest"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// raceOptions keep the race detector from waiting a second at each exit.
const raceOptions = "atexit_sleep_ms=0"

var errPatience = errors.New("the test's patience is over")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"shellctl": main})
}

// serverKey is where a script's stand-in is kept.
type serverKey struct{}

// TestScripts runs testdata/script, each script with a stand-in daemon of its
// own. Beside testscript's commands there are
//
//	await CONDITION…   wait until it holds, see clienttest.Server.Await
//	refuse REQUEST…    fail if that request was made, as await names it
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			server, err := clienttest.Start()
			if err != nil {
				return err
			}
			env.Values[serverKey{}] = server
			env.Setenv("SHELLD_SOCKET", server.Socket)
			env.Setenv("GORACE", raceOptions)
			env.Defer(func() {
				if err := server.Close(); err != nil {
					t.Errorf("%s: %v", env.WorkDir, err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await": func(ts *testscript.TestScript, _ bool, args []string) {
				server, _ := ts.Value(serverKey{}).(*clienttest.Server)
				ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errPatience)
				defer cancel()
				ts.Check(server.Await(ctx, strings.Join(args, " ")))
			},
			"refuse": func(ts *testscript.TestScript, _ bool, args []string) {
				server, _ := ts.Value(serverKey{}).(*clienttest.Server)
				for _, r := range server.Requests() {
					if r == strings.Join(args, " ") {
						ts.Fatalf("request %s was made", r)
					}
				}
			},
		},
	})
}
