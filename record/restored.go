package record

import (
	"time"

	"salvor/job"
)

// Difference is a fact of a machine or a server that differs from its record, found while the database is held.
type Difference struct {
	Subject job.Subject
	Name    string // of the subject; empty: it has none
	// What is the fact that differs: "power", "boot device", "virtual media", "network", "liveness" or "guest".
	What            string
	Recorded, Found string
	// Unreadable is why nothing was found; empty: something was.
	Unreadable string
	ReadAt     time.Time
	// Release is the effect of the release on this difference.
	Release string
}
