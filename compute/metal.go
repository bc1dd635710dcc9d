package compute

import (
	"context"
	"slices"
	"strings"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// Kinds of jobs of servers that are whole machines. What is done with them is asked of the Bare Metal API, and takes its time there.
const (
	JobMetalCreate   job.Kind = "metal create"
	JobMetalDelete   job.Kind = "metal delete"
	JobMetalPower    job.Kind = "metal power"
	JobMetalRescue   job.Kind = "metal rescue"
	JobMetalUnrescue job.Kind = "metal unrescue"
	JobMetalRebuild  job.Kind = "metal rebuild"
)

// metalJobs name the job of a machine that stands for one of a guest.
var metalJobs = map[job.Kind]job.Kind{
	JobCreate: JobMetalCreate, JobDelete: JobMetalDelete, JobPower: JobMetalPower,
	JobRescue: JobMetalRescue, JobUnrescue: JobMetalUnrescue, JobRebuild: JobMetalRebuild,
}

// jobKind is the kind of job by which this server has done what a guest has done by k.
func (s *Server) jobKind(k job.Kind) job.Kind {
	if metal, ok := metalJobs[k]; ok && s.Metal() {
		return metal
	}
	return k
}

// plainKind is what a job does, whatever the server is.
func plainKind(k job.Kind) job.Kind {
	for plain, metal := range metalJobs {
		if metal == k {
			return plain
		}
	}
	return k
}

// Words of extra specs, as Nova has them.
const (
	resourceSpec   = "resources:CUSTOM_"
	traitSpec      = "trait:"
	capabilitySpec = "capabilities:"
)

// MetalNeeds are what a flavor asks of a machine.
type MetalNeeds struct {
	// Class is the custom resource class: "CUSTOM_BAREMETAL".
	Class string
	// Traits that it must have; Capabilities that must have these values.
	Traits       []string
	Capabilities map[string]string
}

// Metal tells what a flavor asks of a machine; false: it is one of virtual machines.
func (f *Flavor) Metal() (MetalNeeds, bool) {
	n := MetalNeeds{Capabilities: map[string]string{}}
	for key, value := range f.ExtraSpecs {
		if strings.HasPrefix(key, resourceSpec) && value == "1" {
			n.Class = strings.TrimPrefix(key, "resources:")
		}
		if trait, ok := strings.CutPrefix(key, traitSpec); ok && value == "required" {
			n.Traits = append(n.Traits, trait)
		}
		if capability, ok := strings.CutPrefix(key, capabilitySpec); ok {
			n.Capabilities[capability] = value
		}
	}
	slices.Sort(n.Traits)
	return n, n.Class != ""
}

// Metal tells whether the server is a whole machine.
func (s *Server) Metal() bool {
	_, is := s.Flavor.Metal()
	return is
}

// ResourceClass is how placement calls a class of machines: "baremetal" is CUSTOM_BAREMETAL.
func ResourceClass(class string) string {
	if class == "" {
		return ""
	}
	return "CUSTOM_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r + 'A' - 'a'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, class)
}

// metalImage is what a machine is rescued with: the endpoint's own choice.
const metalImage = "the machine's own"

// metalSource stands in the sessions of machines for the image.
func metalSource() *rescue.Source {
	return &rescue.Source{Name: metalImage, Kind: rescue.Kernel, Access: rescue.ByNode}
}

// checkMetalDisks holds what is asked for to what a machine can be given.
func (c *pendingCreation) checkMetalDisks() error {
	if _, metal := c.flavor.Metal(); !metal {
		return nil
	}
	for _, d := range c.Disks {
		switch {
		case d.VolumeID == "":
			return problem.Invalidf("Block Device Mapping is Invalid: a server on bare metal has the disks of its machine, and no blank ones")
		case c.image != nil:
			return problem.Invalidf("Block Device Mapping is Invalid: a server on bare metal has its system either on its machine's disk, from an image, or on a volume")
		}
	}
	return nil
}

// metalRefuses tells what a machine cannot do for anybody; nil: the rules decide.
func metalRefuses(s *Server, a *Act) error {
	if !s.Metal() {
		return nil
	}
	switch a.Action {
	case Pause, Unpause, Suspend, Resume:
		return problem.Invalidf("cannot %s server %s: it is a machine of its own, which can only be on or off", a.Action, s.ID)
	case AttachVolume, DetachVolume:
		return problem.Invalidf("cannot %s of server %s: it is a machine of its own, whose volumes are given to it when it is made", a.Action, s.ID)
	case Start, Stop, Reboot, RebootHard:
		if s.State == Rescued {
			return problem.Conflictf("cannot %s server %s while it is in rescue: its machine would boot its own disk; unrescue it first", a.Action, s.ID)
		}
	case Rescue:
		return metalRescue(s, a)
	}
	return nil
}

func metalRescue(s *Server, a *Act) error {
	r := a.Rescue
	switch {
	case a.MustBeOff:
		return problem.Invalidf("cannot rescue server %s this way: a machine boots its rescue system at once; use the Compute API", s.ID)
	case r.Image != 0 || r.ImageUUID != "":
		return problem.Invalidf("cannot rescue server %s with an image of your choice: a machine is rescued with the ramdisk that its node names; leave rescue_image_ref out", s.ID)
	case len(r.Keys) > 0:
		return problem.Invalidf("cannot rescue server %s with ssh keys: a machine's rescue system takes a password only", s.ID)
	case a.Password == nil && r.Password.Empty():
		return problem.Invalidf("cannot rescue server %s without a password: nobody could log in", s.ID)
	}
	return nil
}

// MachineSight is a server's machine as its endpoint tells it.
type MachineSight struct {
	Power Power
	// Settled: nothing goes on with it. Rescued: it runs the rescue system; else its own.
	Settled, Rescued bool
}

// ObserveMetal takes in how the machines of an endpoint are, by server; one that is gone is in error. seen are the servers from
// before the machines were read (see Seen): one that was changed since is left for the next look.
func (s *Servers) ObserveMetal(ctx context.Context, machines map[string]MachineSight, seen map[string]*Server) error {
	for id, srv := range seen {
		m, there := machines[id]
		if srv.Task != NoTask || !srv.steady() || there && srv.matches(m) {
			continue
		}
		if err := s.takeMachine(ctx, srv, m, there); err != nil {
			return err
		}
	}
	return nil
}

// matches tells whether the row says what the machine shows.
func (s *Server) matches(m MachineSight) bool {
	if !m.Settled || m.Power == PowerUnknown {
		return true
	}
	return m.Rescued == (s.State == Rescued) && (m.Rescued || m.Power == s.Power && (s.State == Active) == (m.Power == PowerOn))
}

// takeMachine writes what was seen, unless somebody works on the server, or did since it was read.
func (s *Servers) takeMachine(ctx context.Context, seen *Server, m MachineSight, there bool) error {
	err := s.change(ctx, func(tx job.Tx) error {
		open, err := s.jobs.Unended(tx, Subject(seen.ID))
		if err != nil {
			return err
		}
		srv, err := s.store.Servers().Get(ctx, tx, seen.ID)
		if err != nil {
			return err
		}
		if srv.Version != seen.Version || slices.ContainsFunc(open, func(j job.Job) bool { return j.Class != job.Ask }) {
			return nil
		}
		why := ""
		if _, err := s.edit(ctx, tx, srv.ID, func(srv *Server) { why = s.followMachine(srv, m, there) }); err != nil {
			return err
		}
		return s.note(tx, srv.ID, record.Asker{}, "contact", why)
	})
	return ignoreNotFound(err)
}

// followMachine makes the row what the machine is, and says why.
func (s *Servers) followMachine(srv *Server, m MachineSight, there bool) string {
	switch {
	case !there:
		why := "its machine is gone: no node of its endpoint is this server's"
		srv.State, srv.Power, srv.Wanted = Errored, PowerUnknown, PowerUnknown
		srv.Fault = &Fault{Code: 500, Message: why, CreatedAt: s.now().UTC()}
		return why
	case m.Rescued:
		saved := rescue.Boot{Power: savedPower(srv)}
		srv.State, srv.Power, srv.Wanted = Rescued, m.Power, m.Power
		srv.Rescue = &rescue.Session{StartedAt: s.now(), State: rescue.Ready, Image: metalImage, Source: metalSource(), Saved: saved, SavedKnown: true}
		return "found in rescue: so its endpoint says"
	}
	srv.Rescue, srv.State = nil, Stopped
	srv.Settle(m.Power)
	srv.Wanted = m.Power
	return "found " + string(m.Power) + ": so its endpoint says"
}
