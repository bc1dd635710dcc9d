package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
)

// Hosts is compute.Store's, as are the tables below.
func (s hostTables) Hosts() record.Table[compute.Host, compute.HostFilter] {
	return recordTable[compute.Host, compute.HostFilter]{s.storeCore, hosts}
}

var hosts = &recordKind[compute.Host, compute.HostFilter]{
	table: "host", word: "host", head: ofRecord[compute.Host],
	num: func(h *compute.Host) *int64 { return &h.Num },
	columns: []string{"name", "kind", "cluster_id", "zone", "boot_id", "serial", "revoked", "disabled", "forced_down",
		"used_vcpus", "used_ram", "used_disk", "node_id", "host_group", "lost"},
	fields: func(h *compute.Host) []any {
		return []any{&h.Name, &h.Kind, &h.ClusterID, &h.Zone, &h.BootID, &h.Serial, &h.Revoked, &h.Disabled, &h.ForcedDown,
			&h.UsedVCPUs, &h.UsedRAM, &h.UsedDisk, &h.NodeID, &h.Group, &h.Lost}
	},
	body: func(h *compute.Host) any {
		return &struct {
			DisabledReason, ForcedDownBy, Key *string
			LostReason, LostBy                *string
			RevokedAt, CertificateEnds        *time.Time
			LostAt                            *time.Time
			Inventory                         *compute.Inventory
			Fences                            *int64
			Fenced, Unseen                    *bool
			Unlooked                          *[]string
			Strays                            *[]string
		}{&h.DisabledReason, &h.ForcedDownBy, &h.Key, &h.LostReason, &h.LostBy, &h.RevokedAt, &h.CertificateEnds, &h.LostAt, &h.Inventory, &h.Fences, &h.Fenced, &h.Unseen, &h.Unlooked, &h.Strays}
	},
	keys: []uniqueKey[compute.Host]{
		{[]string{"cluster_id", "name"}, func(h *compute.Host) string {
			return "A host " + h.Name + " of cluster " + h.ClusterID + " already exists."
		}},
		{[]string{"node_id"}, func(h *compute.Host) string { return "Node " + h.NodeID + " is another host already." }},
	},
	narrow: func(c *whereClause, f compute.HostFilter) {
		c.equal("t.name", f.Name)
		c.rare("t.cluster_id", f.ClusterID)
		c.rare("t.node_id", f.NodeID)
		c.rare("t.host_group", f.Group)
		c.equal("t.kind", string(f.Kind))
		if f.ForcedDown {
			c.and("t.forced_down")
		}
		if f.Lost {
			c.and("t.lost")
		} else if !f.WithLost {
			c.and("NOT t.lost")
		}
	},
}

// Clusters keeps how clusters are reached.
func (s hostTables) Clusters() record.Table[compute.Cluster, compute.ClusterFilter] {
	return recordTable[compute.Cluster, compute.ClusterFilter]{s.storeCore, clusters}
}

var clusters = &recordKind[compute.Cluster, compute.ClusterFilter]{
	table: "cluster", word: "cluster", head: ofRecord[compute.Cluster],
	columns: []string{"name"},
	fields:  func(l *compute.Cluster) []any { return []any{&l.Name} },
	body: func(l *compute.Cluster) any {
		return &struct {
			URL, User, CA, Problem          *string
			Kind                            *compute.ClusterKind
			Login, AuthURL, Project, Domain *string
			Password                        plainSecret
			Insecure                        *bool
			Seen                            *int64
		}{&l.URL, &l.User, &l.CA, &l.Problem, &l.Kind, &l.Login, &l.AuthURL, &l.Project, &l.Domain, plainSecret{&l.Password}, &l.Insecure, &l.FollowedJob}
	},
	secret: func(key string) bool { return key == "Password" },
	names:  []string{"name"},
	keys: []uniqueKey[compute.Cluster]{{[]string{"name"}, func(l *compute.Cluster) string {
		return "A cluster with name " + l.Name + " already exists."
	}}},
	narrow: func(c *whereClause, f compute.ClusterFilter) { c.equal("t.name", f.Name) },
}

// JoinTokens keeps the digests of what lets hosts in.
func (s hostTables) JoinTokens() record.Table[compute.JoinToken, compute.JoinTokenFilter] {
	return recordTable[compute.JoinToken, compute.JoinTokenFilter]{s.storeCore, joinTokens}
}

