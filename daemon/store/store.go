// Package store keeps the records of containers and shell calls in one SQLite
// file. It implements [sandbox.Store].
//
// The file is in WAL mode with synchronous=NORMAL: a write is safe against
// kill -9 of shelld as soon as the method returns, and nothing waits for the
// disk; a power cut may lose the last moments, but never damages the file.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/shelld/shelld/sandbox"
)

// busyTimeout is how long a statement waits for another connection's write.
// Unit: milliseconds. Only shelld itself has the file open, so it is ample.
const busyTimeout = 5000

// checkpointEvery is how often what was written is moved from the log into the
// database. SQLite would do it inside a write, which then waits for the disk.
const checkpointEvery = time.Second

// walVersion is how a database's header says that it is in WAL mode. Source:
// https://www.sqlite.org/fileformat2.html, "File format version numbers".
const walVersion = 2

var errNotOurs = errors.New("the file is damaged or is no database of shelld; move it away to start afresh")

// readers is how many reads may run beside the one writer.
const readers = 4

// Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	write *sql.DB // one connection, so that writers queue in Go
	read  *sql.DB

	putContainer, touchContainer, dropContainer     *sql.Stmt
	release                                         *sql.Stmt
	addCall, putCall, dropCall, callByKey, callByID *sql.Stmt

	// dirty says that something was written since the last checkpoint.
	dirty   atomic.Bool
	stop    chan struct{}
	stopped sync.WaitGroup
}

// Open opens the database in file, makes it if there is none, and brings an
// older one up to date. A file of a newer shelld, or one that is no database,
// is refused and left as it is.
func Open(ctx context.Context, file string) (*Store, error) {
	if err := private(file); err != nil {
		return nil, err
	}
	s := &Store{write: open(file), read: open(file), stop: make(chan struct{})}
	s.write.SetMaxOpenConns(1)
	s.read.SetMaxOpenConns(readers)
	err := migrate(ctx, s.write)
	if err == nil {
		err = s.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", file, classify(err)), s.Close())
	}
	s.stopped.Go(s.checkpoint)
	return s, nil
}

// checkpoint keeps the log short until Close.
func (s *Store) checkpoint() {
	ticker := time.NewTicker(checkpointEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		if s.dirty.Swap(false) {
			// What fails here, as on a full disk, is tried again with the next
			// write; the log is whole all the same.
			_, _ = s.read.ExecContext(context.Background(), `PRAGMA wal_checkpoint(PASSIVE)`)
		}
	}
}

// exec carries out a write. It takes microseconds, so nothing is gained by
// watching ctx meanwhile, which costs the driver a goroutine.
func (s *Store) exec(ctx context.Context, stmt *sql.Stmt, args ...any) (sql.Result, error) {
	res, err := stmt.ExecContext(context.WithoutCancel(ctx), args...)
	s.dirty.Store(true)
	return res, err
}

// private makes the file readable by its owner only, before SQLite makes it.
func private(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("open database: %w; make it writable for the user that shelld runs as", err)
		}
		return fmt.Errorf("open database: %w", err)
	}
	return errors.Join(ours(f), f.Close())
}

// ours looks at the beginning of a file before SQLite does, which would take
// some that are no databases for empty ones, and change other programs' in
// opening them. A database of shelld is in WAL mode from its first page on.
func ours(f *os.File) error {
	header := make([]byte, 20)
	n, err := io.ReadFull(f, header)
	switch {
	case errors.Is(err, io.EOF): // it is new, or was about to be made
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("open database: %w", err)
	case n < len(header) || string(header[:16]) != "SQLite format 3\x00" || header[18] != walVersion:
		return fmt.Errorf("open database %s: %w", f.Name(), errNotOurs)
	}
	return nil
}

func open(file string) *sql.DB {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout), "journal_mode(WAL)", "synchronous(NORMAL)", "wal_autocheckpoint(0)",
	}}.Encode()}
	return sql.OpenDB(connector{dsn.String()})
}

