package store

import (
	"context"
	"database/sql"
	"fmt"
)

// migrations take a database from the version that is their index to the
// next. They are never changed after a release; new ones are added at the end.
// The version is SQLite's user_version.
//
// A record is one JSON document; what is searched for stands beside it in
// columns of its own. Times are nanoseconds since 1970.
func migrations() []string {
	return []string{`
		CREATE TABLE containers (
			id          TEXT PRIMARY KEY,
			created     INTEGER NOT NULL,
			last_active INTEGER NOT NULL,
			doc         TEXT NOT NULL
		) STRICT;
		CREATE TABLE calls (
			seq       INTEGER PRIMARY KEY,
			id        TEXT NOT NULL UNIQUE,
			container TEXT NOT NULL,
			scope     TEXT NOT NULL,
			call_id   TEXT NOT NULL,
			status    TEXT NOT NULL,
			created   INTEGER NOT NULL,
			completed INTEGER NOT NULL,
			doc       TEXT NOT NULL
		) STRICT;
		CREATE UNIQUE INDEX calls_key ON calls (scope, call_id);
		CREATE INDEX calls_container ON calls (container);
		CREATE INDEX calls_open ON calls (seq) WHERE status = 'in_progress';
	`, `
		-- released is when the call's container ended; 0 while it exists.
		ALTER TABLE calls ADD COLUMN released INTEGER NOT NULL DEFAULT 0;
	`}
}

// migrate brings the database to the newest version in one transaction.
func migrate(ctx context.Context, db *sql.DB) error {
	var version int
	if err := db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	steps := migrations()
	if version > len(steps) {
		return fmt.Errorf("it was written by a newer shelld (schema %d, this one knows %d); run that shelld, or use another --root", version, len(steps))
	}
	if version == len(steps) {
		return nil
	}
	var tables int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&tables); err != nil {
		return err
	}
	if version == 0 && tables > 0 {
		return errNotOurs
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	for _, step := range steps[version:] {
		if _, err := tx.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("bring schema %d up to date: %w", version, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, len(steps))); err != nil {
		return err
	}
	return tx.Commit()
}
