// Package rescue holds what a rescue is, for machines and servers alike: the
// session with its image, the boot it saved and its end, and the credential. It
// is pure and knows neither nodes nor hypervisors: a subject is a kind and an id.
package rescue

import (
	"strings"
	"time"

	"salvor/secret"
)

// State is how far a session is.
type State string

const (
	Preparing State = "preparing" // the image and the saved boot are being settled
	Prepared  State = "prepared"  // the next power-on boots the rescue image; the subject is off
	Booting   State = "booting"   // the rescue image boots
	Ready     State = "ready"     // it runs, and the credential opens it
	Leaving   State = "leaving"   // the subject is put back
	Closed    State = "closed"    // the subject is as it was
	Failed    State = "failed"    // neither in rescue nor surely back: unrescue may be asked again
)

// Open tells whether a session in this state holds its image and its saved boot.
func (s State) Open() bool { return s != "" && s != Closed }

// Session is a rescue: everything that is needed to put the subject back.
type Session struct {
	StartedAt time.Time `json:"started_at"`
	// State of a server's session; a node's is told by its provision state.
	State State `json:"state,omitempty"`
	// Saved is the boot that the subject had when it was last whole. A rescue of a
	// subject that is already in a session keeps it.
	Saved Boot `json:"saved"`
	// SavedKnown tells whether Saved has been read yet.
	SavedKnown bool `json:"saved_known"`
	// OwnSystem tells that a machine runs its own system again, because its rescue failed before it booted anything of ours.
	OwnSystem bool `json:"own_system,omitempty"`
	// SavedSettings are those of a hypervisor that the rescue replaces, as they were set; a name that is absent was not set.
	SavedSettings map[string]string `json:"saved_settings,omitempty"`
	// Image names what was booted, for people.
	Image string `json:"image,omitempty"`
	// Source is the image itself, as it was when the session was opened: a later change of the row changes no session.
	Source *Source `json:"source,omitempty"`
	// Diagnosis is the id of the diagnosis that a node's rescue was made for; empty: a user asked for it.
	Diagnosis string `json:"diagnosis,omitempty"`
	// Repair is the id of the repair that a node's rescue was made for; empty: it was made for none.
	Repair string `json:"repair,omitempty"`
	// Begun counts how often a rescue was asked for in the session: between two of them the subject's own system may have run.
	Begun int `json:"begun,omitempty"`
	// HalfWritten is the id of the repair whose before-images make the disks whole again; empty: they are whole. As long as it is set, the machine's
	// own system must not boot.
	HalfWritten string `json:"half_written,omitempty"`
	// ExpiresAt ends the session by itself; zero: never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Fingerprint of the ssh host key in the rescue system ("SHA256:..."), where our agent runs in it.
	Fingerprint string `json:"fingerprint,omitempty"`
	// HostKey is that key ("TYPE BASE64"); empty where the agent or the host is too old to report it.
	HostKey string `json:"host_key,omitempty"`
	// Addresses are those at which a machine's rescue system should answer ssh; none: not known. A server's are those of its NICs.
	Addresses []string `json:"addresses,omitempty"`
	// LeftOut says in clauses what the rescue system leaves out of its network; empty: nothing, or it did not say.
	LeftOut []string `json:"left_out,omitempty"`
	// Agent is the agent that serves in the rescue system; nil: none was given a token for that.
	Agent *Agent `json:"agent,omitempty"`
	// Notice says what the rescue system did not take of what was asked for; empty: it took everything.
	Notice string `json:"notice,omitempty"`
	// Credential opens the rescue system until the session closes; sealed at rest, in no JSON.
	Credential Credential `json:"-"`
}

// Begin is a session at the begin of a rescue at now that ends by itself after lasts; 0: never. What is saved of an earlier rescue stays.
func (s Session) Begin(now time.Time, lasts time.Duration) *Session {
	if s.StartedAt.IsZero() {
		s.StartedAt = now
	}
	s.Begun++
	s.ExpiresAt, s.Notice = time.Time{}, ""
	if lasts > 0 {
		s.ExpiresAt = now.Add(lasts)
	}
	return s.Locked()
}

// MadeByJob tells whether a job made the rescue, which puts the machine back as it was found, on or off.
func (s *Session) MadeByJob() bool { return s.Diagnosis != "" || s.Repair != "" }

// IsForRepair tells whether a repair made the rescue. No session is none.
func (s *Session) IsForRepair() bool { return s != nil && s.Repair != "" }

// Locked is the session without what leads into its rescue system, which has ended or is to end.
func (s Session) Locked() *Session {
	s.Fingerprint, s.HostKey, s.Addresses, s.LeftOut, s.Agent = "", "", nil, nil, nil
	return &s
}

// Entry says in clauses how somebody gets into the rescue system that answers at these addresses.
func (s *Session) Entry(addresses []string) (notes []string) {
	if len(addresses) > 0 {
		notes = append(notes, "its rescue system should answer ssh at "+strings.Join(addresses, ", "))
	}
	if s.Fingerprint != "" {
		notes = append(notes, "the ssh host key of its rescue system is "+s.Fingerprint)
	}
	if s.Notice != "" {
		notes = append(notes, s.Notice)
	}
	if len(s.LeftOut) > 0 {
		notes = append(notes, "its rescue system leaves out of the network: "+strings.Join(s.LeftOut, "; "))
	}
	return notes
}

// Agent is what the token of an agent that serves in a rescue system is derived from.
type Agent struct {
	// Boot is the number of the ramdisk's boot.
	Boot int64 `json:"boot"`
	// KeyID names the key that derives the token.
	KeyID string `json:"key_id"`
}

// MaxLasting is the longest time after which a session may end by itself.
const MaxLasting = 366 * 24 * time.Hour

// Credential is what a rescue system is opened with. The password itself is nowhere.
type Credential struct {
	Hash secret.Value // crypt(3)
	Keys []string     // ssh public keys, one line each
	// LUKSKeys open the machine's disks for the diagnosis that a rescue is made for, until the agent has them.
	LUKSKeys secret.Value
}

// Boot is how a subject boots by itself.
type Boot struct {
	Device     string `json:"device,omitempty"` // "disk", "pxe", ...; empty: the firmware's own order
	Persistent bool   `json:"persistent,omitempty"`
	Mode       string `json:"mode,omitempty"` // "uefi", "bios" or empty
	// Power is "on" or "off" where it was saved.
	Power string `json:"power,omitempty"`
}
