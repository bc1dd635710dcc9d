package kit

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"salvor/client"
)

// Progress tells what a node waits for: on a terminal in one line that changes, else in
// a line for each change.
type Progress struct {
	Out     io.Writer
	Name    string
	Width   int
	last    string
	Elapsed time.Duration
}

// NewProgress tells on out what goes on with the record ident.
func NewProgress(out io.Writer, ident string) *Progress {
	return &Progress{Out: out, Name: StripControlChars(ident), Width: TerminalWidth(out)}
}

// Look tells the state of a node that somebody waits for.
func (p *Progress) Look(at client.Progress) {
	p.Elapsed = at.Elapsed
	what := "asking"
	if at.Node != nil {
		what = at.Node.ProvisionState
		if WaitsForRamdisk(what) {
			what += ": waits for the ramdisk"
		}
		if at.LastEvent != "" && at.LastEvent != at.Node.ProvisionState {
			what += " (last: " + at.LastEvent + ")"
		}
	}
	if at.Silent != nil {
		what += " (the API does not answer: " + at.Silent.Error() + ")"
	}
	p.PrintStatus(at.Elapsed, what)
}

// PrintStatus tells what is waited for, after so long.
func (p *Progress) PrintStatus(elapsed time.Duration, what string) {
	what = StripControlChars(what)
	if p.Width > 0 {
		fmt.Fprintf(p.Out, "\r\x1b[K%s", truncateLine(fmt.Sprintf("%s  %4d s  %s", p.Name, int(elapsed.Seconds()), what), p.Width-1))
		return
	}
	if what != p.last {
		fmt.Fprintf(p.Out, "%s  %4d s  %s\n", p.Name, int(elapsed.Seconds()), what)
		p.last = what
	}
}

// WaitsForRamdisk tells whether it is the machine's turn in a provision state.
func WaitsForRamdisk(state string) bool {
	return strings.HasSuffix(state, " wait") || state == "wait call-back"
}

// End clears the line that changed.
func (p *Progress) End() {
	if p.Width > 0 {
		fmt.Fprint(p.Out, "\r\x1b[K")
	}
}

// truncateLine cuts a line that would wrap.
func truncateLine(s string, width int) string {
	if utf8.RuneCountInString(s) <= width || width < 4 {
		return s
	}
	return string([]rune(s)[:width-3]) + "..."
}

type sanitizedError struct{ error }

func (c sanitizedError) Error() string { return StripControlChars(c.error.Error()) }
func (c sanitizedError) Unwrap() error { return c.error }

// Sanitized is an error whose text came from a machine, without control characters.
func Sanitized(err error) error { return sanitizedError{err} }
