package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/diagnose"
	"salvor/metal"
	"salvor/record"
)

// newDiagnoseCommand is `salvor diagnose`.
func newDiagnoseCommand() *cobra.Command {
	e, format, args, wait, kind := &kit.Endpoint{}, kit.TextFormat(""), metal.DiagnoseArgs{}, time.Duration(0), ""
	consoleFile := ""
	var keyFiles []string
	cmd := &cobra.Command{
		Use: "diagnose NODE|SERVER", Short: "Find out why a node or a server does not boot, or why nobody can log in to it", Args: cobra.ExactArgs(1),
		Long: `Reads what the BMC and salvor's records tell of a node. If the node is off, or with --reboot, it boots the rescue ramdisk, examines the disks,
and puts the node back as it was found. Nothing on the disks changes: they are read through overlays in memory, in which journals are
replayed. The report names the cause, with the file and the line that show it.

A node in rescue is examined in its rescue system and stays there. Encrypted disks are opened with --luks-key: a file is taken byte by byte, and
- is a passphrase, asked from the terminal or read as one line. salvor keeps the keys sealed until the agent has them, and no longer.

A node that is on is never restarted without --reboot. The rescue ramdisk needs the profile diagnose or full (salvor ramdisk build).

The host of a server that is off examines the disks in a helper guest, which can only read them. A server that is on is not examined: stop
it first. A server in rescue is unrescued first, or examined there by salvor-agent examine. If a node and a server have the same name, give --kind, or node:NAME.`,
		Example: "  salvor diagnose rack1-7 --wait\n  salvor diagnose web1 --wait\n  salvor diagnose rack1-7 --reboot --wait -f json | jq .report.verdict\n  salvor diagnose rack1-7 --reboot --keep-rescue --wait\n  salvor diagnose rack1-7 --console /var/log/conserver/rack1-7.log --wait\n  salvor diagnose rack1-7 --luks-key - --wait",
		RunE: e.Run(func(c *kit.Call) error {
			if err := format.Check(c.Command); err != nil {
				return err
			}
			at, err := findDiagnosed(c, kind)
			if err != nil {
				return err
			}
			if at.kind == "server" && (args.Reboot || args.KeepRescue || consoleFile != "") {
				return kit.UsageErrorf(c.Command, "%s is a server, which is examined while it is off: --reboot, --keep-rescue and --console are for nodes; stop it first", at.label)
			}
			body, err := readDiagnosisBody(c, args, keyFiles, consoleFile)
			if err != nil {
				return err
			}
			var d metal.Diagnosis
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, at.path, nil, body, &d); err != nil {
				return err
			}
			if !c.Flags().Changed("wait") {
				fmt.Fprintf(c.ErrOrStderr(), "%s: accepted: diagnose; to see the report: salvor diagnosis show %[1]s\n", at.label)
				return nil
			}
			if err := awaitDiagnosis(c, at, wait, &d); err != nil {
				return err
			}
			if err := showDiagnosis(c, format, at, d); err != nil || d.State != diagnose.Failed {
				return err
			}
			return kit.WithStatus(kit.StatusFailed, fmt.Errorf("the diagnosis failed: %s", d.Problem))
		}),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	cmd.Flags().BoolVar(&args.Reboot, "reboot", false, "restart a node that is on into the rescue ramdisk")
	cmd.Flags().BoolVar(&args.KeepRescue, "keep-rescue", false, "leave the node in rescue when its disks have been examined; to log in, ask for a rescue with a key or a password then")
	cmd.Flags().BoolVar(&args.OnlyRead, "only-read", false, "run no program of the systems on the disks, such as sshd -t; without this flag, their own checkers run in a sandbox")
	cmd.Flags().StringVar(&consoleFile, "console", "", "a file with what the node wrote on its serial line, or - for standard input; salvor reads its last 256 KiB and keeps only the lines of findings")
	luksKeyFlag(cmd, &keyFiles)
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait for the report, at most this long; 0: until it is there")
	cmd.Flags().Lookup("wait").NoOptDefVal = "0s"
	kindFlag(cmd, &kind)
	return cmd
}

