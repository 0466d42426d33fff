package server

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/shelld/shelld/rpc"
)

// Any body gets an answer that fits the document: a good one, or one error in
// its envelope that is the client's fault.
func FuzzBodies(f *testing.F) {
	for _, cases := range [][]bad{badCalls(), badContainers()} {
		for _, c := range cases {
			if len(c.body) < 4096 {
				f.Add(c.body)
			}
		}
	}
	f.Add(callBody("", `,"env":{"A":"b"},"stdin":"none","background":true`, "true"))
	f.Fuzz(func(t *testing.T, body string) {
		s := &server{opts: (&api{}).options()}
		for path, read := range map[string]func(http.ResponseWriter, *http.Request) error{
			"/v1/shell_calls": func(w http.ResponseWriter, r *http.Request) error {
				var req rpc.ShellCallCreate
				if err := decode(w, r, &req, true); err != nil {
					return err
				}
				_, err := s.callSpec(req)
				return err
			},
			"/v1/containers": func(w http.ResponseWriter, r *http.Request) error {
				var req rpc.ContainerCreate
				if err := decode(w, r, &req, false); err != nil {
					return err
				}
				_, err := s.containerSpec(req, "")
				return err
			},
		} {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.log = s.opts.Log
			s.serve(read).ServeHTTP(w, req)
			if w.Body.Len() == 0 {
				continue // it was fine
			}
			got := answer{t, w.Code, w.Header(), w.Body.Bytes()}
			if got.status < 400 || got.status >= 500 {
				t.Errorf("status %d: %s", got.status, got.body)
			}
			checkAnswer(t, req, got)
		}
	})
}

// What the binder takes is what encoding/json takes, and means the same to it.
func FuzzBind(f *testing.F) {
	for _, c := range badCalls() {
		if len(c.body) < 4096 {
			f.Add([]byte(c.body))
		}
	}
	f.Add([]byte(callBody("c", `,"env":{"A":"\ud83d\ude42"},"stdin":"none","background":true`, "true", "false")))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got, want rpc.ShellCallCreate
		raw, err := one(body)
		if err != nil {
			return
		}
		if _, found := loneSurrogate(raw); found || !utf8.Valid(raw) {
			return
		}
		if err := (binder{strict: true}).value(raw, reflect.ValueOf(&got).Elem(), ""); err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("taken, but encoding/json says: %v", err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("bound %+v, want %+v", got, want)
		}
		if _, err := dec.Token(); err != io.EOF { // Token does not wrap it
			t.Errorf("something follows: %v", err)
		}
	})
}

func FuzzRange(f *testing.F) {
	for _, text := range []string{"bytes=0-1", "bytes=-5", "bytes=3-", "bytes=-", "bytes=9223372036854775807-9223372036854775807"} {
		f.Add(text, int64(10))
	}
	f.Fuzz(func(t *testing.T, text string, size int64) {
		if size < 0 {
			return
		}
		from, to, ok := parseRange(text, size)
		if ok && (from < 0 || from >= to || to > size) {
			t.Errorf("range %q of %d bytes is %d to %d", text, size, from, to)
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, text := range []string{"1g", "16m", "0", "9223372036854775807", "8388608t", "1G", "k", "", "1 g"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := parseSize(text)
		if !ok {
			return
		}
		digits := strings.TrimRight(strings.ToLower(text), "kmgt")
		if n < 0 || len(text)-len(digits) > 1 || strings.Trim(digits, "0123456789") != "" || digits == "" {
			t.Errorf("size %q is %d", text, n)
		}
	})
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "1k": 1 << 10, "16m": 16 << 20, "3G": 3 << 30, "2t": 2 << 40, "9223372036854775807": 1<<63 - 1, "8388607t": 8388607 << 40,
		"": -1, "g": -1, "8388608t": -1, "16777216t": -1, "9223372036854775808": -1, "1gb": -1, "1.5g": -1, "+1": -1, " 1": -1, "1 g": -1, "0x10": -1, "1_0": -1, "١": -1,
		"1\x4b": 1 << 10, "1\x2b": -1,
	} {
		got, ok := parseSize(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, host := range []string{"localhost", "[::1]:80", "127.0.0.1", "example.com", "localhost.evil", "[localhost]", "::ffff:127.0.0.1", ":80", ""} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !localHost(host) {
			return
		}
		name := strings.ToLower(host)
		if !strings.Contains(name, "localhost") && !strings.Contains(name, "shelld") && !strings.Contains(name, "127.") && !strings.Contains(name, "::") &&
			!strings.Contains(name, "0:") && !strings.Contains(name, "7f") {
			t.Errorf("host %q was taken for this machine", host)
		}
	})
}

func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`""`: -1, `"\ud83d\ude42"`: -1, `"\ud83d"`: 1, `"x\ude42"`: 2, `"\\ud83d"`: -1, `"\\\ud83d"`: 3, `"\uD83D\uDE42\udfff"`: 13,
		`"\ud83d\u0041"`: 1, `"\u0041\n\""`: -1, `"\ud83d\\ude42"`: 1, `"\ud83d\ud83d\ude42"`: 1, `"\ue000\ud7ff"`: -1, `"\ud83dx"`: 1,
	} {
		at, found := loneSurrogate([]byte(text))
		if !found {
			at = -1
		}
		if at != want {
			t.Errorf("%s: found at %d, want %d", text, at, want)
		}
	}
}
