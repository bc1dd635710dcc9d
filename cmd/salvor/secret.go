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
	"salvor/cmd/salvor/kit"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/native"
)

func newSecretCommand() *cobra.Command {
	e := &kit.Endpoint{}
	cmd := &cobra.Command{
		Use: "secret", Short: "Show, rotate or print the key that seals the secrets of the database",
		Example: "  salvor secret status\n  salvor secret rotate --wait",
	}
	e.Flags(cmd)
	cmd.AddCommand(newSecretStatus(e), newSecretRotate(e), newSecretKey())
	return cmd
}

const sealPath = "/secrets"

func newSecretStatus(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "status", Short: "Show which key seals, which processes have read it, and how far a rotation is", Args: cobra.NoArgs,
		Example: "  salvor secret status\n  salvor secret status -f json",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			var s native.Seal
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, sealPath, nil, nil, &s); err != nil {
				return err
			}
			return showSeal(c, o, s)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func newSecretRotate(e *kit.Endpoint) *cobra.Command {
	o, w := &kit.Output{}, &waitOption{}
	cmd := &cobra.Command{
		Use: "rotate", Short: "Seal all secrets of the database with another key, while salvor serve goes on", Args: cobra.NoArgs,
		Long: `The process that answers makes a new key and writes it beside the old one into its key file. Copy the file to the processes that have a
key file of their own. When every process has read the new key, the new key seals, and salvor seals the values of the old key anew in small
steps. salvor forgets the old key when nothing is sealed with it any more and no operation holds a token of it. If a process dies
meanwhile, or all do, the next one goes on. Old backups still need the old key: keep a copy of the key file with them.`,
		Example: "  salvor secret rotate\n  salvor secret rotate --wait",
		RunE: e.Run(func(c *kit.Call) error {
			if err := cmp.Or(o.Check(c.Command), w.check(c)); err != nil {
				return err
			}
			var s native.Seal
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, sealPath+"/rotate", nil, nil, &s); err != nil {
				return err
			}
			if !w.asked(c) {
				c.Say("the key is being changed: see salvor secret status")
				return showSeal(c, o, s)
			}
			s, err := w.sealed(c)
			if err != nil {
				return err
			}
			return showSeal(c, o, s)
		}),
	}
	o.Flags(cmd)
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

func showSeal(c *kit.Call, o *kit.Output, s native.Seal) error {
	if o.Format != "table" || len(o.Columns) > 0 {
		return o.Show(c.OutOrStdout(), client.Record{"state": s.State, "waits_for": s.WaitsFor, "keys": s.Keys, "processes": s.Processes, "old": s.Old})
	}
	out := c.OutOrStdout()
	for _, k := range s.Keys {
		if k.State != "retired" {
			fmt.Fprintf(out, "key %s  %s since %s\n", kit.FormatCell(k.ID), kit.FormatCell(k.State), kit.FormatCell(k.Since))
		}
	}
	for _, p := range s.Processes {
		fmt.Fprintf(out, "process on %s  has read %s\n", kit.FormatCell(p.Host), kit.FormatCell(strings.Join(p.Keys, " ")))
	}
	if s.Old != nil {
		fmt.Fprintf(out, "the old key is needed by %d rows, %d ramdisks, %d operations\n", s.Old.Rows, s.Old.Ramdisks, s.Old.Operations)
	}
	fmt.Fprintln(out, strings.TrimSpace(kit.FormatCell(s.State)+" "+waitsWord(s.WaitsFor)))
	return nil
}

func waitsWord(why string) string {
	if why == "" {
		return ""
	}
	return "- waits for: " + kit.FormatCell(why)
}

// sealed waits for the end of a change of the key.
func (w *waitOption) sealed(c *kit.Call) (native.Seal, error) {
	ctx, cancel := w.within(c)
	defer cancel()
	line, began := kit.NewProgress(c.ErrOrStderr(), "key"), time.Now()
	defer line.End()
	for {
		var s native.Seal
		err := c.API.Ask(ctx, client.Native, http.MethodGet, sealPath, nil, nil, &s)
		switch {
		case err != nil && ctx.Err() == nil && !problem.Is(err, problem.Unavailable):
			return s, err
		case err == nil && s.State == "steady":
			return s, nil
		case err == nil:
			line.PrintStatus(time.Since(began), kit.FirstOf(s.WaitsFor, s.State))
		}
		if pauseFor(ctx, planLook) != nil {
			return s, w.late(c, fmt.Errorf("gave up waiting; the change has not ended: see salvor secret status"))
		}
	}
}
