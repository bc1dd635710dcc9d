package native

import "time"

// Restored answers GET /salvor/v1/restored: the open jobs and differences of a restored database.
type Restored struct {
	// Held is the cause of the hold; null: the database is not held, and the rest is empty.
	Held *RestoredHeld `json:"held"`
	Jobs []RestoredJob `json:"jobs"`
	// Differences are findings of conductors and hosts that differ from the record.
	Differences []RestoredDifference `json:"differences"`
	// Machines counts the machines that can be read, Read those that were read.
	Machines int `json:"machines"`
	Read     int `json:"machines_read"`
	// Witnesses are those that the answering process sees. LostWitnesses are the newest that were declared lost.
	Witnesses     []RestoredWitness     `json:"witnesses"`
	LostWitnesses []RestoredLostWitness `json:"lost_witnesses"`
}

// RestoredWitness is a copy of the database's incarnation and counter that is kept outside of the database.
type RestoredWitness struct {
	Witness     string `json:"witness"`     // path of a file, or "host NAME"
	Incarnation string `json:"incarnation"` // empty: it remembers nothing
	Counter     int64  `json:"counter"`
	Contradicts string `json:"contradicts"` // how it contradicts the database; empty: they agree
	Unreadable  string `json:"unreadable"`
}

// RestoredLostWitness is a witness that an operator declared lost.
type RestoredLostWitness struct {
	Witness     string    `json:"witness"`
	Incarnation string    `json:"incarnation"`
	Counter     int64     `json:"counter"`
	DeclaredBy  string    `json:"declared_by"`
	DeclaredAt  time.Time `json:"declared_at"`
}

// RestoredLoseWitnesses is the body of POST /salvor/v1/restored/witnesses.
type RestoredLoseWitnesses struct {
	// Witnesses are paths, names or ids of hosts, "hosts", "all", or ids of databases.
	Witnesses []string `json:"witnesses"`
	DryRun    bool     `json:"dry_run"`
}

// RestoredWitnessesLost is the answer: a line for each witness. With DryRun nothing was done.
type RestoredWitnessesLost struct {
	Lines []string `json:"lines"`
}

// RestoredHeld is the time and the cause of the hold.
type RestoredHeld struct {
	Since  time.Time `json:"since"`
	Code   string    `json:"code"` // "backup", "went-back", "replaced", "copied" or "asked"
	Words  string    `json:"words"`
	Detail string    `json:"detail"`
}

// RestoredJob is an open job.
type RestoredJob struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind"`
	SubjectKind string    `json:"subject_kind"`
	SubjectID   string    `json:"subject_id"`
	Subject     string    `json:"subject"` // name of the subject, or its id if it has none
	State       string    `json:"state"`
	Action      string    `json:"action"` // the current action; empty: none has begun
	Tries       int       `json:"tries"`
	AskedAt     time.Time `json:"asked_at"`
	AskedBy     string    `json:"asked_by"`
	RequestID   string    `json:"request_id"`
	Choice      string    `json:"choice"` // "continue", "end", "drop" or empty
	// Effects holds the effect of each choice that the job has. A choice without an entry is not possible.
	Effects map[string]string `json:"effects"`
}

// RestoredDifference is a fact that differs from its record.
type RestoredDifference struct {
	SubjectKind string    `json:"subject_kind"`
	SubjectID   string    `json:"subject_id"`
	Subject     string    `json:"subject"`
	What        string    `json:"what"`
	Recorded    string    `json:"recorded"`
	Found       string    `json:"found"`
	Unreadable  string    `json:"unreadable"` // why the fact could not be read
	ReadAt      time.Time `json:"read_at"`
	Release     string    `json:"release"` // effect of the release
	Next        []string  `json:"next"`    // commands that choose another effect
}

// RestoredChoice is the body of POST /salvor/v1/restored/choices.
type RestoredChoice struct {
	// Jobs takes the choices "continue", "end" and "drop", Nodes "take" and "enforce". "all" means all nodes, or all jobs without a
	// choice.
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

// RestoredReleased answers a release with a line for each effect; with DryRun nothing was done.
type RestoredReleased struct {
	Released bool     `json:"released"`
	Lines    []string `json:"lines"`
}
