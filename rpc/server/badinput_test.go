package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

// bad is a body that must be refused, and how.
type bad struct {
	name, body  string
	status      int
	code, param string
}

func badCalls() []bad {
	long := strings.Repeat("x", 1<<20+1)
	action := func(more string) string { return `{"action":{"commands":["true"]` + more + `}}` }
	call := func(more string) string { return `{"action":{"commands":["true"]},` + more + `}` }
	environment := func(more string) string { return call(`"environment":{"type":"container_auto",` + more + `}`) }
	const invalid, missing, unknown = "invalid_value", "missing_field", "unknown_field"
	return []bad{
		{"empty body", " ", 400, invalid, ""},
		{"not JSON", "commands=true", 400, invalid, ""},
		{"half JSON", `{"action":{"commands":["true"]`, 400, invalid, ""},
		{"trailing object", `{"action":{"commands":["true"]}}{}`, 400, invalid, ""},
		{"trailing text", `{"action":{"commands":["true"]}} x`, 400, invalid, ""},
		{"array", `[]`, 400, invalid, ""},
		{"text", `"true"`, 400, invalid, ""},
		{"null", `null`, 400, invalid, ""},
		{"number", `1`, 400, invalid, ""},
		{"comment", `{"action":{"commands":["true"]} /* x */}`, 400, invalid, ""},
		{"byte order mark", "\ufeff" + action(""), 400, invalid, ""},
		{"invalid UTF-8", "{\"action\":{\"commands\":[\"\xff\"]}}", 400, invalid, ""},
		{"overlong UTF-8", "{\"action\":{\"commands\":[\"\xc0\xaf\"]}}", 400, invalid, ""},
		{"raw surrogate", "{\"action\":{\"commands\":[\"\xed\xa0\x80\"]}}", 400, invalid, ""},
		{"lone surrogate", `{"action":{"commands":["\ud83d"]}}`, 400, invalid, ""},
		{"swapped surrogates", `{"action":{"commands":["\ude42\ud83d"]}}`, 400, invalid, ""},
		{"two high surrogates", `{"action":{"commands":["\ud83d\ud83d\ude42"]}}`, 400, invalid, ""},
		{"lone surrogate in a name", call(`"env":{"\udfff":"x"}`), 400, invalid, ""},
		{"control character", "{\"action\":{\"commands\":[\"a\nb\"]}}", 400, invalid, ""},
		{"deep nesting", `{"type":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 400, invalid, ""},
		{"deep objects", strings.Repeat(`{"a":`, 100_000), 400, invalid, ""},

		{"nothing", `{}`, 400, missing, "action"},
		{"action null", `{"action":null}`, 400, missing, "action"},
		{"action text", `{"action":"true"}`, 400, invalid, "action"},
		{"action array", `{"action":[]}`, 400, invalid, "action"},
		{"no commands", `{"action":{}}`, 400, missing, "action.commands"},
		{"commands null", `{"action":{"commands":null}}`, 400, missing, "action.commands"},
		{"commands empty", `{"action":{"commands":[]}}`, 400, missing, "action.commands"},
		{"commands text", `{"action":{"commands":"true"}}`, 400, invalid, "action.commands"},
		{"commands object", `{"action":{"commands":{"0":"true"}}}`, 400, invalid, "action.commands"},
		{"65 commands", callBody("", "", strings.Fields(strings.Repeat("x ", 65))...), 400, invalid, "action.commands"},
		{"empty command", callBody("", "", "true", ""), 400, invalid, "action.commands[1]"},
		{"null command", `{"action":{"commands":["true",null]}}`, 400, invalid, "action.commands[1]"},
		{"number as command", `{"action":{"commands":["true",1]}}`, 400, invalid, "action.commands[1]"},
		{"argv as command", `{"action":{"commands":[["ls","-l"]]}}`, 400, invalid, "action.commands[0]"},
		{"NUL in a command", `{"action":{"commands":["a\u0000b"]}}`, 400, invalid, "action.commands[0]"},
		{"over-long command", callBody("", "", "true", long), 413, "too_large", "action.commands[1]"},
		{"body over 8 MiB", callBody("", "", strings.Fields(strings.Repeat(long[:1<<20]+" ", 9))...), 413, "too_large", ""},

		{"timeout zero", action(`,"timeout_ms":0`), 400, invalid, "action.timeout_ms"},
		{"timeout negative", action(`,"timeout_ms":-1`), 400, invalid, "action.timeout_ms"},
		{"timeout fraction", action(`,"timeout_ms":1.5`), 400, invalid, "action.timeout_ms"},
		{"timeout text", action(`,"timeout_ms":"1000"`), 400, invalid, "action.timeout_ms"},
		{"timeout huge", action(`,"timeout_ms":9223372036854775808`), 400, invalid, "action.timeout_ms"},
		{"timeout exponent", action(`,"timeout_ms":1e400`), 400, invalid, "action.timeout_ms"},
		{"timeout long", action(`,"timeout_ms":` + strings.Repeat("9", 100_000)), 400, invalid, "action.timeout_ms"},
		{"timeout true", action(`,"timeout_ms":true`), 400, invalid, "action.timeout_ms"},
		{"timeout array", action(`,"timeout_ms":[1]`), 400, invalid, "action.timeout_ms"},
		{"length zero", action(`,"max_output_length":0`), 400, invalid, "action.max_output_length"},
		{"length negative", action(`,"max_output_length":-5`), 400, invalid, "action.max_output_length"},
		{"length fraction", action(`,"max_output_length":0.1`), 400, invalid, "action.max_output_length"},
		{"length text", action(`,"max_output_length":"all"`), 400, invalid, "action.max_output_length"},

		{"unknown field", call(`"comands":[]`), 400, unknown, "comands"},
		{"unknown inner field", action(`,"timeout":1`), 400, unknown, "action.timeout"},
		{"unknown field of the environment", environment(`"memory":"1g"`), 400, unknown, "environment.memory"},
		{"unknown field of a later release", call(`"wait":false`), 400, unknown, "wait"},
		{"another case", call(`"ENV":{}`), 400, unknown, "ENV"},
		{"another case of action", `{"Action":{"commands":["true"]}}`, 400, unknown, "Action"},
		{"long unknown field", `{"` + long + `":1}`, 400, unknown, long[:64] + "…"},
		{"field twice", `{"action":{"commands":["true"]},"action":{"commands":["false"]}}`, 400, invalid, "action"},
		{"inner field twice", action(`,"timeout_ms":1,"timeout_ms":2`), 400, invalid, "action.timeout_ms"},
		{"variable twice", call(`"env":{"A":"1","A":"2"}`), 400, invalid, "env.A"},

		{"call id empty", call(`"call_id":""`), 400, invalid, "call_id"},
		{"call id long", call(`"call_id":"` + strings.Repeat("é", 65) + `"`), 400, invalid, "call_id"},
		{"call id number", call(`"call_id":1`), 400, invalid, "call_id"},
		{"stdin unknown", call(`"stdin":"tty"`), 400, invalid, "stdin"},
		{"stdin true", call(`"stdin":true`), 400, invalid, "stdin"},
		{"background text", call(`"background":"yes"`), 400, invalid, "background"},
		{"background number", call(`"background":1`), 400, invalid, "background"},

		{"directory relative", call(`"working_directory":"data"`), 400, invalid, "working_directory"},
		{"directory empty", call(`"working_directory":""`), 400, invalid, "working_directory"},
		{"directory with NUL", call(`"working_directory":"/a\u0000"`), 400, invalid, "working_directory"},
		{"directory long", call(`"working_directory":"/` + strings.Repeat("d", 4096) + `"`), 400, invalid, "working_directory"},
		{"directory array", call(`"working_directory":["/"]`), 400, invalid, "working_directory"},

		{"env array", call(`"env":["A=b"]`), 400, invalid, "env"},
		{"env number", call(`"env":{"A":1}`), 400, invalid, "env.A"},
		{"env null", call(`"env":{"A":null}`), 400, invalid, "env.A"},
		{"env empty name", call(`"env":{"":"x"}`), 400, invalid, "env"},
		{"env name with =", call(`"env":{"A=B":"x"}`), 400, invalid, "env"},
		{"env NUL in name", call(`"env":{"A\u0000":"x"}`), 400, invalid, "env"},
		{"env NUL", call(`"env":{"A":"\u0000"}`), 400, invalid, "env.A"},
		{"env long entry", call(`"env":{"A":"` + long[:128<<10] + `"}`), 400, invalid, "env.A"},
		{"env too much", call(`"env":` + environ(8, 100<<10)), 400, invalid, "env"},
		{"env 100,000 entries", call(`"env":` + environ(100_000, 1)), 400, invalid, "env"},

		{"environment text", call(`"environment":"local"`), 400, invalid, "environment"},
		{"environment without type", call(`"environment":{}`), 400, missing, "environment.type"},
		{"environment type unknown", call(`"environment":{"type":"docker"}`), 400, invalid, "environment.type"},
		{"environment type null", call(`"environment":{"type":null}`), 400, invalid, "environment.type"},
		{"reference without id", call(`"environment":{"type":"container_reference"}`), 400, missing, "environment.container_id"},
		{"reference with more", call(`"environment":{"type":"container_reference","container_id":"x","memory_limit":"1g"}`), 400, invalid, "environment"},
		{"auto with an id", environment(`"container_id":"x"`), 400, invalid, "environment.container_id"},
		{"delete_after text", environment(`"delete_after":"true"`), 400, invalid, "environment.delete_after"},
		{"delete_after null", environment(`"delete_after":null`), 400, invalid, "environment.delete_after"},
		{"memory unknown unit", environment(`"memory_limit":"1x"`), 400, invalid, "environment.memory_limit"},
		{"files of an environment", environment(`"file_ids":["f"]`), 400, "unsupported", "environment.file_ids"},
		{"network unknown", call(`"network_policy":{"type":"open"}`), 400, invalid, "network_policy.type"},
		{"network allowlist", call(`"network_policy":{"type":"allowlist","allowed_domains":["a.b"]}`), 400, "unsupported", "network_policy"},
		{"network unknown field", call(`"network_policy":{"type":"disabled","allow":true}`), 400, unknown, "network_policy.allow"},

		{"container malformed", callBody("nonsense", "", "true"), 404, "not_found", ""},
		{"container unknown", callBody(string(sandbox.NewID()), "", "true"), 404, "not_found", ""},
		{"container path", callBody("../../etc", "", "true"), 404, "not_found", ""},
	}
}

// environ is a JSON object of n variables of the given size.
func environ(n, size int) string {
	var b strings.Builder
	value := strings.Repeat("v", size)
	for i := range n {
		fmt.Fprintf(&b, `,"K%d":"%s"`, i, value)
	}
	return "{" + b.String()[1:] + "}"
}

func badContainers() []bad {
	with := func(more string) string { return `{"name":"x",` + more + `}` }
	const invalid, missing = "invalid_value", "missing_field"
	return []bad{
		{"nothing", `{}`, 400, missing, "name"},
		{"name empty", `{"name":""}`, 400, missing, "name"},
		{"name null", `{"name":null}`, 400, invalid, "name"},
		{"name number", `{"name":1}`, 400, invalid, "name"},
		{"name long", `{"name":"` + strings.Repeat("n", 257) + `"}`, 400, invalid, "name"},
		{"name NUL", `{"name":"a\u0000"}`, 400, invalid, "name"},
		{"another case", `{"Name":"x"}`, 400, missing, "name"},
		{"name twice", `{"name":"x","name":"y"}`, 400, invalid, "name"},
		{"memory zero", with(`"memory_limit":"0"`), 400, invalid, "memory_limit"},
		{"memory small", with(`"memory_limit":"15m"`), 400, invalid, "memory_limit"},
		{"memory negative", with(`"memory_limit":"-1g"`), 400, invalid, "memory_limit"},
		{"memory fraction", with(`"memory_limit":"1.5g"`), 400, invalid, "memory_limit"},
		{"memory number", with(`"memory_limit":1073741824`), 400, invalid, "memory_limit"},
		{"memory huge", with(`"memory_limit":"99999999999t"`), 400, invalid, "memory_limit"},
		{"memory overflow", with(`"memory_limit":"16777216t"`), 400, invalid, "memory_limit"},
		{"memory empty", with(`"memory_limit":""`), 400, invalid, "memory_limit"},
		{"memory long", with(`"memory_limit":"` + strings.Repeat("9", 10_000) + `"`), 400, invalid, "memory_limit"},
		{"expiry zero", with(`"expires_after":{"anchor":"last_active_at","minutes":0}`), 400, invalid, "expires_after.minutes"},
		{"expiry fraction", with(`"expires_after":{"anchor":"last_active_at","minutes":1.5}`), 400, invalid, "expires_after.minutes"},
		{"expiry long", with(`"expires_after":{"anchor":"last_active_at","minutes":100000}`), 400, "above_ceiling", "expires_after.minutes"},
		{"expiry anchor", with(`"expires_after":{"anchor":"created_at","minutes":5}`), 400, invalid, "expires_after.anchor"},
		{"expiry number", with(`"expires_after":20`), 400, invalid, "expires_after"},
		{"image unknown", with(`"image":"debian"`), 400, "unsupported", "image"},
		{"image long", with(`"image":"` + strings.Repeat("i", 10_000) + `"`), 400, "unsupported", "image"},
		{"files", with(`"file_ids":["file_1"]`), 400, "unsupported", "file_ids"},
		{"skills", with(`"skills":[{"type":"skill_reference"}]`), 400, "unsupported", "skills"},
		{"labels text", with(`"labels":"a=b"`), 400, invalid, "labels"},
		{"label number", with(`"labels":{"a":1}`), 400, invalid, "labels.a"},
		{"label long", with(`"labels":{"a":"` + strings.Repeat("l", 1024) + `"}`), 400, invalid, "labels.a"},
		{"label unnamed", with(`"labels":{"":"x"}`), 400, invalid, "labels"},
		{"many labels", with(`"labels":` + environ(65, 1)), 400, invalid, "labels"},
		{"env NUL", with(`"env":{"A":"\u0000"}`), 400, invalid, "env.A"},
		{"network number", with(`"network_policy":{"type":1}`), 400, invalid, "network_policy.type"},
	}
}

// Each faulty body gets exactly one clear error that names the field, and
// nothing is started.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for path, cases := range map[string][]bad{"/v1/shell_calls": badCalls(), "/v1/containers": badContainers()} {
		for _, test := range cases {
			t.Run(path+" "+test.name, func(t *testing.T) {
				t.Parallel()
				a := ready(t)
				a.send(request{method: "POST", path: path, body: test.body}).refused(test.status, test.code, test.param)
				a.untouched()
			})
		}
	}
}

// untouched wants that nothing has been made or started.
func (a *api) untouched() {
	a.t.Helper()
	if n := a.world.Backend.Count(sandboxtest.OpCreate) + a.world.Boxes.Count(sandboxtest.OpStart); n > 0 {
		a.t.Errorf("%d sandboxes or commands were started", n)
	}
	if n, runs := a.manager.Counts(); n+runs > 0 {
		a.t.Errorf("%d containers and %d runs are counted", n, runs)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	a := ready(t)
	id, call := string(sandbox.NewID()), string(sandbox.NewCallID())
	const invalid, unknown = "invalid_value", "unknown_field"
	for _, test := range []struct {
		method, path string
		status       int
		code, param  string
	}{
		{"GET", "/", 404, "not_found", ""},
		{"GET", "/v1", 404, "not_found", ""},
		{"GET", "/v1/", 404, "not_found", ""},
		{"GET", "/v2/containers", 404, "not_found", ""},
		{"GET", "/v1/containers/", 404, "not_found", ""},
		{"GET", "//v1/info", 404, "not_found", ""},
		{"GET", "/v1//info", 404, "not_found", ""},
		{"GET", "/v1/../v1/info", 404, "not_found", ""},
		{"GET", "/v1/containers/%2e%2e", 404, "not_found", ""},
		{"GET", "/V1/info", 404, "not_found", ""},
		{"GET", "/" + strings.Repeat("x", 30_000), 404, "not_found", ""},
		{"GET", "/v1/containers/" + id, 404, "not_found", ""},
		{"DELETE", "/v1/containers/" + id, 404, "not_found", ""},
		{"GET", "/v1/containers/nonsense", 404, "not_found", ""},
		{"GET", "/v1/containers/%00%ff%2f", 404, "not_found", ""},
		{"GET", "/v1/containers/" + strings.Repeat("c", 30_000), 404, "not_found", ""},
		{"GET", "/v1/shell_calls/" + call, 404, "not_found", ""},
		{"GET", "/v1/shell_calls/nonsense", 404, "not_found", ""},
		{"POST", "/v1/shell_calls/" + call + "/cancel", 404, "not_found", ""},
		{"GET", streamPath(call, 0, "stdout"), 404, "not_found", ""},
		{"PUT", streamPath(call, 0, "stdin"), 404, "not_found", ""},
		{"GET", streamPath(call, 0, "stdall"), 404, "not_found", ""},
		{"GET", streamPath(call, -1, "stdout"), 400, invalid, "index"},
		{"GET", "/v1/shell_calls/" + call + "/commands/one/stdout", 400, invalid, "index"},
		{"GET", "/v1/shell_calls/" + call + "/commands/+1/stderr", 400, invalid, "index"},
		{"PUT", "/v1/shell_calls/" + call + "/commands/99999999999/stdin", 400, invalid, "index"},
		{"GET", streamPath(call, 0, "stdout") + "?follow=1", 400, invalid, "follow"},
		{"GET", streamPath(call, 0, "stdout") + "?folow=true", 400, unknown, "folow"},

		{"GET", "/v1/containers?limit=0", 400, invalid, "limit"},
		{"GET", "/v1/containers?limit=101", 400, invalid, "limit"},
		{"GET", "/v1/containers?limit=-1", 400, invalid, "limit"},
		{"GET", "/v1/containers?limit=1.5", 400, invalid, "limit"},
		{"GET", "/v1/containers?limit=x", 400, invalid, "limit"},
		{"GET", "/v1/containers?limit=" + strings.Repeat("9", 20_000), 400, invalid, "limit"},
		{"GET", "/v1/containers?order=up", 400, invalid, "order"},
		{"GET", "/v1/containers?after=nonsense", 400, invalid, "after"},
		{"GET", "/v1/shell_calls?limit=%2B5", 400, invalid, "limit"},
		{"GET", "/v1/shell_calls?after=nonsense", 400, invalid, "after"},
		{"GET", "/v1/shell_calls?status=done", 400, invalid, "status"},
		{"GET", "/v1/shell_calls?container=x", 400, unknown, "container"},
		{"GET", "/v1/shell_calls?limit=%zz", 400, invalid, ""},
	} {
		t.Run(test.method+" "+clip(test.path), func(t *testing.T) {
			a := *a
			a.t = t
			a.send(request{method: test.method, path: test.path}).refused(test.status, test.code, test.param)
		})
	}
	a.untouched()
}

func TestMethods(t *testing.T) {
	t.Parallel()
	a := ready(t)
	for path, allow := range map[string]string{
		"/v1/containers":                      "GET, POST",
		"/v1/containers/x":                    "GET, DELETE",
		"/v1/shell_calls":                     "GET, POST",
		"/v1/shell_calls/x":                   "GET",
		"/v1/shell_calls/x/cancel":            "POST",
		"/v1/shell_calls/x/commands/0/stdin":  "PUT",
		"/v1/shell_calls/x/commands/0/stdout": "GET",
		"/v1/info":                            "GET",
		"/v1/shutdown":                        "POST",
		"/healthz":                            "GET",
		"/readyz":                             "GET",
		"/openapi.yaml":                       "GET",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "PROPFIND", "get", strings.Repeat("M", 5000)} {
			if strings.Contains(allow, method) {
				continue
			}
			got := a.send(request{method: method, path: path})
			if got.header.Get("Allow") != allow {
				t.Errorf("%s %s allows %q, want %q", method, path, got.header.Get("Allow"), allow)
			}
			if method == "HEAD" {
				if got.status != http.StatusMethodNotAllowed {
					t.Errorf("HEAD %s answers %d", path, got.status)
				}
				continue
			}
			got.refused(405, "method_not_allowed", "")
		}
	}
	a.untouched()
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	a := ready(t)
	for _, kind := range [][]string{nil, {""}, {"text/plain"}, {"application/x-www-form-urlencoded"}, {"multipart/form-data; boundary=x"}, {"application/json5"}, {"nonsense;;"}, {strings.Repeat("x", 9000)}} {
		for _, path := range []string{"/v1/shell_calls", "/v1/containers", "/v1/shutdown"} {
			got := a.send(request{method: "POST", path: path, body: "{}", header: http.Header{"Content-Type": kind}})
			got.refused(415, "unsupported_media_type", "")
		}
	}
	for _, kind := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON"} {
		a.send(request{method: "POST", path: "/v1/shell_calls", body: "{}", header: http.Header{"Content-Type": {kind}}}).refused(400, "missing_field", "action")
	}
	if len(a.stops) > 0 {
		t.Error("a refused request stopped the daemon")
	}
	a.untouched()
}

func TestForeigners(t *testing.T) {
	t.Parallel()
	a := ready(t)
	good := request{method: "POST", path: "/v1/shell_calls", body: callBody("", "", "true")}
	for _, header := range []http.Header{{"Origin": {"null"}}, {"Origin": {""}}, {"Origin": {"http://localhost"}}, {"Referer": {"http://localhost/x"}}} {
		r := good
		r.header = header
		a.send(r).refused(403, "forbidden", "")
	}
	for _, host := range []string{
		"example.com", "localhost.example.com", "shelld.example.com", "10.0.0.1", "0.0.0.0", "127.0.0.1.example.com", "[::]", "::2",
		"xlocalhost", "localhost:x:y", "169.254.169.254", strings.Repeat("h", 9000), "2130706433",
	} {
		r := good
		r.host = host
		a.send(r).refused(403, "forbidden", "")
	}
	a.untouched()
	for _, host := range []string{"localhost", "LOCALHOST:80", "shelld", "shelld:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:80", "[::1]"} {
		if got := a.send(request{method: "GET", path: "/healthz", host: host}); got.status != http.StatusOK {
			t.Errorf("host %s answers %d", host, got.status)
		}
	}
	other := ready(t)
	other.foreign = true
	for _, r := range []request{good, {method: "GET", path: "/healthz"}, {method: "GET", path: "/nothing"}, {method: "DELETE", path: "/healthz"}} {
		other.send(r).refused(401, "unauthorized", "")
	}
	other.untouched()
}
