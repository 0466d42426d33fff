package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// outcome is what a shell did with a text.
type outcome struct {
	Stdout, Stderr string
	Code           int
}

// execute runs argv as the guest would.
func execute(t *testing.T, argv []string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the shell hangs"))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // texts of this test
	cmd.Dir = t.TempDir()
	cmd.Env = environ(argv[0], map[string]string{"LC_ALL": "C"}, nil)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("run %s: %v", argv[0], err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// padded is the text after comments that make it too long for one argument.
func padded(text string) string {
	return strings.Repeat("# a comment that is skipped\n", maxArgument/28+1) + text
}

// shells are those that a sandbox may have.
func shells(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, shell := range []string{bash, sh, "/bin/dash"} {
		if _, err := os.Stat(shell); err == nil {
			found = append(found, shell)
		}
	}
	return found
}

// A text means the same to the shell whether it is short or long.
func TestTexts(t *testing.T) {
	t.Parallel()
	body := "it's \"q\" $HOME `x`\\ \\\\ \\n\n\ttab  two spaces \n$(no) ${x} !h *"
	for name, test := range map[string]struct {
		text   string
		stdout string
		code   int
	}{
		"heredoc":            {"cat <<'END'\n" + body + "\nEND\n# the end", body + "\n", 0},
		"heredoc alone":      {"cat <<'END'\n" + body + "\nEND", body + "\n", 0},
		"expanding heredoc":  {"x=1; cat <<END\na $x \\$x\nEND\n", "a 1 $x\n", 0},
		"quotes":             {`printf '%s|' a\ b "c d" 'e"f' "g'h"`, `a b|c d|e"f|g'h|`, 0},
		"continued line":     {"echo one \\\n two", "one two\n", 0},
		"several lines":      {"x=1\nif [ $x = 1 ]; then\n  echo yes\nfi\n\n\necho end", "yes\nend\n", 0},
		"comment at the end": {"echo x # no newline after this", "x\n", 0},
		"only a comment":     {"# nothing", "", 0},
		"blanks":             {" \t\n", "", 0},
		"exit":               {"exit 300", "", 44},
		"false":              {"echo x; false", "x\n", 1},
		"no such program":    {"no-such-program-here", "", 127},
		"not executable":     {"touch n; ./n", "", 126},
		"killed child":       {"sh -c 'kill -SEGV $$'; echo rc=$?", "rc=139\n", 0},
		"unbalanced quote":   {"echo 'open", "", 2},
		"syntax error":       {"if true; then echo x", "", 2},
		"late syntax error":  {"x=)", "", 2},
		"no parameters":      {`echo "$#|$*|$@|$1"`, "0|||\n", 0},
		"set parameters":     {`set -- a "b c"; echo "$#|$2"; shift; echo "$1"`, "2|b c\nb c\n", 0},
		"dash":               {"-x 2>/dev/null; echo rc=$?", "rc=127\n", 0},
		"option":             {"--help 2>/dev/null; echo rc=$?", "rc=127\n", 0},
		"two dashes":         {"-- 2>/dev/null; echo rc=$?", "rc=127\n", 0},
		"plus":               {"+e 2>/dev/null; echo rc=$?", "rc=127\n", 0},
		"unicode":            {"printf '%s' 'aé日本🙂'", "aé日本🙂", 0},
		"bytes":              {"printf '%s' '\xff\x01\x7f'", "\xff\x01\x7f", 0},
		"carriage return":    {"printf '%s' 'a\r\nb'", "a\r\nb", 0},
		"function":           {"f() { echo $1; return 7; }\nf in; echo $?", "in\n7\n", 0},
		"trap":               {"trap 'echo bye' EXIT; exit 3", "bye\n", 3},
		"errexit":            {"set -e; false; echo not reached", "", 1},
		"dollars":            {`echo '$1' "\$1" '${2}'`, "$1 $1 ${2}\n", 0},
		"background":         {"echo x & wait; echo y", "x\ny\n", 0},
	} {
		for _, shell := range shells(t) {
			t.Run(name+" in "+shell, func(t *testing.T) {
				t.Parallel()
				short := execute(t, argv(shell, test.text))
				if short.Stdout != test.stdout || short.Code != test.code {
					t.Errorf("short: %+v, want stdout %q and code %d", short, test.stdout, test.code)
				}
				long := execute(t, argv(shell, padded(test.text)))
				if long.Stdout != test.stdout || long.Code != test.code || (long.Stderr == "") != (short.Stderr == "") {
					t.Errorf("long: %+v, want stdout %q and code %d (short had stderr %q)", long, test.stdout, test.code, short.Stderr)
				}
			})
		}
	}
}

// $0 is the shell in both forms, and so are $$'s and $PPID's relation: there is
// no shell around the shell.
func TestOneShell(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf(`printf '%%s %%s' "$0" "$([ "$PPID" = %d ] && echo ours)"`, os.Getpid())
	for _, shell := range shells(t) {
		for form, text := range map[string]string{"short": text, "long": padded(text)} {
			if got := execute(t, argv(shell, text)); got.Stdout != shell+" ours" {
				t.Errorf("%s form in %s: %+v", form, shell, got)
			}
		}
	}
}

// Long texts come through byte for byte, wherever they are cut into arguments.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	for _, size := range []int{maxArgument, maxArgument + 1, 2*maxArgument - 1, 2*maxArgument + 3, 1 << 20} {
		frame := len("printf '%s' ''")
		content := strings.Repeat("aé日🙂\\$x`\n\"", size/16+1)[:size-frame]
		text := "printf '%s' '" + content + "'"
		if len(text) != size {
			t.Fatalf("text of %d bytes, want %d", len(text), size)
		}
		for _, shell := range shells(t) {
			args := argv(shell, text)
			for _, arg := range args {
				if len(arg) >= 128<<10 {
					t.Errorf("an argument of %d bytes, more than the kernel takes", len(arg))
				}
			}
			if size == maxArgument && len(args) != 4 {
				t.Errorf("a text of %d bytes was cut", size)
			}
			// A cut may fall into a character; printf is given its bytes whole.
			if got := execute(t, args); got.Stdout != content || got.Code != 0 {
				t.Errorf("%d bytes in %s: %d bytes came out, code %d, stderr %.200q", size, shell, len(got.Stdout), got.Code, got.Stderr)
			}
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("SHELLD_SECRET_OF_THE_HOST", "x")
	want := []string{
		"A=container", "B=call", "C=", "D=a=b\nc", "HOME=/home/sandbox", "LANG=C.UTF-8", "LOGNAME=sandbox", "PATH=/mine",
		"SHELL=/bin/sh", "USER=sandbox",
	}
	got := environ(sh, map[string]string{"A": "container", "B": "container", "PATH": "/theirs"},
		map[string]string{"B": "call", "C": "", "D": "a=b\nc", "PATH": "/mine"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	bare := environ(bash, nil, nil)
	if len(bare) != 6 || !slices.Contains(bare, "SHELL=/bin/bash") || slices.ContainsFunc(bare, func(e string) bool { return strings.Contains(e, "SECRET") }) {
		t.Errorf("bare environment %q", bare)
	}
}
