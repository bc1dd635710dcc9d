package compute

import (
	"encoding/json"
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
	UptimeS      int64  `json:"uptime_s,omitempty"`
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
	// ForcedDown keeps those that are.
	ForcedDown bool
	// Lost keeps those that were removed as lost, WithLost these beside all others; without either they are left out.
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
	// Files are the files of its disks. They stay on the host.
	Files []string `json:"-"`
}

// Verb is what a host is told to do with a server. Each reads first and repeats harmlessly.
type Verb string

const (
	// Prepare makes the disks that are not there and proves those that are, fetches images, writes the config drive. It starts nothing.
	Prepare Verb = "prepare"
	// Define makes the hypervisor's definition what Spec says, the rescue in it included; a running guest gets it at its next start.
	Define Verb = "define"
	// SetPower brings the guest to Args.Power. Soft: its system is asked first, for at most Within seconds.
	SetPower Verb = "power"
	// Unlock gives the rescue system its credential over the channel, and tells its fingerprint.
	Unlock Verb = "unlock"
	// Attach and Detach a volume, also of a running guest.
	Attach Verb = "attach"
	Detach Verb = "detach"
	// Release removes what a rescue left on the host: its copies and its config drive.
	Release Verb = "release"
	// Remove ends the guest, removes its definition, and its local disks unless Args.KeepDisks.
	Remove Verb = "remove"
	// FindFiles tells which files the host has not among its rescue images; its order names the host itself, and epoch 0.
	FindFiles Verb = "find files"
	// Console reads the end of the console log.
	Console Verb = "console"
	// Look only tells how the guest is.
	Look Verb = "look"
	// Diagnose examines the disks of a guest that is off, in a helper guest that boots the kernel of Spec.Rescue and reads the disks only. A
	// later order for the server ends it.
	Diagnose Verb = "diagnose"
	// Discard puts the root disk, or Args.Disk, into quarantine, for Prepare to make it anew; with Args.Erase it removes the disk.
	Discard Verb = "discard"
	// Stage makes the next root disk beside the one in use, for Prepare to put into its place; with Args.Erase it only fetches the image.
	// With Args.Cancel it removes what it made.
	Stage Verb = "stage"
	// RestoreDisk moves the disk Args.Quarantine out of quarantine to be Args.Disk of the server.
	RestoreDisk Verb = "restore disk"
	// ListQuarantine tells what is in quarantine; RemoveQuarantined removes the disk Args.Quarantine. Their orders name no server, but
	// the host itself, and epoch 0.
	ListQuarantine    Verb = "list quarantine"
	RemoveQuarantined Verb = "remove quarantined"
	// Probe tells what the host sees of Args.Probes; its order names no server, but the host itself, and epoch 0.
	Probe Verb = "probe"
	// MigrateBegin (source), MigratePrepare (destination), MigratePerform (source), MigrateFinish (destination) and MigrateConfirm
	// (source) bring a running guest over; each passes Result.Cookie on as the next one's Args.Cookie.
	MigrateBegin   Verb = "migrate begin"
	MigratePrepare Verb = "migrate prepare"
	MigratePerform Verb = "migrate perform"
	MigrateFinish  Verb = "migrate finish"
	MigrateConfirm Verb = "migrate confirm"
)

// Order is one thing that a host is told to do.
type Order struct {
	ID     string `json:"id"`
	HostID string `json:"host_id"`
	// BootID of the host's boot that may carry it out.
	BootID   string          `json:"boot_id"`
	ServerID string          `json:"server_id"`
	Epoch    int64           `json:"epoch"`
	Verb     Verb            `json:"verb"`
	Args     json.RawMessage `json:"args"`
	// Secret is JSON of OrderSecret; sealed at rest, gone with the result.
	Secret secret.Value `json:"-"`
	// Within bounds all tries on the host, in seconds from its first sight of the order.
	Within int `json:"within_s"`
	// JobID and Action (with its try) are unique with Epoch: an action that runs twice finds its order and its result.
	JobID  string `json:"-"`
	Action string `json:"-"`

	Result *Result `json:"-"`
	// Progress is the host's latest word on a long order.
	Progress                      string    `json:"-"`
	CreatedAt, SentAt, FinishedAt time.Time `json:"-"`
}

