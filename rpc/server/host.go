package server

import (
	"net"
	"net/netip"
	"strings"
)

// localHost reports whether a Host header names this machine: localhost,
// shelld, or a loopback address, with any port. Anything else is a name that a
// web page has pointed here.
func localHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(name)
	if name == "localhost" || name == "shelld" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && addr.IsLoopback()
}