// readDiagnosisBody is the body of a request for a diagnosis, with the keys and the console's text that the flags name.
func readDiagnosisBody(c *kit.Call, args metal.DiagnoseArgs, keyFiles []string, consoleFile string) (diagnosisBody, error) {
	if consoleFile == "-" && slices.Contains(keyFiles, "-") {
		return diagnosisBody{}, errors.New("--console and --luks-key both read standard input; give one of them as a file")
	}
	keys, err := readLUKSKeys(c.InOrStdin(), c.ErrOrStderr(), keyFiles)
	if err != nil {
		return diagnosisBody{}, err
	}
	body := diagnosisBody{DiagnoseArgs: args, LUKSKeys: keys}
	if consoleFile != "" {
		body.Console, err = readConsoleEnd(c, consoleFile)
	}
	return body, err
}

// readConsoleEnd reads the end of a file with a console's text.
func readConsoleEnd(c *kit.Call, name string) (string, error) {
	in := c.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return "", err
		}
		if info.Mode().IsRegular() && info.Size() > diagnose.MaxConsole {
			if _, err := f.Seek(-diagnose.MaxConsole, io.SeekEnd); err != nil {
				return "", err
			}
		}
		in = f
	}
	end := make([]byte, 0, 2*diagnose.MaxConsole)
	for {
		if len(end) > diagnose.MaxConsole {
			end = end[:copy(end, end[len(end)-diagnose.MaxConsole:])]
		}
		n, err := in.Read(end[len(end):cap(end)])
		end = end[:len(end)+n]
		if errors.Is(err, io.EOF) {
			return strings.ToValidUTF8(string(end[max(0, len(end)-diagnose.MaxConsole):]), ""), nil
		}
		if err != nil {
			return "", fmt.Errorf("read the console's text in %s: %w", name, err)
		}
	}
}

// diagnosedKinds are those of what can be diagnosed, each under the path of its plural.
var diagnosedKinds = []string{"node", "server"}

func kindFlag(cmd *cobra.Command, kind *string) {
	cmd.Flags().StringVar(kind, "kind", "", "what the name is of: "+strings.Join(diagnosedKinds, " or "))
}

// diagnosedSubject is a node or a server, and the path of its diagnoses.
type diagnosedSubject struct{ kind, name, label, path string }

// findDiagnosed finds out whether the first argument names a node or a server: both are asked for where no kind is given.
func findDiagnosed(c *kit.Call, kind string) (diagnosedSubject, error) {
	kind, ident, err := splitKindIdent(c.Command, c.Args[0], kind, diagnosedKinds)
	if err != nil {
		return diagnosedSubject{}, err
	}
	var found []diagnosedSubject
	var refused error
	for _, k := range diagnosedKinds {
		if kind != "" && k != kind {
			continue
		}
		at := diagnosedSubject{kind: k, name: c.Label(ident), label: c.Label(c.Args[0]), path: "/" + k + "s/" + url.PathEscape(ident) + "/diagnoses"}
		err := c.API.Ask(c.Context(), client.Native, http.MethodGet, at.path, nil, nil, nil)
		switch {
		case err == nil:
			found = append(found, at)
		case client.StatusOf(err) != http.StatusNotFound || kind != "":
			refused = errors.Join(refused, err)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return diagnosedSubject{}, kit.UsageErrorf(c.Command, "%s is the name of a node and of a server: say which by --kind", c.Label(ident))
	case refused != nil:
		return diagnosedSubject{}, refused
	}
	return diagnosedSubject{}, fmt.Errorf("no node or server %s could be found", c.Label(ident))
}

// awaitDiagnosis asks until the diagnosis has ended, and says on standard error what it does.
func awaitDiagnosis(c *kit.Call, at diagnosedSubject, within time.Duration, d *metal.Diagnosis) error {
	path := at.path + "/" + d.ID
	ended, err := followSteps(c, at.label, "it has just begun", within, func() (string, bool, error) {
		*d = metal.Diagnosis{} // what an answer leaves out must not come from the one before
		err := c.API.Ask(c.Context(), client.Native, http.MethodGet, path, nil, nil, d)
		return d.Step, d.State != diagnose.Running, err
	})
	if err == nil && !ended {
		err = fmt.Errorf("the diagnosis has not ended within %s; to see the report later: salvor diagnosis show %s", within, at.label)
	}
	return err
}

// newDiagnosisCommand is `salvor diagnosis`: what former diagnoses found.
func newDiagnosisCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "diagnosis", Short: "Show what diagnoses of nodes and servers found"}
	cmd.AddCommand(newDiagnosisShowCommand(), newDiagnosisListCommand(), newDiagnosisConfirmCommand())
	return cmd
}

