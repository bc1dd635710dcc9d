package store

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// InsertNode is metal.NodeStore's.
func (s nodeTables) InsertNode(t job.Tx, n *metal.Node) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if err := tx.seals(); err != nil {
		return err
	}
	tx.keepStamps(&n.Version, &n.CreatedAt, &n.UpdatedAt)
	if n.CreatedAt.IsZero() {
		n.CreatedAt = s.timestamp()
	}
	if n.Version == 0 {
		n.Version = 1
	}
	args, err := s.nodeArgs(n)
	if err != nil {
		return err
	}
	rows, err := tx.exec(insertNode, args...)
	if err != nil {
		return fmt.Errorf("insert node %s: %w", n.ID, err)
	}
	if rows == 0 {
		return s.takenNodeError(tx, n)
	}
	if _, err := tx.exec(`INSERT INTO power_turn (node_id, group_name, due) VALUES ($1, $2, $3)`, n.ID, n.ConductorGroup, toMicros(s.timestamp())); err != nil {
		return fmt.Errorf("insert node %s: %w", n.ID, err)
	}
	return tx.saveMACs(n)
}

var (
	insertNode = `INSERT INTO node (` + strings.Join(nodeFields, ", ") + `) VALUES (` + sqlPlaceholders(1, len(nodeFields)) + `) ON CONFLICT DO NOTHING`
	updateNode = updateText("node", nodeFields)
)

// sqlPlaceholders lists $from to $(from+n-1).
func sqlPlaceholders(from, n int) string {
	marks := make([]string, n)
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", from+i)
	}
	return strings.Join(marks, ", ")
}

// updateText sets all fields but id WHERE id and the version before this change still hold.
// The fields begin with id and version; the version given is the new one.
func updateText(table string, fields []string) string {
	var sets []string
	for i, f := range fields[1:] {
		sets = append(sets, fmt.Sprintf("%s = $%d", f, i+2))
	}
	return `UPDATE ` + table + ` SET ` + strings.Join(sets, ", ") + ` WHERE id = $1 AND version = CAST($2 AS BIGINT) - 1`
}

// updateTogether is how many rows one statement of updateMany changes. More of them make SQLite slower, which looks up each argument by name.
const updateTogether = 25

// updateMany does the work of updateText for many rows, each given by its fields, with a few statements. It tells how many rows it changed.
func (tx *Tx) updateMany(table string, fields []string, rows [][]any) (changed int64, err error) {
	for len(rows) > 0 && err == nil {
		text, n := updateText(table, fields), 1
		if len(rows) >= updateTogether {
			n = updateTogether
			text = updateManyText(table, fields, rows[0], n)
		}
		var some int64
		some, err = tx.exec(text, slices.Concat(rows[:n]...)...)
		changed, rows = changed+some, rows[n:]
	}
	return changed, err
}

// updateManyText is updateText for n rows. first is one of them: PostgreSQL wants to know the types.
func updateManyText(table string, fields []string, first []any, n int) string {
	var sets []string
	for _, f := range fields[1:] {
		sets = append(sets, f+" = v."+f)
	}
	typed := make([]string, len(first))
	for i, arg := range first {
		word := "TEXT"
		switch arg.(type) {
		case int64:
			word = "BIGINT"
		case bool:
			word = "BOOLEAN"
		}
		typed[i] = fmt.Sprintf("CAST($%d AS %s)", i+1, word)
	}
	rows := []string{"(" + strings.Join(typed, ", ") + ")"}
	for i := 1; i < n; i++ {
		rows = append(rows, "("+sqlPlaceholders(1+i*len(first), len(first))+")")
	}
	return `WITH v (` + strings.Join(fields, ", ") + `) AS (VALUES ` + strings.Join(rows, ", ") + `) UPDATE ` + table + ` SET ` + strings.Join(sets, ", ") +
		` FROM v WHERE ` + table + `.id = v.id AND ` + table + `.version = v.version - 1`
}

// takenNodeError says which of a new node's names is taken.
func (s nodeTables) takenNodeError(tx *Tx, n *metal.Node) error {
	taken := map[string]bool{}
	err := tx.each(func(r *sql.Rows) error {
		var id, name, instance string
		err := r.Scan(&id, &name, &instance)
		taken["id"] = taken["id"] || id == n.ID
		taken["name"] = taken["name"] || n.Name != "" && name == n.Name
		taken["instance"] = taken["instance"] || n.InstanceUUID != "" && instance == n.InstanceUUID
		return err
	}, `SELECT id, name, instance_uuid FROM node WHERE id = $1 OR name = $2 AND name <> '' OR instance_uuid = $3 AND instance_uuid <> ''`,
		n.ID, n.Name, n.InstanceUUID)
	switch {
	case err != nil:
		return err
	case taken["id"]:
		return problem.Conflictf("A node with UUID %s already exists.", n.ID)
	case taken["name"]:
		return nodeTaken("node.name", n, nil)
	case taken["instance"]:
		return nodeTaken("node.instance_uuid", n, nil)
	}
	return nodeTaken("node.boot_path", n, nil)
}

