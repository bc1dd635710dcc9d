package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// SealKeyState is what a key is good for.
type SealKeyState string

const (
	// NextKey is known to some processes; it will seal when all know it.
	NextKey SealKeyState = "next"
	// CurrentKey seals.
	CurrentKey SealKeyState = "current"
	// OldKey still opens: something may be sealed with it, or a token of it may be in use.
	OldKey SealKeyState = "old"
	// RetiredKey opens nothing any more.
	RetiredKey SealKeyState = "retired"
)

// SealKey is a key as the database knows it: by its id.
type SealKey struct {
	ID    string
	State SealKeyState
	Since time.Time
}

// KeyHolder is a process and the ids of the keys that it knows. Beats is raised by it as long as it lives.
type KeyHolder struct {
	ID, Host string
	Keys     []string
	Beats    int64
}

const (
	checkName  = "key_check"
	checkPlace = "setting:" + checkName
	checkWord  = "salvor"
)

// ErrWrongKey is what is said at a start with another key than the database's.
var ErrWrongKey = problem.Invalidf("database: its secrets are sealed with another key than this secrets.key; start with the key file that was used with it")

// proveKey writes the check value of a fresh database, and proves that the keys at hand are those that its secrets are sealed with.
// It leaves the key that the database says as the one that seals, and tells the key which ones ended.
func (s keyTables) proveKey(tx *Tx) error {
	var sealed string
	scan := func(r *sql.Rows) error { return r.Scan(&sealed) }
	if _, err := tx.exec(`INSERT INTO setting (name, value) VALUES ('`+checkName+`', $1) ON CONFLICT DO NOTHING`,
		s.key.Seal(secret.New(checkWord), checkPlace)); err != nil {
		return err
	}
	if err := tx.each(scan, `SELECT value FROM setting WHERE name = '`+checkName+`'`); err != nil {
		return err
	}
	word, by, err := s.key.OpenedBy(sealed, checkPlace)
	if err != nil || word.Reveal() != checkWord {
		return ErrWrongKey
	}
	// A database from before keys had ids has no row yet: what the check value was sealed with is the key that seals.
	if _, err := tx.exec(`INSERT INTO seal_key (id, state, since) SELECT CAST($1 AS TEXT), 'current', CAST($2 AS BIGINT)
		WHERE NOT EXISTS (SELECT 1 FROM seal_key) ON CONFLICT DO NOTHING`, by, toMicros(s.timestamp())); err != nil {
		return err
	}
	keys, err := s.sealKeys(tx.ctx, tx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		switch {
		case k.State == NextKey || k.State == RetiredKey:
		case !slices.Contains(s.key.IDs(), k.ID):
			if k.State == CurrentKey {
				return ErrWrongKey
			}
			return problem.Invalidf("database: its secrets are being sealed anew; until that is done key %s is needed beside %s: see [secrets]key_file", k.ID, s.key.ID())
		case k.State == CurrentKey:
			s.key.Use(k.ID)
		case k.State == OldKey:
			s.key.End(k.ID, k.Since)
		}
	}
	for _, k := range keys {
		if k.State == RetiredKey { // before any door opens: a thief of it may sign with it
			s.key.Forget(k.ID)
		}
	}
	return nil
}

// seals makes sure, once in each transaction that seals anything, that what it seals is sealed with the key that the database
// says. It holds the key's row against a change until the transaction ends: so when a change is committed, nothing that is
// sealed with the old key can come any more.
func (tx *Tx) seals() error {
	if tx.keyed {
		return nil
	}
	text, id := `SELECT id FROM seal_key WHERE state = 'current' AND state <> 'retired'`, ""
	if tx.store.shared {
		text += ` FOR SHARE`
	}
	if err := tx.each(func(r *sql.Rows) error { return r.Scan(&id) }, text); err != nil {
		return fmt.Errorf("look for the key that seals: %w", err)
	}
	if id != tx.store.key.ID() && !tx.store.key.Use(id) {
		return problem.Database(problem.Unavailablef("database: secrets are sealed with key %s, which this process has not read yet: see salvor secret status", id))
	}
	tx.keyed = true
	return nil
}

