package hypervisor

import (
	"context"

	"salvor/compute"
)

// Cluster drives the guests of several hosts as one, by jobs of its own, whoever asks for them. It tells the truth about
// its guests. A cluster that does not answer is problem.Unavailable.
type Cluster interface {
	// Hosts lists the nodes that run guests.
	Hosts(ctx context.Context) ([]ClusterHost, error)
	// Guests lists all guests of all hosts by one call.
	Guests(ctx context.Context) ([]ClusterGuest, error)
	// Jobs reads the jobs with numbers above after, oldest first, and those in also. With a negative after only the newest is read.
	// At most a few hundred are read at once; more tells that there are others.
	Jobs(ctx context.Context, after int64, also []int64) (jobs []ClusterJob, more bool, err error)
	// Adopt marks the guest of this name as the server, and tells it as it is then. A guest that is marked as another server is
	// problem.Conflict. It repeats harmlessly.
	Adopt(ctx context.Context, name, serverID string) (*ClusterGuest, error)
	// Release takes the mark of that server off the guest; one that has none, and one that is not there, are no errors.
	Release(ctx context.Context, name, serverID string) error
}

// ClusterHost is a node of a cluster.
type ClusterHost struct {
	Name      string
	Inventory compute.Inventory
	// Offline nodes are not asked; Drained ones take no new guests.
	Offline, Drained bool
}

// ClusterGuest is a guest with what only its cluster knows of it.
type ClusterGuest struct {
	compute.Guest
	Host string // name of the node; empty: none
	// Disks in MiB.
	Disks []int
	// System is the cluster's name of what it was installed with.
	System string
	// Trouble is what the cluster finds wrong with where it runs; empty: nothing.
	Trouble string
}

// ClusterJob is a job of the cluster's.
type ClusterJob struct {
	ID int64
	// Guests are the names of those that it works on; Summary says what it does, for people.
	Guests  []string
	Summary string
	// Ended with or without a Failure. Gone: it is too old for the cluster to know how it ended.
	Ended, Gone bool
	Failure     string
}
