package deptest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

const module = "github.com/shelld/shelld"

// A rule names what the packages of one part may import of this module. A part
// is the first two elements of a package's path: "sandbox/engine" and whatever
// lies below it are one part, in which imports are free.
type rule struct {
	part string   // path.Match pattern
	may  []string // patterns of parts
}

// directions is the package map; the first rule that fits a part counts.
func directions() []rule {
	return []rule{
		{part: "cmd/shelld", may: []string{"daemon", "daemon/config", "sandbox/engine"}},
		{part: "cmd/shellctl", may: []string{"client", "rpc", "rpc/socket"}},
		{part: "cmd/shelld-init", may: []string{"sandbox/guest"}},
		{part: "client", may: []string{"rpc", "rpc/socket"}},
		{part: "client/clienttest", may: []string{"client", "rpc"}},
		{part: "daemon", may: []string{"daemon/*", "rpc", "rpc/*", "sandbox", "sandbox/*"}},
		{part: "daemon/*", may: []string{"daemon/*", "rpc/socket", "sandbox", "sandbox/*"}},
		{part: "rpc/server", may: []string{"rpc", "rpc/socket", "sandbox"}},
		{part: "rpc/socket"},
		{part: "rpc"},
		{part: "sandbox"},
		{part: "sandbox/guest"},
		{part: "sandbox/runner", may: []string{"sandbox", "sandbox/guest", "sandbox/limit", "sandbox/output"}},
		{part: "sandbox/engine", may: []string{"sandbox", "rpc/socket"}},
		{part: "sandbox/*", may: []string{"sandbox"}},
		{part: "contrib/*", may: []string{"*", "*/*"}},
	}
}

// A reach says what the packages of some parts must not get at, even through
// others.
type reach struct {
	parts  []string          // patterns; nil: every part
	except []string          // patterns taken out of parts
	bad    func(string) bool // judges an import path
	what   string            // what bad finds, for the message
}

func reaches() []reach {
	return []reach{
		{
			parts: []string{"sandbox/guest", "cmd/shelld-init"},
			bad: func(p string) bool {
				return !inModule(p) && !within(p, "golang.org/x/sys")
			},
			what: "a module other than golang.org/x/sys",
		},
		{
			parts: []string{"client", "cmd/shellctl"},
			bad: func(p string) bool {
				return within(p, module+"/sandbox") || within(p, module+"/daemon") || within(p, "modernc.org/sqlite")
			},
			what: "the daemon's side",
		},
		{
			except: []string{"sandbox/engine", "daemon", "cmd/shelld", "contrib/*"},
			bad:    func(p string) bool { return within(p, "github.com/containerd/containerd") },
			what:   "containerd, which is behind sandbox/engine",
		},
	}
}

// A graph holds, by import path, what each package outside the standard
// library imports from outside the standard library.
type graph map[string][]string

// violations lists, sorted, what in g breaks the rules.
func violations(g graph, rules []rule, limits []reach) []string {
	var found []string
	for _, pkg := range slices.Sorted(maps.Keys(g)) {
		if !inModule(pkg) {
			continue
		}
		found = append(found, directFaults(g, pkg, rules)...)
		found = append(found, reachFaults(g, pkg, limits)...)
	}
	return found
}

func directFaults(g graph, pkg string, rules []rule) []string {
	at := slices.IndexFunc(rules, func(r rule) bool { return match(r.part, part(pkg)) })
	if at < 0 {
		return []string{fmt.Sprintf("%s has no place in the package map: add a rule for %s", pkg, part(pkg))}
	}
	var found []string
	for _, dep := range g[pkg] {
		if inModule(dep) && part(dep) != part(pkg) && !matchAny(rules[at].may, part(dep)) {
			found = append(found, fmt.Sprintf("%s must not import %s", pkg, dep))
		}
	}
	return found
}

func reachFaults(g graph, pkg string, limits []reach) []string {
	var found []string
	for _, l := range limits {
		if (l.parts != nil && !matchAny(l.parts, part(pkg))) || matchAny(l.except, part(pkg)) {
			continue
		}
		if way := find(g, pkg, l.bad); way != nil {
			found = append(found, fmt.Sprintf("%s must not reach %s: %s", pkg, l.what, strings.Join(way, " -> ")))
		}
	}
	return found
}

// find returns a shortest way from a package to one that is bad, or nil.
func find(g graph, from string, bad func(string) bool) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, dep := range g[queue[0]] {
			if _, seen := before[dep]; seen {
				continue
			}
			before[dep] = queue[0]
			if bad(dep) {
				return trace(before, dep)
			}
			queue = append(queue, dep)
		}
	}
	return nil
}

func trace(before map[string]string, to string) []string {
	var way []string
	for p := to; p != ""; p = before[p] {
		way = append(way, p)
	}
	slices.Reverse(way)
	return way
}

// part returns the first two elements of a package's path in the module.
func part(pkg string) string {
	elements := strings.SplitN(strings.TrimPrefix(pkg, module+"/"), "/", 3)
	return strings.Join(elements[:min(2, len(elements))], "/")
}

func inModule(pkg string) bool { return within(pkg, module) }

// within reports whether a package is tree or lies below it, whatever the
// major version.
func within(pkg, tree string) bool {
	return pkg == tree || strings.HasPrefix(pkg, tree+"/")
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

func match(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
