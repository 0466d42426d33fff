package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/shelld/shelld/rpc/socket/xdg"
)

const (
	// fileName is the name of the file in the configuration directories.
	fileName = "config.toml"
	// maxFileBytes bounds a file. Unit: bytes. Far above any real one.
	maxFileBytes = 1 << 20
)

// layer is a file that takes part.
type layer struct {
	path string
	// required: its absence is a fault.
	required bool
	// ceilings: its caps bind the layers after it.
	ceilings bool
}

// Load returns the effective configuration. An empty file means the layers
// described at the package: files that do not exist are passed over. Otherwise
// file is the only one, and must exist. The error is an [*Error] with all
// faults of all files, or says that the user's directory cannot be found.
func Load(env xdg.Env, file string) (*Config, error) {
	if file != "" {
		return load(env.UID, []layer{{path: file, required: true}})
	}
	admin, err := xdg.Env{UID: 0, Getenv: env.Getenv}.Dir(xdg.Config)
	if err != nil {
		return nil, err
	}
	layers := []layer{{path: filepath.Join(admin, fileName), ceilings: true}}
	if env.UID != 0 {
		user, err := env.Dir(xdg.Config)
		if err != nil {
			return nil, fmt.Errorf("user's configuration: %w, or give --config", err)
		}
		layers = append(layers, layer{path: filepath.Join(user, fileName)})
	}
	return load(env.UID, layers)
}

// load applies the layers in order for a daemon of user uid.
func load(uid int, layers []layer) (*Config, error) {
	c := Default()
	admin := c // its origins are empty: no ceilings
	var faults []Fault
	for _, l := range layers {
		data, err := read(l.path, uid)
		if errors.Is(err, fs.ErrNotExist) && !l.required {
			continue
		}
		if err != nil {
			faults = append(faults, Fault{File: l.path, Message: err.Error()})
			continue
		}
		c.files = append(c.files, l.path)
		faults = append(faults, c.apply(l.path, data, admin)...)
		if l.ceilings {
			admin = c.clone()
		}
	}
	c.settle()
	if err, ok := errors.AsType[*Error](c.Validate()); ok {
		faults = append(faults, err.Faults...)
	}
	if len(faults) > 0 {
		return nil, &Error{Faults: faults}
	}
	return c, nil
}

// apply sets what the file says and returns its faults. Caps that admin has
// from a file are ceilings.
func (c *Config) apply(file string, data []byte, admin *Config) []Fault {
	entries, broken := parse(data)
	if broken != nil {
		broken.File = file
		return []Fault{*broken}
	}
	if fault := checkVersion(entries); fault != nil {
		fault.File = file
		return []Fault{*fault} // other keys may mean something else there
	}
	var faults []Fault
	for _, e := range entries {
		if message := c.applyEntry(file, e, admin); message != "" {
			faults = append(faults, Fault{File: file, Line: e.line, Key: e.name, Message: message})
		}
	}
	return c.foldUnknown(faults)
}

// applyEntry returns the fault's message, or "".
func (c *Config) applyEntry(file string, e entry, admin *Config) string {
	k, known := c.find(e.name)
	if !known {
		return c.whyUnknown(e)
	}
	if err := k.set(e.value); err != nil {
		return err.Error()
	}
	c.origins[k.name] = origin{file: file, line: e.line}
	from, set := admin.origins[k.name]
	if !k.ceiling || !set {
		return ""
	}
	if ceiling, _ := admin.find(k.name); !k.within(ceiling) {
		return fmt.Sprintf("goes beyond %s, the administrator's ceiling in %s; stay within it or ask for a higher one", ceiling.render(), from)
	}
	return ""
}

func checkVersion(entries []entry) *Fault {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == "version" })
	if i < 0 {
		return &Fault{Key: "version", Message: "is missing; put `version = 1` at the top of the file"}
	}
	e := entries[i]
	n, ok := e.value.(int64)
	switch {
	case !ok:
		return &Fault{Line: e.line, Key: e.name, Message: "must be the number 1, not " + describe(e.value)}
	case n > version:
		return &Fault{Line: e.line, Key: e.name, Message: fmt.Sprintf("is %d, but this shelld knows version %d only; update shelld or use a file of that version", n, version)}
	case n < version:
		return &Fault{Line: e.line, Key: e.name, Message: fmt.Sprintf("is %d, which never existed; write `version = %d`", n, version)}
	}
	return nil
}

// whyUnknown explains a name that is no key; "" if it is fine all the same.
func (c *Config) whyUnknown(e entry) string {
	if e.name == "version" {
		return ""
	}
	var names, sections []string
	for _, k := range c.keys() {
		names = append(names, k.name)
		if !slices.Contains(sections, k.section()) {
			sections = append(sections, k.section())
		}
	}
	section, _, nested := strings.Cut(e.name, ".")
	_, table := e.value.(map[string]any)
	switch {
	case slices.Contains(sections, e.name) && table:
		return "" // an empty section
	case slices.Contains(sections, e.name):
		return fmt.Sprintf("must be a section, written [%s] on a line of its own, not %s", e.name, describe(e.value))
	case nested && !slices.Contains(sections, section):
		return unknownSection + hint(section, sections, "[%s]")
	case table:
		return unknownSection + hint(e.name, sections, "[%s]")
	default:
		return "is no key that this shelld knows" + hint(e.name, names, "%s")
	}
}

// unknownSection begins the message for every key of such a section.
const unknownSection = "is in a section that this shelld does not know"

func hint(name string, candidates []string, format string) string {
	if near := nearest(name, candidates); near != "" {
		return fmt.Sprintf("; did you mean "+format+"?", near)
	}
	return "; `shelld config default` shows all"
}

// foldUnknown keeps one fault for each unknown section.
func (c *Config) foldUnknown(faults []Fault) []Fault {
	seen := map[string]bool{}
	return slices.DeleteFunc(faults, func(f Fault) bool {
		if !strings.HasPrefix(f.Message, unknownSection) {
			return false
		}
		section, _, _ := strings.Cut(f.Key, ".")
		again := seen[section]
		seen[section] = true
		return again
	})
}

// read returns the bytes of a file that only its owner, who must be user uid
// or root, can have written: what stands there decides which programs run. The
// error is a clause for a [Fault].
func read(path string, uid int) (_ []byte, err error) {
	// O_NONBLOCK: opening a named pipe must not wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, explain(err)
	}
	switch {
	case info.IsDir():
		return nil, errors.New("is a folder; name the file in it")
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case info.Mode().Perm()&0o002 != 0:
		return nil, fmt.Errorf("can be changed by every user (mode %04o); run: chmod o-w %s", info.Mode().Perm(), path)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("is larger than %s; this is no configuration file", Size(maxFileBytes))
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != uid {
		return nil, fmt.Errorf("belongs to user %d, not to root or user %d as whom shelld runs; change its owner or use another file", stat.Uid, uid)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, explain(err)
	}
	return data, nil
}

// explain drops the path, which the fault has already.
func explain(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("cannot be read: %w", pathErr.Err)
	}
	return fmt.Errorf("cannot be read: %w", err)
}
