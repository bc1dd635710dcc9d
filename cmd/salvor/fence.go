package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
)

func newFenceCommand() *cobra.Command {
	e, o, w := &kit.Endpoint{}, &kit.Output{}, &waitOption{}
	cmd := &cobra.Command{
		Use: "fence HOST", Short: "Prove that nothing of a host runs any more, so that its servers may be started elsewhere", Args: cobra.ExactArgs(1),
		Long: `Tries every evidence that there is for the host:

  power            its BMC cuts the power, and reports twice that it is off
  storage          the storage lets the host in no more
  self-fence       its lease has lapsed, in a group with self-fence
  acknowledgement  the host says that it has stopped its guests; a live host does that only after
                   "salvor host set HOST --forced-down"

The fence needs every evidence that the group of the host requires. With --attest your own statement is evidence, too: salvor stores it with
your name. If live evidence contradicts your statement, salvor refuses it and lists the codes of that evidence: neighbours-reach-it,
joined-again (a host of its name or address speaks), bmc-reads-on, guest-seen-running. --dispute with all of them overrules the evidence.
Nothing overrules guest-seen-running: end that guest first. The host gets no lease and no orders until everything that was moved away
from it is settled.`,
		Example: `  salvor fence vm7 --wait
  salvor fence vm7 --wait --attest "power cable pulled, ticket 4711"
  salvor fence vm7 --wait --attest "vm7 is in the bin, this is its new board" --dispute joined-again`,
		RunE: e.Run(func(c *kit.Call) error {
			if err := cmp.Or(o.Check(c.Command), w.check(c)); err != nil {
				return err
			}
			attestation, _ := c.Flags().GetString("attest")
			if c.Flags().Changed("attest") && strings.TrimSpace(attestation) == "" {
				return kit.UsageErrorf(c.Command, "--attest: say how you know that the host is off")
			}
			disputes, _ := c.Flags().GetStringSlice("dispute")
			if len(disputes) > 0 && attestation == "" {
				return kit.UsageErrorf(c.Command, "--dispute is of an attestation: give --attest too")
			}
			ident := c.Args[0]
			body := client.Record{"attest": attestation}
			if len(disputes) > 0 {
				body["disputes"] = disputes
			}
			var begun client.Record
			path := hostResource.path + "/" + url.PathEscape(ident)
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, path+"/fence", nil, body, &begun); err != nil {
				return err
			}
			if !w.asked(c) {
				c.Say("%s is being fenced (job %s): see salvor host show %[1]s, and how it went by salvor host history %[1]s", kit.StripControlChars(ident), begun.Text("job"))
				return nil
			}
			if err := w.job(c, begun.Text("job"), ident, "salvor host history "+ident); err != nil {
				return err
			}
			return showFence(c, o, ident)
		}),
	}
	e.Flags(cmd)
	o.Flags(cmd)
	w.flags(cmd)
	cmd.Flags().StringSlice("dispute", nil, "overrule the live evidence with these codes: all that the refusal of --attest lists")
	cmd.Flags().String("attest", "", "how you know that the host is off: salvor takes your statement as evidence, and stores it with your name")
	return cmd
}

// newHostHistory tells what happened to a host: requests, each action of its fences, what is thought of it.
func newHostHistory(e *kit.Endpoint) *cobra.Command {
	o, long := &kit.Output{}, false
	cmd := &cobra.Command{
		Use: "history HOST", Short: "Show what happened to a host, oldest first", Args: cobra.ExactArgs(1),
		Long:    "Shows who requested what, each action of the host's fences and plans, and why one failed. For a silent host it also shows what salvor concludes from the silence. It prints the newest 200 lines.",
		Example: "  salvor host history vm7\n  salvor host history vm7 --long -f json",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			var got struct {
				Events []client.Record `json:"events"`
			}
			path := hostResource.path + "/" + url.PathEscape(c.Args[0]) + "/history"
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, path, nil, nil, &got); err != nil {
				return err
			}
			fields := []string{"at", "severity", "text"}
			if long {
				fields = append(fields, "type", "user", "job")
			}
			return o.List(c.OutOrStdout(), kit.ColumnsOf(fields), got.Events)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().BoolVar(&long, "long", false, "every field")
	return cmd
}

// showFence tells by what evidence a host is fenced, and what to do next.
func showFence(c *kit.Call, o *kit.Output, ident string) error {
	h, err := hostResource.ask(c, http.MethodGet, "/"+url.PathEscape(ident), nil, nil)
	if err != nil {
		return err
	}
	fence, ok := h["fenced"].(map[string]any)
	if !ok {
		return kit.WithStatus(kit.StatusFailed, fmt.Errorf("host %s was fenced and is back already: see salvor host show %[1]s", kit.StripControlChars(ident)))
	}
	if o.Format != "table" {
		return o.Show(c.OutOrStdout(), fence)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s is fenced:\n", kit.StripControlChars(ident))
	proofs, _ := fence["proofs"].([]any)
	for _, v := range proofs {
		if proof, ok := v.(map[string]any); ok {
			fmt.Fprintf(c.OutOrStdout(), "  %s: %s\n", kit.FormatCell(proof["evidence"]), kit.FormatCell(proof["text"]))
		}
	}
	if n := intFromJSON(h["misplaced"]); n > 0 {
		fmt.Fprintf(c.OutOrStdout(), "%d guests run on it that should not: salvor why host:%s\n", n, kit.StripControlChars(ident))
	}
	if n := intFromJSON(h["servers"]); n > 0 {
		fmt.Fprintf(c.OutOrStdout(), "what next: salvor evacuate run %s --wait moves its servers (%d); salvor evacuate plan %[1]s says how\n", kit.StripControlChars(ident), n)
	} else {
		fmt.Fprintf(c.OutOrStdout(), "what next: it has no servers; salvor host restore %s when it is mended\n", kit.StripControlChars(ident))
	}
	return nil
}

// job waits for the end of a job. A problem that it ended with is the error.
func (w *waitOption) job(c *kit.Call, id, name, see string) error {
	ctx, cancel := w.within(c)
	defer cancel()
	line, began := kit.NewProgress(c.ErrOrStderr(), name), time.Now()
	defer line.End()
	for {
		var j client.Record
		err := c.API.Ask(ctx, client.Native, http.MethodGet, "/jobs/"+url.PathEscape(id), nil, nil, &j)
		switch {
		case err != nil && ctx.Err() == nil && !problem.Is(err, problem.Unavailable):
			return err
		case err == nil && j.Text("state") == "ended" && j.Text("problem") != "":
			return kit.WithStatus(kit.StatusFailed, fmt.Errorf("%s: %s", kit.StripControlChars(name), kit.StripControlChars(j.Text("problem"))))
		case err == nil && j.Text("state") == "ended":
			return nil
		case err == nil:
			line.PrintStatus(time.Since(began), kit.FirstOf(j.Text("waits_for"), j.Text("action"), j.Text("state")))
		}
		if pauseFor(ctx, planLook) != nil {
			return w.late(c, fmt.Errorf("%s: gave up waiting; it has not ended: see %s", kit.StripControlChars(name), kit.StripControlChars(see)))
		}
	}
}
