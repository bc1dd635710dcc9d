package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/metal"
	"salvor/wire/native"
)

// waitOption is the --wait of a command.
type waitOption struct{ seconds int }

func (w *waitOption) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&w.seconds, "wait", 0, "wait for the end; --wait=SECONDS waits no longer than that")
	cmd.Flags().Lookup("wait").NoOptDefVal = "0"
}

func (w *waitOption) asked(c *kit.Call) bool { return c.Flags().Changed("wait") }

func (w *waitOption) check(c *kit.Call) error {
	if w.seconds < 0 {
		return kit.UsageErrorf(c.Command, "--wait=%d: want 0 or more", w.seconds)
	}
	return nil
}

// within is the time that somebody waits.
func (w *waitOption) within(c *kit.Call) (context.Context, context.CancelFunc) {
	if w.seconds > 0 {
		return context.WithTimeout(c.Context(), secondsOf(w.seconds))
	}
	return context.WithCancel(c.Context())
}

// late is the error of who gave up waiting: because it took too long, or because somebody interrupted.
func (w *waitOption) late(c *kit.Call, err error) error {
	if c.Context().Err() != nil {
		return kit.WithStatus(kit.StatusInterrupted, err)
	}
	return kit.WithStatus(kit.StatusTimedOut, err)
}

// lookInterval is how often a node, a diagnosis or a repair is looked at while somebody waits.
var lookInterval = time.Second

// all waits for every node named, one after the other, within one bound. want names the end in errors.
func (w *waitOption) all(c *kit.Call, want string, wait client.Wait) error {
	ctx, cancel := w.within(c)
	defer cancel()
	return c.Each(func(ident string) error {
		name := c.Label(ident)
		p := kit.NewProgress(c.ErrOrStderr(), name)
		wait.Change, wait.Interval = p.Look, lookInterval
		n, err := c.API.WaitProvision(ctx, ident, wait)
		p.End()
		var ended *client.Ended
		var late *client.TimedOut
		switch {
		case errors.As(err, &ended):
			return kit.WithStatus(kit.StatusFailed, fmt.Errorf("wait for %q: %w\n%s", want, kit.Sanitized(err), nextStep(c.Context(), c.API, ended.Node)))
		case errors.As(err, &late):
			return w.late(c, fmt.Errorf("wait for %q: %w\n%s", want, kit.Sanitized(err), goesOn(ident, late.Last.Node)))
		case err != nil:
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: %s (%s, %d s)\n", name, kit.StripControlChars(n.ProvisionState), kit.StripControlChars(kit.FirstOf(n.PowerState, "power unknown")), int(p.Elapsed.Seconds()+0.5))
		return nil
	})
}

// goesOn says what can be done about an operation that takes longer than somebody would wait.
func goesOn(ident string, n *client.Node) string {
	text := "it has not ended: see salvor node show " + kit.StripControlChars(ident)
	if n != nil && (n.Reservation != "" || kit.WaitsForRamdisk(n.ProvisionState)) {
		text += ", or give it up by salvor node abort " + kit.StripControlChars(ident)
	}
	return text
}

// nextStep says what can be done with a node whose operation failed: by its why, else by its state.
func nextStep(ctx context.Context, api *client.Client, n *client.Node) string {
	name := kit.StripControlChars(n.Label())
	text := "what happened: salvor node history " + name
	var why native.Why
	if err := api.Ask(ctx, client.Native, http.MethodGet, "/nodes/"+url.PathEscape(n.UUID)+"/why", nil, nil, &why); err == nil {
		if len(why.Next) > 0 {
			text += "\n" + nextCommands(why.Next)
		}
		return text
	}
	if n.Maintenance {
		return text + "\nwhat next: the node is in maintenance (" + kit.FirstOf(kit.StripControlChars(n.MaintenanceReason), kit.StripControlChars(n.Fault), "no reason given") +
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
		lines[i] = lead + kit.StripControlChars(one.Run) + "  # " + kit.StripControlChars(one.For)
	}
	return strings.Join(lines, "\n")
}

// followSteps looks at something that goes on, every lookInterval until it has ended, and shows its steps on standard error; first stands for the
// step that has no name yet. ended is false where the time is over, which within bounds; 0: nothing does.
func followSteps(c *kit.Call, label, first string, within time.Duration, look func() (step string, ended bool, err error)) (ended bool, err error) {
	line, began := kit.NewProgress(c.ErrOrStderr(), label), time.Now()
	defer line.End()
	turn := time.NewTicker(lookInterval)
	defer turn.Stop()
	for {
		step, ended, err := look()
		if err != nil || ended {
			return ended, err
		}
		line.PrintStatus(time.Since(began), kit.FirstOf(step, first))
		if within > 0 && time.Since(began) > within {
			return false, nil
		}
		select {
		case <-c.Context().Done():
			return false, c.Context().Err()
		case <-turn.C:
		}
	}
}
