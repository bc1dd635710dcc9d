package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
	"salvor/record"
)

var planResource = resourceSpec{
	api: client.Native, path: "/plans", many: "plans", make: "-", change: "-", drop: "-",
	words: []string{"evacuate"}, ident: "PLAN", title: "plan", plural: "plans", columns: []string{"id", "host", "state", "drain", "servers", "by", "created_at"},
	filters: []resourceField{{flag: "host", usage: "the host, by UUID or name", named: nameOf(&hostResource)}, {flag: "state", allowed: []string{"drafted", "running", "done", "partly done", "cancelled"}, usage: "drafted, running, done, partly done or cancelled"}},
}

var moveResource = resourceSpec{
	api: client.Native, path: "/moves", many: "moves", make: "-", change: "-", drop: "-",
	words: []string{"evacuate", "move"}, ident: "MOVE", title: "move", plural: "moves of servers from host to host",
	columns: []string{"id", "server_id", "kind", "source", "destination", "disposition", "status", "problem"},
	filters: []resourceField{
		{flag: "host", usage: "a host that they lead from or to, by UUID or name", named: nameOf(&hostResource)},
		{flag: "server", usage: "the server, by UUID or name", named: nameOf(&serverResource)}, {flag: "plan", usage: "the plan, by UUID", named: nameOf(&planResource)},
		{flag: "status", allowed: moveStatuses, usage: "how they went for their servers, such as error"}, {flag: "open", form: switchForm, usage: "only those that are under way"},
		{flag: "pending-cleanup", name: "uncleaned", form: switchForm, usage: "only those whose former host has not cleaned up"},
	},
}

// moveStatuses are those of a move; error is also that of a move whose guest did not start at its destination.
var moveStatuses = []string{"accepted", "pre-migrating", "running", "done", "completed", "failed", "error", "cancelled"}

const evacuateExample = `  salvor evacuate plan vm7                       # what would become of each server, and why; nothing is done
  salvor fence vm7 --wait                        # prove that vm7 is off: without that nothing is moved
  salvor evacuate run vm7 --reimage web3 --wait  # web3's disk died with vm7: it is made anew, its data are lost
  salvor evacuate moves --host vm7 --pending-cleanup   # what vm7 has to clean up when it comes back`

func newEvacuateCommand() *cobra.Command {
	e := &kit.Endpoint{}
	cmd := &cobra.Command{Use: "evacuate", Short: "Move the servers of a dead host to other hosts", Example: evacuateExample}
	e.Flags(cmd)
	moves := moveResource.list(e)
	moves.Use, moves.Short = "moves", "List the moves of servers from host to host"
	moves.Example = "  salvor evacuate moves --host vm7 --open"
	kit.RenameFlag(moves, "uncleaned", "pending-cleanup")
	cmd.AddCommand(newEvacuatePlan(e), newEvacuateRun(e), newEvacuateList(e), newEvacuateShow(e), newEvacuateCancel(e), moves)
	return cmd
}

// planWishes are the flags that say what should be planned.
func planWishes(cmd *cobra.Command) {
	cmd.Flags().String("to", "", "the host to move to, by UUID or name (default the best one for each server)")
	cmd.Flags().StringArray("server", nil, "only this server of the host, by UUID or name; may be repeated")
	cmd.Flags().Int("parallel", 0, "how many servers salvor moves at a time (default as the host's group says)")
	reimageFlag(cmd)
	cmd.Flags().Bool("discard-variables", false, "move servers also without their UEFI variables (boot entries, enrolled keys), where these lie on the dead host alone")
}

func reimageFlag(cmd *cobra.Command) {
	cmd.Flags().StringArray("reimage", nil, "a server whose disk may be made anew from its image, by UUID or name, or all: THEIR DATA ARE LOST; may be repeated")
}

// readReimageFlag gives the servers that may be re-imaged, and whether all may be.
func readReimageFlag(c *kit.Call) (names []string, all bool) {
	given, _ := c.Flags().GetStringArray("reimage")
	for _, name := range given {
		if name == "all" {
			all = true
			continue
		}
		names = append(names, name)
	}
	return names, all
}

// requestEvacuationPlan asks for the plan of a host.
func requestEvacuationPlan(c *kit.Call, host string) (client.Record, error) {
	consent, all := readReimageFlag(c)
	body := client.Record{"host": host, "consent": consent, "reimage_all": all}
	if discard, _ := c.Flags().GetBool("discard-variables"); discard {
		body["discard_variables"] = true
	}
	if to, _ := c.Flags().GetString("to"); to != "" {
		body["destination"] = to
	}
	if servers, _ := c.Flags().GetStringArray("server"); len(servers) > 0 {
		body["servers"] = servers
	}
	if parallel, _ := c.Flags().GetInt("parallel"); parallel != 0 {
		body["parallel"] = parallel
	}
	return planResource.ask(c, http.MethodPost, "", nil, body)
}

