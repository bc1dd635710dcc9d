package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/config"
	"salvor/wire/native"
)

// The levels of findings.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// doctorFinding is one line of the doctor's.
type doctorFinding struct {
	Level string `json:"level"`
	Check string `json:"check"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// doctor looks at a configuration and at the machine that is to serve it.
type doctor struct {
	cfg      *config.Config
	file     string
	findings []doctorFinding
	// runs: a salvor serve of this configuration is running.
	runs bool
	// addresses gives those of an interface; of the machine, unless a test has others.
	addresses func(name string) (interfaceState, error)
}

func (d *doctor) say(level, check, do, format string, args ...any) {
	d.findings = append(d.findings, doctorFinding{level, check, fmt.Sprintf(format, args...), do})
}

func (d *doctor) ok(check, format string, args ...any) { d.say(levelOK, check, "", format, args...) }

// checkWithin bounds one check: one that hangs must not hide the others.
const checkWithin = 20 * time.Second

// examinations in the order in which they are told.
var examinations = []func(*doctor, context.Context){
	(*doctor).configFile, (*doctor).stateDirectory, (*doctor).keyFile, (*doctor).running, (*doctor).diskSpace, (*doctor).clock, (*doctor).database,
	(*doctor).ports, (*doctor).certificate, (*doctor).ramdisk, (*doctor).netboot, (*doctor).loaders, (*doctor).endpoint, (*doctor).images, (*doctor).controllers,
}

// siteExaminations are those of a site's boot service, which has neither key nor database, and reaches no BMC.
var siteExaminations = []func(*doctor, context.Context){
	(*doctor).configFile, (*doctor).stateDirectory, (*doctor).running, (*doctor).diskSpace, (*doctor).clock,
	(*doctor).centre, (*doctor).ports, (*doctor).netboot, (*doctor).loaders,
}

func newDoctorCommand() *cobra.Command {
	var format, node string
	var where serveFlags
	e := &apiEndpoint{}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check a configuration, this machine and its networks before or while salvor serve runs", Args: cobra.NoArgs,
		Long: `Checks the configuration of salvor serve, and this machine: files and their permissions, the key, the database and its tables, the clock,
disk space, ports and certificates. It also checks the ramdisk, boot networks and loaders, the address that ramdisks call, the directory of
images, and whether the BMCs of some nodes answer.

It changes nothing, and sends no credential except to the database. It does not check Keystone, [otel], or the files of users and rules.
Each line is ok, warn or fail, and says what to do. The exit status is 1 if anything fails.

With --node NODE it asks the API instead whether rescue, unrescue, deploy, provide, clean, inspect and service could succeed on the node.
It prints every reason against an operation, also for the approved runbooks and the chosen deploy templates of the node. It contacts no
machine. A reason fails if the node's state takes the operation now, and else warns.`,
		Example: "  salvor doctor --config /etc/salvor/salvor.conf\n  salvor doctor --node rack1-7\n  salvor doctor -f json | jq '.[] | select(.level != \"ok\")'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "text" && format != "table" && format != "json" {
				return usageErrorf(cmd, "-f %s: want text or json", format)
			}
			if node != "" {
				return e.run(func(c *clientCall) error { return examineNode(c, node, format) })(cmd, nil)
			}
			source, err := where.source("database")
			if err != nil {
				return err
			}
			return runDoctor(cmd.Context(), source, format, cmd.OutOrStdout())
		},
	}
	where.flags(cmd, "database", "")
	e.flags(cmd)
	cmd.Flags().StringVar(&node, "node", "", "ask the API which operations could succeed on this node, instead of checking this machine")
	cmd.Flags().StringVarP(&format, "format", "f", "text", "text (or table) or json")
	return cmd
}

// examineNode tells of each operation whether it could succeed on a node.
func examineNode(c *clientCall, ident, format string) error {
	var found native.Preflight
	if err := c.api.Ask(c.context(), client.Native, http.MethodGet, "/nodes/"+url.PathEscape(ident)+"/preflight", nil, nil, &found); err != nil {
		return err
	}
	d := &doctor{}
	for _, one := range found.Operations {
		level := levelWarn
		if one.Now {
			level = levelFail
		}
		for _, r := range one.Reasons {
			d.say(level, one.Operation, "mend it, then salvor doctor --node "+ident, "%s", r.Text)
		}
		if len(one.Reasons) == 0 {
			d.ok(one.Operation, "nothing is known against it")
		}
	}
	return d.report(format, c.OutOrStdout())
}

func runDoctor(ctx context.Context, source config.Source, format string, out io.Writer) error {
	d := &doctor{file: source.File, addresses: interfaceAddresses}
	cfg, warnings, err := config.Load(source)
	for _, w := range warnings {
		d.say(levelWarn, "configuration", "change it in the configuration file", "%s", w)
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			d.say(levelFail, "configuration", "correct it; salvor config sample explains every option", "%s", strings.TrimSpace(line))
		}
	} else {
		d.cfg = cfg
		looks := examinations
		if cfg.Site.Centre != "" {
			looks = siteExaminations
		}
		for _, look := range looks {
			bounded, cancel := context.WithTimeout(ctx, checkWithin)
			look(d, bounded)
			cancel()
		}
	}
	return d.report(format, out)
}

func (d *doctor) report(format string, out io.Writer) error {
	failed := 0
	for _, f := range d.findings {
		if f.Level == levelFail {
			failed++
		}
	}
	if format == "json" {
		if err := writeJSON(out, d.findings); err != nil {
			return err
		}
	} else {
		for _, f := range d.findings {
			fmt.Fprintf(out, "%-4s  %s: %s\n", f.Level, f.Check, stripControlChars(f.Text))
			if f.Do != "" {
				fmt.Fprintf(out, "      -> %s\n", f.Do)
			}
		}
	}
	if failed > 0 {
		return withStatus(statusFailed, fmt.Errorf("%d of %d checks failed", failed, len(d.findings)))
	}
	return nil
}
