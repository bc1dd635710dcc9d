package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/native"
)

// eventFlags are those of "salvor events".
type eventFlags struct {
	kind, eventType, after string
	format                 kit.TextFormat
	follow                 bool
	last                   int
}

func newEventsCommand() *cobra.Command {
	e, f := &kit.Endpoint{}, &eventFlags{}
	cmd := &cobra.Command{
		Use: "events [IDENT...]", Short: "Show the timeline of nodes, servers, hosts and other records, or of all, and follow it",
		Long: `Prints what happened: changes of state, each action with its seconds, each request with its user, and changes in the contact with BMCs,
agents and hosts. With --follow it goes on as things happen. After a break of the connection it continues where it stood, so it misses no
event and prints none twice. IDENT is a UUID or a name of a node, a server or a host, or KIND:IDENT: node:rack1-7, token:ci, network:lab.

Each request that changes something has an event with its user. The event of a change names the fields that changed, never their values.

Without IDENT it prints the events of all to users who may see them, by name, or by UUID where the subject has no name or is gone.
-f json gives the kind, the UUID and the name as separate fields.`,
		Example: "  salvor events rack1-7 --last 20\n  salvor events node:rack1-7 server:web1 --follow\n  salvor events --type request --last 50\n  salvor events token:ci\n  salvor events --follow -f json | jq 'select(.severity == \"error\")'",
		RunE: e.Run(func(c *kit.Call) error {
			if err := f.format.Check(c.Command); err != nil {
				return err
			}
			if f.last < 1 && f.after == "" && !f.follow {
				return kit.UsageErrorf(c.Command, "--last %d: want 1 or more events, or --follow", f.last)
			}
			query, err := f.query(c)
			if err != nil {
				return err
			}
			if f.follow {
				return f.following(c, query)
			}
			return f.page(c, query)
		}),
	}
	e.Flags(cmd)
	cmd.Flags().StringVar(&f.kind, "kind", "", "what every IDENT is: "+strings.Join(eventKinds, ", "))
	f.format.Flag(cmd, ": one object a line")
	cmd.Flags().BoolVar(&f.follow, "follow", false, "go on as things happen")
	cmd.Flags().IntVar(&f.last, "last", 20, "begin with the newest N")
	cmd.Flags().StringVar(&f.after, "after", "", "begin after this cursor, of an event in JSON; \"now\": only new events")
	kit.AddEnumFlag(cmd, &f.eventType, "type", "", "only events of this type: "+strings.Join(eventTypes, ", "), eventTypes...)
	return cmd
}

// eventTypes are those of the timeline.
var eventTypes = []string{"state", "action", "contact", "request", "boot"}

// query finds what is named and writes what is asked for.
func (f *eventFlags) query(c *kit.Call) (url.Values, error) {
	q := url.Values{}
	for _, text := range c.Args {
		kind, ident, err := splitKindIdent(c.Command, text, f.kind, eventKinds)
		if err != nil {
			return nil, err
		}
		if kind == "" {
			w, err := whyOf(c, ident, "")
			if err != nil {
				return nil, err
			}
			kind, ident = w.Subject.Kind, w.Subject.ID
		}
		q.Add("subject", kind+":"+ident)
	}
	if f.eventType != "" {
		q.Set("type", f.eventType)
	}
	switch {
	case f.after != "":
		q.Set("after", f.after)
	case f.last > 0:
		q.Set("last", strconv.Itoa(f.last))
	default:
		q.Set("after", "now")
	}
	return q, nil
}

// page tells what there is.
func (f *eventFlags) page(c *kit.Call, q url.Values) error {
	for {
		var p native.Events
		if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, "/events", q, nil, &p); err != nil {
			return err
		}
		for i := range p.Events {
			if err := f.printEvent(c, &p.Events[i]); err != nil {
				return err
			}
		}
		if !p.More {
			return nil
		}
		q.Del("last")
		q.Set("after", p.Next)
	}
}

// following goes on until it is interrupted. A connection that breaks is made again where it stood.
func (f *eventFlags) following(c *kit.Call, q url.Values) error {
	cursor, silent := "", false
	for {
		at, err := c.API.Stream(c.Context(), client.Native, "/events", q, cursor, func(m client.Message) error {
			silent = false
			if m.Name == "lost" {
				c.Say("some events after cursor %s are no longer kept", kit.StripControlChars(m.ID))
				return nil
			}
			var e native.Event
			if err := json.Unmarshal([]byte(m.Data), &e); err != nil {
				return fmt.Errorf("event %s: %w", kit.StripControlChars(m.ID), err)
			}
			return f.printEvent(c, &e)
		})
		cursor = at
		switch {
		case c.Context().Err() != nil:
			return nil // interrupted: that is how following ends
		case err != nil && (cursor == "" || !problem.Is(err, problem.Unavailable)):
			return err
		case err != nil && !silent:
			c.Say("%v; trying again", kit.Sanitized(err))
			silent = true
		}
		if pauseFor(c.Context(), time.Second) != nil {
			return nil
		}
	}
}

func (f *eventFlags) printEvent(c *kit.Call, e *native.Event) error {
	if f.format.IsJSON() {
		return kit.WriteJSONLine(c.OutOrStdout(), e)
	}
	text := record.Moment(e.At) + "  "
	if len(c.Args) != 1 {
		text += e.Subject.Kind + " " + kit.FirstOf(e.Subject.Name, e.Subject.ID) + "  "
	}
	if e.Severity != "info" {
		text += strings.ToUpper(e.Severity) + "  "
	}
	text += e.Type + ": " + e.Text
	if e.Seconds > 0 {
		text += fmt.Sprintf(" (%.3g s)", e.Seconds)
	}
	if e.User != "" && e.Type == "request" {
		text += " by " + e.User
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), kit.StripControlChars(text))
	return err
}
