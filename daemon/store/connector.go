package store

import (
	"context"
	"database/sql/driver"

	"modernc.org/sqlite"
)

// connector opens connections with SQLite's driver, without the registry of
// drivers that database/sql would look it up in.
type connector struct{ dsn string }

// Connect implements [driver.Connector].
func (c connector) Connect(context.Context) (driver.Conn, error) { return c.Driver().Open(c.dsn) }

// Driver implements [driver.Connector].
func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }
