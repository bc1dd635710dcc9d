package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"salvor/job"
	"salvor/metal"
)

// The bounds of one call that finds nobody to give: of nodes that are not read it passes by more and more at once.
const (
	powerRounds  = 100
	powerPortion = 1000
)

// ClaimPower is metal.ContactStore's.
func (s nodeTables) ClaimPower(ctx context.Context, t metal.PowerTurn, limit int) ([]*metal.Node, error) {
	if len(t.Groups) == 0 || limit <= 0 {
		return nil, nil
	}
	for batch, n := limit, 0; n < powerRounds; batch, n = min(2*batch, max(limit, powerPortion)), n+1 {
		taken, ids, err := s.takeTurns(ctx, t, batch)
		if err != nil || taken == 0 {
			return nil, err
		}
		if len(ids) == 0 {
			continue
		}
		if err := s.returnTurns(ctx, t, ids[min(limit, len(ids)):]); err != nil {
			return nil, err
		}
		// Few lengths are few statements to keep.
		for len(ids)&(len(ids)-1) != 0 {
			ids = append(ids, ids[0])
		}
		c := &whereClause{}
		found, err := s.nodes(ctx, nil, selectNodes+` WHERE `+c.in("n.id", ids[:min(limit, len(ids))]), c.args...)
		if err != nil {
			return nil, err
		}
		given, err := s.sortTurns(ctx, t, found)
		if err != nil || len(given) > 0 {
			return given, err
		}
		batch = limit
	}
	return nil, nil
}

// takeTurns moves the turns that are due to the next time, so that nobody else finds them due. It tells how many that were, and gives
// the nodes among them that are read at all, or have moved.
func (s nodeTables) takeTurns(ctx context.Context, t metal.PowerTurn, limit int) (taken int, ids []string, err error) {
	c := &whereClause{}
	now := c.arg(toMicros(t.Now))
	due := `due <= ` + now + ` AND ` + c.in("group_name", t.Groups)
	// Most looks find nothing, and a look is cheaper than a transaction.
	found := false
	err = s.read(ctx, nil, func(*sql.Rows) error { found = true; return nil }, `SELECT 1 FROM power_turn WHERE `+due+` LIMIT 1`, c.args...)
	if err != nil || !found {
		return 0, nil, err
	}
	skip := make([]string, len(t.Skip))
	for i, state := range t.Skip {
		skip[i] = string(state)
	}
	text := `UPDATE power_turn SET due = ` + c.arg(toMicros(t.Next)) + ` WHERE node_id` +
		s.engine.skipLockedClause(`SELECT node_id FROM power_turn WHERE `+due+` ORDER BY due LIMIT `+c.count(limit)) + ` AND due <= ` + now + ` RETURNING node_id,
		EXISTS (SELECT 1 FROM node n WHERE n.id = power_turn.node_id AND n.conductor_group = power_turn.group_name AND (n.driver = '' OR ` +
		c.in("n.provision_state", skip) + `))`
	err = s.Do(ctx, func(u job.Tx) error {
		taken, ids = 0, nil
		tx, err := s.tx(u)
		if err != nil {
			return err
		}
		return tx.each(func(r *sql.Rows) error {
			var id string
			var unread bool
			err := r.Scan(&id, &unread)
			if taken++; !unread {
				ids = append(ids, id)
			}
			return err
		}, text, c.args...)
	})
	if err != nil {
		return 0, nil, fmt.Errorf("claim nodes to read the power of: %w", err)
	}
	return taken, ids, nil
}