// nodeTaken turns a violated rule into what the user reads; nil if it is no rule of nodes.
func nodeTaken(rule string, n *metal.Node, err error) error {
	if err == nil {
		err = errors.New(rule)
	}
	switch rule {
	case "node.name":
		return conflictError(err, "A node with name %s already exists.", n.Name)
	case "node.instance_uuid":
		return conflictError(err, "Instance %s is already associated with a node, it cannot be associated with this other node %s.", n.InstanceUUID, n.ID)
	case "node.boot_path":
		return conflictError(err, "The boot path of node %s is taken.", n.ID)
	}
	return nil
}

// SaveNode is metal.NodeStore's.
func (s nodeTables) SaveNode(t job.Tx, n *metal.Node) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if err := tx.seals(); err != nil {
		return err
	}
	tx.keepStamps(&n.Version, &n.UpdatedAt)
	former, at := n.Version, n.UpdatedAt
	n.Version, n.UpdatedAt = former+1, s.timestamp()
	args, err := s.nodeArgs(n)
	var rows int64
	if err == nil {
		rows, err = tx.exec(updateNode, args...)
	}
	if err == nil && rows == 1 {
		return tx.saveMACs(n)
	}
	n.Version, n.UpdatedAt = former, at
	if err == nil {
		return problem.Conflictf("Node %s has been changed by another request; please retry.", n.ID)
	}
	if taken := nodeTaken(s.engine.violated(err), n, err); taken != nil {
		return taken
	}
	return fmt.Errorf("save node %s: %w", n.ID, err)
}

// SaveNodes is restored.Store's.
func (s nodeTables) SaveNodes(t job.Tx, nodes []*metal.Node) error {
	tx, err := s.tx(t)
	if err == nil {
		err = tx.seals()
	}
	if err != nil {
		return err
	}
	rows, ids := make([][]any, len(nodes)), make([]string, len(nodes))
	for i, n := range nodes {
		n.Version, n.UpdatedAt = n.Version+1, s.timestamp()
		if rows[i], err = s.nodeArgs(n); err != nil {
			return err
		}
		ids[i] = n.ID
	}
	changed, err := tx.updateMany("node", nodeFields, rows)
	if err != nil {
		return fmt.Errorf("save %d nodes: %w", len(nodes), err)
	}
	if changed != int64(len(nodes)) {
		return problem.Conflictf("One of %d nodes has been changed by another request; please retry.", len(nodes))
	}
	c := &whereClause{}
	c.any("node_id", ids)
	if _, err := tx.exec(`DELETE FROM boot_mac`+c.where(), c.args...); err != nil {
		return fmt.Errorf("save %d nodes: %w", len(nodes), err)
	}
	for _, n := range nodes {
		if err := tx.insertMACs(n); err != nil {
			return err
		}
	}
	return nil
}

// keepStamps puts what the store writes into a caller's record back if the transaction comes to nothing.
func (tx *Tx) keepStamps(fields ...any) {
	for _, f := range fields {
		switch f := f.(type) {
		case *int64:
			was := *f
			tx.onRollback(func() { *f = was })
		case *time.Time:
			was := *f
			tx.onRollback(func() { *f = was })
		}
	}
}

// saveMACs writes who may ask for the node's boot plan.
func (tx *Tx) saveMACs(n *metal.Node) error {
	if _, err := tx.exec(`DELETE FROM boot_mac WHERE node_id = $1`, n.ID); err != nil {
		return err
	}
	return tx.insertMACs(n)
}

func (tx *Tx) insertMACs(n *metal.Node) error {
	if n.Plan == nil {
		return nil
	}
	for _, mac := range n.Plan.MACs {
		if _, err := tx.exec(`INSERT INTO boot_mac (mac, node_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, strings.ToLower(mac), n.ID); err != nil {
			return fmt.Errorf("save node %s: boot plan: %w", n.ID, err)
		}
	}
	return nil
}

// DeleteNode is metal.NodeStore's. What else belongs to it goes by the tables' own rule.
func (s nodeTables) DeleteNode(t job.Tx, n *metal.Node) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	for _, text := range []string{
		`DELETE FROM job WHERE subject_kind = 'node' AND subject_id = $1 AND state = 'ended'`,
		`DELETE FROM job WHERE subject_kind = 'node' AND subject_id = $1 AND state <> 'ended' AND class = 'ask'`,
		`DELETE FROM event WHERE subject_kind = 'node' AND subject_id = $1`,
		`DELETE FROM event_counter WHERE subject_kind = 'node' AND subject_id = $1`,
		`DELETE FROM allocation WHERE node_id = $1 AND node_id <> ''`,
	} {
		if _, err := tx.exec(text, n.ID); err != nil {
			return fmt.Errorf("delete node %s: %w", n.ID, err)
		}
	}
	rows, err := tx.exec(`DELETE FROM node WHERE id = $1 AND version = $2`, n.ID, n.Version)
	if err != nil {
		return fmt.Errorf("delete node %s: %w", n.ID, err)
	}
	if rows == 0 {
		return problem.Conflictf("Node %s has been changed by another request; please retry.", n.ID)
	}
	return nil
}
