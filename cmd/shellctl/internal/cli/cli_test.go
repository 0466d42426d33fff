package cli

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/shelld/shelld/rpc"
)

// A shell gives back every argument byte for byte, whatever is in it, and the
// text can travel in JSON.
func TestQuoteArgsKeepsEveryByte(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"'", `"`, `\`, "$", "`", "$(id)", "*", "~", "#", "!", "=", "-", " ", "\n", "\t", "\r", "é", "\U0001f600", "\xff", "\xc3", "\x01", "a", "if", "{a,b}", "&", "|", ";", "<", "%s"}
	for _, shell := range []string{"sh", "bash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Errorf("%s is needed: %v", shell, err)
			continue
		}
		for range 60 {
			args := []string{"printf", `%s\0`}
			want := ""
			for range 1 + random.IntN(6) {
				arg := ""
				for range random.IntN(8) {
					if random.IntN(3) == 0 {
						arg += string([]byte{byte(1 + random.IntN(255))})
					} else {
						arg += pieces[random.IntN(len(pieces))]
					}
				}
				args = append(args, arg)
				want += arg + "\x00"
			}
			text := quoteArgs(args)
			if !utf8.ValidString(text) {
				t.Fatalf("the text for %q is not UTF-8", args)
			}
			got, err := exec.CommandContext(t.Context(), path, "-c", text).Output()
			if err != nil || string(got) != want {
				t.Fatalf("%s ran %q as %s and printed %q, %v", shell, args, text, got, err)
			}
		}
	}
}

