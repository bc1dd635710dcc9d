// Package restored holds an operator's decision about a restored database that is held: its open jobs go on, or all of them end. It is pure: conductors
// and hosts report what they find on the machines, and a store keeps it.
package restored

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
)

// Store is the part of a store that the service needs.
type Store interface {
	job.Transactor
	job.Timeline
	metal.NodeStore
	metal.HeldStore
	// Incarnation reads the incarnation and updates the copy of this process. IncarnationIn only reads it; tx may be nil.
	Incarnation(ctx context.Context) (record.Incarnation, error)
	IncarnationIn(ctx context.Context, tx job.Tx) (record.Incarnation, error)
	// OpenJobs lists every job that has not ended.
	OpenJobs(ctx context.Context, tx job.Tx) ([]job.Job, error)
	// FreeJobs takes every open job from its owner, raises its fence by step and restarts the time limits of its action. A waiting job
	// needs a signal: it then checks its condition and waits again.
	FreeJobs(tx job.Tx, step int64) error
	Signal(tx job.Tx, subject job.Subject) error
	// RestartJob makes a free job begin at its first action.
	RestartJob(tx job.Tx, j job.Job) error
	// EndWithoutUndo has a free job end where it stands: the conductor that claims the job does and undoes none of its actions.
	EndWithoutUndo(tx job.Tx, j job.Job, cause string) error
	// Long gives the context of a transaction that may take minutes.
	Long(ctx context.Context) context.Context
	// SaveNodes does the work of SaveNode for many nodes, with a few statements. problem.Conflict if one of them was changed since it was read.
	// The nodes are not put back as they were if the transaction comes to nothing.
	SaveNodes(tx job.Tx, nodes []*metal.Node) error
	// FormerIncarnationsIn gives the earlier incarnations of the database and those of lost witnesses.
	FormerIncarnationsIn(ctx context.Context, tx job.Tx) (map[string]int64, error)
	LoseWitness(tx job.Tx, w record.LostWitness) error
	// ReleaseHold ends the hold, forgets readings, and gives the database a new id.
	ReleaseHold(tx job.Tx) error
}

// Service reports on a held database and releases it.
type Service struct {
	store   Store
	servers *service.Services
	now     func() time.Time
	// Witnesses gives the witnesses that this process sees; nil: none.
	Witnesses func() []record.SeenWitness
}

// New makes the service.
func New(store Store, servers *service.Services, now func() time.Time) *Service {
	return &Service{store: store, servers: servers, now: now}
}

// Report is the information on which an operator decides.
type Report struct {
	Incarnation record.Incarnation
	Jobs        []OpenJob
	Differences []record.Difference
	// Witnesses are those that this process sees.
	Witnesses []Witness
	// Nodes counts the nodes whose machine can be read, Read those that were read.
	Nodes, Read int
}

// picture is a view of the rows. It keeps what differs and what has an open job, but not all machines and servers.
type picture struct {
	Report
	at time.Time
	// guests are the differences of servers, by id.
	guests map[string]compute.HeldGuest
	// forgotten counts the nodes whose recorded power becomes unknown.
	forgotten int
}

// Report reads the open jobs and what differs.
func (s *Service) Report(ctx context.Context) (*Report, error) {
	p, err := s.look(ctx, nil, s.seenWitnesses())
	if err != nil {
		return nil, err
	}
	return &p.Report, nil
}

// ReadAgain drops all readings, so that conductors read every machine again.
func (s *Service) ReadAgain(ctx context.Context) error {
	return s.store.Do(ctx, func(tx job.Tx) error { return s.store.DropReadings(tx) })
}

