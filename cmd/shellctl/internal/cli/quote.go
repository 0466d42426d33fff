package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// plain are the characters that no shell gives a meaning.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-"

// quoteArgs returns a command text by which a POSIX shell runs exactly args.
func quoteArgs(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = quoteArg(arg, i == 0)
	}
	return strings.Join(words, " ")
}

// quoteArg quotes one word. The first names the program and must neither be
// taken for a word of the shell's grammar nor for an assignment.
func quoteArg(arg string, first bool) string {
	switch {
	case first && (reserved(arg) || strings.Contains(arg, "=")) && utf8.ValidString(arg):
		return quoted(arg)
	case arg != "" && strings.Trim(arg, plain) == "":
		return arg
	case utf8.ValidString(arg):
		return quoted(arg)
	default:
		return quoteBytes(arg)
	}
}

func quoted(arg string) string { return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'" }

// quoteBytes quotes a word that is not UTF-8: command texts travel in JSON,
// which holds only that, so that the shell has to make the other bytes.
func quoteBytes(arg string) string {
	var b strings.Builder
	for len(arg) > 0 {
		r, size := utf8.DecodeRuneInString(arg)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `"$(printf '\%03o')"`, arg[0])
		case r == '\'':
			b.WriteString(`\'`)
		default:
			b.WriteString("'" + arg[:size] + "'")
		}
		arg = arg[size:]
	}
	return b.String()
}

// reserved says whether a shell reads word as grammar at the start of a
// command; those of bash are included.
func reserved(word string) bool {
	return slices.Contains([]string{
		"case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function",
		"if", "in", "select", "then", "time", "until", "while",
	}, word)
}
