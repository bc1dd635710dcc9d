package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
)

var _ metal.FleetStore = (*Store)(nil)

// FleetCounts is metal.FleetStore's. Without a project it reads an index only, in its order.
func (s nodeTables) FleetCounts(ctx context.Context, project string) ([]metal.FleetCount, error) {
	c := s.newWhere()
	c.confineNodes(metal.NodeFilter{Project: project}, "")
	of := map[metal.FleetCount]int{}
	scan := func(r *sql.Rows) error {
		var one metal.FleetCount
		var fault string
		var n int
		err := r.Scan(&one.State, &one.Maintenance, &fault, &n)
		one.Faulty = fault != ""
		of[one] += n
		return err
	}
	const text = `SELECT n.provision_state, n.maintenance, n.fault, COUNT(*) FROM node n`
	if err := s.read(ctx, nil, scan, text+c.where()+` GROUP BY n.provision_state, n.maintenance, n.fault`, c.args...); err != nil {
		return nil, fmt.Errorf("count the fleet: %w", err)
	}
	out := make([]metal.FleetCount, 0, len(of))
	for one, n := range of {
		one.Count = n
		out = append(out, one)
	}
	return out, nil
}

// FailingBMCs is metal.FleetStore's. It reads the index of the contacts whose last reading failed.
func (s nodeTables) FailingBMCs(ctx context.Context, project string, since time.Time, names int) (out metal.FailingBMCs, err error) {
	c := s.newWhere()
	c.and(`power_error <> '' AND power_failed_at >= ` + c.arg(toMicros(since)))
	if project != "" {
		c.and(`node_id` + c.anyOf(nodesOf(c.arg(project), "id", "owner", "lessee")))
	}
	from := ` FROM contact` + c.where()
	err = s.read(ctx, nil, func(r *sql.Rows) error {
		var refused bool
		var n int
		err := r.Scan(&refused, &n)
		if refused {
			out.Refusing = n
		} else {
			out.Silent = n
		}
		return err
	}, `SELECT power_refused, COUNT(*)`+from+` GROUP BY power_refused`, c.args...)
	if err == nil && names > 0 && out.Silent+out.Refusing > 0 {
		err = s.read(ctx, nil, func(r *sql.Rows) error {
			var name string
			err := r.Scan(&name)
			out.Names = append(out.Names, name)
			return err
		}, `SELECT CASE WHEN n.name = '' THEN n.id ELSE n.name END AS label FROM node n WHERE n.id`+
			c.anyOf(`SELECT node_id`+from+` ORDER BY node_id LIMIT `+c.count(names))+` ORDER BY label`, c.args...)
	}
	if err != nil {
		return out, fmt.Errorf("count the BMCs that fail: %w", err)
	}
	return out, nil
}

const selectFleet = `SELECT n.id, n.name, n.provision_state, n.target_provision, n.power_state, n.target_power, n.maintenance, n.fault, n.conductor_group,
	n.last_error, n.provisioned_at, COALESCE(p.power_read, ''), COALESCE(p.power_read_at, 0), COALESCE(p.power_error, ''), COALESCE(p.power_failed_at, 0),
	COALESCE(p.power_refused, FALSE) FROM node n LEFT JOIN contact p ON p.node_id = n.id`

// FleetNodes is metal.FleetStore's.
func (s nodeTables) FleetNodes(ctx context.Context, f metal.NodeFilter, p record.Page) ([]metal.FleetNode, error) {
	return nodePage(ctx, s.storeCore, nil, f, p, func(tail string, args []any) ([]metal.FleetNode, error) {
		return s.fleetNodes(ctx, nil, selectFleet+tail, args...)
	})
}

func (s nodeTables) fleetNodes(ctx context.Context, t job.Tx, text string, args ...any) ([]metal.FleetNode, error) {
	var out []metal.FleetNode
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var n metal.FleetNode
		var since, read, failed int64
		c := &n.Contact
		err := r.Scan(&n.ID, &n.Name, &n.State, &n.Target, &n.Power, &n.TargetPower, &n.Maintenance, &n.Fault, &n.ConductorGroup, &n.LastError, &since,
			&c.PowerRead, &read, &c.PowerError, &failed, &c.PowerRefused)
		n.Since, c.NodeID, c.PowerReadAt, c.PowerFailedAt = fromMicros(since), n.ID, fromMicros(read), fromMicros(failed)
		out = append(out, n)
		return err
	}, text, args...)
	if err != nil {
		return nil, fmt.Errorf("read the fleet: %w", err)
	}
	return out, nil
}

// CountNodes implements metal.NodeStore. It only reads an index.
func (s nodeTables) CountNodes(ctx context.Context, states ...metal.State) (int, error) {
	c := &whereClause{}
	quoted := make([]string, len(states))
	for i, state := range states {
		quoted[i] = string(state)
	}
	c.and(c.in("provision_state", quoted))
	n := 0
	if err := s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM node`+c.where(), c.args...); err != nil {
		return 0, fmt.Errorf("count nodes by state: %w", err)
	}
	return n, nil
}