// Args of an order; which fields count is said at the verbs.
type Args struct {
	Spec      *Spec     `json:"spec,omitempty"`
	Power     Power     `json:"power,omitempty"`
	Soft      bool      `json:"soft,omitempty"`
	Restart   bool      `json:"restart,omitempty"` // off first, whatever it is now
	Within    int       `json:"within_s,omitempty"`
	KeepDisks bool      `json:"keep_disks,omitempty"`
	Disk      *SpecDisk `json:"disk,omitempty"`
	Lines     int       `json:"lines,omitempty"`
	// Found, of Prepare: the disks must be there, proven; none is made.
	Found bool `json:"found,omitempty"`
	// Fresh, of Define: a guest of that UUID or name with another epoch is problem.Conflict: it is not ours to change.
	Fresh bool `json:"fresh,omitempty"`
	// Receipt, of Prepare and Define, is the id of the fencing receipt of the host that had the server: its lease of a disk may be broken.
	Receipt string      `json:"receipt,omitempty"`
	Probes  []DiskProbe `json:"probes,omitempty"`
	// Cookie and Peer of a live migration: what the other side answered, and where it listens.
	Cookie []byte `json:"cookie,omitempty"`
	Peer   string `json:"peer,omitempty"`
	// Files, of FindFiles, are locations of rescue images.
	Files []string `json:"files,omitempty"`
	// Cancel, of MigrateFinish and MigrateConfirm: the step before failed; the guest stays at, or goes back to, the source.
	Cancel bool `json:"cancel,omitempty"`
	// Erase, of Discard and Stage: the old disk is removed at once, and not put into quarantine.
	Erase bool `json:"erase,omitempty"`
	// SameEpoch, of Remove: only what orders of this epoch made is removed. A guest of another epoch stays with all that it has; a disk
	// that was there before goes into quarantine.
	SameEpoch bool `json:"same_epoch,omitempty"`
	// Reason, of Discard, is why the disk goes into quarantine: QuarantineRebuild...
	Reason string `json:"reason,omitempty"`
	// Quarantine is the id of a quarantined disk. ListQuarantine lists that one alone.
	Quarantine string `json:"quarantine,omitempty"`
	// After and Limit, of ListQuarantine, ask for a page: the disks after that id, and how many at most; 0: as many as an answer holds.
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
	// Now, of Diagnose, is the control plane's time.
	Now time.Time `json:"now,omitzero"`
}

// OrderSecret is what an order's arguments must not show.
type OrderSecret struct {
	// CHAP passwords by volume id.
	CHAP map[string]string `json:"chap,omitempty"`
	// Hash and Keys are the rescue credential.
	Hash string   `json:"hash,omitempty"`
	Keys []string `json:"keys,omitempty"`
	// Drive is the config drive's files by path; RescueDrive those of a rescue system's.
	Drive       map[string][]byte `json:"drive,omitempty"`
	RescueDrive map[string][]byte `json:"rescue_drive,omitempty"`
	// LUKSKeys, of Diagnose, are tried on every LUKS container of the disks, LUKSKeysByUUID on that of a UUID alone.
	LUKSKeys       [][]byte            `json:"luks_keys,omitempty"`
	LUKSKeysByUUID map[string][][]byte `json:"luks_keys_by_uuid,omitempty"`
}

// ClearLUKSKeys overwrites them with zeros.
func (s OrderSecret) ClearLUKSKeys() {
	for _, k := range s.LUKSKeys {
		clear(k)
	}
	for _, keys := range s.LUKSKeysByUUID {
		for _, k := range keys {
			clear(k)
		}
	}
}

// Result is what came of an order. ErrorKind is a problem.Kind's name; empty: it was done.
type Result struct {
	ErrorKind   string `json:"error_kind,omitempty"`
	Error       string `json:"error,omitempty"`
	Guest       *Guest `json:"guest,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// HostKey is the public ssh host key that Fingerprint is of; hosts and agents of former releases do not tell it.
	HostKey string `json:"host_key,omitempty"`
	Console string `json:"console,omitempty"`
	// Examination answers Diagnose: a diagnose.Examination of at most 1 MiB, as the helper guest gave it. The store seals it.
	Examination json.RawMessage `json:"examination,omitempty"`
	// Soft tells whether a soft power-off was enough.
	Soft bool `json:"soft,omitempty"`
	// Missing answers FindFiles: those of Args.Files that are not among the host's rescue images.
	Missing []string `json:"missing,omitempty"`
	// Sights answer Probe, one for each of Args.Probes.
	Sights []DiskSight `json:"sights,omitempty"`
	Cookie []byte      `json:"cookie,omitempty"`
	Peer   string      `json:"peer,omitempty"`
	// Quarantine answers ListQuarantine, in the order of ids, which is that of time.
	Quarantine []QuarantinedDisk `json:"quarantine,omitempty"`
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

// HostLiveness is what is known of a host's life.
type HostLiveness struct {
	Up        bool
	RenewedAt time.Time
	Renewals  int64
	// Servers on it, deleted ones left out.
	Servers int
	// Verdict is why a silent host is called dead, or why it is not; empty: the host is not silent.
	Verdict   string
	Suspected bool
	// Watchdog is the hardware watchdog that its newest renewal named as armed; empty: none.
	Watchdog string
}
