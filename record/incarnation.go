package record

import (
	"fmt"
	"time"

	"salvor/problem"
)

// Incarnation names one history of the database, and how far it has come.
type Incarnation struct {
	// ID is random. It changes only when an operator releases a held database.
	ID string
	// Counter rises at each start, at each backup and while programs write.
	Counter int64
	// Held is why nothing acts on the database; nil: everything acts.
	Held *Held
}

// The codes of Held.
const (
	HeldBackup   = "backup"    // the database was made by a backup
	HeldWentBack = "went-back" // a witness knows a later state of this history
	HeldReplaced = "replaced"  // a witness knows another database
	HeldCopied   = "copied"    // the database was copied to another place, which goes on with its work
	HeldAsked    = "asked"     // an administrator held the database
)

// Held is the time and the cause of a hold. Nothing acts on a held database until an operator releases it.
type Held struct {
	Since time.Time
	Code  string
	// Detail tells a person what was found.
	Detail string
}

// NumberStep is the minimum increment of a number at a release.
const NumberStep = 1 << 20

// NumberAfterRelease gives the next value of a number that is known outside of the database, such as an epoch. Every number of the lost
// history is lower. The time makes it so for a history that began with an earlier release of the same backup. A clock that was set
// back since then leaves the step only.
func NumberAfterRelease(n int64, releasedAt time.Time) int64 {
	return max(n+NumberStep, releasedAt.UnixMicro())
}

// heldSummaries are the texts of the codes, after "the database".
var heldSummaries = map[string]string{
	HeldBackup:   "was restored from a backup",
	HeldWentBack: "went back to an earlier state",
	HeldReplaced: "is not the one that was served here before",
	HeldAsked:    "was held by an administrator",
	HeldCopied:   "was copied to another place, which may go on with its work",
}

// HeldNext is the command that tells an operator what to decide.
const HeldNext = "salvor db restored"

// Summary gives the cause of the hold without the details that only operators may read.
func (h *Held) Summary() string {
	summary, known := heldSummaries[h.Code]
	if !known {
		summary = "may be older than the machines (" + h.Code + ")"
	}
	return "the database " + summary
}

// Refusal is the error for a request or job that would change something while the database is held; nil if it is not held.
func (h *Held) Refusal() error {
	if h == nil {
		return nil
	}
	return problem.Unavailablef("Nothing is changed now: %s. An administrator must first decide about its open jobs; see: %s", h.Summary(), HeldNext)
}

// Witness is a copy of the database's incarnation and counter that something outside of the database keeps.
type Witness struct {
	ID      string `json:"incarnation"`
	Counter int64  `json:"counter"`
}

// SeenWitness is the content of a witness, as this process read it last.
type SeenWitness struct {
	// Name is the path of a file. HostID is the host that stores the witness; empty: the witness is a file.
	Name, HostID string
	Witness
	// Unreadable is why it could not be read.
	Unreadable string
}

// LostWitness is a witness that contradicted the database when an operator released it, with its content at that time. That content holds no
// database again.
type LostWitness struct {
	Name string
	Witness
	User string
}

// Judge compares the database with a witness. former are the earlier incarnations of the database. An empty code means that they
// agree.
func (i Incarnation) Judge(w Witness, from string, former map[string]int64) (code, detail string) {
	switch _, past := former[w.ID]; {
	case w.ID == i.ID && w.Counter > i.Counter:
		return HeldWentBack, fmt.Sprintf("%s remembers state %d of the database, and the database is at state %d", from, w.Counter, i.Counter)
	case w.ID == i.ID || w.ID == "" || past:
		return "", ""
	}
	return HeldReplaced, fmt.Sprintf("%s remembers the database %.40s, which this one (%.40s) has never been", from, w.ID, i.ID)
}
