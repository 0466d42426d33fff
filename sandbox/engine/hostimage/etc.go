package hostimage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// etcMounts are the directories of the host's /etc that programs need and that
// hold nothing private: patterns relative to /etc. ssl is never mounted as a
// whole because it has a directory of private keys.
func etcMounts() []string {
	return []string{
		"alternatives",
		"ssl/certs",
		"ca-certificates",
		"pki/ca-trust/extracted", "pki/tls/certs",
		"crypto-policies",
		"fonts", "texmf", "ImageMagick-[67]", "ghostscript", "OpenCL",
		"perl", "perl5", "php", "R", "python3", "python3.[0-9]*", "nodejs",
		"java", "java-[0-9]*", "jvm", "ghc", "erlang", "lua", "emacs", "vim",
	}
}

// etcFiles are files of the host's /etc that are copied. A copy is as good as
// a mount, which would go on showing the old file when a package replaces it,
// and costs less.
func etcFiles() []string {
	return []string{
		"ld.so.cache", "ld.so.conf", "ld.so.conf.d/*.conf",
		"ssl/openssl.cnf", "pki/tls/openssl.cnf", "pki/tls/cert.pem", "ssl/cert.pem",
		"ca-certificates.conf",
		"bash.bashrc", "bashrc", "inputrc", "gai.conf", "mime.types", "protocols", "services",
		"magic", "magic.mime", "manpath.config", "man_db.conf", "locale.alias", "locale.conf",
		"os-release", "lsb-release", "debian_version", "redhat-release", "fedora-release", "arch-release",
		"alpine-release", "SuSE-release", "localtime", "timezone",
	}
}

// maxCopy is the largest file that is copied from /etc. Unit: bytes. A large
// desktop's ld.so.cache has some 300 KiB.
const maxCopy = 4 << 20

func (img *Image) addEtc() error {
	etc := filepath.Join(img.root, "etc")
	for path := range matches(etc, etcMounts()) {
		source, ok := img.publicSource(path)
		if info, err := os.Stat(source); ok && err == nil && info.IsDir() {
			img.Mounts = append(img.Mounts, Mount{Source: source, Target: img.inside(path)})
		}
	}
	for path := range matches(etc, etcFiles()) {
		source, ok := img.publicSource(path)
		info, err := os.Stat(source)
		// What only root may read is private, whatever its name.
		if ok && err == nil && info.Mode().IsRegular() && info.Mode()&0o004 != 0 && info.Size() <= maxCopy {
			img.Files = append(img.Files, Mount{Source: source, Target: img.inside(path)})
		}
	}
	return nil
}

// matches yields what exists in dir for each pattern, in order and once.
func matches(dir string, patterns []string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, pattern := range patterns {
			// The patterns are constants; a malformed one matches nothing and
			// fails the test that looks each of them up.
			found, _ := filepath.Glob(filepath.Join(dir, pattern))
			slices.Sort(found)
			for _, path := range found {
				if !yield(path) {
					return
				}
			}
		}
	}
}

// publicSource resolves all links of path and reports whether the result still
// is in a place that may be shown. A link from /etc into someone's home, or to
// a directory of keys, is not followed.
func (img *Image) publicSource(path string) (string, bool) {
	source, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	root, err := filepath.EvalSymlinks(img.root)
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(root, source)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "", false
	}
	if strings.Contains("/"+rel+"/", "/private/") {
		return "", false
	}
	for _, dir := range []string{"usr", "etc", "opt"} {
		if within(dir, rel) {
			return source, true
		}
	}
	return "", false
}

// inside returns the sandbox's path of a path on the host.
func (img *Image) inside(path string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, img.root), "/")
}
