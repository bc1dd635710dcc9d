package compute

import (
	"slices"
	"strings"

	"salvor/job"
	"salvor/problem"
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

// JobKind is the kind of job by which this server has done what a guest has done by k.
func (s *Server) JobKind(k job.Kind) job.Kind {
	if metal, ok := metalJobs[k]; ok && s.Metal() {
		return metal
	}
	return k
}

// PlainKind is what a job does, whatever the server is.
func PlainKind(k job.Kind) job.Kind {
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

// MetalImage is what a machine is rescued with: the endpoint's own choice.
const MetalImage = "the machine's own"

// MetalSource stands in the sessions of machines for the image.
func MetalSource() *rescue.Source {
	return &rescue.Source{Name: MetalImage, Kind: rescue.Kernel, Access: rescue.ByNode}
}

// MetalRefusal tells what a machine cannot do for anybody; nil: the rules decide.
func MetalRefusal(s *Server, a *Act) error {
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

// MatchesMachine tells whether the row says what the machine shows.
func (s *Server) MatchesMachine(m MachineSight) bool {
	if !m.Settled || m.Power == PowerUnknown {
		return true
	}
	return m.Rescued == (s.State == Rescued) && (m.Rescued || m.Power == s.Power && (s.State == Active) == (m.Power == PowerOn))
}
