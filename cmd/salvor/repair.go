package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/diagnose"
	"salvor/metal"
	"salvor/record"
	"salvor/repair"
)

// shownRepair is what the API answers about one repair.
type shownRepair struct {
	metal.Repair
	Undo metal.UndoMethod `json:"undo"`
	Plan *repair.Plan     `json:"plan"`
}

// repairRequest is the body of a request of a repair or of an undo. With keys it is made last and never printed.
type repairRequest struct {
	Findings       []string      `json:"findings,omitempty"`
	Root           string        `json:"root,omitempty"`
	Consents       []string      `json:"consents,omitempty"`
	Reboot         bool          `json:"reboot,omitempty"`
	KeepRescue     bool          `json:"keep_rescue,omitempty"`
	Digest         string        `json:"digest,omitempty"`
	WaitForConsent bool          `json:"wait_for_consent,omitempty"`
	LUKSKeys       []luksKeyBody `json:"luks_keys,omitempty"`
}

// repairFlags are those of commands that begin a repair or an undo.
type repairFlags struct {
	request   repairRequest
	keyFiles  []string
	plan, yes bool
	wait      bool
}

func (f *repairFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.request.Consents, "consent", []string{"settings", "files"}, "what may change: settings, files, boot")
	cmd.Flags().StringVar(&f.request.Digest, "digest", "", "write at once if the plan still has this digest")
	cmd.Flags().BoolVar(&f.request.Reboot, "reboot", false, "restart a node that is on into the rescue ramdisk")
	cmd.Flags().BoolVar(&f.request.KeepRescue, "keep-rescue", false, "leave the node in rescue when its disks have been written; nobody can log in to it")
	luksKeyFlag(cmd, &f.keyFiles)
	cmd.Flags().BoolVar(&f.plan, "plan", false, "show what would change, and write nothing")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "write without a question, whatever the plan is")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "after the consent, wait until the node has proved that it works")
	cmd.MarkFlagsMutuallyExclusive("plan", "digest")
	cmd.MarkFlagsMutuallyExclusive("plan", "yes")
}

