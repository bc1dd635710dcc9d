// Package restored holds an operator's decisions about a restored database that is held: which open jobs continue, and which
// findings on the machines become the record. It is pure: a store keeps the choices, conductors and hosts report their findings.
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
	HeldChoices(ctx context.Context, tx job.Tx) ([]record.HeldChoice, error)
	SaveHeldChoice(tx job.Tx, c record.HeldChoice) error
	// FreeJobs takes every open job from its owner, raises its fence by step and restarts the time limits of its action. A waiting job
	// needs a signal: it then checks its condition and waits again.
	FreeJobs(tx job.Tx, step int64) error
	Signal(tx job.Tx, subject job.Subject) error
	// RestartJob makes a free job begin at its first action. DropJob ends it with a problem and undoes nothing.
	RestartJob(tx job.Tx, j job.Job) error
	DropJob(tx job.Tx, j job.Job, cause error) error
	// Long gives the context of a transaction that may take minutes.
	Long(ctx context.Context) context.Context
	// SaveNodes does the work of SaveNode for many nodes, with a few statements. problem.Conflict if one of them was changed since it was read.
	// The nodes are not put back as they were if the transaction comes to nothing.
	SaveNodes(tx job.Tx, nodes []*metal.Node) error
	// FormerIncarnationsIn gives the earlier incarnations of the database and those of lost witnesses.
	FormerIncarnationsIn(ctx context.Context, tx job.Tx) (map[string]int64, error)
	LoseWitness(tx job.Tx, w record.LostWitness) error
	LostWitnesses(ctx context.Context, tx job.Tx, limit int) ([]record.LostWitness, error)
	// ReleaseHold ends the hold, forgets readings and choices, and gives the database a new id.
	ReleaseHold(tx job.Tx) error
}

// Service reports on a held database, keeps the choices and releases the database.
type Service struct {
	store   Store
	nodes   *metal.Nodes
	servers *service.Services
	now     func() time.Time
	// Witnesses gives the witnesses that this process sees; nil: none.
	Witnesses func() []record.SeenWitness
}

// New makes the service.
func New(store Store, nodes *metal.Nodes, servers *service.Services, now func() time.Time) *Service {
	return &Service{store: store, nodes: nodes, servers: servers, now: now}
}

// Report is the information on which an operator decides.
type Report struct {
	Incarnation record.Incarnation
	Jobs        []OpenJob
	Differences []record.Difference
	// Witnesses are those that this process sees. Lost are the newest that were declared lost.
	Witnesses []Witness
	Lost      []record.LostWitness
	// Nodes counts the nodes whose machine can be read, Read those that were read.
	Nodes, Read int
}

// OpenJob is a job that the release needs a choice for.
type OpenJob struct {
	job.Job
	// Name is that of the subject; empty: it has none.
	Name string
	// Choice that was made; empty: none yet.
	Choice string
	// Effects holds the effect of each choice that the job has. A choice without an entry is not possible.
	Effects map[string]string
	node    *metal.Node
	guest   compute.HeldGuest
}

// picture is a view of the rows. It keeps what differs and what has an open job, but not all machines and servers.
type picture struct {
	Report
	at      time.Time
	choices map[string]string
	// guests are the differences of servers, by id.
	guests map[string]compute.HeldGuest
	// others are open jobs that need no choice.
	others []job.Job
	// forgotten counts the nodes whose recorded power becomes unknown.
	forgotten int
}

// Report reads the open jobs and what differs.
func (s *Service) Report(ctx context.Context) (*Report, error) {
	p, err := s.look(ctx, nil)
	if err == nil {
		p.Witnesses, err = s.witnesses(ctx, nil, p.Incarnation)
	}
	if err == nil {
		p.Lost, err = s.store.LostWitnesses(ctx, nil, lostShown)
	}
	if err != nil {
		return nil, err
	}
	return &p.Report, nil
}

func key(kind, id string) string { return kind + " " + id }

func (s *Service) look(ctx context.Context, tx job.Tx) (*picture, error) {
	p := &picture{at: s.now(), choices: map[string]string{}, guests: map[string]compute.HeldGuest{}}
	var err error
	if p.Incarnation, err = s.store.IncarnationIn(ctx, tx); err != nil || p.Incarnation.Held == nil {
		return p, err
	}
	choices, err := s.store.HeldChoices(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, c := range choices {
		p.choices[key(c.Kind, c.ID)] = c.Choice
	}
	jobs, err := s.store.OpenJobs(ctx, tx)
	if err != nil {
		return nil, err
	}
	b := busy{names: map[string]string{}, nodes: map[string]*metal.Node{}}
	for i := range jobs {
		b.names[jobs[i].Subject.ID] = ""
	}
	if err := s.lookAtNodes(ctx, tx, p, &b); err != nil {
		return nil, err
	}
	if err := s.lookAtServers(ctx, tx, p, &b); err != nil {
		return nil, err
	}
	p.sort(jobs, &b)
	return p, nil
}

// busy holds the subjects of open jobs.
type busy struct {
	names map[string]string
	nodes map[string]*metal.Node
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
			b.name(srv.ID, srv.Name)
		}
		add(reports.Compare(servers))
		return nil
	})
	if err == nil {
		add(reports.Unknown())
	}
	return err
}

// sort separates the jobs that need a choice from the others.
func (p *picture) sort(jobs []job.Job, b *busy) {
	for _, j := range jobs {
		if j.Kind == compute.JobWatch || j.Class == job.Ask && j.Subject.Kind == job.Node("").Kind {
			p.others = append(p.others, j) // these jobs only read
			continue
		}
		o := OpenJob{Job: j, Name: b.names[j.Subject.ID], Choice: p.choices[key(record.ChoiceOfJob, j.ID)], node: b.nodes[j.Subject.ID], guest: p.guests[j.Subject.ID]}
		o.Effects = o.effects()
		p.Jobs = append(p.Jobs, o)
	}
}

// ofNode gives the differences of a node, each with the effect of the release.
func (p *picture) ofNode(n *metal.Node, r metal.HeldReading) []record.Difference {
	out := n.HeldDifferences(r)
	for i := range out {
		d := &out[i]
		d.Release = "nothing: it is told, and left as it is"
		switch {
		case d.What == metal.FactPower && p.power(n, r) == metal.PowerUnknown:
			d.Release = "becomes unknown: power sync records what it finds, and leaves the machine as it is"
			d.Next = []record.Command{enforce(n)}
		case d.Unreadable != "" && d.What != metal.FactPower:
			d.Release = "nothing: the record stays as it is"
		case d.What == metal.FactPower && p.choices[key(record.ChoiceOfNode, n.ID)] == record.EnforcePower:
			d.Release = "the recorded power stays, and power sync switches the machine to it"
			d.Next = []record.Command{{Run: "salvor db restored --take " + handle(n), For: "leave the machine as it is"}}
		case d.What == metal.FactPower:
			d.Release = "recorded as found: the machine is left as it is"
			d.Next = []record.Command{enforce(n)}
		}
	}
	return out
}

func enforce(n *metal.Node) record.Command {
	return record.Command{Run: "salvor db restored --enforce " + handle(n), For: "have power sync switch the machine to the recorded power"}
}

func handle(n *metal.Node) string {
	if n.Name != "" {
		return n.Name
	}
	return n.ID
}
