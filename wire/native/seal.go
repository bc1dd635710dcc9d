package native

// Seal answers GET /salvor/v1/secrets: which key seals the secrets of the database, and how far a change of it is. Keys are
// told by their ids, which are no secret.
type Seal struct {
	// State is "steady", "waiting" (processes have to read the next key) or "sealing" (what the old key sealed is sealed anew).
	State string `json:"state"`
	// WaitsFor says in words what a change of the key waits for; empty: for nothing.
	WaitsFor  string        `json:"waits_for,omitempty"`
	Keys      []SealKey     `json:"keys"`
	Processes []SealProcess `json:"processes"`
	// Old is what still needs the old key; null: there is none.
	Old *SealUse `json:"old"`
}

// SealKey is a key by its id; State is "next", "current", "old" or "retired".
type SealKey struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Since string `json:"since"`
}

// SealProcess is a process that serves, and the keys that it has read.
type SealProcess struct {
	Host string   `json:"host"`
	ID   string   `json:"id"`
	Keys []string `json:"keys"`
	// Behind: it has to read the next key first.
	Behind bool `json:"behind"`
}

// SealUse counts what needs an old key: rows, ramdisks that run and operations that began before the change.
type SealUse struct {
	Rows       int `json:"rows"`
	Ramdisks   int `json:"ramdisks"`
	Operations int `json:"operations"`
}
