package metal

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
)

// ConsoleLogDocument is the document with a ConsoleLog. It is sealed, and ends with the tenancy.
const ConsoleLogDocument DocumentKind = "console log"

// maxConsoleParts is how many parts of a console log are kept.
const maxConsoleParts = 16

// ConsoleLog is what a machine's own systems wrote on its serial line while a conductor read it.
type ConsoleLog struct {
	// Tenancy names the tenancy of the texts: each that begins after DropTenancy has another one.
	Tenancy string `json:"tenancy"`
	// Problem says why nobody reads the line now; empty: it is read.
	Problem string `json:"problem,omitempty"`
	// Parts are the newest ones, the oldest first. Together they have at most diagnose.MaxConsole bytes. Only the last part may have no text.
	Parts []ConsolePart `json:"parts"`
}

// ConsolePart is what was read without an interruption. What ramdisks write lies between two parts, and is not kept.
type ConsolePart struct {
	Since time.Time `json:"since"`
	// Session is when the rescue session began after which the machine's own system booted, and SessionBegun the session's Begun. The line was open at the
	// begin of that boot, so Text has the whole of it. Zero: the part has no whole boot after a rescue.
	Session      time.Time `json:"session,omitzero"`
	SessionBegun int       `json:"session_begun,omitempty"`
	// Until is when the newest text came; zero: none came yet.
	Until time.Time `json:"until,omitzero"`
	Text  string    `json:"text"`
}

// Text joins the parts.
func (l *ConsoleLog) Text() string {
	var b strings.Builder
	for _, p := range l.Parts {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

// Current is the part that goes on now: whatever the machine wrote since it began is in it. nil: nobody reads the line, or nothing has been written.
func (l *ConsoleLog) Current() *ConsolePart {
	if l.Problem != "" || len(l.Parts) == 0 || l.Parts[len(l.Parts)-1].Until.IsZero() {
		return nil
	}
	return &l.Parts[len(l.Parts)-1]
}

// Trim drops what is beyond the bounds, the oldest first, and parts without a text. The last part stays without a text too: it shows that a machine which
// wrote before was not read without an interruption.
func (l *ConsoleLog) Trim() {
	room := diagnose.MaxConsole
	for i := range slices.Backward(l.Parts) {
		text := l.Parts[i].Text
		if over := len(text) - room; over > 0 {
			l.Parts[i].Text = text[over:]
		}
		room -= len(l.Parts[i].Text)
	}
	for i := len(l.Parts) - 2; i >= 0; i-- {
		if l.Parts[i].Text == "" {
			l.Parts = slices.Delete(l.Parts, i, i+1)
		}
	}
	l.Parts = l.Parts[max(0, len(l.Parts)-maxConsoleParts):]
}

// BootAfter is what has the whole boot of the machine's own system after that rescue; nil: nothing has.
func (l *ConsoleLog) BootAfter(session time.Time, begun int) *ConsolePart {
	for i := range slices.Backward(l.Parts) {
		if p := &l.Parts[i]; !p.Session.IsZero() && p.Session.Equal(session) && p.SessionBegun == begun {
			return p
		}
	}
	return nil
}

// WritesConsole tells whether what a machine in this state writes on its serial line comes from its own system and not from a ramdisk.
func (s State) WritesConsole() bool {
	return s == Unrescuing || s.Info().Phase == AtRest && s != Rescue
}

// ReadConsoleLog reads the console log of a node; found is false where there is none.
func ReadConsoleLog(ctx context.Context, store DocumentStore, tx job.Tx, nodeID string) (l ConsoleLog, found bool, err error) {
	doc, err := store.Document(ctx, tx, nodeID, ConsoleLogDocument)
	if problem.Is(err, problem.NotFound) {
		return l, false, nil
	}
	if err == nil {
		err = json.Unmarshal(doc.Body, &l)
	}
	return l, err == nil, err
}

// ConsoleLog is what was kept of a node's console; empty: nothing was.
func (s *Nodes) ConsoleLog(ctx context.Context, nodeID string) (ConsoleLog, error) {
	l, _, err := ReadConsoleLog(ctx, s.store, nil, nodeID)
	return l, err
}

// SaveConsoleLog writes the console log of a node in place of the former one. It deletes the former row: so one of two transactions that change it, or end
// the tenancy, begins again.
func SaveConsoleLog(store DocumentStore, tx job.Tx, nodeID string, l ConsoleLog) error {
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := store.DeleteDocument(tx, nodeID, ConsoleLogDocument); err != nil {
		return err
	}
	return store.SaveDocument(tx, Document{NodeID: nodeID, Kind: ConsoleLogDocument, Body: body})
}