func (s *Service) look(ctx context.Context, tx job.Tx, seen []record.SeenWitness) (*picture, error) {
	p := &picture{at: s.now(), guests: map[string]compute.HeldGuest{}}
	var err error
	if p.Incarnation, err = s.store.IncarnationIn(ctx, tx); err != nil {
		return nil, err
	}
	if p.Witnesses, err = s.compare(ctx, tx, p.Incarnation, seen); err != nil || p.Incarnation.Held == nil {
		return p, err
	}
	jobs, err := s.store.OpenJobs(ctx, tx)
	if err != nil {
		return nil, err
	}
	b := busy{names: map[string]string{}, nodes: map[string]*metal.Node{}, deleting: map[string]bool{}}
	for i := range jobs {
		b.names[jobs[i].Subject.ID] = ""
	}
	if err := s.lookAtNodes(ctx, tx, p, &b); err != nil {
		return nil, err
	}
	if err := s.lookAtServers(ctx, tx, p, &b); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.Kind == compute.JobWatch {
			continue // it only reads, and goes on as long as its cluster is there
		}
		o := OpenJob{Job: j, Name: b.names[j.Subject.ID], node: b.nodes[j.Subject.ID], deleting: b.deleting[j.Subject.ID]}
		o.decide(p.guests[j.Subject.ID])
		p.Jobs = append(p.Jobs, o)
	}
	return p, nil
}

// busy holds the subjects of open jobs.
type busy struct {
	names map[string]string
	nodes map[string]*metal.Node
	// deleting are the servers that somebody wants deleted.
	deleting map[string]bool
}

func (b *busy) name(id, name string) (isBusy bool) {
	if _, isBusy = b.names[id]; isBusy {
		b.names[id] = name
	}
	return isBusy
}

// eachNode hands all nodes with their readings to do, page by page.
func (s *Service) eachNode(ctx context.Context, tx job.Tx, do func([]*metal.Node, map[string]metal.HeldReading) error) error {
	return record.EachPage(func(p record.Page) ([]*metal.Node, error) { return s.store.Nodes(ctx, tx, metal.NodeFilter{}, p) },
		func(n *metal.Node) string { return n.ID },
		func(nodes []*metal.Node) error {
			ids := make([]string, len(nodes))
			for i, n := range nodes {
				ids[i] = n.ID
			}
			readings, err := s.store.Readings(ctx, tx, ids)
			if err == nil {
				err = do(nodes, readings)
			}
			return err
		})
}

func (s *Service) lookAtNodes(ctx context.Context, tx job.Tx, p *picture, b *busy) error {
	return s.eachNode(ctx, tx, func(nodes []*metal.Node, readings map[string]metal.HeldReading) error {
		for _, n := range nodes {
			if b.name(n.ID, n.Name) {
				b.nodes[n.ID] = n
			}
			if n.Driver != "" && n.ProvisionState != metal.Enroll {
				p.Nodes++
			}
			r, read := readings[n.ID]
			if read {
				p.Read++
				p.Differences = append(p.Differences, p.ofNode(n, r)...)
			}
			if n.PowerState != metal.PowerUnknown && p.power(n, r) == metal.PowerUnknown {
				p.forgotten++
			}
		}
		return nil
	})
}

func (s *Service) lookAtServers(ctx context.Context, tx job.Tx, p *picture, b *busy) error {
	reports, err := s.servers.HeldDatabase.HeldGuests(ctx, tx)
	if err != nil {
		return err
	}
	for id, h := range reports.Hosts {
		b.name(id, h.Name)
	}
	add := func(differences []compute.HeldGuest) {
		for _, g := range differences {
			p.guests[g.Subject.ID] = g
			p.Differences = append(p.Differences, g.Difference)
		}
	}
	add(reports.ForcedDown())
	err = s.servers.HeldDatabase.EachHeld(ctx, tx, func(servers []*compute.Server) error {
		for _, srv := range servers {
			if b.name(srv.ID, srv.Name) && srv.Task == compute.Deleting {
				b.deleting[srv.ID] = true
			}
		}
		add(reports.Compare(servers))
		return nil
	})
	if err == nil {
		add(reports.Unknown())
	}
	return err
}

// ofNode gives the differences of a node, each with the effect of the release.
func (p *picture) ofNode(n *metal.Node, r metal.HeldReading) []record.Difference {
	out := n.HeldDifferences(r)
	for i := range out {
		d := &out[i]
		switch {
		case d.What == metal.FactPower && p.power(n, r) == metal.PowerUnknown:
			d.Release = "becomes unknown: power sync records what it finds, and leaves the machine as it is"
		case d.What == metal.FactPower:
			d.Release = "recorded as found: the machine is left as it is"
		case d.Unreadable != "":
			d.Release = "nothing: the record stays as it is"
		default:
			d.Release = "nothing: it is shown, and left as it is"
		}
	}
	return out
}
