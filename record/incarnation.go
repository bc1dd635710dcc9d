package record

import "time"

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
)

// Held says since when and why a database is held: nothing acts on it until an operator releases it.
type Held struct {
	Since time.Time
	Code  string
	// Detail tells a person what was found.
	Detail string
}