func (s *Store) prepare(ctx context.Context) error {
	var errs []error
	statement := func(db *sql.DB, text string) *sql.Stmt {
		stmt, err := db.PrepareContext(ctx, text)
		errs = append(errs, err)
		return stmt
	}
	s.putContainer = statement(s.write, `INSERT INTO containers (id, created, last_active, doc) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET last_active = excluded.last_active, doc = excluded.doc`)
	s.touchContainer = statement(s.write, `UPDATE containers SET last_active = ? WHERE id = ?`)
	s.release = statement(s.write, `UPDATE calls SET released = ? WHERE container = ?`)
	s.dropContainer = statement(s.write, `DELETE FROM containers WHERE id = ?`)
	s.addCall = statement(s.write, `INSERT INTO calls (id, container, scope, call_id, status, created, completed, doc)
		VALUES (?, ?, ?, ?, ?, ?, 0, ?) ON CONFLICT (scope, call_id) DO NOTHING`)
	s.putCall = statement(s.write, `UPDATE calls SET container = ?, status = ?, completed = ?, doc = ? WHERE id = ?`)
	s.dropCall = statement(s.write, `DELETE FROM calls WHERE id = ?`)
	s.callByKey = statement(s.write, `SELECT doc FROM calls WHERE scope = ? AND call_id = ?`)
	s.callByID = statement(s.read, `SELECT doc FROM calls WHERE id = ?`)
	return errors.Join(errs...)
}

// Close closes the database.
func (s *Store) Close() error {
	close(s.stop)
	s.stopped.Wait()
	return errors.Join(s.read.Close(), s.write.Close())
}

// PutContainer implements [sandbox.Store].
func (s *Store) PutContainer(ctx context.Context, c sandbox.Container) error {
	doc, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode container %s: %w", c.ID, err)
	}
	_, err = s.exec(ctx, s.putContainer, string(c.ID), c.CreatedAt.UnixNano(), c.LastActiveAt.UnixNano(), string(doc))
	return wrap("store container", string(c.ID), err)
}

// TouchContainer implements [sandbox.Store].
func (s *Store) TouchContainer(ctx context.Context, id sandbox.ID, lastActive time.Time) error {
	_, err := s.exec(ctx, s.touchContainer, lastActive.UnixNano(), string(id))
	return wrap("touch container", string(id), err)
}

// DeleteContainer implements [sandbox.Store].
func (s *Store) DeleteContainer(ctx context.Context, id sandbox.ID, ended time.Time) error {
	_, err := s.exec(ctx, s.release, ended.UnixNano(), string(id))
	if err == nil {
		_, err = s.exec(ctx, s.dropContainer, string(id))
	}
	return wrap("delete container", string(id), err)
}

// Containers implements [sandbox.Store].
func (s *Store) Containers(ctx context.Context) (containers []sandbox.Container, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT doc, last_active FROM containers ORDER BY created, id`)
	if err != nil {
		return nil, wrap("list containers", "", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var doc string
		var active int64
		if err := rows.Scan(&doc, &active); err != nil {
			return nil, wrap("list containers", "", err)
		}
		var c sandbox.Container
		if err := json.Unmarshal([]byte(doc), &c); err != nil {
			return nil, fmt.Errorf("decode container: %w", err)
		}
		c.LastActiveAt = time.Unix(0, active)
		containers = append(containers, c)
	}
	return containers, wrap("list containers", "", rows.Err())
}

// wrap names the operation, and gives a failure that its caller can act on its
// class.
func wrap(op, id string, err error) error {
	if err == nil {
		return nil
	}
	if id != "" {
		op += " " + id
	}
	return fmt.Errorf("%s: %w", op, classify(err))
}

func classify(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff { // the low byte is the primary code
		case sqlite3.SQLITE_FULL:
			return &sandbox.Error{
				Class: sandbox.ErrStorageFull, Code: sandbox.CodeStorageFull,
				Message: "the disk of shelld's state folder is full; free some space", Cause: err,
			}
		case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
			return fmt.Errorf("%w: %w", errNotOurs, err)
		}
	}
	return err
}
