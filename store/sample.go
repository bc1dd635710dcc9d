package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"salvor/metal"
)

// Machine is a node as far as its controller is looked for.
type Machine struct {
	ID, Name, Driver string
	DriverInfo       metal.Object // what is sealed in it stays sealed
}

// Machines reads the newest nodes that have a driver, at most limit.
func (d *Database) Machines(ctx context.Context, limit int) ([]Machine, error) {
	rows, err := d.tables.db.QueryContext(ctx, `SELECT id, name, driver, body FROM node WHERE driver <> '' ORDER BY num DESC LIMIT $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("read some nodes: %w", d.classify(err))
	}
	defer rows.Close()
	var out []Machine
	for rows.Next() {
		var m Machine
		var body string
		var in struct {
			DriverInfo metal.Object `json:"driver_info"`
		}
		if err := rows.Scan(&m.ID, &m.Name, &m.Driver, &body); err != nil {
			return nil, fmt.Errorf("read some nodes: %w", err)
		}
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			return nil, fmt.Errorf("node %s: %w", m.ID, err)
		}
		m.DriverInfo = in.DriverInfo
		out = append(out, m)
	}
	return out, d.classify(rows.Err())
}

// Clock reads the server's clock; the zero time where the database has none of its own.
func (d *Database) Clock(ctx context.Context) (time.Time, error) {
	if d.Engine() != postgresDialect.name {
		return time.Time{}, nil
	}
	var us int64
	if err := d.tables.db.QueryRowContext(ctx, `SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`).Scan(&us); err != nil {
		return time.Time{}, d.classify(err)
	}
	return fromMicros(us), nil
}
