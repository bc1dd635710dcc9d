package metal

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/job"
	"salvor/problem"
)

// ConductorSilence is how long a conductor's counter may stand still before it counts as dead.
const ConductorSilence = 7 * time.Second

// newcomerSilence is how long the counter of a conductor may stand still that was never seen to
// move: its row may be all that is left of it. A living one moves each second.
const newcomerSilence = 4 * time.Second

// Directory knows which conductors live and what they offer. It times the silence
// of their counters on its own clock, so no two clocks are ever compared.
type Directory struct {
	leases  job.Leases
	now     func() time.Time // monotonic
	silence time.Duration

	// turn is held by who reads the rows, which takes as long as the store does: those who want only what was read last do not wait for it.
	turn chan struct{}

	mu    sync.Mutex
	read  time.Time
	rows  []seenConductor
	fresh time.Duration

	// drivers is what drivers were told last, of which conductors and for how manieth time.
	drivers    map[string]DriverInfo
	driversOf  []conductorInfo
	generation int64
}

// conductorInfo is all of a conductor that what drivers say depends on.
type conductorInfo struct {
	id, incarnation string
	alive           bool
}

type seenConductor struct {
	job.Conductor
	catalog Catalog
	moved   time.Time // when the counter last changed here
	proven  bool      // it was seen to move
}

// NewDirectory makes a directory that reads the rows at most once every fresh. A
// conductor whose counter stands still for silence is dead; 0 where a lock on the
// store lets only one live, which then needs no counter.
func NewDirectory(leases job.Leases, now func() time.Time, fresh, silence time.Duration) *Directory {
	return &Directory{leases: leases, now: now, fresh: fresh, silence: silence, turn: make(chan struct{}, 1)}
}

// LiveConductor is a conductor with whether it lives.
type LiveConductor struct {
	job.Conductor
	Catalog Catalog
	Alive   bool
}

// Conductors lists all of them, by host name.
func (d *Directory) Conductors(ctx context.Context) ([]LiveConductor, error) {
	if err := d.refresh(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]LiveConductor, len(d.rows))
	for i, r := range d.rows {
		out[i] = LiveConductor{Conductor: r.Conductor, Catalog: r.catalog, Alive: d.alive(r)}
	}
	return out, nil
}

func (d *Directory) alive(r seenConductor) bool {
	limit := d.silence
	if !r.proven {
		limit = min(limit, newcomerSilence)
	}
	return d.silence == 0 || d.now().Sub(r.moved) < limit
}

// Watch reads the rows each second until ctx ends: who is asked only now and then would take the
// last words of one that died meanwhile for its newest.
func (d *Directory) Watch(ctx context.Context, onError func(error)) {
	turn := time.NewTicker(time.Second)
	defer turn.Stop()
	for {
		if _, err := d.Conductors(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
	}
}

// Staffed refuses work for a group without a live conductor: nobody would do it. It goes by what was
// read last and asks nobody, so that it may be asked within a transaction.
func (d *Directory) Staffed(group string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.rows {
		if d.alive(r) && slices.Contains(r.Groups, strings.ToLower(group)) {
			return nil
		}
	}
	return problem.Unavailablef("no conductor of conductor group %q lives, so nobody would do this; start one, and ask again", group)
}

// ReadsConsole tells whether this conductor is the one that reads the node's console: of the live ones of its group that have its driver, the one
// whose id and the node's have the highest hash. It goes by what was read last. If a conductor dies or comes, the consoles of few nodes move.
func (d *Directory) ReadsConsole(conductorID string, n *Node) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	best, highest := "", uint64(0)
	for _, r := range d.rows {
		if _, able := r.catalog.Driver(n.Driver); !able || !d.alive(r) || !slices.Contains(r.Groups, strings.ToLower(n.ConductorGroup)) {
			continue
		}
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(r.ID + "\x00" + n.ID))
		if hash := sum.Sum64(); best == "" || hash > highest {
			best, highest = r.ID, hash
		}
	}
	return best == conductorID && best != ""
}

