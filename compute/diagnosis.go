package compute

import (
	"slices"
	"strings"

	"salvor/job"
	"salvor/rescue"
)

// JobDiagnose is the kind of the jobs that diagnose servers.
const JobDiagnose job.Kind = "server diagnose"

// DiagnoseArgs are what comes with the request of a diagnosis of a server.
type DiagnoseArgs struct {
	// OnlyRead: no program of the systems on the disks runs.
	OnlyRead bool `json:"only_read,omitempty"`
}

// DiagnosisHindrance says why the disks of a server cannot be examined now; empty: they can. host may be nil.
func DiagnosisHindrance(srv *Server, host *Host, args DiagnoseArgs) string {
	switch {
	case host == nil:
		return "the server is on no host"
	case host.Kind == AgentHost && args.OnlyRead && !host.Inventory.OnlyReads:
		return "its host " + host.Name + " runs salvor of a former release, which would let programs of the disks run; update salvor there, or ask again without --only-read"
	case host.Kind != AgentHost:
		return "hosts of kind " + string(host.Kind) + " examine no disks; rescue the server and run salvor-agent examine there"
	case srv.InSession():
		return rescueHindrance(srv)
	case srv.Foreign:
		return "the server was adopted, and its disks are not salvor's; rescue it with the image salvor and ask again"
	case srv.Power != PowerOff && srv.Power != PowerCrashed:
		return "the server is " + OrNone(string(srv.Power)) + ", and only a server that is off is examined; stop it and ask again"
	case srv.Task != NoTask:
		return "the server is in task " + string(srv.Task) + "; ask again when that has ended"
	}
	for _, d := range srv.Disks {
		if d.VolumeID == "" {
			return ""
		}
	}
	return "the server has volumes only, which a host does not examine; rescue it with the image salvor and ask again"
}

// RunsOwnSystem tells whether the server is on, in its own system, and nothing changes that.
func (s *Server) RunsOwnSystem() bool {
	return s.State == Active && s.Power == PowerOn && s.Task == NoTask && !s.InSession() && !s.Foreign
}

// rescueHindrance says why the rescue system of a server cannot examine its disks; empty: it can.
func rescueHindrance(srv *Server) string {
	switch session := srv.Rescue; {
	case session.Source == nil || session.Source.Access != rescue.ByChannel:
		return "the server is in rescue by an image without salvor's agent; unrescue and stop the server and ask again"
	case session.State != rescue.Ready || srv.Power != PowerOn:
		return "its rescue system is not up: the session is " + string(session.State) + " and the server " + OrNone(string(srv.Power)) + "; ask again once it is ready"
	}
	return ""
}

// ExaminerParams are the words of a rescue kernel for a helper guest, which has no console. The self-tests of ciphers take a quarter of the boot
// where the host emulates the CPU. Mitigations guard a kernel against its programs, and a helper runs those of its ramdisk alone.
func ExaminerParams(words string) string {
	fields := slices.DeleteFunc(strings.Fields(words), func(word string) bool { return strings.HasPrefix(word, "console=") })
	return strings.Join(append(fields, "quiet", "cryptomgr.notests", "mitigations=off"), " ")
}
