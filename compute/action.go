package compute

import (
	"encoding/json"
	"fmt"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// Action is what somebody asks of a server. The words are our own; faces have theirs.
type Action string

const (
	Start        Action = "start"
	Stop         Action = "stop"
	Reboot       Action = "reboot" // the guest's system is asked first
	RebootHard   Action = "hard reboot"
	Pause        Action = "pause"
	Unpause      Action = "unpause"
	Suspend      Action = "suspend"
	Resume       Action = "resume"
	Rescue       Action = "rescue"
	Unrescue     Action = "unrescue"
	Rebuild      Action = "rebuild"
	LockServer   Action = "lock"
	UnlockServer Action = "unlock"
	ResetState   Action = "reset state"
	Delete       Action = "delete"
	AttachVolume Action = "attach volume"
	DetachVolume Action = "detach volume"
	// Evacuating is Servers.Evacuate; no rule allows it, its own checks do.
	Evacuating Action = "evacuate"
)

// Kinds of jobs whose subject is a server, and the one of a cluster.
const (
	JobCreate    job.Kind = "server create"
	JobDelete    job.Kind = "server delete"
	JobPower     job.Kind = "server power"
	JobRescue    job.Kind = "server rescue"
	JobUnrescue  job.Kind = "server unrescue"
	JobRebuild   job.Kind = "server rebuild"
	JobAttach    job.Kind = "server attach"
	JobDetach    job.Kind = "server detach"
	JobReconcile job.Kind = "server reconcile"
	JobWatch     job.Kind = "cluster watch"
)

// Act is an action with what comes with it; which fields count is said at each.
type Act struct {
	Action Action
	// MustBeOff is Cyclades' manner: a rescue takes only a stopped server and leaves it off, its session Prepared; start boots the
	// rescue system, and an unrescue takes only a server that is off, and puts the saved power back.
	MustBeOff bool
	// Restore makes an unrescue end with the power that the session saved; else the server runs in the end, as in Nova.
	Restore bool
	// Rescue says which image, password and keys; its Password may be empty.
	Rescue rescue.Request
	// Password, if not nil, wants a rescue password: the one in Rescue or a generated one is put there if the image can take one.
	Password *secret.Value
	// Reset is the state of ResetState: Active or Errored.
	Reset   VMState
	Rebuild *RebuildArgs
	// RebuildPassword of the rebuilt system, in clear; it goes into the job's secret.
	RebuildPassword secret.Value
	// VolumeID and Device of AttachVolume (an empty device is chosen) and DetachVolume.
	VolumeID, Device    string
	DeleteOnTermination bool
	// Reason of LockServer.
	Reason string
}

// PowerArgs are the arguments of JobPower and JobReconcile.
type PowerArgs struct {
	Power   Power `json:"power"`
	Soft    bool  `json:"soft,omitempty"`
	Restart bool  `json:"restart,omitempty"`
	Within  int   `json:"within_s,omitempty"` // of a soft power-off, in seconds
	// Why it is mended, of a reconciliation.
	Why string `json:"why,omitempty"`
	// Crashed: the guest crashed, and the start is one of a bounded number (see MaxRestarts).
	Crashed bool `json:"crashed,omitempty"`
}

// CreateArgs are the arguments of JobCreate.
type CreateArgs struct {
	// Host names the host that it must get, by UUID or name; empty: the best one.
	Host string `json:"host,omitempty"`
}

// RescueArgs are the arguments of JobRescue; image, credential and saved boot are in the session.
type RescueArgs struct {
	// Boot the rescue system at once; else the server stays off and the session becomes Prepared.
	Boot   bool `json:"boot,omitempty"`
	Within int  `json:"within_s,omitempty"` // of the soft power-off, in seconds
	// State is the server's state when the rescue was asked for. A rescue that fails before it touches the server leaves the server in that state.
	State VMState `json:"state,omitempty"`
}

// UnrescueArgs are the arguments of JobUnrescue.
type UnrescueArgs struct {
	Power   Power `json:"power"` // in the end
	Within  int   `json:"within_s,omitempty"`
	Expired bool  `json:"expired,omitempty"`
}

// RebuildArgs are the arguments of JobRebuild. The server's row has the new image already; Empty keeps what it was.
type RebuildArgs struct {
	ImageID     string            `json:"image"`
	Name        string            `json:"name,omitempty"`
	Description *string           `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	KeyName     *string           `json:"key_name,omitempty"`
	// UserData is base64; nil keeps it.
	UserData *secret.Value `json:"-"`
	Power    Power         `json:"power"` // in the end
	// Discard erases the old root disk, which else goes into quarantine.
	Discard bool `json:"discard,omitempty"`
	// Former is the server before the rebuild; nil: an earlier release made the job.
	Former *FormerSystem `json:"former,omitempty"`
}

// FormerSystem is the state of a server before a rebuild, with the image of its former root disk.
type FormerSystem struct {
	State       VMState           `json:"state"`
	ImageID     string            `json:"image"`
	DiskImageID string            `json:"disk_image"`
	Properties  map[string]string `json:"properties"`
}

// VolumeArgs are the arguments of JobAttach and JobDetach.
type VolumeArgs struct {
	VolumeID string `json:"volume"`
	Device   string `json:"device"`
}

// JobSecret is the JSON in the secret of JobCreate, JobRebuild and JobMetalRescue.
type JobSecret struct {
	Hash string `json:"hash,omitempty"` // crypt(3), of the system's first password
	// Password of a machine's rescue system, in clear: who drives the machine hashes it.
	Password string `json:"password,omitempty"`
}

// StateError tells that a server's state, its task, its lock or its session forbids an action. Faces put it in their own words.
type StateError struct {
	Server *Server
	Action Action
	// Locked: it is locked, and who asks is no administrator.
	Locked bool
	// Busy: a task goes on (Server.Task), or a job without one.
	Busy bool
	// Allowed: the state itself would allow it.
	Allowed bool
	// InRescue and NotInRescue tell of the session; Running that it must be off; NotLaunched that it never ran; Saved that its memory is saved.
	InRescue, NotInRescue, Running, NotLaunched, Saved bool
}

func (e *StateError) Error() string { return e.sentence() }

// Standstill tells why the server stands still, where that is what forbids the action.
func (e *StateError) Standstill() string {
	if e.Busy || e.Locked || e.Allowed {
		return ""
	}
	return e.Server.DescribeStandstill()
}

// Unwrap makes it a problem.Conflict.
func (e *StateError) Unwrap() error { return problem.Conflictf("%s", e.sentence()) }

func (e *StateError) sentence() string {
	what := "in state " + string(e.Server.State)
	switch {
	case e.Locked:
		what = "locked"
	case e.Busy && e.Server.Task != NoTask:
		what = "in task " + string(e.Server.Task)
	case e.Busy:
		what = "being worked on"
	case e.InRescue:
		what = "in rescue: unrescue it first"
	case e.NotInRescue:
		what = "not in rescue"
	case e.Running:
		what = "running: stop it first"
	case e.NotLaunched:
		what = "not launched yet"
	case e.Saved:
		what = "suspended: resume it first"
	}
	return JoinWords(fmt.Sprintf("cannot %s server %s while it is %s", e.Action, e.Server.ID, what), e.Standstill())
}

// NewJob makes an operation on a server.
func NewJob(id string, kind job.Kind, args, secrets any, who record.Asker) (*job.Job, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	j := &job.Job{Kind: kind, Class: job.Operation, Subject: Subject(id), RequestID: who.RequestID, User: who.User}
	if args != nil {
		j.Args = raw
	}
	if secrets != nil {
		if j.Secret, err = MarshalSecret(secrets); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// Restore restores the record of a server to its state before a rebuild that changed nothing: the server has its former root disk.
func (f *FormerSystem) Restore(srv *Server) {
	srv.ImageID = f.ImageID
	srv.ApplyProperties(f.Properties)
	srv.Disks = slices.Clone(srv.Disks)
	for i := range srv.Disks {
		if d := &srv.Disks[i]; d.BootIndex == 0 && d.VolumeID == "" {
			d.ImageID = f.DiskImageID
		}
	}
	if srv.State = f.State; f.State == Active || f.State == Stopped {
		srv.Settle(srv.Power)
	}
}

// MarshalSecret makes JSON of what a job must not show.
func MarshalSecret(v any) (secret.Value, error) {
	b, err := json.Marshal(v)
	return secret.New(string(b)), err
}
