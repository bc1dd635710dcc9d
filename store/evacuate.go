package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// HostGroups is compute.Store's, as are the tables below.
func (s hostTables) HostGroups() record.Table[compute.HostGroup, compute.HostGroupFilter] {
	return recordTable[compute.HostGroup, compute.HostGroupFilter]{s.storeCore, hostGroups}
}

var hostGroups = &recordKind[compute.HostGroup, compute.HostGroupFilter]{
	table: "host_group", word: "host group", head: ofRecord[compute.HostGroup],
	num:     func(g *compute.HostGroup) *int64 { return &g.Num },
	columns: []string{"name"},
	fields:  func(g *compute.HostGroup) []any { return []any{&g.Name} },
	body: func(g *compute.HostGroup) any {
		return &struct {
			Healing, SelfFence           *bool
			Require                      *[]compute.Evidence
			Reimage                      *compute.ReimagePolicy
			MaxHosts, MaxShare, Parallel *int
			Healed                       *[]compute.Healing
			Variables                    *compute.VariablesPolicy
		}{&g.Healing, &g.SelfFence, &g.Require, &g.Reimage, &g.MaxHosts, &g.MaxShare, &g.Parallel, &g.Healed, &g.Variables}
	},
	names: []string{"name"},
	keys: []uniqueKey[compute.HostGroup]{{[]string{"name"}, func(g *compute.HostGroup) string {
		return "A host group with name " + g.Name + " already exists."
	}}},
	narrow: func(c *whereClause, f compute.HostGroupFilter) { c.equal("t.name", f.Name) },
}

// Receipts keeps the records of fences.
func (s hostTables) Receipts() record.Table[compute.Receipt, compute.ReceiptFilter] {
	return recordTable[compute.Receipt, compute.ReceiptFilter]{s.storeCore, receipts}
}

var receipts = &recordKind[compute.Receipt, compute.ReceiptFilter]{
	table: "receipt", word: "receipt", head: ofRecord[compute.Receipt],
	num:     func(r *compute.Receipt) *int64 { return &r.Num },
	columns: []string{"host_id", "boot_id", "closed_at"},
	fields: func(r *compute.Receipt) []any {
		closed := toMicros(r.ClosedAt)
		return []any{&r.HostID, &r.BootID, &closed}
	},
	body: func(r *compute.Receipt) any {
		return &struct {
			Epoch                         *int64
			Proofs                        *[]compute.Proof
			By, Words, Closed, BackBootID *string
			ClosedAt, HeardAt             *time.Time
			OtherBootID                   *string
			OtherHeardAt                  *time.Time
			Incarnation                   *string
		}{&r.Epoch, &r.Proofs, &r.By, &r.Words, &r.Closed, &r.BackBootID, &r.ClosedAt, &r.HeardAt, &r.OtherBootID, &r.OtherHeardAt, &r.Incarnation}
	},
	keys: []uniqueKey[compute.Receipt]{{[]string{"host_id"}, func(r *compute.Receipt) string {
		return "Host " + r.HostID + " is fenced already: its receipt is open."
	}}},
	narrow: func(c *whereClause, f compute.ReceiptFilter) {
		c.equal("t.host_id", f.HostID)
		if f.Open {
			c.and("t.closed_at = 0")
		}
	},
}

// UseReceipt is compute.Store's. It says nothing new of the row, but it holds it against whoever closes it.
func (s hostTables) UseReceipt(t job.Tx, id string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	rows, err := tx.exec(`UPDATE receipt SET version = version WHERE id = $1 AND closed_at = 0`, id)
	switch {
	case err != nil:
		return fmt.Errorf("use receipt %s: %w", id, err)
	case rows == 0:
		return problem.Conflictf("receipt %s is closed: the host is back, or was never off", id)
	}
	return nil
}

// Plans keeps what was planned for hosts, and what came of it.
func (s hostTables) Plans() record.Table[compute.Plan, compute.PlanFilter] {
	return recordTable[compute.Plan, compute.PlanFilter]{s.storeCore, plans}
}

