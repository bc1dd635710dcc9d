package compute

import (
	"encoding/json"
	"time"

	"salvor/rescue"
	"salvor/secret"
)

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
	// Export gives what of a guest that is off lies on its host alone, for its next host.
	Export Verb = "export"
	// Diagnose examines the disks of a guest that is off, in a helper guest that boots the kernel of Spec.Rescue and reads the disks only. With InRescue the
	// guest's own rescue system does it. A later order for the server ends it.
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
	Spec    *Spec `json:"spec,omitempty"`
	Power   Power `json:"power,omitempty"`
	Soft    bool  `json:"soft,omitempty"`
	Restart bool  `json:"restart,omitempty"` // off first, whatever it is now
	Within  int   `json:"within_s,omitempty"`
	// KeepSaved: a guest whose memory is saved is not switched off. Only hosts with Inventory.KeepsSaved obey that.
	KeepSaved bool      `json:"keep_saved,omitempty"`
	KeepDisks bool      `json:"keep_disks,omitempty"`
	Disk      *SpecDisk `json:"disk,omitempty"`
	Lines     int       `json:"lines,omitempty"`
	// OnlyRead, of Diagnose: no program of the systems on the disks runs. Only hosts with Inventory.OnlyReads pass it on.
	OnlyRead bool `json:"only_read,omitempty"`
	// Found, of Prepare: the disks must be there, proven; none is made.
	Found bool `json:"found,omitempty"`
	// Fresh, of Define: a guest of that UUID or name with another epoch is problem.Conflict, because this order must not change that guest.
	Fresh bool `json:"fresh,omitempty"`
	// Receipt, of Prepare and Define, is the id of the fencing receipt of the host that had the server. With the receipt a disk lease of that host may be broken.
	Receipt string      `json:"receipt,omitempty"`
	Probes  []DiskProbe `json:"probes,omitempty"`
	// Cookie is the answer of the other host of a live migration, Peer the address on which that host listens.
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
	// State, of Define, is what came with the guest from its former host: a guest that is here already keeps its own.
	State *GuestState `json:"state,omitempty"`
	// CopiedState, of Define: a guest that is not here takes the state that its former host copied beside its disk in a shared store.
	CopiedState bool `json:"copied_state,omitempty"`
	// NeedsState, of Prepare: without a copy of the state that can be read nothing is prepared (problem.Conflict).
	NeedsState bool `json:"needs_state,omitempty"`
	// Now, of Diagnose, is the control plane's time.
	Now time.Time `json:"now,omitzero"`
	// InRescue, of Diagnose: the guest is in rescue, and its rescue system examines all disks that it has.
	InRescue bool `json:"in_rescue,omitempty"`
}

// Images are the digests of the images that an order with these arguments has the host fetch from the control plane, which has those without a URL.
func (a *Args) Images() (digests []string) {
	add := func(i *SpecImage) {
		if i != nil && i.Digest != "" && i.URL == "" {
			digests = append(digests, i.Digest)
		}
	}
	if a.Disk != nil {
		add(a.Disk.Image)
	}
	if a.Spec == nil {
		return digests
	}
	for _, d := range a.Spec.Disks {
		add(d.Image)
	}
	if r := a.Spec.Rescue; r != nil {
		onWeb := r.LocationType == rescue.LocationHTTP
		if !onWeb || r.Location == "" {
			add(r.Image)
		}
		if !onWeb || r.Ramdisk == "" {
			add(r.RamdiskImage)
		}
	}
	return digests
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
	// MemoryLost tells that the guest's memory was saved, and was given up when the guest was switched off.
	MemoryLost bool `json:"memory_lost,omitempty"`
	// Missing answers FindFiles: those of Args.Files that are not among the host's rescue images.
	Missing []string `json:"missing,omitempty"`
	// Sights answer Probe, one for each of Args.Probes.
	Sights []DiskSight `json:"sights,omitempty"`
	Cookie []byte      `json:"cookie,omitempty"`
	Peer   string      `json:"peer,omitempty"`
	// State answers Export.
	State *GuestState `json:"state,omitempty"`
	// StateTaken answers Define with Args.CopiedState: the guest has the copied state. Hosts of former releases take none.
	StateTaken bool `json:"state_taken,omitempty"`
	// Quarantine answers ListQuarantine, in the order of ids, which is that of time.
	Quarantine []QuarantinedDisk `json:"quarantine,omitempty"`
}