// newRepairCommand is `salvor repair`.
func newRepairCommand() *cobra.Command {
	e, format, f := &kit.Endpoint{}, kit.TextFormat(""), &repairFlags{}
	cmd := &cobra.Command{
		Use: "repair NODE [FINDING...]", Short: "Repair what a diagnosis found on the disks of a node", Args: cobra.MinimumNArgs(1),
		Long: `Boots the rescue ramdisk, unless the node is in rescue, and mends the findings on overlays in memory. It shows the plan: the files as a diff,
the ranges of the disks, and the digest of all that. Only after consent to this digest does salvor write. Before the first byte is written, the next
boot is set to the rescue ramdisk, and what undoes the repair is stored. A failure puts everything back.

Then the node's own system boots and has to prove itself. Its sshd answers with the host key that lies on its disk, or you confirm that it works with
salvor repair confirm. A repair that may lose data is never carried out.`,
		Example: "  salvor repair rack1-7 --plan\n  salvor repair rack1-7 fstab-device-missing --reboot --wait\n  salvor repair rack1-7 --consent files,boot --digest 5f0c...",
		RunE: e.Run(func(c *kit.Call) error {
			f.request.Findings = c.Args[1:]
			return f.run(c, format, repairsPath(c, ""))
		}),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	f.add(cmd)
	cmd.Flags().StringVar(&f.request.Root, "root", "", "the device of the system to repair, where several have something to mend: /dev/sda2")
	cmd.AddCommand(newRepairShowCommand(), newRepairListCommand(), newRepairConsentCommand(), newRepairConfirmCommand(), newRepairUndoCommand())
	return cmd
}

// repairsPath is the path of the repairs of the node that the command names first, and of what lies below.
func repairsPath(c *kit.Call, below string) string {
	return "/nodes/" + url.PathEscape(c.Args[0]) + "/repairs" + below
}

// repairID is the id that the command names, or that of the newest repair.
func repairID(c *kit.Call) string {
	if len(c.Args) > 1 {
		return url.PathEscape(c.Args[1])
	}
	return "newest"
}

// run asks for a repair, shows its plan, asks for the consent, and sends it.
func (f *repairFlags) run(c *kit.Call, format kit.TextFormat, path string) error {
	if err := format.Check(c.Command); err != nil {
		return err
	}
	atTerminal := kit.TerminalWidth(c.InOrStdin()) != 0
	f.request.WaitForConsent = !f.plan && f.request.Digest == "" && (f.yes || atTerminal)
	keys, err := readLUKSKeys(c.InOrStdin(), c.ErrOrStderr(), f.keyFiles)
	if err != nil {
		return err
	}
	request := f.request
	request.LUKSKeys = keys
	var r shownRepair
	if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, path, nil, request, &r.Repair); err != nil {
		return err
	}
	own := repairsPath(c, "/"+url.PathEscape(r.ID))
	if f.request.Digest != "" && !f.wait {
		fmt.Fprintf(c.ErrOrStderr(), "%s: accepted: repair; to see how far it is: salvor repair show %[1]s\n", c.Label(c.Args[0]))
		return nil
	}
	if err := awaitRepair(c, own, &r, func() bool { return r.IsRunning() && r.State != metal.RepairAwaitingConsent }); err != nil {
		return err
	}
	// A program that reads JSON gets one value: that of the end, if nobody is asked about the plan.
	if isUnasked := r.State == metal.RepairAwaitingConsent && f.yes && f.wait; !isUnasked || !format.IsJSON() {
		if err := showRepair(c, format, r); err != nil {
			return err
		}
	}
	if r.State != metal.RepairAwaitingConsent {
		return repairStatus(c, r)
	}
	if !f.yes {
		question := fmt.Sprintf("%s %s: writes this to the disks. Go on? [y/N] ", c.CommandPath(), kit.StripControlChars(c.Args[0]))
		if err := askForYes(c.Command, question); err != nil {
			return errors.Join(err, c.API.Ask(c.Context(), client.Native, http.MethodPost, own+"/decline", nil, struct{}{}, nil))
		}
	}
	consent := metal.RepairConsent{Digest: r.Digest, Consents: r.Needs}
	if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, own+"/consent", nil, consent, nil); err != nil {
		return err
	}
	if !f.wait {
		fmt.Fprintf(c.ErrOrStderr(), "%s: accepted: the repair is written; to see how far it is: salvor repair show %[1]s\n", c.Label(c.Args[0]))
		return nil
	}
	if err := awaitRepair(c, own, &r, func() bool { return r.IsRunning() }); err != nil {
		return err
	}
	if err := showRepair(c, format, r); err != nil {
		return err
	}
	return repairStatus(c, r)
}

// repairStatus is the failure of a repair that has come to nothing good.
func repairStatus(c *kit.Call, r shownRepair) error {
	switch r.State {
	case metal.RepairFailed, metal.RepairRolledBack, metal.RepairInterrupted, metal.RepairUnproven:
		return kit.WithStatus(kit.StatusFailed, fmt.Errorf("%s: the repair is %s: %s", c.Label(c.Args[0]), r.State, kit.StripControlChars(r.Problem)))
	}
	return nil
}

// awaitRepair asks for the repair as long as it goes on, and tells on standard error what it does.
func awaitRepair(c *kit.Call, path string, r *shownRepair, goesOn func() bool) error {
	_, err := followSteps(c, c.Label(c.Args[0]), "the repair begins", 0, func() (string, bool, error) {
		*r = shownRepair{}
		err := c.API.Ask(c.Context(), client.Native, http.MethodGet, path, nil, nil, r)
		return r.Step, !goesOn(), err
	})
	return err
}

func newRepairShowCommand() *cobra.Command {
	e, format := &kit.Endpoint{}, kit.TextFormat("")
	cmd := &cobra.Command{
		Use: "show NODE [ID]", Short: "Show the newest repair of a node with its plan, or another one", Args: cobra.RangeArgs(1, 2), Example: "  salvor repair show rack1-7",
		RunE: e.Run(func(c *kit.Call) error {
			if err := format.Check(c.Command); err != nil {
				return err
			}
			var r shownRepair
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, repairsPath(c, "/"+repairID(c)), nil, nil, &r); err != nil {
				return err
			}
			return showRepair(c, format, r)
		}),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	return cmd
}

