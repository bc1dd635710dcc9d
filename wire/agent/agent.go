// Package agent is the JSON between a control plane and the agent in the ramdisk. It has the agent's commands (those of
// ironic-python-agent), the inventory that an inspection sends, and salvor's additions to both. It knows no HTTP and no behaviour; lookup
// and heartbeat, which go the other way, are in wire/ironic.
package agent

import "encoding/json"

// Paths and names of the agent's API.
const (
	// CommandsPath takes orders (POST), lists all results (GET) and, followed by an
	// id, shows one; ?wait=true answers once the command has ended.
	CommandsPath   = "/v1/commands/"
	StatusPath     = "/v1/status"
	FinalizeRescue = "rescue.finalize_rescue"
	// ReadHostKey is a command of our own agent only. It changes nothing, and its result is a HostKey.
	ReadHostKey = "rescue.get_ssh_host_key"
	// CheckNetwork is a command of our own agent only. It changes nothing, and its result is a NetworkCheck.
	CheckNetwork = "rescue.check_network"
	// Product begins the agent_version of our own agent; only such an agent is
	// sent Extras, every other one refuses a parameter that it does not know.
	Product = "salvor-agent/"
	// DefaultPort is where the agent listens.
	DefaultPort = 9999
)

// Query parameters of POST /v1/commands/.
const (
	QueryWait  = "wait"
	QueryToken = "agent_token"
)

// Values of Result.Status.
const (
	Running              = "RUNNING"
	Succeeded            = "SUCCEEDED"
	Failed               = "FAILED"
	CleanVersionMismatch = "CLEAN_VERSION_MISMATCH"
)

// Command is the body of POST /v1/commands/. Both fields are mandatory.
type Command struct {
	Name   string          `json:"name"`
	Params json.RawMessage `json:"params"`
}

// FinalizeParams are the params of rescue.finalize_rescue. The password travels
// here in the open, so a value of this type is made last and never logged.
type FinalizeParams struct {
	// RescuePassword is a crypt(3) hash if Hashed, else the plain password. It is empty where Salvor has AuthorizedKeys and no password is set.
	RescuePassword string  `json:"rescue_password"`
	Hashed         bool    `json:"hashed"`
	Salvor         *Extras `json:"salvor,omitempty"`
}

// Extras tell salvor's own agent what the tenant's network looks like.
type Extras struct {
	// NetworkData is an OpenStack network_data.json object; absent: the machine's
	// config drive is read, and without one DHCP asked.
	NetworkData json.RawMessage `json:"network_data,omitempty"`
	// SSHInterfaces are the MACs on whose addresses ssh may listen; empty: all.
	SSHInterfaces []string `json:"ssh_interfaces,omitempty"`
	// TenantMove says that the ports leave the rescuing network after this command,
	// so that a lease from before it must not be kept.
	TenantMove bool `json:"tenant_move"`
	// Volumes are to be attached once the tenant's network is there; several may lead to one disk.
	Volumes []Volume `json:"volumes,omitempty"`
	// RootPassword sets the password of root too.
	RootPassword bool `json:"root_password"`
	// AuthorizedKeys are public ssh keys, a line each, that open the rescue system for its users rescue and root.
	AuthorizedKeys []string `json:"authorized_keys,omitempty"`
	// SessionToken lets the agent serve on after this command, see InSession. Without one, and in former releases, the agent ends.
	SessionToken SessionToken `json:"session_token,omitzero"`
}

// HostKey is the outcome of ReadHostKey.
type HostKey struct {
	// PublicKey of the boot: "TYPE BASE64 COMMENT".
	PublicKey string `json:"public_key"`
}

// NetworkCheckParams are the params of CheckNetwork.
type NetworkCheckParams struct {
	// NetworkData is that of Extras; absent: the machine's config drive is read.
	NetworkData json.RawMessage `json:"network_data,omitempty"`
}

// NetworkCheck is the outcome of CheckNetwork: what the rescue system will have of its network data.
type NetworkCheck struct {
	// LeftOut says in clauses what the rescue system cannot follow, or lacks a NIC for.
	LeftOut []string `json:"left_out"`
	// Addresses are the fixed addresses that the rescue system will have.
	Addresses []string `json:"addresses"`
}

// Volume is one path to an iSCSI volume of the machine, with CHAP where there is a username. A
// value of this type holds secrets in the open: it is made last and never logged.
type Volume struct {
	Initiator      string `json:"initiator"`
	Target         string `json:"target"`
	Host           string `json:"host"`
	Port           int    `json:"port"`
	Username       string `json:"username,omitempty"`
	Password       string `json:"password,omitempty"`
	MutualUsername string `json:"mutual_username,omitempty"`
	MutualPassword string `json:"mutual_password,omitempty"`
}

// Result is the answer to a command, and an element of CommandList.
type Result struct {
	ID   string `json:"id"`
	Name string `json:"command_name"`
	// Params repeats the params of the command. Control planes ignore it.
	Params json.RawMessage `json:"command_params"`
	Status string          `json:"command_status"`
	Error  *CommandError   `json:"command_error"`
	// Outcome is null, Text, StepList, StepOutcome, HostKey or NetworkCheck, by the command.
	Outcome json.RawMessage `json:"command_result"`
}

// CommandList is the answer of GET /v1/commands/.
type CommandList struct {
	Commands []Result `json:"commands"`
}

// CommandError says why a command failed. A command that is refused because another
// one runs is a 409 with a Fault instead, and leaves no Result.
type CommandError struct {
	Type    string `json:"type"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details string `json:"details"`
}

// Fault is the body of every answer with a status of 400 and more.
type Fault struct {
	Code   string `json:"faultcode"` // "Client" or "Server"
	String string `json:"faultstring"`
}

// Status is the answer of GET /v1/status.
type Status struct {
	// StartedAt is in seconds since 1970.
	StartedAt float64 `json:"started_at"`
	Version   string  `json:"version"`
}
