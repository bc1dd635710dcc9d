package main

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/wire/native"
)

// whyKinds are those of what why can be asked about, each under the path of its plural, eventKinds those that have a timeline.
var (
	whyKinds   = []string{"node", "server", "host"}
	eventKinds = []string{"node", "server", "host", "allocation", "chassis", "cluster", "deploy-template", "flavor", "host-group", "image", "inspection-rule", "join-token",
		"keypair", "network", "policy", "rescue-image", "runbook", "seal-key", "site", "token", "volume"}
)

func newWhyCommand() *cobra.Command {
	e, kind, format := &kit.Endpoint{}, "", kit.TextFormat("")
	cmd := &cobra.Command{
		Use: "why IDENT", Short: "Show what a node, a server or a host waits for, since when, and what to do next", Args: cobra.ExactArgs(1),
		Long: `Describes a node, a server or a host in one paragraph. It says what works on it, or what it waits for and since when. It says what salvor
heard last of its BMC, its agent, DHCP and its boot fetches. It says when the next deadline ends, and which command to run next.
IDENT is a UUID or a name. If a node and a server have the same name, give --kind, or node:IDENT.`,
		Example: "  salvor why rack1-7\n  salvor why host:vm7\n  salvor why web1 --kind server -f json",
		RunE: e.Run(func(c *kit.Call) error {
			if err := format.Check(c.Command); err != nil {
				return err
			}
			w, err := whyOf(c, c.Args[0], kind)
			if err != nil {
				return err
			}
			if format.IsJSON() {
				return kit.WriteJSON(c.OutOrStdout(), w)
			}
			sayWhy(c, w)
			return nil
		}),
	}
	e.Flags(cmd)
	cmd.Flags().StringVar(&kind, "kind", "", "what IDENT is: "+strings.Join(whyKinds, ", "))
	format.Flag(cmd, "")
	return cmd
}

// splitKindIdent splits KIND:IDENT; a kind that was said apart goes first.
func splitKindIdent(cmd *cobra.Command, ident, kind string, kinds []string) (string, string, error) {
	if before, after, ok := strings.Cut(ident, ":"); ok && kind == "" && slices.Contains(kinds, before) {
		kind, ident = before, after
	}
	if kind != "" && !slices.Contains(kinds, kind) {
		return "", "", kit.UsageErrorf(cmd, "--kind %s: want %s", kind, strings.Join(kinds, ", "))
	}
	return kind, ident, nil
}

// whyOf asks about what has that name: all kinds are tried where none is said.
func whyOf(c *kit.Call, text, kind string) (*native.Why, error) {
	kind, ident, err := splitKindIdent(c.Command, text, kind, whyKinds)
	if err != nil {
		return nil, err
	}
	var found []*native.Why
	for _, k := range whyKinds {
		if kind != "" && k != kind {
			continue
		}
		w := &native.Why{}
		err := c.API.Ask(c.Context(), client.Native, http.MethodGet, "/"+k+"s/"+url.PathEscape(ident)+"/why", nil, nil, w)
		switch {
		case err == nil:
			found = append(found, w)
		case client.StatusOf(err) != http.StatusNotFound || kind != "":
			return nil, err
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no node, server or host %s could be found", kit.StripControlChars(ident))
	case 1:
		return found[0], nil
	}
	var kinds []string
	for _, w := range found {
		kinds = append(kinds, w.Subject.Kind)
	}
	return nil, kit.UsageErrorf(c.Command, "%s is the name of a %s: say which by --kind", kit.StripControlChars(ident), strings.Join(kinds, " and of a "))
}

// withAccepted adds to a refusal the state of a node or server, and the requests that it accepts now. It leaves a refusal that has another
// reason than the state as it is.
func withAccepted(c *kit.Call, kind, ident, request string, err error) error {
	if status := client.StatusOf(err); status != http.StatusBadRequest && status != http.StatusConflict {
		return err
	}
	var w native.Why
	path := "/" + kind + "s/" + url.PathEscape(ident) + "/why"
	if failed := c.API.Ask(c.Context(), client.Native, http.MethodGet, path, nil, nil, &w); failed != nil || slices.Contains(w.Accepts, request) {
		return err
	}
	for i, accepted := range w.Accepts {
		if at := slices.IndexFunc(provisionVerbs, func(v provisionVerb) bool { return kind == "node" && v.target == accepted }); at >= 0 {
			w.Accepts[i] = provisionVerbs[at].word
		}
	}
	return fmt.Errorf("%w; %s %s is in state %s and accepts now: %s", err, kind, c.Label(ident), kit.StripControlChars(w.State),
		kit.StripControlChars(kit.FirstOf(strings.Join(w.Accepts, ", "), "nothing")))
}

// sayWhy prints the paragraph, and the commands that it does not name.
func sayWhy(c *kit.Call, w *native.Why) {
	out, width := c.OutOrStdout(), kit.TerminalWidth(c.OutOrStdout())
	fmt.Fprintln(out, wrapText(kit.StripControlChars(w.Text), width))
	if len(w.Next) < 2 {
		return
	}
	fmt.Fprintln(out, "also:")
	for _, n := range w.Next[1:] {
		fmt.Fprintf(out, "  %s   # %s\n", kit.StripControlChars(n.Run), kit.StripControlChars(n.For))
	}
}

// wrapText breaks a text into lines of a terminal; 0: it is none.
func wrapText(text string, width int) string {
	if width < 20 {
		return text
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case at+1+n > min(width-1, 100):
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
