package metal

import (
	"context"
	"time"

	"salvor/job"
	"salvor/record"
)

// NodeFilter narrows a list of nodes; zero fields do not narrow.
type NodeFilter struct {
	InstanceUUID, Driver, ResourceClass, Owner, Lessee, Fault, ChassisUUID, Shard, DescriptionContains string
	// Project keeps nodes whose owner or lessee it is.
	Project                                   string
	ConductorGroup                            *string
	Conductor                                 string // host name
	ProvisionState                            State
	Associated, Maintenance, Retired, Sharded *bool
	// ParentNode keeps the children of this node; NoChildren leaves out every node that has a parent.
	ParentNode string
	NoChildren bool
	// Shards keeps nodes of any of these shards; InstanceName those of this display name.
	Shards       []string
	InstanceName string
	// Traits leaves out nodes that lack any of these; a few that lack some may stay, so look again.
	Traits []string
	// RescueExpires leaves out nodes whose rescue session does not end by itself; a few of these may stay, so look again.
	RescueExpires bool
	// ConsoleEnabled keeps nodes whose console is to be read.
	ConsoleEnabled bool
	// Powered keeps nodes whose power state is known, or is just being set.
	Powered bool
	// Faulty keeps nodes by whether they have a fault.
	Faulty *bool
	// IDs keeps these nodes; nil: all.
	IDs []string
	// BMC keeps nodes whose BMC is in this state; empty: all. PowerReadSince is the time before which a reading of the power is old.
	BMC            BMCState
	PowerReadSince time.Time
	// Search keeps nodes with this in their name, in whatever case, or at the beginning of their UUID or their instance's.
	Search string
}

// NodeStore keeps nodes. Every method may be given a nil tx where it only reads.
type NodeStore interface {
	// InsertNode adds a node; a taken UUID, name or instance UUID is problem.Conflict.
	InsertNode(tx job.Tx, n *Node) error
	// Node reads by UUID or name, its Reservation and Conductor filled in; problem.NotFound if there is none.
	Node(ctx context.Context, tx job.Tx, ident string) (*Node, error)
	// SaveNode writes the whole record WHERE id and version are the node's, and raises n.Version; problem.Conflict otherwise.
	SaveNode(tx job.Tx, n *Node) error
	// DeleteNode removes the node with its ports, contact, timeline and ended jobs, WHERE version is the node's.
	DeleteNode(tx job.Tx, n *Node) error
	// Nodes lists; one query a page whatever its length.
	Nodes(ctx context.Context, tx job.Tx, f NodeFilter, p record.Page) ([]*Node, error)
	// CountNodes counts the nodes in any of the states.
	CountNodes(ctx context.Context, states ...State) (int, error)
	NodeMarks
}

// NodeMarks reads what tells a node's view of today from that of yesterday, without the node.
type NodeMarks interface {
	// NodeMark reads by UUID or name; problem.NotFound if there is none.
	NodeMark(ctx context.Context, ident string) (NodeMark, error)
	// ListNodeMarks is Nodes without the records themselves.
	ListNodeMarks(ctx context.Context, f NodeFilter, p record.Page) ([]NodeMark, error)
	// MarkedNodes reads nodes by the Num of their marks, or of each what the part has; those that are gone meanwhile are left out.
	MarkedNodes(ctx context.Context, nums []int64, part NodePart) (map[int64]*Node, error)
}

// NodeMark is a Mark with all that a view of a node shows beside its record: ContactRevision is the Revision of the
// node's Contact, the others are as in Node.
type NodeMark struct {
	record.Mark
	ContactRevision        int64
	Reservation, Conductor string
}

// PortStore keeps ports.
type PortStore interface {
	// InsertPort adds a port; a taken UUID, name or MAC is problem.Conflict.
	InsertPort(tx job.Tx, p *Port) error
	// Port reads by UUID, name or MAC.
	Port(ctx context.Context, tx job.Tx, ident string) (*Port, error)
	SavePort(tx job.Tx, p *Port) error
	DeletePort(tx job.Tx, p *Port) error
	// Ports lists; zero fields of the filter do not narrow.
	Ports(ctx context.Context, f PortFilter, p record.Page) ([]*Port, error)
	// NodesOfMACs lists the ids of the nodes that have a port with any of these addresses, each once.
	NodesOfMACs(ctx context.Context, macs []string) ([]string, error)
}

