package hostimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrLayout says that the host's file system is laid out in a way that the
// image "host" does not understand. The message names the layout.
var ErrLayout = errors.New("host layout not supported")

// Mount is one part of the host that a sandbox sees read-only, or a writable
// directory of it. Source is on the host with all links resolved; Target is
// where the sandbox sees it.
type Mount struct {
	Source, Target string
}

// Link is a symbolic link of the host's root directory, such as bin -> usr/bin.
type Link struct {
	Name, Target string
}

// Image is what a sandbox with the image "host" is made of on this host.
type Image struct {
	// Mounts are in the order in which they are made.
	Mounts []Mount
	// Links are made in the sandbox's root directory.
	Links []Link
	// Files are copied from the host into the sandbox's /etc.
	Files []Mount
	// Missing are the host paths that were asked for and that this host does
	// not have, or not for us. Sandboxes go without.
	Missing []string
	// Shell is the login shell of the sandbox's user.
	Shell string

	root string
}

// Options say how to look at the host. The zero value looks at "/" and shows
// nothing but the system's programs.
type Options struct {
	// Root is the host's root directory; "" is "/". Tests set it.
	Root string
	// HostPaths are further directories or files to show, absolute, at the
	// same path and read-only, such as a toolchain in /opt. Each must pass
	// [CheckHostPath].
	HostPaths []string
	// Private are directories of ours; a host path that holds one of them or
	// lies in one is refused.
	Private []string
}

// rootNames are the directories that hold programs and libraries in a root
// directory, besides /usr.
func rootNames() []string {
	return []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32"}
}

// Detect looks at the host and returns what its image consists of. It returns
// an error that matches [ErrLayout] or [ErrHostPath] when that cannot work.
func Detect(opts Options) (*Image, error) {
	root := opts.Root
	if root == "" {
		root = "/"
	}
	if err := checkLayout(root); err != nil {
		return nil, err
	}
	img := &Image{root: root, Shell: "/bin/sh"}
	if executable(filepath.Join(root, "bin/bash")) {
		img.Shell = "/bin/bash"
	}
	img.Mounts = append(img.Mounts, Mount{Source: filepath.Join(root, "usr"), Target: "/usr"})
	for _, name := range rootNames() {
		if err := img.addRootName(name); err != nil {
			return nil, err
		}
	}
	if err := img.addEtc(); err != nil {
		return nil, err
	}
	for _, path := range opts.HostPaths {
		if err := img.addHostPath(path, opts.Private); err != nil {
			return nil, err
		}
	}
	return img, nil
}

func checkLayout(root string) error {
	for _, known := range []struct{ name, store, mark string }{
		{"NixOS", "nix/store", "run/current-system"},
		{"Guix System", "gnu/store", "run/current-system"},
	} {
		if exists(filepath.Join(root, known.store)) && exists(filepath.Join(root, known.mark)) {
			return fmt.Errorf("%w: this host is %s, which keeps its programs in /%s instead of /usr/bin; run shelld in a container or virtual machine with another distribution", ErrLayout, known.name, known.store)
		}
	}
	if !executable(filepath.Join(root, "bin/sh")) || !exists(filepath.Join(root, "usr/bin/env")) {
		return fmt.Errorf("%w: neither /bin/sh nor /usr/bin/env is where it is on other distributions", ErrLayout)
	}
	return nil
}

// addRootName adds /bin and its like as the host has it: a link stays a link,
// a directory is mounted.
func (img *Image) addRootName(name string) error {
	path := filepath.Join(img.root, name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at host directory /%s: %w", name, err)
	case info.IsDir():
		img.Mounts = append(img.Mounts, Mount{Source: path, Target: "/" + name})
		return nil
	case info.Mode()&fs.ModeSymlink == 0:
		return nil
	}
	target, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("read host link /%s: %w", name, err)
	}
	img.Links = append(img.Links, Link{Name: name, Target: target})
	return nil
}

// within reports whether path is dir or lies beneath it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