var plans = &recordKind[compute.Plan, compute.PlanFilter]{
	table: "plan", word: "plan", head: ofRecord[compute.Plan],
	num:     func(p *compute.Plan) *int64 { return &p.Num },
	columns: []string{"host_id", "state"},
	fields:  func(p *compute.Plan) []any { return []any{&p.HostID, &p.State} },
	body: func(p *compute.Plan) any {
		return &struct {
			By, Missing, OneMoreWhy *string
			Drain, OneMore          *bool
			Items                   *[]compute.PlanItem
			Parallel                *int
			EndedAt                 *time.Time
		}{&p.By, &p.Missing, &p.OneMoreWhy, &p.Drain, &p.OneMore, &p.Items, &p.Parallel, &p.EndedAt}
	},
	keys: []uniqueKey[compute.Plan]{{[]string{"host_id"}, func(p *compute.Plan) string {
		return "Another plan for host " + p.HostID + " is running."
	}}},
	narrow: func(c *whereClause, f compute.PlanFilter) {
		c.equal("t.host_id", f.HostID)
		c.equal("t.state", string(f.State))
	},
}

// DropDrafts is compute.Store's.
func (s hostTables) DropDrafts(t job.Tx, hostID string, before time.Time) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`DELETE FROM plan WHERE host_id = $1 AND state = 'drafted' AND created_at < $2`, hostID, toMicros(before)); err != nil {
		return fmt.Errorf("remove old plans of host %s: %w", hostID, err)
	}
	return nil
}

// Moves keeps the way of each server from host to host.
func (s hostTables) Moves() record.Table[compute.Move, compute.MoveFilter] {
	return recordTable[compute.Move, compute.MoveFilter]{s.storeCore, moves}
}

var moves = &recordKind[compute.Move, compute.MoveFilter]{
	table: "server_move", word: "move", head: ofRecord[compute.Move],
	num:     func(m *compute.Move) *int64 { return &m.Num },
	columns: []string{"server_id", "source_id", "dest_id", "receipt_id", "plan_id", "kind", "state", "user_name", "project"},
	fields: func(m *compute.Move) []any {
		return []any{&m.ServerID, &m.SourceID, &m.DestID, &m.ReceiptID, &m.PlanID, &m.Kind, &m.State, &m.User, &m.Project}
	},
	body: func(m *compute.Move) any {
		return &struct {
			Disposition        *compute.Disposition
			SourceEpoch, Epoch *int64
			WasState           *compute.VMState
			WasTask            *compute.Task
			WasPower, Wanted   *compute.Power
			Clean              *compute.CleanUp
			Words, Problem     *string
			EndedAt            *time.Time
			Incarnation        *string
			MayLoseVariables   *bool
		}{&m.Disposition, &m.SourceEpoch, &m.Epoch, &m.WasState, &m.WasTask, &m.WasPower, &m.Wanted, &m.Clean, &m.Words, &m.Problem, &m.EndedAt, &m.Incarnation, &m.MayLoseVariables}
	},
	keys: []uniqueKey[compute.Move]{{[]string{"server_id"}, func(m *compute.Move) string {
		return "Server " + m.ServerID + " is being moved already."
	}}},
	narrow: func(c *whereClause, f compute.MoveFilter) {
		c.equal("t.server_id", f.ServerID)
		c.equal("t.source_id", f.SourceID)
		c.rare("t.dest_id", f.DestID)
		c.rare("t.plan_id", f.PlanID)
		c.equal("t.receipt_id", f.ReceiptID)
		if f.HostID != "" {
			host := c.arg(f.HostID)
			c.and("(t.source_id = " + host + " OR t.dest_id = " + host + " AND t.dest_id <> '')")
		}
		c.equal("t.kind", string(f.Kind))
		c.equal("t.state", string(f.State))
		c.equal("t.project", f.Project)
		c.equal("t.user_name", f.User)
		if !f.ChangesSince.IsZero() {
			since := c.arg(toMicros(f.ChangesSince))
			c.and("(t.updated_at >= " + since + " OR t.created_at >= " + since + ")")
		}
		if !f.ChangesBefore.IsZero() {
			before := c.arg(toMicros(f.ChangesBefore))
			c.and("t.updated_at <= " + before + " AND t.created_at <= " + before)
		}
		if f.Open {
			c.and("t.state IN ('accepted', 'pre-migrating', 'running')")
		}
		if f.Uncleaned {
			c.and("t.state = 'done'")
		}
	},
}

// MoveSources is compute.Store's.
func (s hostTables) MoveSources(ctx context.Context) ([]string, error) {
	var out []string
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var id string
		err := r.Scan(&id)
		out = append(out, id)
		return err
	}, `SELECT source_id FROM server_move WHERE state IN ('accepted', 'pre-migrating', 'running')
		UNION SELECT source_id FROM server_move WHERE state = 'done'`)
	if err != nil {
		return nil, fmt.Errorf("list hosts with moves: %w", err)
	}
	return out, nil
}
