package native

import "time"

// Event is one line of a timeline: an element of "events" in a page of GET /salvor/v1/events, and the data of one
// server-sent event there.
type Event struct {
	// Cursor goes on after this event: ?after=CURSOR, or Last-Event-ID. It rises over all subjects.
	Cursor    string    `json:"cursor"`
	Subject   Subject   `json:"subject"`
	Seq       int64     `json:"seq"` // the subject's own counter, from 1, without a gap
	At        time.Time `json:"at"`
	Type      string    `json:"type"`     // "state", "action", "contact", "request", "boot"
	Severity  string    `json:"severity"` // "info", "warning" or "error"
	Text      string    `json:"text"`
	Job       string    `json:"job,omitempty"` // UUID
	Action    string    `json:"action,omitempty"`
	Seconds   float64   `json:"seconds,omitempty"` // that an ended action took
	RequestID string    `json:"request_id,omitempty"`
	User      string    `json:"user,omitempty"`
}

// Events is a page of GET /salvor/v1/events, the oldest first. Parameters: subject=KIND:IDENT (may be repeated), type=,
// after=CURSOR ("now": only what comes), last=N (the newest N), limit=N. With "Accept: text/event-stream" the answer
// is a stream that goes on: event name "event", id the cursor, data one Event; "lost" (data: an Events without events)
// where what followed the cursor has been pruned meanwhile.
type Events struct {
	Events []Event `json:"events"`
	// Next is the cursor to go on from, also where the page is empty.
	Next string `json:"next"`
	// More tells that there is more than fitted the page.
	More bool `json:"more"`
}
