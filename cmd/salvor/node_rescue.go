package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/wire/ironic"
)

// keyFlags are of the commands that let ssh keys into a rescue system.
func keyFlags(cmd *cobra.Command) {
	cmd.Flags().StringArray("key", nil, "a file with an ssh public key to let in; may be repeated")
	cmd.Flags().StringArray("keypair", nil, "a key pair of yours to let in, by name; may be repeated")
	cmd.Flags().String("expires-in", "", "end the rescue by itself after so long, as 45m, 24h or seconds")
}

// keypairWishes adds the public keys of the named key pairs to what is asked of a session.
func keypairWishes(c *kit.Call, body client.Record) error {
	names, _ := c.Flags().GetStringArray("keypair")
	keys, _ := body["keys"].([]string)
	for _, name := range names {
		found, err := keypairResource.ask(c, http.MethodGet, "/"+url.PathEscape(name), nil, nil)
		if err != nil {
			return fmt.Errorf("key pair %s: %w", kit.StripControlChars(name), err)
		}
		keys = append(keys, strings.TrimSpace(found.Text("public_key")))
	}
	if len(keys) > 0 {
		body["keys"] = keys
	}
	return nil
}

// sendRescue sends a rescue with a password alone as every Ironic takes it. Keys, an end and a password that salvor makes go by salvor's
// own API.
func sendRescue(c *kit.Call, r ironic.ProvisionRequest) (func(ident string) error, error) {
	body := client.Record{}
	if err := sessionWishes(c, body); err != nil {
		return nil, err
	}
	if err := keypairWishes(c, body); err != nil {
		return nil, err
	}
	if len(body) == 0 && r.RescuePassword != "" {
		return func(ident string) error { return c.API.Provision(c.Context(), ident, r) }, nil
	}
	if r.RescuePassword != "" {
		body["password"] = r.RescuePassword
	}
	return func(ident string) error {
		var answer client.Record
		err := c.API.Ask(c.Context(), client.Native, http.MethodPost, "/nodes/"+url.PathEscape(ident)+"/rescue", nil, body, &answer)
		if made := answer.Text("password"); err == nil && made != "" {
			// One write, because several nodes may be asked for at a time.
			fmt.Fprintf(c.OutOrStdout(), "%s: password, shown this once: %s\n", c.Label(ident), kit.StripControlChars(made))
		}
		return err
	}, nil
}

// sayNodeEntry prints how each rescued node is entered.
func sayNodeEntry(c *kit.Call) {
	for _, ident := range c.Args {
		found := getRescueSession(c, ident)
		if found.Text("state") != "ready" || found.Text("kind") != "node" {
			continue
		}
		if len(c.Args) > 1 {
			fmt.Fprintf(c.OutOrStdout(), "%s:\n", c.Label(ident))
		}
		saySession(c, found, "salvor node ssh "+c.Label(ident))
	}
}
