package main

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/native"
)

func newSecretCommand() *cobra.Command {
	e := &apiEndpoint{}
	cmd := &cobra.Command{
		Use: "secret", Short: "Show, rotate or print the key that seals the secrets of the database",
		Example: "  salvor secret status\n  salvor secret rotate --wait",
	}
	e.flags(cmd)
	cmd.AddCommand(newSecretStatus(e), newSecretRotate(e), newSecretKey())
	return cmd
}

const sealPath = "/secrets"

func newSecretStatus(e *apiEndpoint) *cobra.Command {
	o := &outputOptions{}
	cmd := &cobra.Command{
		Use: "status", Short: "Show which key seals, which processes have read it, and how far a rotation is", Args: cobra.NoArgs,
		Example: "  salvor secret status\n  salvor secret status -f json",
		RunE: e.run(func(c *clientCall) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			var s native.Seal
			if err := c.api.Ask(c.context(), client.Native, http.MethodGet, sealPath, nil, nil, &s); err != nil {
				return err
			}
			return showSeal(c, o, s)
		}),
	}
	o.flags(cmd)
	return cmd
}

func newSecretRotate(e *apiEndpoint) *cobra.Command {
	o, w := &outputOptions{}, &waitOption{}
	cmd := &cobra.Command{
		Use: "rotate", Short: "Seal all secrets of the database with another key, while salvor serve goes on", Args: cobra.NoArgs,
		Long: `The process that answers makes a new key and writes it beside the old one into its key file. Copy the file to the processes that have a
key file of their own. When every process has read the new key, the new key seals, and salvor seals the values of the old key anew in small
steps. salvor forgets the old key when nothing is sealed with it any more and no operation holds a token of it. If a process dies
meanwhile, or all do, the next one goes on. Old backups still need the old key: keep a copy of the key file with them.`,
		Example: "  salvor secret rotate\n  salvor secret rotate --wait",
		RunE: e.run(func(c *clientCall) error {
			if err := cmp.Or(o.check(c.Command), w.check(c)); err != nil {
				return err
			}
			var s native.Seal
			if err := c.api.Ask(c.context(), client.Native, http.MethodPost, sealPath+"/rotate", nil, nil, &s); err != nil {
				return err
			}
			if !w.asked(c) {
				c.say("the key is being changed: see salvor secret status")
				return showSeal(c, o, s)
			}
			s, err := w.sealed(c)
			if err != nil {
				return err
			}
			return showSeal(c, o, s)
		}),
	}
	o.flags(cmd)
	w.flags(cmd)
	return cmd
}

// newSecretKey makes a key for whoever keeps keys elsewhere.
func newSecretKey() *cobra.Command {
	return &cobra.Command{
		Use: "key", Short: "Print a new key, for a place that [secrets]key_command reads", Args: cobra.NoArgs,
		Example: "  salvor secret key | systemd-creds encrypt - /etc/salvor/salvor.key.cred",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), base64.StdEncoding.EncodeToString(secret.GenerateKey()))
			return err
		},
	}
}

func showSeal(c *clientCall, o *outputOptions, s native.Seal) error {
	if o.format != "table" || len(o.columns) > 0 {
		return o.show(c.OutOrStdout(), client.Record{"state": s.State, "waits_for": s.WaitsFor, "keys": s.Keys, "processes": s.Processes, "old": s.Old})
	}
	out := c.OutOrStdout()
	for _, k := range s.Keys {
		if k.State != "retired" {
			fmt.Fprintf(out, "key %s  %s since %s\n", formatCell(k.ID), formatCell(k.State), formatCell(k.Since))
		}
	}
	for _, p := range s.Processes {
		fmt.Fprintf(out, "process on %s  has read %s\n", formatCell(p.Host), formatCell(strings.Join(p.Keys, " ")))
	}
	if s.Old != nil {
		fmt.Fprintf(out, "the old key is needed by %d rows, %d ramdisks, %d operations\n", s.Old.Rows, s.Old.Ramdisks, s.Old.Operations)
	}
	fmt.Fprintln(out, strings.TrimSpace(formatCell(s.State)+" "+waitsWord(s.WaitsFor)))
	return nil
}

func waitsWord(why string) string {
	if why == "" {
		return ""
	}
	return "- waits for: " + formatCell(why)
}

// sealed waits for the end of a change of the key.
func (w *waitOption) sealed(c *clientCall) (native.Seal, error) {
	ctx, cancel := w.within(c)
	defer cancel()
	line, began := newProgress(c.ErrOrStderr(), "key"), time.Now()
	defer line.end()
	for {
		var s native.Seal
		err := c.api.Ask(ctx, client.Native, http.MethodGet, sealPath, nil, nil, &s)
		switch {
		case err != nil && ctx.Err() == nil && !problem.Is(err, problem.Unavailable):
			return s, err
		case err == nil && s.State == "steady":
			return s, nil
		case err == nil:
			line.printStatus(time.Since(began), firstOf(s.WaitsFor, s.State))
		}
		if pauseFor(ctx, planLook) != nil {
			return s, w.late(c, fmt.Errorf("gave up waiting; the change has not ended: see salvor secret status"))
		}
	}
}
