package compute

import (
	"time"

	"salvor/job"
	"salvor/record"
	"salvor/secret"
)

// HostKind says who drives a host's guests.
type HostKind string

const (
	// AgentHost runs "salvor host", which pulls its orders.
	AgentHost HostKind = "agent"
	// GanetiHost is a node of a Ganeti cluster, driven over RAPI by a conductor.
	GanetiHost HostKind = "ganeti"
	// IronicHost is an endpoint of the Bare Metal API: each of its servers is a node of it, driven by a conductor.
	IronicHost HostKind = "ironic"
)

// Host is a machine that runs servers.
type Host struct {
	record.Record
	// Num is its number in lists of services and hypervisors of old clients.
	Num  int64
	Name string // the host name it last told; proves nothing
	Kind HostKind
	// ClusterID of a GanetiHost, and of an IronicHost, which is the only one of its endpoint.
	ClusterID string
	// BootID of the boot that holds the lease; a new one is admitted by a renewal.
	BootID string
	// Serial of the newest client certificate, hexadecimal; certificates of other serials are taken until they end, unless Revoked.
	Serial string
	// CertificateEnds is when the newest ends; zero: not known, as of one that was given before this was noted.
	CertificateEnds time.Time
	Revoked         bool
	// Key is the digest of the public key that it joined with, SHA-256, hexadecimal.
	Key string
	// RevokedAt is when Revoked was set last: certificates from before it stay refused.
	RevokedAt time.Time
	// Disabled takes no new servers; ForcedDown is an operator's word that it is down.
	Disabled       bool
	DisabledReason string
	ForcedDown     bool
	// ForcedDownBy is who said so.
	ForcedDownBy string
	Zone         string
	Inventory    Inventory
	// NodeID is the node of the bare metal inventory that it is, whose BMC fences it; empty: none is known.
	NodeID string
	// Group is the name of its host group; empty: DefaultHostGroup.
	Group string
	// Fences is the epoch of the newest receipt; the release of a held database raises it further.
	Fences int64
	// Fenced: that receipt is open. It is written with the receipt, in one transaction.
	Fenced bool
	// Unseen: its guests have not been looked at since they were ended by us or by a fence: those that should run are started.
	Unseen bool
	// Unlooked are servers on which somebody worked at the first look since the host started. Each is judged as at the first look until a look reaches a
	// verdict.
	Unlooked []string
	// Strays are guests with our mark of which no record says what they do there; they are left alone until an operator says.
	Strays []string
	// Lost: an operator removed it by LostReason while moves, clean-ups or a fence of it were open. It is a tombstone: no list shows
	// it, it takes no servers, and if it speaks it is told to start nothing and to clean up.
	Lost               bool
	LostReason, LostBy string
	LostAt             time.Time
	// Used is what its servers claim; placement raises it, in the transaction that gives a server its host.
	UsedVCPUs, UsedRAM, UsedDisk int
}

// Certificate is what is noted of a client certificate: its serial, hexadecimal, and its end.
type Certificate struct {
	Serial string
	Ends   time.Time
}

