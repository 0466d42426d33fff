package client_test

import (
	"context"
	"fmt"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/client/clienttest"
	"github.com/shelld/shelld/rpc"
)

// Run a command in a container that is deleted afterwards.
func ExampleClient_CreateShellCall() {
	daemon, err := clienttest.Start() // stands in for shelld
	if err != nil {
		fmt.Println(err)
		return
	}
	defer daemon.Close()

	// Without Socket the client finds the user's daemon.
	c := client.New(client.Options{Socket: daemon.Socket})
	defer c.Close()

	call, err := c.CreateShellCall(context.Background(), rpc.ShellCallCreate{
		Action:      &rpc.ShellAction{Commands: []string{"echo hello; exit 3"}},
		Environment: &rpc.Environment{Type: "container_auto", DeleteAfter: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Output is what a model gets; Results have more than that.
	fmt.Print(call.Output.Output[0].Stdout)
	if code := call.Results[0].ExitCode; code != nil { // nil: not known
		fmt.Println("exit code", *code)
	}
	// Output:
	// hello
	// exit code 3
}
