package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/cmd/salvor/serve"
	"salvor/wire/native"
)

func newDoctorCommand() *cobra.Command {
	var format kit.TextFormat
	var node string
	var where serveFlags
	e := &kit.Endpoint{}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check a configuration, this machine and its networks before or while salvor serve runs", Args: cobra.NoArgs,
		Long: `Checks the configuration of salvor serve, and this machine: files and their permissions, the key, the database and its tables, the clock,
disk space, ports and certificates. It also checks the ramdisk, boot networks and loaders, the address that ramdisks call, the directory of
images, and whether the BMCs of some nodes answer.

It changes nothing, and sends no credential except to the database. It does not check Keystone, a collector of traces, or the files of users and rules.
Each line is ok, warn or fail, and says what to do. The exit status is 1 if anything fails.

With --node NODE it asks the API instead whether rescue, unrescue, deploy, provide, clean, inspect and service could succeed on the node.
It prints every reason against an operation, also for the approved runbooks and the chosen deploy templates of the node. It contacts no
machine. A reason fails if the node's state takes the operation now, and else warns.`,
		Example: "  salvor doctor --config /etc/salvor/salvor.conf\n  salvor doctor --node rack1-7\n  salvor doctor -f json | jq '.[] | select(.level != \"ok\")'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(cmd); err != nil {
				return err
			}
			if node != "" {
				return e.Run(func(c *kit.Call) error { return examineNode(c, node, format) })(cmd, nil)
			}
			source, err := where.source("database")
			if err != nil {
				return err
			}
			return reportFindings(serve.Examine(cmd.Context(), source), format, cmd.OutOrStdout())
		},
	}
	where.flags(cmd, "database", "")
	e.Flags(cmd)
	cmd.Flags().StringVar(&node, "node", "", "ask the API which operations could succeed on this node, instead of checking this machine")
	format.Flag(cmd, "")
	return cmd
}

// noReason is said of an operation whose check looked at all that it can look at without the machine, and found nothing.
const noReason = "the check of its records, and of the files that can be looked at from here, gives no reason against it; the machine was not asked"

// examineNode tells of each operation whether it could succeed on a node.
func examineNode(c *kit.Call, ident string, format kit.TextFormat) error {
	var found native.Preflight
	if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, "/nodes/"+url.PathEscape(ident)+"/preflight", nil, nil, &found); err != nil {
		return err
	}
	var findings []serve.Finding
	for _, one := range found.Operations {
		level := serve.LevelWarn
		if one.Now {
			level = serve.LevelFail
		}
		for _, r := range one.Reasons {
			findings = append(findings, serve.Finding{Level: level, Check: one.Operation, Text: r.Text, Do: "mend it, then salvor doctor --node " + ident})
		}
		for _, r := range one.Warnings {
			findings = append(findings, serve.Finding{Level: serve.LevelWarn, Check: one.Operation, Text: r.Text})
		}
		if len(one.Reasons)+len(one.Warnings) == 0 {
			findings = append(findings, serve.Finding{Level: serve.LevelOK, Check: one.Operation, Text: noReason})
		}
	}
	return reportFindings(findings, format, c.OutOrStdout())
}

func reportFindings(findings []serve.Finding, format kit.TextFormat, out io.Writer) error {
	failed := 0
	for _, f := range findings {
		if f.Level == serve.LevelFail {
			failed++
		}
	}
	if format.IsJSON() {
		if err := kit.WriteJSON(out, findings); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(out, "%-4s  %s: %s\n", f.Level, kit.StripControlChars(f.Check), kit.StripControlChars(f.Text))
			if f.Do != "" {
				fmt.Fprintf(out, "      -> %s\n", kit.StripControlChars(f.Do))
			}
		}
	}
	if failed > 0 {
		return kit.WithStatus(kit.StatusFailed, fmt.Errorf("%d of %d checks failed", failed, len(findings)))
	}
	return nil
}
