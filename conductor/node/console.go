package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// ConsoleReading is how the consoles of nodes are read.
type ConsoleReading struct {
	// Mine tells whether this conductor reads the console of a node. Of several conductors one does.
	Mine func(ctx context.Context, n *metal.Node) bool
	// Look is how often the records of nodes are looked at; 0: 2 s. What was read is stored at each storeEvery-th look.
	Look time.Duration
	// Again is how long after a failure a console is opened again; 0: 5 s.
	Again time.Duration
}

// storeEvery is at which look what was read is stored.
const storeEvery = 5

// ReadConsoles reads the serial lines of the nodes whose console is enabled, and keeps the newest part of each, until ctx ends.
func ReadConsoles(ctx context.Context, c *Conductor, p ConsoleReading) {
	p.Look, p.Again = cmp.Or(p.Look, 2*time.Second), cmp.Or(p.Again, 5*time.Second)
	k := &consoleKeeper{Conductor: c, ConsoleReading: p, open: map[string]*consoleRecording{}}
	defer k.stopAll()
	look := time.NewTicker(p.Look)
	defer look.Stop()
	for turn := 0; ; turn++ {
		if err := k.look(ctx, turn%storeEvery == 0); err != nil && ctx.Err() == nil {
			c.Log.Error("read consoles", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// consoleKeeper has the recordings of one conductor.
type consoleKeeper struct {
	*Conductor
	ConsoleReading
	open map[string]*consoleRecording
}

// look starts and stops recordings as the records of the nodes want it. store: what was read is stored.
func (k *consoleKeeper) look(ctx context.Context, store bool) error {
	wanted := map[string]bool{}
	for marker := ""; ; {
		page := record.Page{Limit: 1000, Marker: marker}
		found, err := k.Store.Nodes(ctx, nil, metal.NodeFilter{ConsoleEnabled: true}, page)
		if err != nil {
			return err
		}
		for _, n := range found {
			if wanted[n.ID] = k.Mine(ctx, n); !wanted[n.ID] {
				continue
			}
			if err := k.follow(ctx, n); err != nil {
				return fmt.Errorf("node %s: %w", n.ID, err)
			}
		}
		if len(found) < page.Limit {
			break
		}
		marker = found[len(found)-1].ID
	}
	for id, r := range k.open {
		if !wanted[id] {
			r.stop()
			delete(k.open, id)
		} else if !store {
			continue
		}
		if err := k.save(ctx, r); err != nil && ctx.Err() == nil {
			k.Log.Error("keep the console log", "node", id, "error", err)
		}
	}
	return nil
}

// follow has the console of a node read, and tells its recording what state the node is in.
func (k *consoleKeeper) follow(ctx context.Context, n *metal.Node) error {
	r := k.open[n.ID]
	if r == nil {
		reading, cancel := context.WithCancel(ctx)
		r = &consoleRecording{nodeID: n.ID, now: k.Now, cancel: cancel, ended: make(chan struct{})}
		if err := k.begin(ctx, r); err != nil {
			cancel()
			return err
		}
		k.open[n.ID] = r
		go func() {
			defer close(r.ended)
			k.read(reading, r)
		}()
	}
	r.follow(n.ProvisionState.WritesConsole())
	return nil
}

// begin goes on with the log that is stored, or stores an empty one: as long as it is there, the tenancy goes on.
func (k *consoleKeeper) begin(ctx context.Context, r *consoleRecording) error {
	return k.Store.Do(ctx, func(tx job.Tx) (err error) {
		if r.log, _, err = metal.ReadConsoleLog(ctx, k.Store, tx, r.nodeID); err != nil {
			return err
		}
		return metal.SaveConsoleLog(k.Store, tx, r.nodeID, r.log)
	})
}

// read reads the console of a node, again and again, until ctx ends.
func (k *consoleKeeper) read(ctx context.Context, r *consoleRecording) {
	for ctx.Err() == nil {
		err := k.readOnce(ctx, r)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = problem.Unavailablef("the BMC closed the console")
		}
		if r.lost(problem.Public(err)) {
			k.Log.Warn("the console cannot be read", "node", r.nodeID, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(k.Again):
		}
	}
}

func (k *consoleKeeper) readOnce(ctx context.Context, r *consoleRecording) error {
	n, err := k.Store.Node(ctx, nil, r.nodeID)
	if err != nil {
		return err
	}
	m, err := k.assemble(n, nil)
	if err != nil {
		return err
	}
	d, err := requireInterface[driver.ConsoleReader](m, "console", "console log")
	if err != nil {
		return err
	}
	return d.ReadConsole(k.guarded(ctx), n, r.opened, r)
}

// save stores what is new in a recording. If the stored log is gone, the tenancy has ended, and what was read until then goes with it.
func (k *consoleKeeper) save(ctx context.Context, r *consoleRecording) error {
	log, version, changed := r.unsaved()
	if !changed {
		return nil
	}
	ended := false
	err := k.Store.Do(ctx, func(tx job.Tx) error {
		_, found, err := metal.ReadConsoleLog(ctx, k.Store, tx, r.nodeID)
		if err != nil {
			return err
		}
		if ended = !found; ended {
			log.Parts = nil
		}
		return metal.SaveConsoleLog(k.Store, tx, r.nodeID, log)
	})
	switch {
	case problem.Is(err, problem.NotFound): // the node is gone
		return nil
	case err != nil:
		return err
	}
	r.saved(version, ended)
	return nil
}

// stopAll ends all recordings. What they hold is stored once more.
func (k *consoleKeeper) stopAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for id, r := range k.open {
		r.stop()
		if err := k.save(ctx, r); err != nil {
			k.Log.Error("keep the console log", "node", id, "error", err)
		}
	}
}
