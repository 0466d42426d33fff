// Command probe tries, from inside a sandbox, what must not work there. It
// prints a line for each attempt: its name, a tab, and the error or "done".
package main

import (
	"encoding/json"
	"fmt"
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
	var p plan
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: probe JSON")
		os.Exit(2)
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &p); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
	if p.EUID {
		fmt.Printf("euid\t%d\n", os.Geteuid())
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
			fmt.Printf("interface\t%s\n", i.Name)
		}
		if err != nil {
			say("interfaces", err)
		}
	}
}

func say(name string, err error) {
	result := "done"
	if err != nil {
		result = err.Error()
	}
	fmt.Printf("%s\t%s\n", name, result)
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
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.WriteString("0"); err != nil {
		return err
	}
	return file.Close()
}

func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
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
