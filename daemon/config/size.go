package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. In the file it is text such as "64m": a whole
// number and k, m or g (1024, 1024² or 1024³), or a bare number of bytes.
type Size int64

const (
	kibibyte Size = 1 << 10
	mebibyte Size = 1 << 20
	gibibyte Size = 1 << 30
)

// ParseSize reads a size. The error is a sentence fragment that says what a
// size looks like.
func ParseSize(s string) (Size, error) {
	digits, unit := s, Size(1)
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			unit = kibibyte
		case 'm', 'M':
			unit = mebibyte
		case 'g', 'G':
			unit = gibibyte
		}
		if unit > 1 {
			digits = s[:len(s)-1]
		}
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("must be a size such as \"64m\" or \"2g\" (units k, m, g), not %q", s)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("is too large a size: %q", s)
	}
	return Size(n) * unit, nil
}

// String returns the size as [ParseSize] reads it, with the largest unit that
// divides it.
func (s Size) String() string {
	switch {
	case s == 0 || s%kibibyte != 0:
		return strconv.FormatInt(int64(s), 10)
	case s%gibibyte == 0:
		return strconv.FormatInt(int64(s/gibibyte), 10) + "g"
	case s%mebibyte == 0:
		return strconv.FormatInt(int64(s/mebibyte), 10) + "m"
	default:
		return strconv.FormatInt(int64(s/kibibyte), 10) + "k"
	}
}

// formatDuration writes d as people do: "60s", "90s", "5m", "24h", "1h30m".
func formatDuration(d time.Duration) string {
	if d > 0 && d < 2*time.Minute && d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
