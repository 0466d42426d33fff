// Command probe tries, from inside a sandbox, what must not work there. It
// prints a line for each attempt: its name, a tab, and the error or "done".
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// plan is what to try, read as JSON from the first argument.
type plan struct {
	// Calls runs the attempts of calls.go.
	Calls bool
	// Read, Write and Socket are paths to read, to write to (or to make), and
	// to connect to. Abstract are names of abstract sockets.
	Read, Write, Socket, Abstract []string
	// Dial are network addresses, "tcp 192.0.2.1:80".
	Dial [][2]string
	// Interfaces lists the network's, EUID tells the effective user.
	Interfaces, EUID bool
}

// stayVar makes the program wait for the end of its input: the victim of
// attempts against another process.
const stayVar = "PROBE_STAY"

func main() {
	if os.Getenv(stayVar) != "" {
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2) //nolint:forbidigo // a main function
	}
}

func run(args []string, w io.Writer) error {
	var p plan
	if len(args) != 1 {
		return errors.New("usage: probe JSON")
	}
	if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
		return err
	}
	say := func(name string, err error) {
		result := "done"
		if err != nil {
			result = err.Error()
		}
		fmt.Fprintf(w, "%s\t%s\n", name, result)
	}
	if p.EUID {
		fmt.Fprintf(w, "euid\t%d\n", os.Geteuid())
	}
	if p.Calls {
		for _, a := range attempts() {
			say(a.name, a.try())
		}
	}
	for _, path := range p.Read {
		say("read "+path, read(path))
	}
	for _, path := range p.Write {
		say("write "+path, write(path))
	}
	for _, path := range p.Socket {
		say("connect "+path, dial("unix", path))
	}
	for _, name := range p.Abstract {
		say("connect @"+name, dial("unix", "@"+name))
	}
	for _, d := range p.Dial {
		started := time.Now()
		err := dial(d[0], d[1])
		if took := time.Since(started); took > 500*time.Millisecond {
			err = fmt.Errorf("slow (%s): %w", took, err)
		}
		say("dial "+d[0]+" "+d[1], err)
	}
	if p.Interfaces {
		list, err := net.Interfaces()
		for _, i := range list {
			fmt.Fprintf(w, "interface\t%s\n", i.Name)
		}
		return err
	}
	return nil
}

func read(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		entries, err := os.ReadDir(path)
		if err == nil && len(entries) == 0 {
			err = fmt.Errorf("is empty")
		}
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	n, err := file.Read(make([]byte, 1))
	if n > 0 {
		return nil
	}
	return fmt.Errorf("nothing to read: %w", err)
}

func write(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path += "/probe-was-here"
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.WriteString("0"); err != nil {
		return err
	}
	return file.Close()
}

func dial(network, address string) error {
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(context.Background(), network, address)
	if err != nil {
		return err
	}
	if network == "udp" {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
	}
	return conn.Close()
}