// returnTurns makes turns due again that were taken beyond what was asked for.
func (s nodeTables) returnTurns(ctx context.Context, t metal.PowerTurn, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	err := s.Do(ctx, func(u job.Tx) error {
		tx, err := s.tx(u)
		for part := range slices.Chunk(ids, 100) {
			if err == nil {
				c := &whereClause{}
				_, err = tx.exec(`UPDATE power_turn SET due = `+c.arg(toMicros(t.Now))+` WHERE `+c.in("node_id", part), c.args...)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("give back turns of reading the power: %w", err)
	}
	return nil
}

// sortTurns gives the nodes that can be read now, and puts right the turns of the others: who is locked comes soon again, and
// who has moved to another group is due there.
func (s nodeTables) sortTurns(ctx context.Context, t metal.PowerTurn, found []*metal.Node) (given []*metal.Node, err error) {
	var locked []string
	var moved []*metal.Node
	for _, n := range found {
		switch {
		case !slices.Contains(t.Groups, n.ConductorGroup):
			moved = append(moved, n)
		case n.Driver == "" || slices.Contains(t.Skip, n.ProvisionState):
		case n.Reservation != "":
			locked = append(locked, n.ID)
		default:
			given = append(given, n)
		}
	}
	if len(locked)+len(moved) == 0 {
		return given, nil
	}
	err = s.Do(ctx, func(u job.Tx) error {
		tx, err := s.tx(u)
		if err == nil && len(locked) > 0 {
			c := &whereClause{}
			_, err = tx.exec(`UPDATE power_turn SET due = `+c.arg(toMicros(t.Soon))+` WHERE `+c.in("node_id", locked), c.args...)
		}
		for _, n := range moved {
			if err == nil {
				_, err = tx.exec(`UPDATE power_turn SET group_name = $2, due = $3 WHERE node_id = $1`, n.ID, n.ConductorGroup, toMicros(t.Now))
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("put off the reading of the power: %w", err)
	}
	return given, nil
}

// TendPower is metal.ContactStore's: programs of an older release make nodes without a turn, and move them without moving it.
func (s nodeTables) TendPower(ctx context.Context) (int, error) {
	var total int64
	for _, text := range []string{
		`INSERT INTO power_turn (node_id, group_name, due) SELECT n.id, n.conductor_group, 0 FROM node n
			WHERE NOT EXISTS (SELECT 1 FROM power_turn p WHERE p.node_id = n.id) ON CONFLICT DO NOTHING`,
		`UPDATE power_turn SET group_name = (SELECT n.conductor_group FROM node n WHERE n.id = power_turn.node_id)
			WHERE EXISTS (SELECT 1 FROM node n WHERE n.id = power_turn.node_id AND n.conductor_group <> power_turn.group_name)`,
	} {
		err := s.Do(ctx, func(u job.Tx) error {
			tx, err := s.tx(u)
			if err != nil {
				return err
			}
			n, err := tx.exec(text)
			total += n
			return err
		})
		if err != nil {
			return int(total), fmt.Errorf("give every node a turn to have its power read: %w", err)
		}
	}
	return int(total), nil
}

// SavePower is metal.ContactStore's. It raises no revision: nobody shows it.
func (s nodeTables) SavePower(ctx context.Context, readings []metal.PowerReading) error {
	if len(readings) == 0 {
		return nil
	}
	// The same order for everybody, so that two who write the same rows do not wait for each other.
	readings = slices.SortedFunc(slices.Values(readings), func(a, b metal.PowerReading) int { return strings.Compare(a.NodeID, b.NodeID) })
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		for _, r := range readings {
			_, err := tx.exec(`INSERT INTO contact (node_id, power_read, power_read_at) SELECT id, $2, $3 FROM node WHERE id = $1
				ON CONFLICT (node_id) DO UPDATE SET power_read = excluded.power_read, power_read_at = excluded.power_read_at, power_failures = 0, power_error = '', power_refused = FALSE
				WHERE contact.power_read_at <= excluded.power_read_at AND contact.power_failed_at <= excluded.power_read_at`,
				r.NodeID, string(r.Power), toMicros(r.At))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("note readings of the power: %w", err)
	}
	return nil
}

// PostgreSQL may make a join of "IN (subquery)". It would run the subquery again for each row, and skip the rows that the update itself has
// locked, so the update would take more rows than the limit. PostgreSQL makes an array once.
func (e *postgresEngine) skipLockedClause(subquery string) string {
	return e.anyOf(subquery + ` FOR UPDATE SKIP LOCKED`)
}

func (e *sqliteEngine) skipLockedClause(subquery string) string { return e.anyOf(subquery) }

func (*postgresEngine) anyOf(subquery string) string { return ` = ANY(ARRAY(` + subquery + `))` }

func (*sqliteEngine) anyOf(subquery string) string { return ` IN (` + subquery + `)` }
