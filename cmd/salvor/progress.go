package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/metal"
	"salvor/wire/native"
)

// waitOption is the --wait of a command.
type waitOption struct{ seconds int }

func (w *waitOption) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&w.seconds, "wait", 0, "wait for the end; --wait=SECONDS waits no longer than that")
	cmd.Flags().Lookup("wait").NoOptDefVal = "0"
}

func (w *waitOption) asked(c *clientCall) bool { return c.Flags().Changed("wait") }

func (w *waitOption) check(c *clientCall) error {
	if w.seconds < 0 {
		return usageErrorf(c.Command, "--wait=%d: want 0 or more", w.seconds)
	}
	return nil
}

// within is the time that somebody waits.
func (w *waitOption) within(c *clientCall) (context.Context, context.CancelFunc) {
	if w.seconds > 0 {
		return context.WithTimeout(c.context(), secondsOf(w.seconds))
	}
	return context.WithCancel(c.context())
}

// late is the error of who gave up waiting: because it took too long, or because somebody interrupted.
func (w *waitOption) late(c *clientCall, err error) error {
	if c.context().Err() != nil {
		return withStatus(statusInterrupted, err)
	}
	return withStatus(statusTimedOut, err)
}

// lookInterval is how often a node, a diagnosis or a repair is looked at while somebody waits.
var lookInterval = time.Second

// all waits for every node named, one after the other, within one bound. want names the end in errors.
func (w *waitOption) all(c *clientCall, want string, wait client.Wait) error {
	ctx, cancel := w.within(c)
	defer cancel()
	return c.each(func(ident string) error {
		name := c.label(ident)
		p := newProgress(c.ErrOrStderr(), name)
		wait.Change, wait.Interval = p.look, lookInterval
		n, err := c.api.WaitProvision(ctx, ident, wait)
		p.end()
		var ended *client.Ended
		var late *client.TimedOut
		switch {
		case errors.As(err, &ended):
			return withStatus(statusFailed, fmt.Errorf("wait for %q: %w\n%s", want, sanitizedError{err}, nextStep(c.context(), c.api, ended.Node)))
		case errors.As(err, &late):
			return w.late(c, fmt.Errorf("wait for %q: %w\n%s", want, sanitizedError{err}, goesOn(ident, late.Last.Node)))
		case err != nil:
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: %s (%s, %d s)\n", name, stripControlChars(n.ProvisionState), stripControlChars(firstOf(n.PowerState, "power unknown")), int(p.elapsed.Seconds()+0.5))
		return nil
	})
}

// goesOn says what can be done about an operation that takes longer than somebody would wait.
func goesOn(ident string, n *client.Node) string {
	text := "it has not ended: see salvor node show " + stripControlChars(ident)
	if n != nil && (n.Reservation != "" || waitsForRamdisk(n.ProvisionState)) {
		text += ", or give it up by salvor node abort " + stripControlChars(ident)
	}
	return text
}

// sanitizedError is an error without control characters: its text came from a machine.
type sanitizedError struct{ error }

func (c sanitizedError) Error() string { return stripControlChars(c.error.Error()) }
func (c sanitizedError) Unwrap() error { return c.error }

// nextStep says what can be done with a node whose operation failed: by its why, else by its state.
func nextStep(ctx context.Context, api *client.Client, n *client.Node) string {
	name := stripControlChars(n.Label())
	text := "what happened: salvor node history " + name
	var why native.Why
	if err := api.Ask(ctx, client.Native, http.MethodGet, "/nodes/"+url.PathEscape(n.UUID)+"/why", nil, nil, &why); err == nil {
		if len(why.Next) > 0 {
			text += "\n" + nextCommands(why.Next)
		}
		return text
	}
	if n.Maintenance {
		return text + "\nwhat next: the node is in maintenance (" + firstOf(stripControlChars(n.MaintenanceReason), stripControlChars(n.Fault), "no reason given") +
			"): salvor node maintenance unset " + name + " when it is mended"
	}
	lead := "what next: "
	for _, r := range metal.Remedies(metal.State(n.ProvisionState), name) {
		text += "\n" + lead + r.Run + "  # " + r.For
		lead = "       or: "
	}
	return text
}

// nextCommands writes commands as text, a line each with its purpose.
func nextCommands(next []native.Command) string {
	lines := make([]string, len(next))
	for i, one := range next {
		lead := "what next: "
		if i > 0 {
			lead = "       or: "
		}
		lines[i] = lead + stripControlChars(one.Run) + "  # " + stripControlChars(one.For)
	}
	return strings.Join(lines, "\n")
}

// progressPrinter tells what a node waits for: on a terminal in one line that changes, else in
// a line for each change.
type progressPrinter struct {
	out     io.Writer
	name    string
	width   int
	last    string
	elapsed time.Duration
}

func newProgress(out io.Writer, ident string) *progressPrinter {
	return &progressPrinter{out: out, name: stripControlChars(ident), width: terminalWidth(out)}
}

func (p *progressPrinter) look(at client.Progress) {
	p.elapsed = at.Elapsed
	what := "asking"
	if at.Node != nil {
		what = at.Node.ProvisionState
		if waitsForRamdisk(what) {
			what += ": waits for the ramdisk"
		}
		if at.LastEvent != "" && at.LastEvent != at.Node.ProvisionState {
			what += " (last: " + at.LastEvent + ")"
		}
	}
	if at.Silent != nil {
		what += " (the API does not answer: " + at.Silent.Error() + ")"
	}
	p.printStatus(at.Elapsed, what)
}

// printStatus tells what is waited for, after so long.
func (p *progressPrinter) printStatus(elapsed time.Duration, what string) {
	what = stripControlChars(what)
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r\x1b[K%s", truncateLine(fmt.Sprintf("%s  %4d s  %s", p.name, int(elapsed.Seconds()), what), p.width-1))
		return
	}
	if what != p.last {
		fmt.Fprintf(p.out, "%s  %4d s  %s\n", p.name, int(elapsed.Seconds()), what)
		p.last = what
	}
}

// waitsForRamdisk tells whether it is the machine's turn in a provision state.
func waitsForRamdisk(state string) bool {
	return strings.HasSuffix(state, " wait") || state == "wait call-back"
}

// end clears the line that changed.
func (p *progressPrinter) end() {
	if p.width > 0 {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// truncateLine cuts a line that would wrap.
func truncateLine(s string, width int) string {
	if utf8.RuneCountInString(s) <= width || width < 4 {
		return s
	}
	return string([]rune(s)[:width-3]) + "..."
}

// followSteps looks at something that goes on, every lookInterval until it has ended, and shows its steps on standard error; first stands for the
// step that has no name yet. ended is false where the time is over, which within bounds; 0: nothing does.
func followSteps(c *clientCall, label, first string, within time.Duration, look func() (step string, ended bool, err error)) (ended bool, err error) {
	line, began := newProgress(c.ErrOrStderr(), label), time.Now()
	defer line.end()
	turn := time.NewTicker(lookInterval)
	defer turn.Stop()
	for {
		step, ended, err := look()
		if err != nil || ended {
			return ended, err
		}
		line.printStatus(time.Since(began), firstOf(step, first))
		if within > 0 && time.Since(began) > within {
			return false, nil
		}
		select {
		case <-c.context().Done():
			return false, c.context().Err()
		case <-turn.C:
		}
	}
}
