// Package rescue holds what a rescue is, for machines and servers alike: the
// session with its image, the boot it saved and its end, and the credential. It
// is pure and knows neither nodes nor hypervisors: a subject is a kind and an id.
package rescue

import "time"

// Session is an open rescue: everything that is needed to put the subject back.
type Session struct {
	StartedAt time.Time `json:"started_at"`
	// Saved is the boot that the subject had when it was last whole. A rescue of a
	// subject that is already in a session keeps it.
	Saved Boot `json:"saved"`
	// SavedKnown tells whether Saved has been read yet.
	SavedKnown bool `json:"saved_known"`
	// Image names what was booted, for people.
	Image string `json:"image,omitempty"`
}

// Boot is how a subject boots by itself.
type Boot struct {
	Device     string `json:"device,omitempty"` // "disk", "pxe", ...; empty: the firmware's own order
	Persistent bool   `json:"persistent,omitempty"`
	Mode       string `json:"mode,omitempty"` // "uefi", "bios" or empty
}
