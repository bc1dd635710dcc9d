package compute

import (
	"context"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
)

// Store is all that a store must do for servers. A nil tx reads outside of any transaction.
type Store interface {
	Servers() record.Table[Server, ServerFilter]
	// ServerByNum finds a server by its number, deleted ones too; problem.NotFound if there is none.
	ServerByNum(ctx context.Context, tx job.Tx, num int64) (*Server, error)
	// SaveServers does the work of Servers().Save for many servers, with a few statements. problem.Conflict if one of them was changed since it was
	// read. The servers are not put back as they were if the transaction comes to nothing.
	SaveServers(tx job.Tx, servers []*Server) error
	Flavors() record.Table[Flavor, FlavorFilter]
	Images() record.Table[Image, ImageFilter]
	Keypairs() record.Table[Keypair, KeypairFilter]
	Networks() record.Table[Network, NetworkFilter]
	Volumes() record.Table[Volume, VolumeFilter]
	Hosts() record.Table[Host, HostFilter]
	Clusters() record.Table[Cluster, ClusterFilter]
	JoinTokens() record.Table[JoinToken, JoinTokenFilter]
	RescueImages() record.Table[rescue.Image, rescue.ImageFilter]
	HostGroups() record.Table[HostGroup, HostGroupFilter]
	Receipts() record.Table[Receipt, ReceiptFilter]
	Plans() record.Table[Plan, PlanFilter]
	Moves() record.Table[Move, MoveFilter]
	OrderStore
	DiagnosisStore
	LeaseStore
	GuestReportStore

	// UseReceipt holds the row of an open receipt until the transaction ends, so that a move and the admission of the host's
	// next boot have one winner; problem.Conflict if it is closed.
	UseReceipt(tx job.Tx, id string) error
	// DropDrafts removes plans of a host that were drafted before a time and never run.
	DropDrafts(tx job.Tx, hostID string, before time.Time) error
	// MoveSources lists the hosts from which a move goes on, or has left something to clean up, in one query.
	MoveSources(ctx context.Context) ([]string, error)

	// UseRescueImage locks the row of an undeleted rescue image until the transaction ends, so that a rescue and a removal of the
	// same image have one winner; problem.NotFound if it is gone.
	UseRescueImage(tx job.Tx, num int64) error
	// RescueImageUse counts the servers whose open session uses each image, in one query; images that nobody uses are absent.
	RescueImageUse(ctx context.Context, tx job.Tx) (map[int64]int, error)

	// AllocateAddress gives a server's NIC an address of the network: want if it is set (problem.Conflict if it is taken), else the
	// lowest free one between First and Last; problem.Conflict if none is left.
	AllocateAddress(tx job.Tx, n *Network, a Address, want string) (string, error)
	// FreeAddresses gives all of a server's addresses back.
	FreeAddresses(tx job.Tx, serverID string) error
	// Addresses lists a network's allocated addresses.
	Addresses(ctx context.Context, tx job.Tx, networkID string) ([]Address, error)

	// HostUse counts servers by host, deleted ones left out, in one query.
	HostUse(ctx context.Context) (map[string]HostUse, error)
}

// MaxOpenOrders bounds how many orders a host is given at once.
const MaxOpenOrders = 256

// OrderStore keeps orders.
type OrderStore interface {
	// InsertOrder adds an order, or reads the one that is there for the same job, action and epoch into o: then it tells true.
	InsertOrder(tx job.Tx, o *Order) (bool, error)
	// OpenOrders lists a host's orders without a result, oldest first, and marks them as sent: at most MaxOpenOrders. Where the
	// oldest so many were all sent before, it lists those that were not.
	OpenOrders(ctx context.Context, hostID string) ([]Order, error)
	// OrdersNaming lists the open orders of a host whose arguments have the text, and marks none.
	OrdersNaming(ctx context.Context, hostID, text string) ([]Order, error)
	// Order reads one; problem.NotFound if there is none.
	Order(ctx context.Context, tx job.Tx, id string) (*Order, error)
	// FinishOrder writes the result and forgets the secret WHERE host, boot and epoch are the order's and it has none yet; a second result
	// is ignored. A boot id or epoch that is not the order's is problem.Conflict.
	FinishOrder(tx job.Tx, id, hostID, bootID string, epoch int64, r Result) (*Order, error)
	// OrderProgress notes the host's word on an order that still runs.
	OrderProgress(tx job.Tx, id, hostID, text string) error
	// MoveOrders gives the open orders of a host to its new boot. VoidOrders ends those of a server with an epoch below.
	MoveOrders(tx job.Tx, hostID, bootID string) error
	VoidOrders(tx job.Tx, serverID string, below int64) error
	// VoidAllOrders ends the open orders of all servers that are not deleted.
	VoidAllOrders(tx job.Tx, cause error) error
	// DropOrder removes one that nobody asks for any more, with its result. DropJobOrders removes all of a job; none is no error.
	DropOrder(tx job.Tx, id string) error
	DropJobOrders(tx job.Tx, jobID string) error
	// PruneOrders removes finished orders older than before.
	PruneOrders(ctx context.Context, before time.Time) (int, error)
	// OrdersWoken gives a channel that is closed at the next commit that inserted an order, here or in another process (a hint over
	// polling); hosts names those with open orders then.
	OrdersWoken() <-chan struct{}
	// HostsWithOrders lists the hosts that have an order without a result that has not been sent, in one query.
	HostsWithOrders(ctx context.Context) ([]string, error)
}

// DiagnosisStore keeps the diagnoses of servers. They hold texts of disks, so they are sealed.
type DiagnosisStore interface {
	// ServerDiagnoses are those of a server, newest first; none is no error.
	ServerDiagnoses(ctx context.Context, tx job.Tx, serverID string) ([]diagnose.Record, error)
	// SaveServerDiagnoses writes all of a server in place of what was there; none removes them. problem.NotFound if the server is gone.
	SaveServerDiagnoses(tx job.Tx, serverID string, all []diagnose.Record) error
}

// GuestReportStore keeps the guests that hosts and clusters told last.
type GuestReportStore interface {
	GuestReports(ctx context.Context, tx job.Tx, f GuestReportFilter) ([]GuestReport, error)
	// SaveGuestReport writes what a host told of one server in place of what it told before, DropGuestReport removes that.
	SaveGuestReport(tx job.Tx, g GuestReport) error
	DropGuestReport(tx job.Tx, hostID, serverID string) error
}

// LeaseStore keeps hosts' leases apart from their records: a renewal costs no version.
type LeaseStore interface {
	// SaveLeases writes many at once. Each raises the stored count of renewals, also one that is older by the clock.
	SaveLeases(ctx context.Context, leases []Lease) error
	// Leases reads all, keyed by host, in one query.
	Leases(ctx context.Context) (map[string]Lease, error)
}
