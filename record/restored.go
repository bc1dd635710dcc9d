package record

import (
	"time"

	"salvor/job"
)

// Difference is something of a machine or a server that is not as its record says, found while the database is held.
type Difference struct {
	Subject job.Subject
	Name    string // of the subject; empty: it has none
	// What differs: "power", "boot device", "virtual media", "guest".
	What            string
	Recorded, Found string
	// Unreadable is why nothing was found; empty: something was.
	Unreadable string
	ReadAt     time.Time
	// Release says what the release of the database makes of it.
	Release string
	// Next are commands for whoever wants something else.
	Next []Command
}

// HeldChoice is what an operator chose while the database is held.
type HeldChoice struct {
	Kind   string // ChoiceOfJob or ChoiceOfNode
	ID     string
	Choice string
	User   string
	MadeAt time.Time
}

// What a HeldChoice is about, and what can be chosen.
const (
	ChoiceOfJob  = "job"
	ChoiceOfNode = "node"

	ContinueJob = "continue" // its work goes on
	EndJob      = "end"      // it fails, and what it did is undone
	DropJob     = "drop"     // it is ended, and no machine is touched

	TakePower    = "take"    // the power as it was found becomes the recorded one
	EnforcePower = "enforce" // the recorded power stays, and power sync enforces it
)
