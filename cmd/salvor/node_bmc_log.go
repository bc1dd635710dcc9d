package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/metal"
)

// newNodeBMCLogCommand is `salvor node bmc-log`: the newest entries of the event log of a BMC.
func newNodeBMCLogCommand(e *kit.Endpoint) *cobra.Command {
	o, severity, most, long := &kit.Output{}, "", 0, false
	cmd := &cobra.Command{
		Use: "bmc-log NODE", Short: "Show the event log of a node's BMC, oldest first", Args: cobra.ExactArgs(1),
		Long: `Reads the newest entries of the event log that the BMC of a node keeps about its hardware. With IPMI that is the System Event Log, with Redfish the
logs about hardware. The log is never cleared.

The entries of a log are in the order of their records, because the clock of a BMC may be unset. Such an entry has no time. An entry is asserted
where a fault began, and deasserted where it ended.`,
		Example: "  salvor node bmc-log rack1-7\n  salvor node bmc-log rack1-7 --severity critical --limit 500 -f json",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			if err := (metal.EventLogArgs{Limit: most}).Check(); err != nil {
				return kit.UsageErrorf(c.Command, "--%v", err)
			}
			q := url.Values{"limit": {strconv.Itoa(most)}}
			if severity != "" {
				q.Set("severity", severity)
			}
			var got struct {
				Entries []client.Record    `json:"entries"`
				Logs    []metal.LogSummary `json:"logs"`
			}
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, "/nodes/"+url.PathEscape(c.Args[0])+"/bmc-log", q, nil, &got); err != nil {
				return err
			}
			for _, log := range got.Logs {
				name := kit.StripControlChars(log.Name)
				if log.Problem != "" {
					fmt.Fprintf(c.ErrOrStderr(), "log %s was not read to its end: %s\n", name, kit.StripControlChars(log.Problem))
				} else if log.Truncated {
					fmt.Fprintf(c.ErrOrStderr(), "log %s has older entries; --limit says how many are read at most\n", name)
				}
			}
			fields := []string{"time", "severity", "log", "id", "sensor", "state", "message"}
			if long {
				fields = append(fields, "message_id")
			}
			return o.List(c.OutOrStdout(), kit.ColumnsOf(fields), got.Entries)
		}),
	}
	o.Flags(cmd)
	kit.AddEnumFlag(cmd, &severity, "severity", "", "only entries that are at least so severe: ok, warning or critical", string(metal.HealthOK), string(metal.HealthWarning), string(metal.HealthCritical))
	cmd.Flags().IntVar(&most, "limit", 100, "read at most the newest entries, 1 to 500")
	cmd.Flags().BoolVar(&long, "long", false, "every field")
	return cmd
}

// newNodeBMCHealthCommand is `salvor node bmc-health`: the components that a BMC calls unhealthy.
func newNodeBMCHealthCommand(e *kit.Endpoint) *cobra.Command {
	format := kit.TextFormat("")
	cmd := &cobra.Command{
		Use: "bmc-health NODE", Short: "Show which components of a node its BMC calls unhealthy", Args: cobra.ExactArgs(1),
		Long: `Asks the BMC of a node for the health of the machine and of its components, and for the sensors that are beyond a threshold. It prints the health
of the whole machine, and a line for each component that is not well. Empty slots are left out.`,
		Example: "  salvor node bmc-health rack1-7\n  salvor node bmc-health rack1-7 -f json | jq '.unhealthy[].name'",
		RunE: e.Run(func(c *kit.Call) error {
			if err := format.Check(c.Command); err != nil {
				return err
			}
			var found metal.Health
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, "/nodes/"+url.PathEscape(c.Args[0])+"/bmc-health", nil, nil, &found); err != nil {
				return err
			}
			if format.IsJSON() {
				return kit.WriteJSON(c.OutOrStdout(), found)
			}
			health := string(found.Health)
			if health == "" {
				health = "the BMC does not tell"
			}
			fmt.Fprintf(c.OutOrStdout(), "health: %s\n", kit.StripControlChars(health))
			for _, u := range found.Unhealthy {
				parts := []string{u.Name, u.State}
				if u.Reading != nil {
					parts = append(parts, strings.TrimSpace(fmt.Sprintf("%g %s", *u.Reading, u.Unit)))
				}
				parts = append(parts, u.Message)
				text := strings.Join(strings.Fields(kit.StripControlChars(strings.Join(parts, "  "))), " ")
				fmt.Fprintf(c.OutOrStdout(), "%-9s %-14s %s\n", kit.StripControlChars(string(u.Health)), kit.StripControlChars(u.Component), text)
			}
			if found.Truncated {
				fmt.Fprintln(c.ErrOrStderr(), "not all components were read: there are too many, or the BMC is too slow")
			}
			return nil
		}),
	}
	format.Flag(cmd, "")
	return cmd
}
