// Package native is the JSON of salvor's own API, /salvor/v1, that programs other than the
// server read: the console, the command line, followers of the timeline. It has no behaviour.
package native

import "time"

// Subject is what an answer or an event is about.
type Subject struct {
	Kind string `json:"kind"` // "node", "server" or "host"; in events also "cluster"
	ID   string `json:"id"`   // UUID
	Name string `json:"name,omitempty"`
}

// Status is what a Why comes down to: "idle", nothing is asked of it; "working", an action runs or is about to; "waiting", for a word
// from outside that may well come; "stuck", it goes on only if somebody does something.
type Status string

// Why answers GET /salvor/v1/{nodes|servers|hosts}/{ident}/why.
type Why struct {
	Subject Subject    `json:"subject"`
	State   string     `json:"state"`           // "rescue wait", "active (rebooting)", "fenced"
	Since   *time.Time `json:"since,omitempty"` // when it came into the state
	Status  Status     `json:"mood"`
	// Text is all of it as one paragraph in English.
	Text string `json:"text"`
	// WaitsFor ends the sentence "waits for ..."; empty: it waits for nothing.
	WaitsFor   string     `json:"waits_for,omitempty"`
	WaitsSince *time.Time `json:"waits_since,omitempty"`
	// Notes belong to the state and are no trouble.
	Notes []string `json:"notes"`
	// Problems is what is known to be wrong, the gravest first.
	Problems []string `json:"trouble"`
	// Job is what works on it or waits; absent: nothing was asked.
	Job *Job `json:"job,omitempty"`
	// Contacts are what was heard last of each party, the newest first.
	Contacts []LastContact `json:"words"`
	// Deadline is the next one; absent: there is none.
	Deadline *Deadline `json:"deadline,omitempty"`
	// Next are the commands to run next, the best first; none: no command is known that would help.
	Next []Command `json:"next"`
	// Accepts lists the requests that the subject's state admits now: provision verbs and power targets of a node ("rescue", "power off"),
	// actions of a server ("start", "hard reboot"). salvor checks permission and preflight when it gets one. A host has none.
	Accepts []string `json:"accepts"`
	// At is when the answer was true, by the server's clock.
	At time.Time `json:"at"`
}

// Job is a unit of work as far as it is shown.
type Job struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	State     string     `json:"state"` // ready, running, waiting, undoing
	Action    string     `json:"action,omitempty"`
	Since     *time.Time `json:"action_started_at,omitempty"`
	Attempt   int        `json:"attempt"` // failed tries of the action
	Crashes   int        `json:"crashes"` // conductors that died during the action
	Conductor string     `json:"conductor,omitempty"`
	Problem   string     `json:"problem,omitempty"`
	RequestID string     `json:"request_id,omitempty"`
	User      string     `json:"user,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
}

// LastContact is the last that was heard of a party.
type LastContact struct {
	From string     `json:"from"` // "bmc", "agent", "lookup", "dhcp", "boot", "host", "cluster"
	At   *time.Time `json:"at,omitempty"`
	Text string     `json:"text"`
	// OK is false for a failure and for a silence.
	OK bool `json:"ok"`
}

// Deadline is counted in seconds in which a conductor of the group lived, so it is no time of day.
type Deadline struct {
	What    string `json:"what"`           // what ends then: "the wait", "trying this action", "the whole rescue"
	Seconds int64  `json:"seconds"`        // that are left
	Running bool   `json:"running"`        // false: no conductor lives, so the clock stands
	Then    string `json:"then,omitempty"` // what happens when it has passed
}

// Command is a command line of salvor and what it is good for.
type Command struct {
	Run string `json:"run"`
	For string `json:"for"`
}