func newRepairListCommand() *cobra.Command {
	e, format := &kit.Endpoint{}, kit.TextFormat("")
	cmd := &cobra.Command{
		Use: "list NODE", Short: "List the kept repairs of a node, newest first", Args: cobra.ExactArgs(1), Example: "  salvor repair list rack1-7",
		RunE: e.Run(func(c *kit.Call) error {
			if err := format.Check(c.Command); err != nil {
				return err
			}
			var found struct{ Repairs []metal.Repair }
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, repairsPath(c, ""), nil, nil, &found); err != nil {
				return err
			}
			if format.IsJSON() {
				return kit.WriteJSON(c.OutOrStdout(), found.Repairs)
			}
			for _, r := range found.Repairs {
				fmt.Fprintf(c.OutOrStdout(), "%s  %s  %-16s %s\n", kit.StripControlChars(r.ID), record.Moment(r.RequestedAt), kit.StripControlChars(string(r.State)), kit.StripControlChars(r.Problem))
			}
			return nil
		}),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	return cmd
}

func newRepairConsentCommand() *cobra.Command {
	var digest string
	var consents []string
	cmd := newRepairChange("consent NODE [ID]", "Consent to the plan of a repair that waits for it", "  salvor repair consent rack1-7 --digest 5f0c... --consent files", "/consent", func() any {
		return map[string]any{"digest": digest, "consents": consents}
	})
	cmd.Flags().StringVar(&digest, "digest", "", "the digest of the plan")
	cmd.Flags().StringSliceVar(&consents, "consent", []string{"settings", "files"}, "what may change: settings, files, boot")
	if err := cmd.MarkFlagRequired("digest"); err != nil {
		panic(err) // the flag is two lines above
	}
	return cmd
}

func newRepairConfirmCommand() *cobra.Command {
	return newRepairChange("confirm NODE [ID]", "State that a repaired node works", "  salvor repair confirm rack1-7", "/confirm", func() any { return struct{}{} })
}

// newRepairChange makes a command that changes a repair.
func newRepairChange(use, short, example, below string, body func() any) *cobra.Command {
	e := &kit.Endpoint{}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.RangeArgs(1, 2), Example: example,
		RunE: e.Run(func(c *kit.Call) error {
			var r metal.Repair
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, repairsPath(c, "/"+repairID(c)+below), nil, body(), &r); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: the repair is %s\n", c.Label(c.Args[0]), kit.StripControlChars(string(r.State)))
			return nil
		}),
	}
	e.Flags(cmd)
	return cmd
}