// onDiagnosis finds the subject of a command, and gives the address of the diagnosis that the command names: the newest one without an ID.
func onDiagnosis(format *kit.TextFormat, kind *string, do func(c *kit.Call, at diagnosedSubject, page string) error) func(c *kit.Call) error {
	return func(c *kit.Call) error {
		if err := format.Check(c.Command); err != nil {
			return err
		}
		id := "newest"
		if len(c.Args) > 1 {
			id = c.Args[1]
		}
		at, err := findDiagnosed(c, *kind)
		if err != nil {
			return err
		}
		return do(c, at, at.path+"/"+url.PathEscape(id))
	}
}

func newDiagnosisConfirmCommand() *cobra.Command {
	e, format, kind, words := &kit.Endpoint{}, kit.TextFormat(""), "", ""
	cmd := &cobra.Command{
		Use: "confirm NODE|SERVER [ID]", Short: "State that a node or a server works, after a diagnosis that found nothing", Args: cobra.RangeArgs(1, 2),
		Long: `Makes the verdict of the newest diagnosis, or of another one, works, with your name, the time and your words as the proof. The diagnosis must have ended,
and must have found nothing that may keep the machine from its work. The node or the server must be on, and not in rescue.`,
		Example: "  salvor diagnosis confirm rack1-7 --words 'I logged in over ssh and saw the database run'",
		RunE: e.Run(onDiagnosis(&format, &kind, func(c *kit.Call, at diagnosedSubject, page string) error {
			var d metal.Diagnosis
			body := struct {
				Words string `json:"words"`
			}{words}
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, page+"/confirm", nil, body, &d); err != nil {
				return err
			}
			if format.IsJSON() {
				return kit.WriteJSON(c.OutOrStdout(), d)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", at.label, kit.StripControlChars(verdictLine(&d.Report)))
			return nil
		})),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	kindFlag(cmd, &kind)
	cmd.Flags().StringVar(&words, "words", "", "how you know that it works; those who may read the report see it")
	if err := cmd.MarkFlagRequired("words"); err != nil {
		panic(err) // the flag is two lines above
	}
	return cmd
}

func newDiagnosisShowCommand() *cobra.Command {
	e, format, kind := &kit.Endpoint{}, kit.TextFormat(""), ""
	cmd := &cobra.Command{
		Use: "show NODE|SERVER [ID]", Short: "Show the newest diagnosis of a node or a server, or another one", Args: cobra.RangeArgs(1, 2),
		Example: "  salvor diagnosis show rack1-7\n  salvor diagnosis show rack1-7 -f json | jq '.report.findings[].id'",
		RunE: e.Run(onDiagnosis(&format, &kind, func(c *kit.Call, at diagnosedSubject, page string) error {
			var d metal.Diagnosis
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, page, nil, nil, &d); err != nil {
				return err
			}
			return showDiagnosis(c, format, at, d)
		})),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	kindFlag(cmd, &kind)
	return cmd
}

func newDiagnosisListCommand() *cobra.Command {
	e, format, kind := &kit.Endpoint{}, kit.TextFormat(""), ""
	cmd := &cobra.Command{
		Use: "list NODE|SERVER", Short: "List the kept diagnoses of a node or a server, newest first", Args: cobra.ExactArgs(1), Example: "  salvor diagnosis list rack1-7",
		RunE: e.Run(func(c *kit.Call) error {
			if err := format.Check(c.Command); err != nil {
				return err
			}
			var found struct {
				Diagnoses []struct {
					ID          string     `json:"id"`
					State       string     `json:"state"`
					Outcome     string     `json:"outcome"`
					Finding     string     `json:"finding"`
					Problem     string     `json:"problem"`
					RequestedAt time.Time  `json:"requested_at"`
					FinishedAt  *time.Time `json:"finished_at"`
				}
			}
			at, err := findDiagnosed(c, kind)
			if err != nil {
				return err
			}
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, at.path, nil, nil, &found); err != nil {
				return err
			}
			if format.IsJSON() {
				return kit.WriteJSON(c.OutOrStdout(), found.Diagnoses)
			}
			for _, d := range found.Diagnoses {
				fmt.Fprintf(c.OutOrStdout(), "%s  %s  %-9s %-12s %s\n", kit.StripControlChars(d.ID), record.Moment(d.RequestedAt), kit.StripControlChars(d.State),
					kit.StripControlChars(d.Outcome), kit.StripControlChars(kit.FirstOf(d.Finding, d.Problem)))
			}
			return nil
		}),
	}
	e.Flags(cmd)
	format.Flag(cmd, "")
	kindFlag(cmd, &kind)
	return cmd
}

