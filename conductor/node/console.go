package node

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/google/uuid"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// ConsoleReading is how a conductor reads the consoles of nodes.
type ConsoleReading struct {
	// ReadsHere tells whether this conductor reads the console of a node. Of several conductors one does.
	ReadsHere func(n *metal.Node) bool
	// PollInterval is how often the records of nodes are read; 0: 2 s. What consoles said is stored at every fifth reading.
	PollInterval time.Duration
	// RetryDelay is how long after a failure a console is opened again; 0: 5 s. It doubles with each failure, up to maxConsoleDelay.
	RetryDelay time.Duration
}

const (
	// storeEvery is how many readings of the records lie between two writes of what consoles said.
	storeEvery = 5
	// maxConsoleDelay bounds the time until a console is opened again. Where the machine has none, it is this long at once.
	maxConsoleDelay = 5 * time.Minute
	// closeConsoles bounds the wait for the end of all sessions.
	closeConsoles = 2 * time.Second
)

// ReadConsoles reads the serial lines of the nodes whose console is enabled, and stores the newest text of each, until ctx ends.
func ReadConsoles(ctx context.Context, c *Conductor, p ConsoleReading) {
	p.PollInterval, p.RetryDelay = cmp.Or(p.PollInterval, 2*time.Second), cmp.Or(p.RetryDelay, 5*time.Second)
	k := &consoleRecorder{Conductor: c, ConsoleReading: p, recordings: map[string]*consoleRecording{}}
	defer k.closeAll()
	ticker := time.NewTicker(p.PollInterval)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		if err := k.poll(ctx, turn%storeEvery == 0); err != nil && ctx.Err() == nil {
			c.Log.Error("read consoles", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// consoleRecorder has the recordings of one conductor, by the id of the node.
type consoleRecorder struct {
	*Conductor
	ConsoleReading
	recordings map[string]*consoleRecording
}

// poll opens and closes recordings as the records of the nodes want it. If store is true, it stores what the consoles said.
func (k *consoleRecorder) poll(ctx context.Context, store bool) error {
	wanted := map[string]*metal.Node{}
	for marker := ""; ; {
		page := record.Page{Limit: 1000, Marker: marker}
		found, err := k.Store.Nodes(ctx, nil, metal.NodeFilter{ConsoleEnabled: true}, page)
		if err != nil {
			return err
		}
		for _, n := range found {
			if k.ReadsHere(n) {
				wanted[n.ID] = n
			}
		}
		if len(found) < page.Limit {
			break
		}
		marker = found[len(found)-1].ID
	}
	for id, r := range k.recordings {
		n := wanted[id]
		switch {
		case r.hasEnded():
			delete(k.recordings, id)
			k.save(ctx, r)
		case n == nil || !r.reads(n): // another BMC may be another machine
			r.cancel()
			delete(wanted, id) // until it has ended
		case store:
			k.save(ctx, r)
		}
	}
	for id, n := range wanted {
		if r := k.recordings[id]; r != nil {
			r.follow(n)
		} else {
			k.open(ctx, n)
		}
	}
	return nil
}

// open begins to read the console of a node, unless its stored log cannot be read.
func (k *consoleRecorder) open(ctx context.Context, n *metal.Node) {
	reading, cancel := context.WithCancel(ctx)
	r := &consoleRecording{nodeID: n.ID, driver: n.Driver, console: n.Interfaces["console"], driverInfo: n.DriverInfo, now: k.Now, cancel: cancel, ended: make(chan struct{})}
	err := k.Store.Do(ctx, func(tx job.Tx) error {
		log, found, err := metal.ReadConsoleLog(ctx, k.Store, tx, n.ID)
		if err == nil && !found {
			log = metal.ConsoleLog{Tenancy: uuid.NewString()}
			err = metal.SaveConsoleLog(k.Store, tx, n.ID, log)
		}
		r.log = log
		return err
	})
	if err != nil {
		cancel()
		if !problem.Is(err, problem.NotFound) && ctx.Err() == nil {
			k.Log.Error("read the console log", "node", n.ID, "error", err)
		}
		return
	}
	k.recordings[n.ID] = r
	r.follow(n)
	go func() {
		defer close(r.ended)
		k.read(reading, r)
	}()
}

// read reads the console of a node, again and again, until ctx ends.
func (k *consoleRecorder) read(ctx context.Context, r *consoleRecording) {
	delay := k.RetryDelay
	for ctx.Err() == nil {
		began := k.Now()
		err := k.readOnce(ctx, r)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = problem.Unavailablef("the BMC closed the console")
		}
		if r.closed(problem.Public(err)) {
			k.Log.Warn("the console cannot be read", "node", r.nodeID, "error", err)
		}
		switch {
		case problem.Is(err, problem.Unsupported), problem.Is(err, problem.Invalid):
			delay = maxConsoleDelay
		case k.Now().Sub(began) > maxConsoleDelay:
			delay = k.RetryDelay
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxConsoleDelay)
	}
}

func (k *consoleRecorder) readOnce(ctx context.Context, r *consoleRecording) error {
	n, err := k.Store.Node(ctx, nil, r.nodeID)
	if err != nil {
		return err
	}
	if !r.reads(n) {
		return problem.Unavailablef("the node was changed")
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

// save stores what is new in a recording. If the stored log is gone or another one, the tenancy has ended, and the recording drops what was read until then.
func (k *consoleRecorder) save(ctx context.Context, r *consoleRecording) {
	log, version, changed := r.unsaved()
	if !changed {
		return
	}
	var kept metal.ConsoleLog
	err := k.Store.Do(ctx, func(tx job.Tx) error {
		stored, found, err := metal.ReadConsoleLog(ctx, k.Store, tx, r.nodeID)
		if err != nil {
			return err
		}
		if kept = log; !found {
			kept = metal.ConsoleLog{Tenancy: uuid.NewString(), Problem: log.Problem}
		} else if stored.Tenancy != log.Tenancy {
			kept = metal.ConsoleLog{Tenancy: stored.Tenancy, Problem: log.Problem, Parts: stored.Parts}
		}
		return metal.SaveConsoleLog(k.Store, tx, r.nodeID, kept)
	})
	switch {
	case err == nil:
		r.saved(version, kept)
	case !problem.Is(err, problem.NotFound) && ctx.Err() == nil: // NotFound: the node is gone
		k.Log.Error("store the console log", "node", r.nodeID, "error", err)
	}
}

// closeAll ends all recordings, and stores what they hold once more.
func (k *consoleRecorder) closeAll() {
	for _, r := range k.recordings {
		r.cancel()
	}
	late := time.After(closeConsoles)
	for _, r := range k.recordings {
		select {
		case <-r.ended:
			continue
		case <-late:
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeConsoles)
	defer cancel()
	for _, r := range k.recordings {
		k.save(ctx, r)
	}
}

// reads tells whether the recording reads the console that the node has now.
func (r *consoleRecording) reads(n *metal.Node) bool {
	return r.driver == n.Driver && r.console == n.Interfaces["console"] && maps.EqualFunc(r.driverInfo, n.DriverInfo, equalInfo)
}
