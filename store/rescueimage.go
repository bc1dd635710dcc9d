package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// RescueImages is compute.Store's. Removed ones stay, for whoever asks what a session booted.
func (s serverTables) RescueImages() record.Table[rescue.Image, rescue.ImageFilter] {
	return recordTable[rescue.Image, rescue.ImageFilter]{s.storeCore, rescueImages}
}

var rescueImages = &recordKind[rescue.Image, rescue.ImageFilter]{
	table: "rescue_image", word: "rescue image", head: ofRecord[rescue.Image],
	num:     func(i *rescue.Image) *int64 { return &i.Num },
	columns: []string{"name", "deleted", "held_location", "standing"},
	fields: func(i *rescue.Image) []any {
		gone, location, standing := i.Deleted(), "", ""
		if !gone {
			location = i.Source.Location
			if i.Default {
				standing = "default"
			}
		}
		return []any{&i.Name, &gone, &location, &standing}
	},
	body: func(i *rescue.Image) any {
		return &struct {
			Default                              *bool
			DeletedAt                            *time.Time
			OS, OSFamily, TargetOS, TargetFamily *string
			Source                               *rescue.Source
		}{&i.Default, &i.DeletedAt, &i.OS, &i.OSFamily, &i.TargetOS, &i.TargetOSFamily, &i.Source}
	},
	keys: []uniqueKey[rescue.Image]{
		{[]string{"held_location"}, func(i *rescue.Image) string {
			return "A rescue image with location " + i.Source.Location + " already exists."
		}},
		{[]string{"standing"}, func(*rescue.Image) string { return "Another rescue image is the default already." }},
	},
	narrow: func(c *whereClause, f rescue.ImageFilter) {
		if !f.Deleted {
			c.and("NOT t.deleted")
		}
		if f.Num != 0 {
			c.and("t.num = " + c.arg(f.Num))
		}
		c.equal("t.name", f.Name)
		if f.Default {
			c.and("t.standing = 'default'")
		}
	},
}

// UseRescueImage is compute.Store's. What it writes says nothing new, but it holds the row against every other
// transaction that writes it, and fails one of PostgreSQL whose look is older than a removal.
func (s serverTables) UseRescueImage(t job.Tx, num int64) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	rows, err := tx.exec(`UPDATE rescue_image SET version = version WHERE num = $1 AND NOT deleted`, num)
	switch {
	case err != nil:
		return fmt.Errorf("hold rescue image %d: %w", num, err)
	case rows == 0:
		return problem.NotFoundf("Rescue image %d could not be found.", num)
	}
	return nil
}

// RescueImageUse is compute.Store's.
func (s serverTables) RescueImageUse(ctx context.Context, tx job.Tx) (map[int64]int, error) {
	out := map[int64]int{}
	err := s.read(ctx, tx, func(r *sql.Rows) error {
		var num int64
		var n int
		err := r.Scan(&num, &n)
		out[num] = n
		return err
	}, `SELECT rescue_image, COUNT(*) FROM server WHERE rescue_image > 0 GROUP BY rescue_image`)
	if err != nil {
		return nil, fmt.Errorf("count the servers in rescue by image: %w", err)
	}
	return out, nil
}
