//go:build ignore

// Report reads what `go test -json` writes and tells what a person needs of
// it: each package's result, the output of failed tests, and the skipped tests
// with their reasons. It exits 1 when something failed, when nothing ran, and
// when a test skips for another reason than what this machine lacks, which its
// message says by starting with "not here: ".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// event is one line of test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type test struct{ pkg, name string }

type report struct {
	out                     io.Writer
	output                  map[test][]string
	passed, failed, skipped int
	unexplained             int
	broken                  int // failed packages
}

// logLine is a line of t.Log or t.Skip; the rest is the message.
var logLine = regexp.MustCompile(`^\s+[\w.-]+\.go:\d+: (.*)`)

func main() {
	r := report{out: os.Stdout, output: map[test][]string{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	fmt.Fprintf(r.out, "tests: %d passed, %d failed, %d skipped, %d of them unexplained\n",
		r.passed, r.failed, r.skipped, r.unexplained)
	if r.broken > 0 || r.failed > 0 || r.unexplained > 0 || r.passed == 0 {
		os.Exit(1)
	}
}

// read takes lines that are no events (of make, of the build) as they are.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			r.take(e)
		} else {
			fmt.Fprint(r.out, line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
	}
}

func (r *report) take(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.output[t] = append(r.output[t], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass":
		if e.Test != "" {
			r.passed++
		}
	case "fail":
		r.fail(t)
	case "skip":
		r.skip(t)
	}
	if e.Test == "" && (e.Action == "pass" || e.Action == "skip") {
		r.packageLine(t)
	}
	switch e.Action {
	case "pass", "fail", "skip":
		delete(r.output, t)
	}
}

// fail prints all that is known of a failed test. A package that fails may
// have tests that never came to an end, at a panic or at the time limit.
func (r *report) fail(t test) {
	if t.name != "" {
		r.failed++
	} else {
		r.broken++
		for open, lines := range r.output {
			if open.pkg == t.pkg && open.name != "" {
				fmt.Fprint(r.out, strings.Join(lines, ""))
			}
		}
	}
	fmt.Fprint(r.out, strings.Join(r.output[t], ""))
}

// skip judges a skipped test; a package without tests is skipped too.
func (r *report) skip(t test) {
	if t.name == "" {
		return
	}
	r.skipped++
	reason := "no reason given"
	for _, line := range r.output[t] {
		if m := logLine.FindStringSubmatch(line); m != nil {
			reason = m[1]
		}
	}
	verdict := "skipped"
	if !strings.HasPrefix(reason, "not here: ") {
		verdict = "SKIPPED WITHOUT A GOOD REASON"
		r.unexplained++
	}
	fmt.Fprintf(r.out, "%s: %s %s: %s\n", verdict, t.pkg, t.name, reason)
}

// packageLine prints the line of go test about a package that did not fail.
func (r *report) packageLine(t test) {
	for _, line := range r.output[t] {
		if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
			fmt.Fprint(r.out, line)
		}
	}
}
