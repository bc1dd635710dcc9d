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

// Servers is compute.Store's.
func (s serverTables) Servers() record.Table[compute.Server, compute.ServerFilter] {
	return recordTable[compute.Server, compute.ServerFilter]{s.storeCore, servers}
}

var servers = &recordKind[compute.Server, compute.ServerFilter]{
	table: "server", word: "server", head: ofRecord[compute.Server],
	num: func(v *compute.Server) *int64 { return &v.Num },
	columns: []string{"name", "project", "user_name", "zone", "host_id", "guest_name", "state", "task", "power", "locked", "flavor_id",
		"image_id", "key_name", "launched_at", "terminated_at", "rescue_state", "rescue_image", "rescue_expires", "drifted"},
	fields: func(v *compute.Server) []any {
		launched, terminated := toMicros(v.LaunchedAt), toMicros(v.TerminatedAt)
		state, image, expires := rescueColumns(v)
		flavor, drifted := v.Flavor.ID, len(v.Drift) > 0
		return []any{&v.Name, &v.Project, &v.User, &v.Zone, &v.HostID, &v.GuestName, &v.State, &v.Task, &v.Power, &v.Locked, &flavor,
			&v.ImageID, &v.KeyName, &launched, &terminated, &state, &image, &expires, &drifted}
	},
	body:   serverBody,
	secret: func(key string) bool { return key == "UserData" || key == credentialKey },
	sort: map[string]string{"display_name": "name", "host": "host_id", "user_id": "user_name", "project_id": "project", "vm_state": "state",
		"power_state": "power", "task_state": "task", "availability_zone": "zone", "image_ref": "image_id", "instance_type_id": "flavor_id"},
	keys: []uniqueKey[compute.Server]{{[]string{"host_id", "guest_name"}, func(v *compute.Server) string {
		return "A server with guest name " + v.GuestName + " already exists on host " + v.HostID + "."
	}}},
	mine:   func(c *whereClause, f compute.ServerFilter) string { return c.mine("m.project = %s", f.Project) },
	narrow: narrowServers,
}

// serverBody is the part of a server that nobody searches or sorts by, and what its columns hold in another form.
func serverBody(v *compute.Server) any {
	return &struct {
		Description, LockedReason, PublicKey, OS, OSFamily *string
		Tags, SecurityGroups                               *[]string
		Metadata, ImageProperties                          *map[string]string
		Epoch                                              *int64
		Foreign, ConfigDrive                               *bool
		Wanted                                             *compute.Power
		Firmware                                           *compute.Firmware
		Fault                                              **compute.Fault
		LaunchedAt, TerminatedAt                           *time.Time
		Flavor                                             *compute.Flavor
		UserData                                           plainSecret
		NICs                                               *[]compute.NIC
		Disks                                              *[]compute.Disk
		Rescue                                             rescueSession
		LockedByAdmin                                      *bool
		Restarts                                           *[]time.Time
		Drift                                              *[]compute.Drift
		Pause                                              *compute.GuestPause
		Resumes                                            *[]time.Time
		StateCopied, AwaitsRoom                            *bool
		StandsStillSince                                   *time.Time
	}{&v.Description, &v.LockedReason, &v.PublicKey, &v.OS, &v.OSFamily, &v.Tags, &v.SecurityGroups, &v.Metadata, &v.ImageProperties,
		&v.Epoch, &v.Foreign, &v.ConfigDrive, &v.Wanted, &v.Firmware, &v.Fault, &v.LaunchedAt, &v.TerminatedAt, &v.Flavor,
		plainSecret{&v.UserData}, &v.NICs, &v.Disks, rescueSession{&v.Rescue}, &v.LockedByAdmin, &v.Restarts, &v.Drift, &v.Pause, &v.Resumes, &v.StateCopied,
		&v.AwaitsRoom, &v.StandsStillSince}
}

// rescueColumns are what is searched of an open session; nothing of one that is closed or whose server is gone.
func rescueColumns(v *compute.Server) (state string, image, expires int64) {
	if v.Rescue == nil || !v.Rescue.State.Open() || v.State == compute.Deleted {
		return "", 0, 0
	}
	if v.Rescue.Source != nil {
		image = v.Rescue.Source.ImageID
	}
	return string(v.Rescue.State), image, toMicros(v.Rescue.ExpiresAt)
}

