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
	// Witnesses are those that the answering process sees.
	Witnesses []RestoredWitness `json:"witnesses"`
}

// RestoredWitness is a copy of the database's incarnation and counter that is kept outside of the database.
type RestoredWitness struct {
	Witness     string `json:"witness"`     // path of a file, or "host NAME"
	Incarnation string `json:"incarnation"` // empty: it remembers nothing
	Counter     int64  `json:"counter"`
	Contradicts string `json:"contradicts"` // how it contradicts the database; empty: they agree
	Unreadable  string `json:"unreadable"`
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
	// Effects says for each decision, "as-it-is" and "end-operations", what becomes of the job, and in which state its subject is then.
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
}

// RestoredRelease is the body of POST /salvor/v1/restored/release.
type RestoredRelease struct {
	// Decision is "as-it-is": open jobs go on, or "end-operations": open jobs end, and no machine is touched.
	Decision string `json:"decision"`
	// Unread releases before all machines are read.
	Unread bool `json:"unread"`
}

// RestoredReleased answers a release with a line for each effect.
type RestoredReleased struct {
	Lines []string `json:"lines"`
}
