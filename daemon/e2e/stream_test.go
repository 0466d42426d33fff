package e2e

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestFollowedOutput: raw output arrives while the command runs, byte for
// byte, and ends with it.
func TestFollowedOutput(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		p := begin(t, i, with(in(id, `printf 'a\0\377\n'; read -r x; echo err >&2; echo $x`), "stdin", "stream"))
		resp, err := i.open(t.Context(), http.MethodGet, "/v1/shell_calls/"+p.id+"/commands/0/stdout?follow=true", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); got != "application/octet-stream" {
			t.Errorf("content type %q", got)
		}
		reader := bufio.NewReader(resp.Body)
		first, err := reader.ReadString('\n')
		if err != nil || first != "a\x00\xff\n" {
			t.Fatalf("got %q, %v before the command had gone on", first, err)
		}
		ask[map[string]int64](t, i, http.MethodPut, stdinPath(p.id, 0), strings.NewReader("more\n"))
		var rest []byte
		within(t, 2*time.Second, "the end of the stream", func() { rest, err = io.ReadAll(reader) })
		if err != nil || string(rest) != "more\n" {
			t.Errorf("got %q, %v", rest, err)
		}
		if c, ok := p.result(t); !ok || c.Output.Output[0].Stdout != "a\x00\ufffd\nmore\n" || c.Output.Output[0].Stderr != "err\n" {
			t.Errorf("the result is %+v", c.Output)
		}
	})
}

func TestRanges(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		c := call(t, i, in(id, "printf 0123456789"))
		for header, want := range map[string]string{
			"bytes=2-4": "206 234", "bytes=7-": "206 789", "bytes=-2": "206 89", "bytes=5-99": "206 56789",
			"bytes=10-": "416", "bytes=4-2": "416", "lines=1-2": "416", "": "200 0123456789",
		} {
			h := http.Header{}
			if header != "" {
				h.Set("Range", header)
			}
			resp, err := i.open(t.Context(), http.MethodGet, "/v1/shell_calls/"+c.ID+"/commands/0/stdout", nil, h)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			got := strconv.Itoa(resp.StatusCode)
			if resp.StatusCode < 300 {
				got += " " + string(text)
			}
			if err != nil || got != want {
				t.Errorf("range %q: got %q (%v), want %q", header, got, err, want)
			}
		}
		for path, want := range map[string]int{
			"/commands/1/stdout": 404, "/commands/x/stdout": 400, "/commands/0/stdin": 405, "/commands/0/stdout?follow=maybe": 400,
		} {
			if status, code, _, _ := refused(t, i, http.MethodGet, "/v1/shell_calls/"+c.ID+path, nil); status != want {
				t.Errorf("%s: %d %s, want %d", path, status, code, want)
			}
		}
	})
}