func showDiagnosis(c *kit.Call, format kit.TextFormat, at diagnosedSubject, d metal.Diagnosis) error {
	if format.IsJSON() {
		return kit.WriteJSON(c.OutOrStdout(), d)
	}
	writeDiagnosis(c.OutOrStdout(), kit.TerminalWidth(c.OutOrStdout()), at, d)
	return nil
}

// verdictTexts are sentences about a node.
var verdictTexts = map[diagnose.Outcome]string{
	diagnose.CauseFound:   "the cause is found",
	diagnose.NothingFound: "no known fault was found that keeps the machine from its work, and nothing proves that the machine works",
	diagnose.Works:        "it works",
}

// verdictLine is the first line of a report: the verdict, the cause and on which disk it lies, or what proves that the machine works.
func verdictLine(r *diagnose.Report) string {
	text := kit.FirstOf(verdictTexts[r.Verdict.Outcome], "there is no verdict")
	if r.Verdict.Proof != nil {
		text += ": " + r.Verdict.Proof.Text
	}
	if cause := causeOf(r); cause != nil {
		text += ": " + cause.ID + systemText(cause)
		if cause.Title != "" { // members of other projects do not see what lies on the disks of a server
			text += ": " + cause.Title
		}
	}
	return strings.TrimSuffix(text, ".") + "."
}

// causeOf is the finding that the verdict names; nil without one.
func causeOf(r *diagnose.Report) *diagnose.Finding {
	if i := slices.IndexFunc(r.Findings, func(f diagnose.Finding) bool { return f.ID == r.Verdict.Finding }); i >= 0 && r.Verdict.Outcome == diagnose.CauseFound {
		return &r.Findings[i]
	}
	return nil
}

// systemText says in which system, and on which disk, a finding lies; empty for what concerns the machine.
func systemText(f *diagnose.Finding) string {
	switch {
	case f.System == "":
		return ""
	case f.Disk == "" || f.Disk == f.System:
		return " on " + f.System
	}
	return " on " + f.System + " of " + f.Disk
}

// nextDiagnosisStep is the command that leads on from a report. Repairs are for nodes, and a server is examined while it is off. The agent runs on the
// machine, so its words are quoted.
func nextDiagnosisStep(at diagnosedSubject, r *diagnose.Report) string {
	cause, isServer, name := causeOf(r), at.kind == "server", kit.ShellWord(at.name)
	switch {
	case cause != nil && !isServer && cause.Repair != nil && cause.Repair.Consent != diagnose.ConsentData:
		root := ""
		if len(r.Systems) > 1 && cause.System != "" {
			root = " --root " + kit.ShellWord(cause.System)
		}
		return fmt.Sprintf("salvor repair %s %s%s --plan", name, kit.ShellWord(cause.ID), root)
	case cause != nil:
		return fmt.Sprintf("mend it by hand, as the report says below, in a rescue: salvor %s rescue %s", at.kind, name)
	case isConfirmable(r):
		return fmt.Sprintf("if you have logged in and it works, say so: salvor diagnosis confirm %s --words TEXT", name)
	case r.ExaminedIn > 0 || r.Verdict.Outcome == diagnose.Works:
	case isServer:
		return fmt.Sprintf("salvor server stop %s --wait; then salvor diagnose %[1]s --wait, which examines the disks", name)
	default:
		return "salvor diagnose " + name + " --reboot, which examines the disks"
	}
	return ""
}

// isConfirmable tells whether a person may know more than the report: the disks of a machine that was found on were examined, and nothing was found that may
// keep it from its work.
func isConfirmable(r *diagnose.Report) bool {
	return r.ExaminedIn > 0 && r.Verdict.Outcome == diagnose.NothingFound && r.Suspect() == nil && slices.Contains(r.Observed, diagnose.Observation{Name: "power", Text: string(metal.PowerOn)})
}