// Inventory is what a host has.
type Inventory struct {
	HypervisorType    string            `json:"hypervisor_type"`    // "QEMU"
	HypervisorVersion int               `json:"hypervisor_version"` // 7002022
	Address           string            `json:"address,omitempty"`
	VCPUs             int               `json:"vcpus"`
	RAM               int               `json:"ram_mib"`
	Disk              int               `json:"disk_gib"`
	CPUInfo           string            `json:"cpu_info,omitempty"`
	Bridges           []string          `json:"bridges,omitempty"`
	Stores            []DiskStore       `json:"stores,omitempty"`
	Firmware          []Firmware        `json:"firmware,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	// InitiatorIQN is the name by which it logs in to iSCSI targets; empty: each guest has one of its own.
	InitiatorIQN string `json:"initiator_iqn,omitempty"`
	// AgentVersion of "salvor host".
	AgentVersion string `json:"agent_version,omitempty"`
	// KeepsSaved: the agent obeys Args.KeepSaved. Agents of former releases give saved memory up at each power off.
	KeepsSaved bool `json:"keeps_saved,omitempty"`
	// OnlyReads: the agent passes Args.OnlyRead on. Agents of former releases drop it.
	OnlyReads bool  `json:"only_reads,omitempty"`
	UptimeS   int64 `json:"uptime_s,omitempty"`
	// Machines of an IronicHost that may be taken, by their resource class ("CUSTOM_BAREMETAL").
	Machines map[string]int `json:"machines,omitempty"`
}

// Quarantined counts the disks in quarantine.
func (i *Inventory) Quarantined() int {
	n := 0
	for _, store := range i.Stores {
		n += store.Quarantined
	}
	return n
}

// QuarantinedGiB is the size of all disks in quarantine.
func (i *Inventory) QuarantinedGiB() int {
	size := 0
	for _, store := range i.Stores {
		size += store.QuarantinedGiB
	}
	return size
}

// DiskStore is a directory of disks; hosts that show the same marker share it.
type DiskStore struct {
	Name    string `json:"name"`
	Marker  string `json:"marker"` // UUID
	Shared  bool   `json:"shared,omitempty"`
	SizeGiB int    `json:"size_gib"`
	FreeGiB int    `json:"free_gib"`
	// Quarantined counts the disks in quarantine, QuarantinedGiB is their size: it is used space.
	Quarantined    int `json:"quarantined,omitempty"`
	QuarantinedGiB int `json:"quarantined_gib,omitempty"`
}

// HostFilter narrows a list of hosts.
type HostFilter struct {
	Name, ClusterID, NodeID, Group string
	Kind                           HostKind
	// ForcedDown keeps the hosts that are forced down.
	ForcedDown bool
	// Lost keeps the hosts that were removed as lost, WithLost lost hosts beside all others; without either, lost hosts are left out.
	Lost, WithLost bool
}

// ClusterKind says what answers at a cluster's address.
type ClusterKind string

const (
	GanetiCluster ClusterKind = "ganeti" // the RAPI of a Ganeti cluster
	IronicCluster ClusterKind = "ironic" // the Bare Metal API, whose nodes are servers
)

// Logins of an IronicCluster.
const (
	LoginNone     = "none"
	LoginBasic    = "http_basic"
	LoginKeystone = "keystone"
)

// SelfURL is the address of an IronicCluster that is this control plane's own Bare Metal API.
const SelfURL = "self"

// Cluster is something that runs servers and that conductors drive over its API: a Ganeti cluster, or an endpoint of the Bare Metal API.
type Cluster struct {
	record.Record
	Name string
	Kind ClusterKind // empty: GanetiCluster
	URL  string      // https://master:5080, http://ironic:6385, SelfURL
	// Login of an IronicCluster: with User and Password for LoginBasic, and AuthURL, Project and Domain beside them for LoginKeystone.
	Login                    string
	AuthURL, Project, Domain string
	User                     string
	Password                 secret.Value // sealed at rest
	// CA is PEM; empty: the system's. Insecure takes any certificate.
	CA       string
	Insecure bool
	// FollowedJob is the highest job that the watcher has followed to its end.
	FollowedJob int64
	// Problem is why the cluster cannot be watched now; empty: it can.
	Problem string
}

// ClusterFilter narrows a list of clusters.
type ClusterFilter struct{ Name string }

// JoinToken lets one host in, once. Only its digest is kept.
type JoinToken struct {
	record.Record
	Digest    string // SHA-256, hexadecimal
	ExpiresAt time.Time
	UsedBy    string // host; empty: not used
	UsedAt    time.Time
	// UsedKey is the digest of the key that was shown with it: who shows it again has the same one.
	UsedKey string
	// HostID of the host for which it is, which may join again with another key; empty: for any new host.
	HostID string
	Note   string
}

// JoinTokenFilter narrows a list of join tokens.
type JoinTokenFilter struct{ Digest string }

// Guest is a server as its hypervisor sees it.
type Guest struct {
	ID    string `json:"id"` // server UUID where it is one of ours, else the hypervisor's own
	Name  string `json:"name"`
	Power Power  `json:"power"`
	// Pause is why the guest stands still, if that is known.
	Pause GuestPause `json:"pause,omitzero"`
	// Ours: the hypervisor's own mark of us is on it. Epoch as that mark tells.
	Ours  bool  `json:"ours,omitempty"`
	Epoch int64 `json:"epoch,omitempty"`
	// Incarnation is the incarnation of the control plane's database that gave Epoch; empty: the mark tells none.
	Incarnation string `json:"incarnation,omitempty"`
	// Rescue is what it boots from in place of its disks (Ganeti: the CD's path or URL); empty: its own disks.
	Rescue string `json:"rescue,omitempty"`
	// BootRescue: it runs now what Rescue names, not only at the next start.
	InRescue  bool `json:"in_rescue,omitempty"`
	Autostart bool `json:"autostart,omitempty"`
	VCPUs     int  `json:"vcpus,omitempty"`
	RAM       int  `json:"ram_mib,omitempty"`
	// Settings that an adoption or a rescue must keep, as they were set on this guest alone.
	Settings map[string]string `json:"settings,omitempty"`
	NICs     []NIC             `json:"nics,omitempty"`
	// Files are the files of the guest's disks, with the files that a disk is based on. The control plane is not told of them.
	Files []string `json:"-"`
	// Disks are the guest's disks in files: of the running guest, or else of its next start. NextDisks are the disks of the next start.
	Disks     []GuestDisk `json:"-"`
	NextDisks []GuestDisk `json:"-"`
	// StateStamp changes with the guest's state (see GuestState); empty: the hypervisor keeps none. The control plane is not told of it.
	StateStamp string `json:"-"`
	// StateCopied: a copy of the guest's state lies beside its disk in a shared store, where its next host finds it.
	StateCopied bool `json:"state_copied,omitempty"`
	// Drift is what somebody else than salvor changed.
	Drift []Drift `json:"drift,omitempty"`
	// DriftUnknown: a disk store could not be read, so disks may lie elsewhere than Drift tells.
	DriftUnknown bool `json:"drift_unknown,omitempty"`
}

// Lease is what is known of a host's life; it is kept apart from the record.
type Lease struct {
	HostID, BootID string
	// RenewedAt is when the newest renewal was answered.
	RenewedAt time.Time
	Renewals  int64
	// Watchdog is the hardware watchdog that the newest renewal named as armed; empty: none.
	Watchdog string
}

// Periods of the lease: hosts renew every RenewEvery; one that is silent for Suspect is shown as down.
const (
	RenewEvery = 2 * time.Second
	Suspect    = 8 * time.Second
)

// HostSubject and ClusterSubject are what their jobs work on.
func HostSubject(id string) job.Subject    { return job.Subject{Kind: "host", ID: id} }
func ClusterSubject(id string) job.Subject { return job.Subject{Kind: "cluster", ID: id} }

// Service is what operators say of a host; nil leaves a field as it is.
type Service struct {
	Disabled   *bool
	Reason     *string
	ForcedDown *bool
	Revoked    *bool
	Zone       *string
	// Found takes back that the host was removed as lost.
	Found bool
	// NodeID is the node of the bare metal inventory that the host is, Group the name of its host group; empty: none.
	NodeID, Group *string
}

// HostUse counts the servers of a host, deleted ones left out.
type HostUse struct {
	Servers int
	// Drifted are those that somebody else than salvor changed (see Drift).
	Drifted int
}

// HostLiveness is what is known of a host's life.
type HostLiveness struct {
	Up        bool
	RenewedAt time.Time
	Renewals  int64
	HostUse
	// Verdict is why a silent host is called dead, or why it is not; empty: the host is not silent.
	Verdict   string
	Suspected bool
	// Watchdog is the hardware watchdog that its newest renewal named as armed; empty: none.
	Watchdog string
}
