package compute

import (
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
)

// Kinds of questions to a cluster. They are no operations: the watch is, for as long as the cluster is known.
const (
	JobClusterAdopt     job.Kind = "cluster adopt"
	JobClusterReconcile job.Kind = "cluster reconcile"
)

// ClusterAdoptArgs are the arguments of JobClusterAdopt.
type ClusterAdoptArgs struct {
	Instance string `json:"instance"` // its name at the cluster
	// Name of the server; empty: the instance's.
	Name string `json:"name,omitempty"`
	// OS and OSFamily choose its rescue image; empty: as far as the cluster tells.
	OS       string `json:"os,omitempty"`
	OSFamily string `json:"os_family,omitempty"`
	Project  string `json:"project,omitempty"`
	User     string `json:"user,omitempty"`
}

// Adopted is the answer of JobClusterAdopt.
type Adopted struct {
	ServerID string `json:"server"`
}

// ReconcileArgs are the arguments of JobClusterReconcile.
type ReconcileArgs struct {
	Fix bool `json:"fix,omitempty"`
}

// RescuePath is where a hypervisor that reads rescue images itself finds this one: a URL, or a path under directory on every
// node. Sources that lie with the control plane are on no such path.
func RescuePath(directory string, src *rescue.Source) (string, error) {
	switch src.LocationType {
	case rescue.LocationHTTP:
		return src.Location, nil
	case rescue.LocationFile:
		return ResolvePath(directory, src.Location)
	}
	return "", problem.Unsupportedf("rescue image %q lies with the control plane, and this hypervisor reads files of its own and URLs only", src.Name)
}

// Adoption is a guest that exists already at a Ganeti cluster.
type Adoption struct {
	HostID       string
	Guest        Guest
	Name         string
	OS, OSFamily string
	Project      string
	User         string
	// DisksMiB are its disks' sizes, in their order.
	DisksMiB []int
}

// Unsynced is a server of a cluster that was not as the cluster tells.
type Unsynced struct {
	ServerID string `json:"server"`
	Name     string `json:"name"`
	// Cluster is what the cluster tells of its rescue, Server what was known here; empty: not in rescue.
	Cluster string `json:"cluster"`
	Server  string `json:"known"`
	Fixed   bool   `json:"fixed"`
}