// PortFilter narrows a list of ports; zero fields do not narrow.
type PortFilter struct {
	NodeID, Address, PortgroupID, Owner, Project, DescriptionContains string
	Shards, ConductorGroups                                           []string
}

// ContactStore keeps what was heard of nodes. Reads of a node without a row give an empty Contact.
type ContactStore interface {
	Contact(ctx context.Context, tx job.Tx, nodeID string) (Contact, error)
	// Contacts reads many at once, keyed by node.
	Contacts(ctx context.Context, nodeIDs []string) (map[string]Contact, error)
	SaveContact(tx job.Tx, c Contact) error
	// AgentContact reads what the agent of a node said last, and the version of the node's row; 0 where either is not there.
	AgentContact(ctx context.Context, nodeID string) (version int64, c Contact, err error)
	// SaveHeartbeats writes the times of heartbeats, many at once, where neither a newer one nor another boot was heard.
	SaveHeartbeats(ctx context.Context, beats []HeartbeatTime) error
	// SaveSeen writes what netboot saw, where it is newer; of a node that is gone nothing. It raises no revision: nobody shows it.
	SaveSeen(tx job.Tx, nodeID string, s BootProgress) error
	// SaveRefusals adds to the refused heartbeats of a boot, or begins with them those of a new boot; of a node that is gone nothing.
	SaveRefusals(tx job.Tx, nodeID string, r Refusals) error
	// MarkTokenTold marks that the token of this boot has been told, by compare-and-swap; false if it was told before.
	MarkTokenTold(tx job.Tx, nodeID string, boot int64) (bool, error)
	// ClaimPower gives up to limit nodes whose power is due to be read, those that are due longest, to nobody else before t.Next. Who has no
	// driver or is in a state to skip is passed over until then, who is locked until t.Soon.
	ClaimPower(ctx context.Context, t PowerTurn, limit int) ([]*Node, error)
	// TendPower gives a turn to each node that lacks one, and each turn the group of its node. It returns how many that were.
	TendPower(ctx context.Context) (int, error)
	// SavePower notes readings that say nothing new, many at once; of a node that is gone nothing.
	SavePower(ctx context.Context, readings []PowerReading) error
}

// NodePart is how much of a node is read.
type NodePart int

const (
	// WholeNode is all of it.
	WholeNode NodePart = iota
	// NodeRow leaves out what is kept as JSON: objects, lists, interfaces, reasons, the boot and the rescue.
	NodeRow
)

// PowerTurn is whose power is read, and when again.
type PowerTurn struct {
	Groups          []string
	Now, Soon, Next time.Time
	Skip            []State
}

// HeartbeatTime is when the agent of a boot was heard.
type HeartbeatTime struct {
	NodeID string
	Boot   int64
	At     time.Time
}

// PowerReading is one look at the power of a node.
type PowerReading struct {
	NodeID string
	Power  Power
	At     time.Time
}

// PlanStore finds boot plans for machines that ask.
type PlanStore interface {
	// NodeByMAC finds the node with a boot plan one of whose MACs this is; problem.NotFound if none.
	NodeByMAC(ctx context.Context, mac string) (*Node, error)
	// NodeByBootPath finds the node whose boot plan has this path; problem.NotFound if none.
	NodeByBootPath(ctx context.Context, path string) (*Node, error)
}

// Store is all that a store must do for machines.
type Store interface {
	NodeStore
	PortStore
	ContactStore
	PlanStore
	DocumentStore
	RepairStore
	// PortTable shows the ports as the table that they are.
	PortTable() record.Table[Port, PortFilter]
	Portgroups() record.Table[Portgroup, PortgroupFilter]
	Chassis() record.Table[Chassis, ChassisFilter]
	// LockChassis keeps others from removing the chassis before the transaction ends; problem.NotFound if there is none.
	LockChassis(tx job.Tx, id string) error
	Connectors() record.Table[Connector, ConnectorFilter]
	Targets() record.Table[Target, TargetFilter]
	Allocations() record.Table[Allocation, AllocationFilter]
	DeployTemplates() record.Table[DeployTemplate, DeployTemplateFilter]
	Runbooks() record.Table[Runbook, RunbookFilter]
	InspectionRules() record.Table[InspectionRule, InspectionRuleFilter]
	// Shards counts the nodes of each shard, by name; the empty name stands for nodes without one.
	Shards(ctx context.Context) ([]Shard, error)
}

// Shard is a part of the fleet and how many nodes it has.
type Shard struct {
	Name  string
	Count int
}
