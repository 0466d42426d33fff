// Package config reads shelld's configuration: the values that apply, where
// each comes from, and every fault of the files at once, with file and line.
//
// Values come from three layers, later ones winning: the built-in defaults,
// the administrator's /etc/shelld/config.toml, and the user's
// $XDG_CONFIG_HOME/shelld/config.toml. A daemon that runs as root has no user
// layer. An explicitly named file replaces both files. A cap that the
// administrator's file sets is a ceiling: the user's file may lower it only.
//
// A file is refused as a whole when anything in it is wrong, so that a typing
// mistake in a limit never means that the limit is off.
//
// Used by the daemon and by `shelld config`. It knows nothing of what the
// values mean to the rest of shelld.
package config
