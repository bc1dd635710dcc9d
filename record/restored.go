package record

import (
	"time"

	"salvor/job"
)

// Difference is a fact of a machine or a server that differs from its record, found while the database is held.
type Difference struct {
	Subject job.Subject
	Name    string // of the subject; empty: it has none
	// What is the fact that differs: "power", "boot device", "virtual media" or "guest".
	What            string
	Recorded, Found string
	// Unreadable is why nothing was found; empty: something was.
	Unreadable string
	ReadAt     time.Time
	// Release is the effect of the release on this difference.
	Release string
	// Next are commands that choose another effect.
	Next []Command
}

// HeldChoice is a choice that an operator made while the database is held.
type HeldChoice struct {
	Kind   string // ChoiceOfJob or ChoiceOfNode
	ID     string
	Choice string
	User   string
	MadeAt time.Time
}

// The kinds and the choices of a HeldChoice.
const (
	ChoiceOfJob  = "job"
	ChoiceOfNode = "node"

	ContinueJob = "continue" // its work goes on
	EndJob      = "end"      // it fails, and what it did is undone
	DropJob     = "drop"     // it is ended, and no machine is touched

	TakePower    = "take"    // the power as it was found becomes the recorded one
	EnforcePower = "enforce" // the recorded power stays, and power sync enforces it
)
