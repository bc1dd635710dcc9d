package store

import (
	"time"

	"salvor/compute"
	"salvor/record"
)

// Volumes is compute.Store's: disks of storage systems.
func (s serverTables) Volumes() record.Table[compute.Volume, compute.VolumeFilter] {
	return recordTable[compute.Volume, compute.VolumeFilter]{s.storeCore, volumes}
}

var volumes = &recordKind[compute.Volume, compute.VolumeFilter]{
	table: "volume", word: "volume", head: ofRecord[compute.Volume],
	num:     func(v *compute.Volume) *int64 { return &v.Num },
	columns: []string{"name", "project", "user_name", "status", "size", "bootable", "server_id", "iqn", "lun"},
	fields: func(v *compute.Volume) []any {
		return []any{&v.Name, &v.Project, &v.User, &v.Status, &v.SizeGiB, &v.Bootable, &v.ServerID, &v.IQN, &v.LUN}
	},
	body: func(v *compute.Volume) any {
		return &struct {
			Description, Portal, CHAPUser, Device *string
			CHAPPassword                          plainSecret
			Metadata, ImageProperties             *map[string]string
			AttachedAt                            *time.Time
		}{&v.Description, &v.Portal, &v.CHAPUser, &v.Device, plainSecret{&v.CHAPPassword}, &v.Metadata, &v.ImageProperties, &v.AttachedAt}
	},
	secret: func(key string) bool { return key == "CHAPPassword" },
	sort:   map[string]string{"volume_type": "num", "display_name": "name"},
	keys: []uniqueKey[compute.Volume]{{[]string{"iqn", "lun"}, func(v *compute.Volume) string {
		return "A volume for this LUN of " + v.IQN + " already exists."
	}}},
	mine: func(c *whereClause, f compute.VolumeFilter) string { return c.mine("m.project = %s", f.Project) },
	narrow: func(c *whereClause, f compute.VolumeFilter) {
		c.equal("t.project", f.Project)
		c.equal("t.name", f.Name)
		c.rare("t.server_id", f.ServerID)
		c.equal("t.iqn", f.IQN)
		c.equal("t.status", string(f.Status))
	},
}
