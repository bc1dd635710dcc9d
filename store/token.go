package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"salvor/access"
	"salvor/job"
	"salvor/record"
)

var _ access.TokenStore = (*Store)(nil)

// Tokens keeps the tokens of the API, each by a digest of its text.
func (s keyTables) Tokens() record.Table[access.Token, access.TokenFilter] {
	return tokenTable{recordTable[access.Token, access.TokenFilter]{s.storeCore, tokens}}
}

var tokens = &recordKind[access.Token, access.TokenFilter]{
	table: "api_token", word: "token", head: ofRecord[access.Token],
	columns: []string{"name", "digest", "project"},
	fields:  func(t *access.Token) []any { return []any{&t.Name, &t.Digest, &t.Project} },
	body: func(t *access.Token) any {
		return &struct {
			Role            *access.Role
			ProjectName, By *string
			ExpiresAt       *time.Time
			Parent          *string `json:",omitempty"`
		}{&t.Role, &t.ProjectName, &t.By, &t.ExpiresAt, &t.Parent}
	},
	names: []string{"name"},
	keys: []uniqueKey[access.Token]{
		{[]string{"name"}, func(t *access.Token) string { return "A token with name " + t.Name + " already exists." }},
		{[]string{"digest"}, func(*access.Token) string { return "This token already exists." }},
	},
	narrow: func(c *whereClause, f access.TokenFilter) {
		c.equal("t.name", f.Name)
		c.equal("t.digest", f.Digest)
		c.equal("t.project", f.Project)
	},
}

// tokenTable adds to tokens that are read when they were used last.
type tokenTable struct {
	recordTable[access.Token, access.TokenFilter]
}

// Get is record.Table's.
func (t tokenTable) Get(ctx context.Context, tx job.Tx, ident string) (*access.Token, error) {
	found, err := t.recordTable.Get(ctx, tx, ident)
	if err != nil {
		return nil, err
	}
	return found, t.used(ctx, tx, []*access.Token{found})
}

// List is record.Table's.
func (t tokenTable) List(ctx context.Context, tx job.Tx, f access.TokenFilter, p record.Page) ([]*access.Token, error) {
	found, err := t.recordTable.List(ctx, tx, f, p)
	if err != nil || f.Digest != "" { // who looks a token up lets somebody in: one query has to do
		return found, err
	}
	return found, t.used(ctx, tx, found)
}

// used fills in when tokens were used, of all of a page in one query. Of several it reads all uses, for a text with as many
// ids as the page has tokens would be prepared anew for each number; tokens are made by people, so there are few.
func (t tokenTable) used(ctx context.Context, tx job.Tx, found []*access.Token) error {
	if len(found) == 0 {
		return nil
	}
	text, args := `SELECT token_id, used_at FROM api_token_use`, []any(nil)
	if len(found) == 1 {
		text, args = text+` WHERE token_id = $1`, []any{found[0].ID}
	}
	at := make(map[string]*access.Token, len(found))
	for _, token := range found {
		at[token.ID] = token
	}
	return t.s.read(ctx, tx, func(r *sql.Rows) error {
		var id string
		var used int64
		err := r.Scan(&id, &used)
		if token := at[id]; token != nil {
			token.UsedAt = fromMicros(used)
		}
		return err
	}, text, args...)
}

// UseTokens is access.TokenStore's.
func (s keyTables) UseTokens(ctx context.Context, used map[string]time.Time) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		// In one order, so that two processes do not wait for each other.
		for _, id := range slices.Sorted(maps.Keys(used)) {
			_, err := tx.exec(`INSERT INTO api_token_use (token_id, used_at) SELECT id, CAST($2 AS BIGINT) FROM api_token WHERE id = $1
				ON CONFLICT (token_id) DO UPDATE SET used_at = excluded.used_at WHERE api_token_use.used_at < excluded.used_at`, id, toMicros(used[id]))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("note the use of %d tokens: %w", len(used), err)
	}
	return nil
}

// EndSigned is access.TokenStore's. What need not be remembered any longer goes with it.
func (s keyTables) EndSigned(ctx context.Context, id string, until time.Time) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		if _, err := tx.exec(`DELETE FROM ended_token WHERE until < $1`, toMicros(s.timestamp())); err != nil {
			return err
		}
		_, err = tx.exec(`INSERT INTO ended_token (id, until) VALUES ($1, $2) ON CONFLICT DO NOTHING`, id, toMicros(until))
		return err
	})
	if err != nil {
		return fmt.Errorf("end a signed token: %w", err)
	}
	return nil
}

// SignedEnded is access.TokenStore's.
func (s keyTables) SignedEnded(ctx context.Context, id string) (ended bool, err error) {
	err = s.read(ctx, nil, func(*sql.Rows) error { ended = true; return nil }, `SELECT 1 FROM ended_token WHERE id = $1`, id)
	if err != nil {
		return false, fmt.Errorf("look for a signed token among those that were ended: %w", err)
	}
	return ended, nil
}