// writeDiagnosis prints the report for a person: the cause first.
func writeDiagnosis(out io.Writer, width int, at diagnosedSubject, d metal.Diagnosis) {
	r := d.Report
	line := func(indent, text string) {
		if text = kit.StripControlChars(text); text == "" {
			return
		}
		if width > 0 {
			text = wrapText(text, max(width-len(indent), 40))
		}
		for part := range strings.SplitSeq(text, "\n") {
			fmt.Fprintln(out, indent+part)
		}
	}
	switch d.State {
	case diagnose.Running:
		line("", at.label+": the diagnosis is under way: "+kit.FirstOf(d.Step, "it has just begun"))
		return
	case diagnose.Failed:
		line("", at.label+": the diagnosis failed: "+d.Problem)
	}
	line("", at.label+": "+verdictLine(&r))
	if next := nextDiagnosisStep(at, &r); next != "" {
		fmt.Fprintln(out, kit.StripControlChars("next: "+next)) // on one line, so that it can be copied
	}
	if r.Verdict.Outcome == diagnose.CauseFound {
		line("", writeStages(r.Verdict.Stage))
	}
	for _, rung := range r.Verdict.Ladder {
		if rung.Coverage != diagnose.Examined {
			line("", fmt.Sprintf("stage %s: %s: %s", rung.Stage, coverageTexts[rung.Coverage], rung.Gap))
		}
	}
	cause := slices.IndexFunc(r.Findings, func(f diagnose.Finding) bool { return f.ID == r.Verdict.Finding })
	for i, f := range r.Findings {
		fmt.Fprintln(out)
		what := string(f.Severity)
		if i == cause {
			what = "CAUSE, " + what
		}
		line("", fmt.Sprintf("%s%s (%s, stage %s, %.0f %% sure)", f.ID, systemText(&f), what, f.Stage, f.Confidence*100))
		line("  ", f.Title)
		for _, e := range f.Evidence {
			line("    ", evidenceText(e))
		}
		if f.Repair != nil {
			line("  ", fmt.Sprintf("Repair (%s): %s It changes: %s.", f.Repair.Consent, f.Repair.Summary, strings.Join(f.Repair.Writes, ", ")))
			if f.Repair.Loses != "" {
				line("  ", "It may lose: "+f.Repair.Loses)
			}
		}
		if f.ByHand != "" {
			line("  ", "By hand: "+f.ByHand)
		}
	}
	fmt.Fprintln(out)
	for _, o := range r.Observed {
		line("", o.Name+": "+o.Text)
	}
	for _, s := range r.Systems {
		line("", "examined: "+kit.FirstOf(s.Name, "a system")+" on "+s.Root)
	}
	for _, a := range r.Asked {
		line("", "ran: "+askedText(&a))
	}
	for _, disk := range r.Disks {
		line("", fmt.Sprintf("examined: %s (%s), %d bytes written", disk.Path, strings.TrimSpace(disk.Model+" "+disk.Serial), disk.Written))
	}
	for _, g := range r.NotExamined {
		line("", "not examined: "+g.What+": "+g.Why)
	}
}

// askedText says which program of an examined system ran, and how it ended.
func askedText(a *diagnose.AskedProgram) string {
	ended := fmt.Sprintf("exit status %d", a.Exit)
	if a.Trouble != "" {
		ended = a.Trouble
	}
	return fmt.Sprintf("%s of %s: %s", strings.Join(a.Command, " "), a.System, ended)
}

// coverageTexts say how much of a stage was examined.
var coverageTexts = map[diagnose.Coverage]string{diagnose.Partly: "examined in part", diagnose.NotExamined: "not examined"}

// writeStages draws how far the machine gets.
func writeStages(broken diagnose.Stage) string {
	var parts []string
	for _, s := range diagnose.Stages() {
		if s == broken {
			return strings.Join(append(parts, "["+string(s)+" FAILS]"), " > ")
		}
		parts = append(parts, string(s))
	}
	return strings.Join(parts, " > ")
}

// evidenceText is one line: the place, and what stands there.
func evidenceText(e diagnose.Evidence) string {
	place := e.Path
	if e.Line > 0 {
		place = fmt.Sprintf("%s:%d", e.Path, e.Line)
	}
	if len(e.Command) > 0 {
		place = strings.Join(e.Command, " ")
		if e.Exit != nil {
			place += fmt.Sprintf(" (exit %d)", *e.Exit)
		}
	}
	if place == "" {
		place = string(e.Kind)
	}
	if e.Text == "" {
		return place
	}
	return place + ": " + e.Text
}
