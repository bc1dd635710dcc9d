package native

import "time"

// Restored answers GET /salvor/v1/restored: what an operator decides about a database that was restored.
type Restored struct {
	// Held is why nothing acts on the database; absent: it is not held, and the rest is empty.
	Held *RestoredHeld `json:"held"`
	Jobs []RestoredJob `json:"jobs"`
	// Differences are what conductors and hosts found to differ from the record.
	Differences []RestoredDifference `json:"differences"`
	// Machines can be read, of which Read were.
	Machines int `json:"machines"`
	Read     int `json:"machines_read"`
}

// RestoredHeld says since when and why.
type RestoredHeld struct {
	Since  time.Time `json:"since"`
	Code   string    `json:"code"` // "backup", "went-back", "replaced" or "copied"
	Words  string    `json:"words"`
	Detail string    `json:"detail"`
}

// RestoredJob is an open job.
type RestoredJob struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind"`
	SubjectKind string    `json:"subject_kind"`
	SubjectID   string    `json:"subject_id"`
	Subject     string    `json:"subject"` // its name; its id where it has none
	State       string    `json:"state"`
	Action      string    `json:"action"` // where it stood; empty: at the start
	Tries       int       `json:"tries"`
	AskedAt     time.Time `json:"asked_at"`
	AskedBy     string    `json:"asked_by"`
	RequestID   string    `json:"request_id"`
	Choice      string    `json:"choice"` // "continue", "end", "drop" or empty
	// Effects say by choice what becomes of it. What is not in it cannot be chosen.
	Effects map[string]string `json:"effects"`
}

// RestoredDifference is something that is not as its record says.
type RestoredDifference struct {
	SubjectKind string    `json:"subject_kind"`
	SubjectID   string    `json:"subject_id"`
	Subject     string    `json:"subject"`
	What        string    `json:"what"`
	Recorded    string    `json:"recorded"`
	Found       string    `json:"found"`
	Unreadable  string    `json:"unreadable"` // why nothing was found
	ReadAt      time.Time `json:"read_at"`
	Release     string    `json:"release"` // what the release makes of it
	Next        []string  `json:"next"`    // commands for whoever wants something else
}

// RestoredChoice is the body of POST /salvor/v1/restored/choices.
type RestoredChoice struct {
	// Jobs are chosen "continue", "end" or "drop", Nodes "take" or "enforce". "all" are all, of jobs those without a choice.
	Jobs   []string `json:"jobs"`
	Nodes  []string `json:"nodes"`
	Choice string   `json:"choice"`
}

// RestoredRelease is the body of POST /salvor/v1/restored/release.
type RestoredRelease struct {
	// Rest is the choice for jobs that have none. Unread releases before all machines are read. DryRun does nothing.
	Rest   string `json:"rest"`
	Unread bool   `json:"unread"`
	DryRun bool   `json:"dry_run"`
}

// RestoredReleased answers it: a line for each thing that was done, or with DryRun would be.
type RestoredReleased struct {
	Released bool     `json:"released"`
	Lines    []string `json:"lines"`
}
