package deptest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxLines is where a Go file is too long to be about one thing.
const maxLines = 600

// generated is the line by which Go's tools know generated files.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestTopLevelIsFixed(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"cmd", "daemon", "sandbox", "rpc", "client", "packaging", "contrib",
		"go.mod", "go.sum", "Makefile", "LICENSE",
		"bin", "libexec", "dist", "coverage.out", // made here, ignored by git
	}
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		document := !e.IsDir() && filepath.Ext(name) == ".md"
		if !document && !strings.HasPrefix(name, ".") && !slices.Contains(allowed, name) {
			t.Errorf("%s does not belong to the top level; see CONTRIBUTING.md", name)
		}
	}
}

func TestFilesStayShort(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "libexec", "dist", "testdata", "node_modules"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		seen++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines && !generated.Match(text) {
			t.Errorf("%s has %d lines, more than %d: split it by concept", path, n, maxLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no Go file found: the test looks at the wrong place")
	}
}
