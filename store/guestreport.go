package store

import (
	"context"
	"database/sql"
	"fmt"

	"salvor/compute"
	"salvor/job"
)

// GuestReports is compute.GuestReportStore's.
func (s hostTables) GuestReports(ctx context.Context, t job.Tx, f compute.GuestReportFilter) ([]compute.GuestReport, error) {
	c := &whereClause{}
	c.equal("g.host_id", f.HostID)
	c.equal("g.server_id", f.ServerID)
	from := "host_guest g"
	if f.OfHostID != "" {
		from += " JOIN server s ON s.id = g.server_id"
		c.and("s.host_id = " + c.arg(f.OfHostID))
		c.and("g.host_id <> s.host_id")
	}
	if f.Misplaced {
		from += " LEFT JOIN server s ON s.id = g.server_id"
		c.and("(s.id IS NULL OR s.host_id <> g.host_id OR s.state = " + c.arg(string(compute.Deleted)) + ")")
	}
	var out []compute.GuestReport
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var g compute.GuestReport
		var seen int64
		err := r.Scan(&g.HostID, &g.ServerID, &g.BootID, &g.Epoch, &g.Incarnation, &g.Power, &seen)
		g.SeenAt = fromMicros(seen)
		out = append(out, g)
		return err
	}, `SELECT g.host_id, g.server_id, g.boot_id, g.epoch, g.incarnation, g.power, g.seen_at FROM `+from+c.where()+` ORDER BY g.host_id, g.server_id`, c.args...)
	if err != nil {
		return nil, fmt.Errorf("read the guests that hosts told: %w", err)
	}
	return out, nil
}

// SaveGuestReport is compute.GuestReportStore's.
func (s hostTables) SaveGuestReport(t job.Tx, g compute.GuestReport) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`INSERT INTO host_guest (host_id, server_id, boot_id, epoch, incarnation, power, seen_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (host_id, server_id) DO UPDATE
		SET boot_id = excluded.boot_id, epoch = excluded.epoch, incarnation = excluded.incarnation, power = excluded.power, seen_at = excluded.seen_at`,
		g.HostID, g.ServerID, g.BootID, g.Epoch, g.Incarnation, string(g.Power), toMicros(g.SeenAt)); err != nil {
		return fmt.Errorf("save guest %s of host %s: %w", g.ServerID, g.HostID, err)
	}
	return nil
}

// DropGuestReport is compute.GuestReportStore's.
func (s hostTables) DropGuestReport(t job.Tx, hostID, serverID string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`DELETE FROM host_guest WHERE host_id = $1 AND server_id = $2`, hostID, serverID); err != nil {
		return fmt.Errorf("drop guest %s of host %s: %w", serverID, hostID, err)
	}
	return nil
}