func newRepairUndoCommand() *cobra.Command {
	e, format, f := &kit.Endpoint{}, kit.TextFormat(""), &repairFlags{}
	cmd := &cobra.Command{
		Use: "undo NODE [ID]", Short: "Take a repair back", Args: cobra.RangeArgs(1, 2), Example: "  salvor repair undo rack1-7 --reboot",
		Long: `Takes the newest repair of a node back, or another one. As long as the node's own system has not booted since, every byte is put back. Afterwards
salvor puts back those files that still are what the repair made of them, and names the others.`,
		RunE: e.Run(func(c *kit.Call) error { return f.run(c, format, repairsPath(c, "/"+repairID(c)+"/undo")) }),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	f.add(cmd)
	return cmd
}

func showRepair(c *kit.Call, format kit.TextFormat, r shownRepair) error {
	if format.IsJSON() {
		return kit.WriteJSON(c.OutOrStdout(), r)
	}
	writeRepair(c.OutOrStdout(), c.Label(c.Args[0]), r)
	return nil
}

// writeRepair prints a repair for a person: its state, what changes, and what to do next.
func writeRepair(out io.Writer, node string, r shownRepair) {
	line := func(text string) { fmt.Fprintln(out, kit.StripControlChars(text)) }
	line(fmt.Sprintf("%s: repair %s is %s", node, r.ID, r.State))
	for _, text := range []string{r.Problem, r.ProvenBy} {
		if text != "" {
			line("  " + text)
		}
	}
	if p := r.Plan; p != nil {
		writeRepairPlan(out, line, p)
	}
	if r.Consent != nil {
		line(fmt.Sprintf("consent: %s by %s to %s", joinConsents(r.Consent.Consents), kit.FirstOf(r.Consent.By, "a user"), r.Consent.Digest))
	}
	undo := "undo: " + string(r.Undo)
	if lost := r.UndoLost(); lost != "" {
		undo += ": " + lost
	}
	line(undo)
	if next := nextRepairStep(node, r); next != "" {
		line("next: " + next)
	}
}

func writeRepairPlan(out io.Writer, line func(string), p *repair.Plan) {
	if len(p.Mended) > 0 {
		line("mends: " + strings.Join(p.Mended, ", "))
	}
	for _, n := range p.NotMended {
		line("leaves " + n.Finding + ": " + n.Why)
	}
	for _, f := range p.Files {
		what := "changes"
		switch {
		case f.Before == nil:
			what = "makes"
		case f.After == nil:
			what = "removes"
		}
		line(fmt.Sprintf("%s (%s): %s %s", f.Root, f.Consent, what, f.Path))
		if f.MadeBy != "" {
			line("  made by " + f.MadeBy)
		}
		for text := range strings.SplitSeq(f.Diff, "\n") {
			if text != "" {
				fmt.Fprintln(out, "  "+kit.StripControlChars(text))
			}
		}
	}
	for _, b := range p.Blocks {
		line(fmt.Sprintf("%s: changes %d bytes at %d", b.Device, b.Length, b.Offset))
	}
	for _, s := range p.Settings {
		line(fmt.Sprintf("%s: from %q to %q", s.Kind, s.Before, s.After))
	}
	for _, d := range p.Disks {
		line(fmt.Sprintf("%s %s: %d chunks of %d bytes change", d.Path, d.Serial, d.Chunks, repair.ChunkSize))
	}
	line("needs the consent: " + joinConsents(p.Consents))
	for _, loss := range p.Losses() {
		line("may lose, with " + loss.Finding + ": " + loss.Text)
	}
	line("digest: " + p.Digest)
}

func joinConsents(consents []diagnose.Consent) string {
	words := make([]string, 0, len(consents))
	for _, c := range consents {
		words = append(words, string(c))
	}
	return kit.FirstOf(strings.Join(words, ","), "none")
}

func rootFlag(r shownRepair) string {
	if r.Args.Root != "" {
		return " --root " + kit.ShellWord(r.Args.Root)
	}
	return ""
}

func rebootFlag(r shownRepair) string {
	if r.Args.Reboot {
		return " --reboot"
	}
	return ""
}

// nextRepairStep is the command that leads on from a repair; empty: there is none.
func nextRepairStep(node string, r shownRepair) string {
	switch {
	case r.State == metal.RepairAwaitingConsent:
		return fmt.Sprintf("salvor repair consent %s --digest %s --consent %s", node, r.Digest, joinConsents(r.Needs))
	case r.State == metal.RepairPlanned && r.Plan != nil && r.Args.Undoes == "" && slices.ContainsFunc(r.Plan.Disks, func(d repair.DiskChange) bool { return d.Chunks > 0 }):
		return strings.TrimRight(fmt.Sprintf("salvor repair %s %s", node, strings.Join(r.Args.Findings, " ")), " ") + rootFlag(r) + " --digest " + r.Digest + " --consent " + joinConsents(r.Args.Consents) + rebootFlag(r)
	case r.State == metal.RepairUnproven && r.Undo != metal.UndoExact:
		return fmt.Sprintf("salvor repair confirm %s if it works; salvor repair undo %[1]s --reboot if it does not", node)
	case r.State == metal.RepairInterrupted && r.Undo == metal.UndoNone && r.Args.Method != metal.UndoExact:
		return "salvor diagnose " + node
	case r.State == metal.RepairInterrupted:
		return "salvor repair undo " + node + " " + r.ID
	case (r.State == metal.RepairWritten || r.State == metal.RepairUnproven) && r.Undo == metal.UndoExact: // it is still in the rescue
		return "salvor node unrescue " + node
	}
	return ""
}