func newEvacuatePlan(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "plan HOST", Short: "Show what would become of each server of a host: a dry run", Args: cobra.ExactArgs(1),
		Long: `The plan says for each server of the host what would happen to it, why, and which host would take it. A server keeps its disk, gets its
volumes attached elsewhere, is made anew from its image (its data are lost), or cannot be moved. The command moves nothing. salvor stores
the plan, and "salvor evacuate run PLAN" runs it.`,
		Example: "  salvor evacuate plan vm7\n  salvor evacuate plan vm7 --to vm8 --server web1 --server db1\n  salvor evacuate plan vm7 --reimage web3 -f json",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			p, err := requestEvacuationPlan(c, c.Args[0])
			if err != nil {
				return err
			}
			return printPlan(o, c.OutOrStdout(), p)
		}),
	}
	o.Flags(cmd)
	planWishes(cmd)
	return cmd
}

func newEvacuateRun(e *kit.Endpoint) *cobra.Command {
	o, w := &kit.Output{}, &waitOption{}
	cmd := &cobra.Command{
		Use: "run PLAN|HOST", Short: "Move the servers of a host that is fenced, as planned", Args: cobra.ExactArgs(1),
		Long: `Runs a plan that "salvor evacuate plan" made. For a host it makes a fresh plan and runs that. The host must be fenced ("salvor fence HOST"):
Without proof that nothing of the host runs any more, nothing is moved. With --wait the exit status is 0 if every server that could be
moved was moved. A server that only lacks consent to the loss of its data counts as one that could be moved.`,
		Example: "  salvor evacuate run vm7 --wait\n  salvor evacuate run " + sampleUUID + " --reimage web3 --wait=600",
		RunE: e.Run(func(c *kit.Call) error {
			if err := cmp.Or(o.Check(c.Command), w.check(c)); err != nil {
				return err
			}
			p, err := planToRun(c, c.Args[0])
			if err != nil {
				return err
			}
			consent, all := readReimageFlag(c)
			if all {
				consent = append(consent, serversLackingConsent(p)...)
			}
			body := client.Record{"consent": consent}
			if discard, _ := c.Flags().GetBool("discard-variables"); discard {
				body["discard_variables"] = true
			}
			p, err = planResource.ask(c, http.MethodPost, "/"+url.PathEscape(p.Text("id"))+"/run", nil, body)
			if err != nil {
				return err
			}
			return w.plan(c, o, p)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	planWishes(cmd)
	return cmd
}

// planToRun reads the plan of a UUID, or drafts one for a host.
func planToRun(c *kit.Call, ident string) (client.Record, error) {
	if record.IsUUID(ident) {
		p, err := planResource.ask(c, http.MethodGet, "/"+ident, nil, nil)
		if client.StatusOf(err) != http.StatusNotFound {
			for _, flag := range []string{"to", "server", "parallel"} {
				if err == nil && c.Flags().Changed(flag) {
					return nil, kit.UsageErrorf(c.Command, "--%s belongs to a plan that is being made: salvor evacuate plan HOST --%[1]s ...", flag)
				}
			}
			return p, err
		}
	}
	return requestEvacuationPlan(c, ident)
}

// planOf reads the plan of a UUID, or the newest one of a host: a draft, which every refused run leaves behind, only if none was run.
func planOf(c *kit.Call, ident string) (client.Record, error) {
	if record.IsUUID(ident) {
		p, err := planResource.ask(c, http.MethodGet, "/"+ident, nil, nil)
		if client.StatusOf(err) != http.StatusNotFound {
			return p, err
		}
	}
	all, err := planResource.all(c, url.Values{"host": {ident}})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, problem.NotFoundf("host %s has no plan: make one by salvor evacuate plan %[1]s", kit.StripControlChars(ident))
	}
	drafted := func(p client.Record) int {
		if p.Text("state") == "drafted" {
			return 1
		}
		return 0
	}
	return slices.MaxFunc(all, func(a, b client.Record) int {
		return cmp.Or(cmp.Compare(drafted(b), drafted(a)), cmp.Compare(intFromJSON(a["number"]), intFromJSON(b["number"])))
	}), nil
}

func intFromJSON(v any) int {
	n, _ := v.(float64)
	return int(n)
}

func newEvacuateList(e *kit.Endpoint) *cobra.Command {
	cmd := planResource.list(e)
	cmd.Use, cmd.Short, cmd.Example = "list", "List plans", "  salvor evacuate list --host vm7"
	return cmd
}

func newEvacuateShow(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "show PLAN|HOST", Short: "Show a plan and its result, or the newest plan of a host that was run", Args: cobra.ExactArgs(1), Example: "  salvor evacuate show vm7",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			p, err := planOf(c, c.Args[0])
			if err != nil {
				return err
			}
			return printPlan(o, c.OutOrStdout(), p)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func newEvacuateCancel(e *kit.Endpoint) *cobra.Command {
	return &cobra.Command{
		Use: "cancel PLAN|HOST", Short: "Begin no further move of a plan, and let the moves that are under way finish", Args: cobra.ExactArgs(1), Example: "  salvor evacuate cancel vm7",
		RunE: e.Run(func(c *kit.Call) error {
			p, err := planOf(c, c.Args[0])
			if err != nil {
				return err
			}
			p, err = planResource.ask(c, http.MethodPost, "/"+url.PathEscape(p.Text("id"))+"/cancel", nil, nil)
			if err != nil {
				return err
			}
			c.Say("plan %s: %s", p.Text("id"), kit.StripControlChars(p.Text("state")))
			return nil
		}),
	}
}

// plan prints a plan that was begun; with --wait it tells how it goes on and prints what came of it.
func (w *waitOption) plan(c *kit.Call, o *kit.Output, p client.Record) error {
	id := p.Text("id")
	if !w.asked(c) {
		c.Say("plan %s is running: see salvor evacuate show %[1]s", id)
		return printPlan(o, c.OutOrStdout(), p)
	}
	ctx, cancel := w.within(c)
	defer cancel()
	line, began := kit.NewProgress(c.ErrOrStderr(), p.Text("host")), time.Now()
	for p.Text("state") == "running" {
		line.PrintStatus(time.Since(began), planProgress(p))
		if pauseFor(ctx, planLook) != nil {
			line.End()
			return w.late(c, fmt.Errorf("plan %s: gave up waiting (%s); it has not ended: see salvor evacuate show %[1]s", id, planProgress(p)))
		}
		next, err := planResource.ask(c, http.MethodGet, "/"+url.PathEscape(id), nil, nil)
		if err != nil && ctx.Err() == nil && !problem.Is(err, problem.Unavailable) {
			line.End()
			return err
		}
		if err == nil {
			p = next
		}
	}
	line.End()
	if err := printPlan(o, c.OutOrStdout(), p); err != nil {
		return err
	}
	if state := p.Text("state"); state != "done" {
		return kit.WithStatus(kit.StatusFailed, fmt.Errorf("plan %s is %s after %.0f s: what stayed, and why, is above; when that is mended: %s", id, kit.StripControlChars(state), time.Since(began).Seconds(), kit.StripControlChars(planResumeCommand(p))))
	}
	return nil
}

// planResumeCommand is the command that goes on with what a plan left.
func planResumeCommand(p client.Record) string {
	switch host := p.Text("host"); {
	case p["bring_home"] == true:
		return "salvor host restore " + host + " --return-servers --wait"
	case p["drain"] == true:
		return "salvor host drain " + host + " --wait"
	default:
		return "salvor evacuate run " + host + " --wait"
	}
}

// planLook is how often a plan is looked at while somebody waits.
const planLook = 250 * time.Millisecond

var errNoItems = errors.New("the answer holds no plan")

// planItems are the servers of a plan.
func planItems(p client.Record) []client.Record {
	list, _ := p["items"].([]any)
	out := make([]client.Record, 0, len(list))
	for _, v := range list {
		if r, ok := v.(map[string]any); ok {
			out = append(out, r)
		}
	}
	return out
}

// serversLackingConsent are the servers of a plan that would be re-imaged with consent.
func serversLackingConsent(p client.Record) (ids []string) {
	for _, it := range planItems(p) {
		if lacksConsent(it) && it.Text("disposition") == "reimage" {
			ids = append(ids, it.Text("server_id"))
		}
	}
	return ids
}

// planProgress says how far a plan is.
func planProgress(p client.Record) string {
	count := map[string]int{}
	for _, it := range planItems(p) {
		count[moveOutcome(it)]++
	}
	parts := []string{fmt.Sprintf("%d of %d moved", count[moved], len(planItems(p)))}
	for _, what := range []string{underWay, failed, unagreed, stays} {
		if count[what] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[what], what))
		}
	}
	return strings.Join(parts, ", ")
}