func narrowServers(c *whereClause, f compute.ServerFilter) {
	for _, e := range []struct{ column, value string }{{"t.project", f.Project}, {"t.user_name", f.User}, {"t.name", f.Name},
		{"t.state", string(f.State)}, {"t.flavor_id", f.FlavorID}} {
		c.equal(e.column, e.value)
	}
	c.rare("t.host_id", f.HostID)
	c.rare("t.task", string(f.Task))
	c.rare("t.image_id", f.ImageID)
	c.contains("t.name", f.NameContains)
	if f.States != nil {
		states := make([]string, len(f.States))
		for i, state := range f.States {
			states[i] = string(state)
		}
		c.any("t.state", states)
	}
	if f.Locked != nil {
		c.and("t.locked = " + c.arg(*f.Locked))
	}
	if !f.ChangesSince.IsZero() {
		since := c.arg(toMicros(f.ChangesSince))
		c.and("(t.updated_at >= " + since + " OR t.created_at >= " + since + ")")
	}
	switch {
	case f.Deleted:
		c.and("t.state = 'deleted'")
	case !f.AnyDeleted && f.State != compute.Deleted:
		c.and("t.state <> 'deleted'")
	}
	if f.RescueImage != 0 {
		c.and("t.rescue_image = " + c.arg(f.RescueImage) + " AND t.rescue_image > 0")
	}
	if f.InRescue {
		c.and("t.rescue_state <> ''")
	}
	if !f.RescueExpired.IsZero() {
		c.and("t.rescue_expires < " + c.arg(toMicros(f.RescueExpired)) + " AND t.rescue_expires > 0")
	}
}

// SaveServers is compute.Store's.
func (s serverTables) SaveServers(t job.Tx, all []*compute.Server) error {
	tx, err := s.tx(t)
	if err == nil {
		err = tx.seals()
	}
	if err != nil {
		return err
	}
	rows := make([][]any, len(all))
	for i, v := range all {
		v.Version, v.UpdatedAt = v.Version+1, s.timestamp()
		if rows[i], err = (recordTable[compute.Server, compute.ServerFilter]{s.storeCore, servers}).values(v); err != nil {
			return err
		}
	}
	changed, err := tx.updateMany(servers.table, servers.allColumns(), rows)
	if err == nil && changed != int64(len(all)) {
		return problem.Conflictf("One of %d servers has been changed by another request; please retry.", len(all))
	}
	if err != nil {
		return fmt.Errorf("save %d servers: %w", len(all), err)
	}
	return nil
}

// ServerByNum is compute.Store's.
func (s serverTables) ServerByNum(ctx context.Context, tx job.Tx, num int64) (*compute.Server, error) {
	t := recordTable[compute.Server, compute.ServerFilter]{s.storeCore, servers}
	out, err := t.read(ctx, tx, servers.selects()+` WHERE t.num = $1`, num)
	if err == nil && len(out) == 0 {
		err = servers.notFound(fmt.Sprint(num))
	}
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// PruneServers removes the rows of servers that were deleted before. It returns how many.
func (s serverTables) PruneServers(ctx context.Context, before time.Time) (int, error) {
	n, err := s.execInBatches(ctx, pruneSlice, `DELETE FROM server WHERE num IN (SELECT num FROM server WHERE state = 'deleted' AND updated_at < $1 LIMIT $2)`,
		toMicros(before), pruneSlice)
	if err != nil {
		return n, fmt.Errorf("prune deleted servers: %w", err)
	}
	return n, nil
}

// HostUse is compute.Store's.
func (s serverTables) HostUse(ctx context.Context) (map[string]compute.HostUse, error) {
	out := map[string]compute.HostUse{}
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var id string
		var n compute.HostUse
		err := r.Scan(&id, &n.Servers, &n.Drifted)
		out[id] = n
		return err
	}, `SELECT host_id, COUNT(*), SUM(CASE WHEN drifted THEN 1 ELSE 0 END) FROM server WHERE host_id <> '' AND state <> 'deleted' GROUP BY host_id`)
	if err != nil {
		return nil, fmt.Errorf("count servers by host: %w", err)
	}
	return out, nil
}