var joinTokens = &recordKind[compute.JoinToken, compute.JoinTokenFilter]{
	table: "join_token", word: "join token", head: ofRecord[compute.JoinToken],
	columns: []string{"digest", "used_by", "expires_at"},
	fields: func(j *compute.JoinToken) []any {
		expires := toMicros(j.ExpiresAt)
		return []any{&j.Digest, &j.UsedBy, &expires}
	},
	body: func(j *compute.JoinToken) any {
		return &struct {
			ExpiresAt, UsedAt     *time.Time
			UsedKey, HostID, Note *string
		}{&j.ExpiresAt, &j.UsedAt, &j.UsedKey, &j.HostID, &j.Note}
	},
	keys: []uniqueKey[compute.JoinToken]{{[]string{"digest"}, func(*compute.JoinToken) string {
		return "This join token already exists."
	}}},
	narrow: func(c *whereClause, f compute.JoinTokenFilter) { c.equal("t.digest", f.Digest) },
}

// leaseSlice is how many leases one statement writes; the rest goes one by one, so that two texts are prepared.
const leaseSlice = 100

// SaveLeases is compute.LeaseStore's. A lease of a host that is gone is dropped, and one that is older than the row's takes nothing back.
// But it counts: clocks of processes differ, and whoever waits for a host's silence sees each word of it by the count.
func (s hostTables) SaveLeases(ctx context.Context, leases []compute.Lease) error {
	// Two processes that save the same hosts wait for each other in one order.
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b compute.Lease) int { return strings.Compare(a.HostID, b.HostID) })
	leases = newestLeases(leases)
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		for n := 0; err == nil && n < len(leases); {
			size := 1
			if len(leases)-n >= leaseSlice {
				size = leaseSlice
			}
			var args []any
			for _, l := range leases[n : n+size] {
				args = append(args, l.HostID, l.BootID, toMicros(l.RenewedAt), l.Renewals, l.Watchdog)
			}
			_, err = tx.exec(saveLeases[size == leaseSlice], args...)
			n += size
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("save %d leases of hosts: %w", len(leases), err)
	}
	return nil
}

// newestLeases keeps the newest lease of each host: one statement cannot write a row twice.
func newestLeases(sorted []compute.Lease) []compute.Lease {
	out := sorted[:0]
	for _, l := range sorted {
		if n := len(out); n > 0 && out[n-1].HostID == l.HostID {
			if !l.RenewedAt.Before(out[n-1].RenewedAt) {
				out[n-1] = l
			}
			continue
		}
		out = append(out, l)
	}
	return out
}

// saveLeases are the statements for a slice and for one.
var saveLeases = map[bool]string{true: saveLeasesText(leaseSlice), false: saveLeasesText(1)}

func saveLeasesText(n int) string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("($%d, $%d, CAST($%d AS BIGINT), CAST($%d AS BIGINT), $%d)", 5*i+1, 5*i+2, 5*i+3, 5*i+4, 5*i+5)
	}
	return `WITH v (host_id, boot_id, renewed_at, renewals, watchdog) AS (VALUES ` + strings.Join(rows, ", ") + `)
		INSERT INTO host_lease (host_id, boot_id, renewed_at, renewals, watchdog)
		SELECT v.host_id, v.boot_id, v.renewed_at, v.renewals, v.watchdog FROM v JOIN host h ON h.id = v.host_id WHERE TRUE
		ON CONFLICT (host_id) DO UPDATE SET boot_id = ` + ifNewer("boot_id") + `, renewed_at = ` + ifNewer("renewed_at") + `,
		watchdog = CASE WHEN excluded.watchdog = '' THEN '' ELSE ` + ifNewer("watchdog") + ` END,
		renewals = CASE WHEN excluded.renewals > host_lease.renewals THEN excluded.renewals ELSE host_lease.renewals + 1 END`
}

// ifNewer is the column of the newer lease.
func ifNewer(column string) string {
	return fmt.Sprintf("CASE WHEN host_lease.renewed_at <= excluded.renewed_at THEN excluded.%[1]s ELSE host_lease.%[1]s END", column)
}

// Leases is compute.LeaseStore's.
func (s hostTables) Leases(ctx context.Context) (map[string]compute.Lease, error) {
	out := map[string]compute.Lease{}
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var l compute.Lease
		var renewed int64
		err := r.Scan(&l.HostID, &l.BootID, &renewed, &l.Renewals, &l.Watchdog)
		l.RenewedAt = fromMicros(renewed)
		out[l.HostID] = l
		return err
	}, `SELECT host_id, boot_id, renewed_at, renewals, watchdog FROM host_lease`)
	if err != nil {
		return nil, fmt.Errorf("read the leases of hosts: %w", err)
	}
	return out, nil
}
