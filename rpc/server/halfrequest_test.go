package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Whatever a client starts and does not finish, the server answers if it can,
// ends the connection in bounded time, and starts nothing.
func TestHalfRequests(t *testing.T) {
	t.Parallel()
	head := func(method, path, more string) string {
		return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n"
	}
	const json, ten = "Content-Type: application/json\r\n", "Content-Length: 10\r\n"
	for name, test := range map[string]struct {
		text   string
		status int // 0: none
	}{
		"silence":              {"", 0},
		"half a line":          {"POST /v1/sh", 400},
		"half a header":        {"POST /v1/shell_calls HTTP/1.1\r\nHost: local", 0},
		"no body":              {head("POST", "/v1/shell_calls", json+ten), 400},
		"half a body":          {head("POST", "/v1/shell_calls", json+ten) + `{"ac`, 400},
		"half a chunk":         {head("POST", "/v1/containers", json+"Transfer-Encoding: chunked\r\n") + "a\r\n{\"na", 400},
		"no last chunk":        {head("POST", "/v1/containers", json+"Transfer-Encoding: chunked\r\n") + "c\r\n{\"name\":\"x\"}\r\n", 400},
		"body of a get":        {head("GET", "/healthz", ten) + "x", 200},
		"body of a wrong type": {head("POST", "/v1/shell_calls", ten) + "x", 415},
		"body to nowhere":      {head("POST", "/nowhere", ten) + "x", 404},
		"body of a cancel":     {head("POST", "/v1/shell_calls/x/cancel", ten) + "x", 404},
		"input of no command":  {head("PUT", "/v1/shell_calls/x/commands/0/stdin", ten) + "x", 404},
		"foreign origin":       {head("POST", "/v1/shell_calls", json+ten+"Origin: x\r\n") + "x", 403},
		"great body":           {head("POST", "/v1/shell_calls", json+"Content-Length: 9000000000\r\n") + "{", 400},
		"negative length":      {head("POST", "/v1/shell_calls", json+"Content-Length: -1\r\n"), 400},
		"two lengths":          {head("POST", "/v1/shell_calls", json+ten+"Content-Length: 11\r\n"), 400},
		"no host":              {"GET /healthz HTTP/1.1\r\n\r\n", 400},
		"not HTTP":             {"hello\r\n\r\n", 400},
		"binary":               {"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := impatient(t)
			var dialer net.Dialer
			conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() // the test is over
			if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, test.text); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			status := 0
			if resp, err := http.ReadResponse(r, nil); err == nil {
				status = resp.StatusCode
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Errorf("read answer: %v", err)
				}
			}
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if _, err := io.Copy(io.Discard, r); isTimeout(err) {
				t.Error("the connection was not ended")
			}
			a.untouched()
		})
	}
}

func isTimeout(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	return ok && netErr.Timeout()
}
