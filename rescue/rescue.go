// Package rescue holds what a rescue is, for machines and servers alike: the
// session with its image, the boot it saved and its end, and the credential. It
// is pure and knows neither nodes nor hypervisors: a subject is a kind and an id.
package rescue

import (
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
	// ExpiresAt ends the session by itself; zero: never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Fingerprint of the ssh host key in the rescue system ("SHA256:..."), where our agent runs in it.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Credential opens the rescue system until the session closes; sealed at rest, in no JSON.
	Credential Credential `json:"-"`
}

// Credential is what a rescue system is opened with. The password itself is nowhere.
type Credential struct {
	Hash secret.Value // crypt(3)
	Keys []string     // ssh public keys, one line each
}

// Boot is how a subject boots by itself.
type Boot struct {
	Device     string `json:"device,omitempty"` // "disk", "pxe", ...; empty: the firmware's own order
	Persistent bool   `json:"persistent,omitempty"`
	Mode       string `json:"mode,omitempty"` // "uefi", "bios" or empty
	// Power is "on" or "off" where it was saved.
	Power string `json:"power,omitempty"`
}
