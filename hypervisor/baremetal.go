package hypervisor

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/secret"
)

// Provision is how far a machine is, in the words of the Bare Metal API.
type Provision string

const (
	Available     Provision = "available"
	Deploying     Provision = "deploying"
	DeployWait    Provision = "wait call-back"
	DeployHold    Provision = "deploy hold"
	DeployFailed  Provision = "deploy failed"
	InUse         Provision = "active"
	Undeploying   Provision = "deleting"
	UndeployError Provision = "error"
	Cleaning      Provision = "cleaning"
	CleanWait     Provision = "clean wait"
	CleanHold     Provision = "clean hold"
	CleanFailed   Provision = "clean failed"
	Rescuing      Provision = "rescuing"
	RescueWait    Provision = "rescue wait"
	InRescue      Provision = "rescue"
	RescueFailed  Provision = "rescue failed"
	Unrescuing    Provision = "unrescuing"
	UnrescueFail  Provision = "unrescue failed"
)

// Verb is what a machine is asked to become.
type Verb string

const (
	Deploy   Verb = "active"
	Redeploy Verb = "rebuild"
	Undeploy Verb = "deleted"
	Rescue   Verb = "rescue"
	Unrescue Verb = "unrescue"
	Abort    Verb = "abort"
)

// Node is a node of the Bare Metal API.
type Node struct {
	ID, Name string
	// Class as placement has it: "CUSTOM_BAREMETAL".
	Class        string
	Traits       []string
	Capabilities map[string]string
	// ServerID is its instance; empty: none.
	ServerID  string
	Provision Provision
	Power     compute.Power
	// Switching: a change of its power is on its way.
	Switching   bool
	LastError   string
	Maintenance bool
	// CPUs, RAM in MiB and Disk in GiB, as far as its record says.
	CPUs, RAM, Disk int
	// TakesVIFs: its network interface wants to be told what it is plugged into.
	TakesVIFs bool
}

// Free tells whether nobody has it and it can be deployed.
func (m *Node) Free() bool { return m.Provision == Available && m.ServerID == "" && !m.Maintenance }

// System is what a machine is to run from its own disk; the zero System boots from its volumes.
type System struct {
	URL string
	// Digest is "sha256:" and hexadecimal digits; Format "raw" or "qcow2".
	Digest, Format string
	// Disk is the size of the root disk in GiB; 0: whatever there is.
	Disk int
	// Name of the server, for people.
	Name string
	// Capabilities that were asked for.
	Capabilities map[string]string
}

// NodeRequest goes with a Verb.
type NodeRequest struct {
	// Password of Rescue, as it is.
	Password secret.Value
	// Drive are the files of a config drive by path, of Deploy and Redeploy; empty: none.
	Drive map[string][]byte
}

// Connector is a name by which storage knows a machine: Type "iqn", "ip", "mac", "wwpn" or "wwnn".
type Connector struct{ Type, ID string }

// Target is a volume that a machine boots from, or has.
type Target struct {
	VolumeID  string
	BootIndex int
	Portal    string
	IQN       string
	LUN       int
	User      string // of CHAP; empty: none
	Password  secret.Value
}

// BareMetal drives machines of an endpoint of the Bare Metal API. Nothing that it is asked for has ended when it answers, but is on its
// way: who asked looks again. A machine that is locked just now, or in another state than the action needs, is problem.Conflict; an
// endpoint that does not answer problem.Unavailable.
type BareMetal interface {
	// Nodes lists all.
	Nodes(ctx context.Context) ([]Node, error)
	// Node finds a server's; problem.NotFound if it has none.
	Node(ctx context.Context, serverID string) (*Node, error)
	// Claim makes a machine a server's; one that is somebody's is problem.Conflict.
	Claim(ctx context.Context, id, serverID string) error
	// Release takes the claim, and what was described, off a machine that was never deployed, or is no more; one that is not the
	// server's is left alone.
	Release(ctx context.Context, id, serverID string) error
	// Describe says what a claimed machine is to run.
	Describe(ctx context.Context, id string, s System) error
	// MACs are those of its NICs, those that boot first.
	MACs(ctx context.Context, id string) ([]string, error)
	// Plug attaches VIFs that are not attached yet; Unplug takes them off.
	Plug(ctx context.Context, id string, vifs []string) error
	Unplug(ctx context.Context, id string, vifs []string) error
	// Connectors lists the names by which storage knows it.
	Connectors(ctx context.Context, id string) ([]Connector, error)
	// SetTargets gives it volumes, those of the same id anew. ClearTargets takes those with these ids away; none is no error.
	SetTargets(ctx context.Context, id string, targets []Target) error
	ClearTargets(ctx context.Context, id string, volumes []string) error
	// Validate tells what it lacks to be deployed; problem.Conflict with the reasons.
	Validate(ctx context.Context, id string, volumes bool) error
	// Ask begins a change of its provision state. If the endpoint has no room for more work now, nothing has begun, and the error is
	// problem.Unavailable with problem.RetryAfter. So is that of Switch.
	Ask(ctx context.Context, id string, v Verb, w NodeRequest) error
	// Switch begins a change of its power; soft asks its system, which has within for it.
	Switch(ctx context.Context, id string, to compute.Power, soft bool, within time.Duration) error
}
