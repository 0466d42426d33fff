package config

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", t.Name()+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), string(want)); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultFile(t *testing.T) {
	t.Parallel()
	file := DefaultFile()
	golden(t, file)
	// As it is, and with every key set, it means the defaults.
	for _, text := range []string{string(file), regexp.MustCompile(`(?m)^#(\w)`).ReplaceAllString(string(file), "$1")} {
		c, _, err := loadText(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffValues(c, Default()); diff != "" {
			t.Error(diff)
		}
	}
	for _, line := range strings.Split(string(file), "\n") {
		if len(line) > 80 {
			t.Errorf("line of %d bytes: %s", len(line), line)
		}
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	c, path, err := loadText(t, "version = 1\n[limits]\nmax_timeout = \"30s\"\n[image]\nhost_paths = [\"/opt/a \\\"b\\\" #c\"]\n[output]\nspool_total = \"1025k\"\n")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, []byte(strings.ReplaceAll(string(Dump(c)), path, "FILE")))
	again, _, err := loadText(t, string(Dump(c)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffValues(again, c); diff != "" {
		t.Error(diff)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want Size
		back string
	}{
		{"0", 0, "0"},
		{"1", 1, "1"},
		{"1025", 1025, "1025"},
		{"64m", 64 << 20, "64m"},
		{"64M", 64 << 20, "64m"},
		{"1024k", 1 << 20, "1m"},
		{"3K", 3 << 10, "3k"},
		{"2g", 2 << 30, "2g"},
		{"8589934591g", 8589934591 << 30, "8589934591g"},
	}
	for _, tt := range tests {
		got, err := ParseSize(tt.text)
		if err != nil || got != tt.want || got.String() != tt.back {
			t.Errorf("ParseSize(%q) = %v (%d), %v; want %s", tt.text, got, got, err, tt.back)
		}
	}
	for _, bad := range []string{"", "m", "-1m", "+1", "1.5g", "1 m", "1mb", "1t", "8589934592g", "99999999999999999999"} {
		if got, err := ParseSize(bad); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", bad, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "60s", 90 * time.Second: "90s", 2 * time.Minute: "2m",
		time.Hour: "1h", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m",
		100 * time.Millisecond: "100ms", time.Hour + time.Second: "1h0m1s", 10 * time.Hour: "10h", -time.Hour: "-1h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%d) = %s, want %s", d, got, want)
		}
		if back, err := time.ParseDuration(formatDuration(d)); err != nil || back != d {
			t.Errorf("%s reads as %v, %v", formatDuration(d), back, err)
		}
	}
}
