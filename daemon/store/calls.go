package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shelld/shelld/sandbox"
)

// AddCall implements [sandbox.Store].
func (s *Store) AddCall(ctx context.Context, scope string, c sandbox.Call) (existing sandbox.Call, added bool, err error) {
	doc, err := json.Marshal(c)
	if err != nil {
		return existing, false, fmt.Errorf("encode call %s: %w", c.ID, err)
	}
	res, err := s.exec(ctx, s.addCall, string(c.ID), string(c.ContainerID), scope, c.Spec.CallID, string(c.Status), c.CreatedAt.UnixNano(), string(doc))
	if err != nil {
		return existing, false, wrap("store call", string(c.ID), err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return existing, n == 1, wrap("store call", string(c.ID), err)
	}
	existing, err = s.CallByKey(ctx, scope, c.Spec.CallID)
	return existing, false, err
}

// PutCall implements [sandbox.Store].
func (s *Store) PutCall(ctx context.Context, c sandbox.Call) error {
	doc, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode call %s: %w", c.ID, err)
	}
	completed := int64(0)
	if !c.CompletedAt.IsZero() {
		completed = c.CompletedAt.UnixNano()
	}
	_, err = s.exec(ctx, s.putCall, string(c.ContainerID), string(c.Status), completed, string(doc), string(c.ID))
	return wrap("store call", string(c.ID), err)
}

// DeleteCall implements [sandbox.Store].
func (s *Store) DeleteCall(ctx context.Context, id sandbox.CallID) error {
	_, err := s.exec(ctx, s.dropCall, string(id))
	return wrap("delete call", string(id), err)
}

// Call implements [sandbox.Store].
func (s *Store) Call(ctx context.Context, id sandbox.CallID) (sandbox.Call, error) {
	c, err := scanCall(s.callByID.QueryRowContext(ctx, string(id)))
	if errors.Is(err, sql.ErrNoRows) {
		return c, sandbox.NotFound("shell call", string(id))
	}
	return c, wrap("read call", string(id), err)
}

// CallByKey implements [sandbox.Store].
func (s *Store) CallByKey(ctx context.Context, scope, callID string) (sandbox.Call, error) {
	c, err := scanCall(s.callByKey.QueryRowContext(ctx, scope, callID))
	if errors.Is(err, sql.ErrNoRows) {
		return c, sandbox.NotFound("shell call", callID)
	}
	return c, wrap("find call", callID, err)
}

// Calls implements [sandbox.Store].
func (s *Store) Calls(ctx context.Context, q sandbox.Query) (page []sandbox.Call, more bool, err error) {
	order, compare := "DESC", "<"
	if q.Ascending {
		order, compare = "ASC", ">"
	}
	where, args := []string{"1"}, []any{}
	if q.After != "" {
		var seq int64
		err := s.read.QueryRowContext(ctx, `SELECT seq FROM calls WHERE id = ?`, q.After).Scan(&seq)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, false, sandbox.Invalid("after", "no shell call with id %q; pass the id of the last call of the page before", q.After)
		} else if err != nil {
			return nil, false, wrap("list calls", "", err)
		}
		where, args = append(where, "seq "+compare+" ?"), append(args, seq)
	}
	if q.Container != "" {
		where, args = append(where, "container = ?"), append(args, string(q.Container))
	}
	if q.Status != "" {
		where, args = append(where, "status = ?"), append(args, string(q.Status))
	}
	text := `SELECT doc FROM calls WHERE ` + strings.Join(where, " AND ") + ` ORDER BY seq ` + order + ` LIMIT ?`
	page, err = s.queryCalls(ctx, text, append(args, q.Limit+1)...)
	if len(page) > q.Limit {
		return page[:q.Limit], true, err
	}
	return page, false, err
}

// OpenCalls implements [sandbox.Store].
func (s *Store) OpenCalls(ctx context.Context) ([]sandbox.Call, error) {
	return s.queryCalls(ctx, `SELECT doc FROM calls WHERE status = 'in_progress' ORDER BY seq`)
}

// OldCalls implements [sandbox.Store].
func (s *Store) OldCalls(ctx context.Context, before time.Time) (ids []sandbox.CallID, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id FROM calls WHERE completed > 0 AND max(completed, released) <= ?
		AND container NOT IN (SELECT id FROM containers)`, before.UnixNano())
	if err != nil {
		return nil, wrap("list old calls", "", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id sandbox.CallID
		if err := rows.Scan(&id); err != nil {
			return nil, wrap("list old calls", "", err)
		}
		ids = append(ids, id)
	}
	return ids, wrap("list old calls", "", rows.Err())
}

func (s *Store) queryCalls(ctx context.Context, text string, args ...any) (calls []sandbox.Call, err error) {
	rows, err := s.read.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, wrap("list calls", "", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		c, err := scanCall(rows)
		if err != nil {
			return nil, wrap("list calls", "", err)
		}
		calls = append(calls, c)
	}
	return calls, wrap("list calls", "", rows.Err())
}

func scanCall(row interface{ Scan(dest ...any) error }) (c sandbox.Call, err error) {
	var doc string
	if err := row.Scan(&doc); err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(doc), &c); err != nil {
		return c, fmt.Errorf("decode call: %w", err)
	}
	return c, nil
}
