package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

// failure is an error as its reader gets it.
type failure struct {
	Message   string  `json:"message"`
	Code      string  `json:"code"`
	Param     *string `json:"param"`
	RequestID string  `json:"request_id,omitempty"`
	// hint is a line for people.
	hint string
}

// The codes of failures that the API does not name.
const (
	codeUsage      = "usage"
	codeNotRunning = "not_running"
	codeClient     = "client"
)

// report says on stderr what went wrong, once.
func (p *program) report(err error) {
	var (
		run  *exitError
		sent *interrupt
	)
	if err == nil || errors.As(err, &run) || errors.As(err, &sent) || errors.Is(err, errBrokenPipe) {
		return
	}
	f := p.describe(err)
	if p.json {
		_ = writeJSON(p.err, map[string]failure{"error": f}) // nowhere left to complain
		return
	}
	text := "shellctl: " + printable(f.Message)
	if f.Code != codeUsage && f.Code != codeNotRunning && f.Code != codeClient {
		text += " (" + printable(f.Code) + ")"
	}
	if f.hint != "" {
		text += "\nhint: " + f.hint
	}
	_, _ = io.WriteString(p.err, text+"\n")
}

func (p *program) describe(err error) failure {
	var (
		answer *rpc.Error
		wrong  *usageError
	)
	switch {
	case errors.As(err, &answer):
		return describeAnswer(answer)
	case errors.Is(err, client.ErrNotRunning):
		return failure{Message: p.notRunning(err), Code: codeNotRunning}
	case errors.As(err, &wrong):
		return failure{Message: wrong.Error(), Code: codeUsage, hint: "see '" + wrong.command + " --help'"}
	default:
		return failure{Message: err.Error(), Code: codeClient}
	}
}

func describeAnswer(e *rpc.Error) failure {
	f := failure{Message: e.Message, Code: codeClient, Param: e.Param, RequestID: e.RequestID}
	if e.Code == nil {
		f.Message = "no answer of shelld: " + e.Error()
		return f
	}
	f.Code = *e.Code
	if f.Code == rpc.CodeInternal && e.RequestID != "" {
		f.hint = "the daemon's log says more under " + printable(e.RequestID)
	}
	return f
}

// notRunning is the line for those who have not started a daemon.
func (p *program) notRunning(err error) string {
	path, pathErr := p.client.Socket()
	if pathErr != nil {
		path = "the socket's path"
	}
	state := "nobody answers at " + path
	if errors.Is(err, fs.ErrNotExist) {
		state = "no socket at " + path
	}
	start := "start it with: shelld"
	// Where systemd runs, see sd_booted(3), users have our units.
	if _, err := os.Stat("/run/systemd/system"); err == nil && os.Geteuid() != 0 {
		start = "start it with: systemctl --user start shelld.socket, or run: shelld"
	}
	return fmt.Sprintf("shelld is not running (%s); %s", state, start)
}

// writeJSON writes v on one line.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printable escapes what would steer a terminal or hide text on it.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