func TestQuoteArgsIsReadable(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"ls -l /tmp/a.txt":           {"ls", "-l", "/tmp/a.txt"},
		"env A=b c":                  {"env", "A=b", "c"},
		"'A=b' c":                    {"A=b", "c"},
		"'if' if":                    {"if", "if"},
		"'time' ls":                  {"time", "ls"},
		"echo ''":                    {"echo", ""},
		`echo 'it'\''s'`:             {"echo", "it's"},
		`echo 'a'"$(printf '\377')"`: {"echo", "a\xff"},
	} {
		if got := quoteArgs(args); got != want {
			t.Errorf("quoteArgs(%q) = %s, want %s", args, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		err  error
		want int
	}{
		{"success", nil, 0},
		{"a command's code", &exitError{code: 7}, 7},
		{"wrapped", fmt.Errorf("run: %w", &exitError{code: 7}), 7},
		{"usage", &usageError{err: errors.New("x")}, 125},
		{"the API's error", &rpc.Error{Status: 404}, 125},
		{"anything else", errors.New("x"), 125},
		{"SIGINT", &interrupt{signal: syscall.SIGINT}, 130},
		{"SIGTERM", fmt.Errorf("start: %w", &interrupt{signal: syscall.SIGTERM}), 143},
		{"SIGHUP", &interrupt{signal: syscall.SIGHUP}, 129},
		{"broken pipe", errBrokenPipe, 141},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("%s: exit code %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestCallCode(t *testing.T) {
	t.Parallel()
	code := func(n int) *int { return &n }
	for _, tc := range []struct {
		name    string
		results []rpc.ShellResult
		want    int
	}{
		{"success", []rpc.ShellResult{{Reason: "exit", ExitCode: code(0)}}, 0},
		{"own code", []rpc.ShellResult{{Reason: "exit", ExitCode: code(42)}}, 42},
		{"first that is not 0", []rpc.ShellResult{{Reason: "exit", ExitCode: code(0)}, {Reason: "exit", ExitCode: code(3)}, {Reason: "timeout"}}, 3},
		{"signal", []rpc.ShellResult{{Reason: "signal", ExitCode: code(137)}}, 137},
		{"timeout", []rpc.ShellResult{{Reason: "timeout", ExitCode: code(137)}}, 124},
		{"canceled by another", []rpc.ShellResult{{Reason: "canceled", ExitCode: code(137)}}, 137},
		{"out of memory", []rpc.ShellResult{{Reason: "oom", ExitCode: code(137)}}, 137},
		{"denied", []rpc.ShellResult{{Reason: "denied", ExitCode: code(126)}}, 126},
		{"lost", []rpc.ShellResult{{Reason: "lost"}}, 125},
		{"lost with a code that cannot be true", []rpc.ShellResult{{Reason: "lost", ExitCode: code(0)}}, 125},
		{"no code", []rpc.ShellResult{{Reason: "exit"}}, 125},
		{"a code of none", []rpc.ShellResult{{Reason: "exit", ExitCode: code(-1)}}, 125},
		{"no result", nil, 125},
	} {
		call := &rpc.ShellCall{Results: tc.results}
		call.Action.Commands = make([]string, max(1, len(tc.results)))
		if got := callCode(call); got != tc.want {
			t.Errorf("%s: exit code %d, want %d", tc.name, got, tc.want)
		}
	}
}

// However a stream is cut into pieces, its lines come out whole, labelled, in
// order.
func TestLabelled(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	var in, want strings.Builder
	for i := range 200 {
		line := strings.Repeat("x", random.IntN(100)) + fmt.Sprint(i)
		in.WriteString(line + "\n")
		want.WriteString("[2] " + line + "\n")
	}
	in.WriteString("no end")
	want.WriteString("[2] no end\n")

	var out bytes.Buffer
	l := &labelled{label: label(1), to: &out, shared: new(sync.Mutex)}
	for rest := in.String(); rest != ""; {
		n := 1 + random.IntN(min(300, len(rest)))
		if got, err := l.Write([]byte(rest[:n])); got != n || err != nil {
			t.Fatalf("Write = %d, %v", got, err)
		}
		rest = rest[n:]
	}
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	if out.String() != want.String() {
		t.Errorf("got %d bytes, want %d, or other ones", out.Len(), want.Len())
	}
}

func TestLabelledBreaksEndlessLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &labelled{label: "[1] ", to: &out, shared: new(sync.Mutex)}
	total := 3*maxLine + 5
	for range total {
		if _, err := l.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		if len(l.part) >= maxLine {
			t.Fatalf("%d bytes are held back", len(l.part))
		}
	}
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "y"); got != total {
		t.Errorf("%d bytes came out, want %d", got, total)
	}
	if got := strings.Count(out.String(), "\n"); got != 4 {
		t.Errorf("%d lines, want 4", got)
	}
}

// Two streams on one destination never share a line.
func TestLabelledStreamsShareADestination(t *testing.T) {
	t.Parallel()
	var (
		out    bytes.Buffer
		shared sync.Mutex
		wait   sync.WaitGroup
	)
	for i := range 4 {
		wait.Go(func() {
			l := &labelled{label: label(i), to: &out, shared: &shared}
			for range 500 {
				for _, piece := range []string{"same", strings.Repeat(fmt.Sprint(i+1), 5), "\n"} {
					_, _ = l.Write([]byte(piece))
				}
			}
		})
	}
	wait.Wait()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	want := []string{"[1] same11111", "[2] same22222", "[3] same33333", "[4] same44444"}
	for _, line := range lines {
		if !slices.Contains(want, line) {
			t.Fatalf("line %q is a mix", line)
		}
	}
	if len(lines) != 2000 {
		t.Errorf("%d lines, want 2000", len(lines))
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 日本 '\"":       "plain é 日本 '\"",
		"a\x1b[31mb":           `a\x1b[31mb`,
		"line\nbreak\ttab":     `line\nbreak\ttab`,
		"right-to-left \u202e": `right-to-left \u202e`,
		"\u009b31m":            `\u009b31m`,
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestHumanFigures(t *testing.T) {
	t.Parallel()
	p := &program{now: func() time.Time { return time.Unix(1_000_000, 0) }}
	for unix, want := range map[int64]string{
		1_000_000: "0s ago", 1_000_005: "0s ago", 1_000_000 - 59: "59s ago", 1_000_000 - 60: "1m ago",
		1_000_000 - 7200: "2h ago", 1_000_000 - 47*3600: "47h ago", 1_000_000 - 48*3600: "2d ago",
	} {
		if got := p.ago(unix); got != want {
			t.Errorf("ago(%d) = %s, want %s", unix, got, want)
		}
	}
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 30: "1 GiB", 1 << 50: "1024 TiB"} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %s, want %s", bytes, got, want)
		}
	}
}