// Drivers gives what any conductor, alive or not, says of each hardware type: a node's
// defaults stay what they are while its conductor restarts. The number changes with what
// is said; the map must not be changed.
func (d *Directory) Drivers(ctx context.Context) (map[string]DriverInfo, int64, error) {
	if err := d.refresh(ctx); err != nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	same := d.drivers != nil && len(d.driversOf) == len(d.rows)
	for i := 0; same && i < len(d.rows); i++ {
		same = d.driversOf[i] == conductorInfo{d.rows[i].ID, d.rows[i].Incarnation, d.alive(d.rows[i])}
	}
	if same {
		return d.drivers, d.generation, nil
	}
	drivers, of := map[string]DriverInfo{}, make([]conductorInfo, len(d.rows))
	for i, r := range d.rows {
		of[i] = conductorInfo{r.ID, r.Incarnation, d.alive(r)}
		for _, one := range r.catalog.Drivers {
			if _, ok := drivers[one.Name]; !ok || of[i].alive {
				drivers[one.Name] = one
			}
		}
	}
	d.drivers, d.driversOf, d.generation = drivers, of, d.generation+1
	return d.drivers, d.generation, nil
}

// lookTime bounds a reading of the rows. One that takes longer was sent to a store that is silent.
const lookTime = 2 * time.Second

// known tells whether the rows were just read.
func (d *Directory) known() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.read.IsZero() && d.now().Sub(d.read) < d.fresh && len(d.rows) > 0
}

// refresh reads the rows again unless that was just done.
func (d *Directory) refresh(ctx context.Context) error {
	if d.known() {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, lookTime)
	defer done()
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return problem.Unavailablef("the conductors could not be read: the database does not answer")
	}
	if d.known() {
		return nil // by who had the turn before
	}
	now := d.now() // what is read is as old as the question, however late the answer comes
	rows, err := d.leases.Conductors(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := make([]seenConductor, len(rows))
	for i, row := range rows {
		next[i] = seenConductor{Conductor: row, moved: now}
		old := slices.IndexFunc(d.rows, func(o seenConductor) bool { return o.ID == row.ID && o.Incarnation == row.Incarnation })
		if old < 0 {
			if err := json.Unmarshal(row.Description, &next[i].catalog); err != nil {
				return err
			}
			continue
		}
		next[i].catalog = d.rows[old].catalog
		next[i].proven = true
		if d.rows[old].Counter == row.Counter {
			next[i].moved, next[i].proven = d.rows[old].moved, d.rows[old].proven
		}
	}
	d.rows, d.read = next, now
	return nil
}

// Catalog joins what the live conductors of a group offer. A group without one has
// an empty catalog.
func (d *Directory) Catalog(ctx context.Context, group string) (Catalog, error) {
	all, err := d.Conductors(ctx)
	if err != nil {
		return Catalog{}, err
	}
	var c Catalog
	for _, one := range all {
		if !one.Alive || !slices.Contains(one.Groups, strings.ToLower(group)) {
			continue
		}
		for _, drv := range one.Catalog.Drivers {
			if _, ok := c.Driver(drv.Name); !ok {
				c.Drivers = append(c.Drivers, drv)
			}
		}
	}
	return c, nil
}

// Driver describes the node's hardware type; Unavailable if no live conductor of its group offers it.
func (d *Directory) Driver(ctx context.Context, n *Node) (DriverInfo, error) {
	c, err := d.Catalog(ctx, n.ConductorGroup)
	if err != nil {
		return DriverInfo{}, err
	}
	info, ok := c.Driver(n.Driver)
	if !ok {
		return DriverInfo{}, problem.Unavailablef("no live conductor of conductor group %q offers the driver %s; start one, or enable the driver in [DEFAULT]enabled_hardware_types", n.ConductorGroup, n.Driver)
	}
	return info, nil
}