func (s keyTables) sealKeys(ctx context.Context, t job.Tx) ([]SealKey, error) {
	var out []SealKey
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var k SealKey
		var since int64
		err := r.Scan(&k.ID, &k.State, &since)
		k.Since = fromMicros(since)
		out = append(out, k)
		return err
	}, `SELECT id, state, since FROM seal_key ORDER BY since, id`)
	if err != nil {
		return nil, fmt.Errorf("read the keys that seal: %w", err)
	}
	return out, nil
}

// SealKeys are the keys of the database, the oldest first.
func (s keyTables) SealKeys(ctx context.Context) ([]SealKey, error) { return s.sealKeys(ctx, nil) }

// SaveKeyHolder says which keys a process knows, and that it lives.
func (s keyTables) SaveKeyHolder(ctx context.Context, h KeyHolder) error {
	return s.execOnce(ctx, `INSERT INTO seal_holder (id, host, known, beats) VALUES ($1, $2, $3, 1)
		ON CONFLICT (id) DO UPDATE SET known = excluded.known, beats = seal_holder.beats + 1`, h.ID, h.Host, strings.Join(h.Keys, " "))
}

// KeyHolders are the processes that said which keys they know, dead ones among them.
func (s keyTables) KeyHolders(ctx context.Context) ([]KeyHolder, error) {
	var out []KeyHolder
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var h KeyHolder
		var known string
		err := r.Scan(&h.ID, &h.Host, &known, &h.Beats)
		h.Keys = strings.Fields(known)
		out = append(out, h)
		return err
	}, `SELECT id, host, known, beats FROM seal_holder ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("read which process knows which key: %w", err)
	}
	return out, nil
}

// DropKeyHolder forgets a process whose beats stood still at the count.
func (s keyTables) DropKeyHolder(ctx context.Context, id string, beats int64) error {
	return s.execOnce(ctx, `DELETE FROM seal_holder WHERE id = $1 AND beats = $2`, id, beats)
}

// execOnce runs one statement.
func (s keyTables) execOnce(ctx context.Context, text string, args ...any) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err == nil {
			_, err = tx.exec(text, args...)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note the keys that seal: %w", err)
	}
	return nil
}

// ProposeKey makes a known key the next one; problem.Conflict while another change is not over.
func (s keyTables) ProposeKey(ctx context.Context, id string, asker record.Asker) error {
	return s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		keys, err := s.sealKeys(tx.ctx, tx)
		if err != nil {
			return err
		}
		for _, k := range keys {
			switch {
			case k.State == NextKey || k.State == OldKey:
				return problem.Conflictf("The change to another key is not over yet: see salvor secret status.")
			case k.ID == id:
				return problem.Conflictf("Key %s is %s already; a key is used once.", id, k.State)
			}
		}
		if _, err = tx.exec(`INSERT INTO seal_key (id, state, since) VALUES ($1, 'next', $2)`, id, toMicros(s.timestamp())); err != nil && s.engine.violated(err) != "" {
			return conflictError(err, "The change to another key has been asked for at the same time.")
		}
		if err != nil {
			return err
		}
		return s.appendEvent(tx, job.Event{Subject: job.Subject{Kind: "seal-key", ID: id}, Type: "request", RequestID: asker.RequestID, User: asker.User,
			Text: "asked to seal all secrets with this key"})
	})
}

// PromoteKey makes the next key the one that seals. All transactions that seal with the old one are over then.
func (s keyTables) PromoteKey(ctx context.Context) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		now := toMicros(s.timestamp())
		n, err := tx.exec(`UPDATE seal_key SET state = 'old', since = $1 WHERE state = 'current' AND EXISTS (SELECT 1 FROM seal_key WHERE state = 'next')
			AND NOT EXISTS (SELECT 1 FROM seal_key WHERE state = 'old')`, now)
		if err == nil && n == 1 {
			_, err = tx.exec(`UPDATE seal_key SET state = 'current', since = $1 WHERE state = 'next'`, now)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("change to the next key: %w", err)
	}
	return nil
}
