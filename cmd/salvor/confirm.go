package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
)

// destruction is what a command does that cannot be taken back, or that interrupts machines in use.
type destruction struct {
	effect string // with the command as its subject
	many   bool   // it is worth a question for several arguments only
	// when tells whether the flags that were given ask for it; nil: always.
	when func(*cobra.Command) bool
}

// destructions are the commands that ask first on a terminal, by their words. Every command that is called delete, remove or revoke asks as well.
var destructions = map[string]destruction{
	"node delete":   {effect: "deletes the records of the nodes"},
	"node undeploy": {effect: "deletes the instances of the nodes and may erase their disks"},
	"node deploy":   {effect: "writes over the disks of the nodes"},
	"node rebuild":  {effect: "writes over the disks of the nodes"},
	"node clean":    {effect: "runs clean steps, which may erase the disks of the nodes"},
	"node provide":  {effect: "makes the nodes available, and erases their disks if automated cleaning is on"},

	"node power off":  {effect: "switches the nodes off", many: true},
	"node reboot":     {effect: "reboots the nodes", many: true},
	"node rescue":     {effect: "reboots the nodes into the rescue ramdisk", many: true},
	"node unrescue":   {effect: "reboots the nodes", many: true},
	"node inject nmi": {effect: "interrupts the system of the node, which then dumps or restarts"},

	"server delete":  {effect: "deletes the servers with their local disks"},
	"server rebuild": {effect: "replaces the root disks of the servers"},
	"server stop":    {effect: "stops the servers", many: true},
	"server reboot":  {effect: "reboots the servers", many: true},

	"host quarantine remove": {effect: "removes the disks for good"},
	"fence":                  {effect: "stops everything that runs on the host"},
	"host set": {effect: "stops the guests of the host, or refuses the host from now on", when: func(cmd *cobra.Command) bool {
		return isSwitchedOn(cmd, "forced-down") || isSwitchedOn(cmd, "revoke")
	}},
	"evacuate run": {effect: "makes servers anew from their images, and their data are lost", when: func(cmd *cobra.Command) bool { return cmd.Flags().Changed("reimage") }},
	"db restored":  {effect: "ends the hold; all open jobs go on, or all end", when: func(cmd *cobra.Command) bool { return cmd.Flags().Changed("release") }},
}

func isSwitchedOn(cmd *cobra.Command, flag string) bool {
	on, _ := cmd.Flags().GetBool(flag)
	return on
}

// destructionOf finds what a command destroys.
func destructionOf(cmd *cobra.Command) (destruction, bool) {
	if d, ok := destructions[strings.TrimPrefix(cmd.CommandPath(), "salvor ")]; ok {
		return d, true
	}
	switch cmd.Name() {
	case "delete", "remove", "revoke":
		return destruction{effect: cmd.Name() + "s what is named"}, true
	}
	return destruction{}, false
}

// addQuestions has every destructive command of a tree ask first. Commands that choose nodes ask when they have chosen.
func addQuestions(cmd *cobra.Command) {
	_, destroys := destructionOf(cmd)
	chooses := cmd.Flags().Lookup(dryRunFlag) != nil && cmd.Flags().Lookup(whereFlag) != nil
	if run := cmd.RunE; run != nil && (destroys || chooses) {
		cmd.Flags().Bool("yes", false, "do not ask on a terminal, as: "+cmd.CommandPath()+" ... --yes")
		if !chooses {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if err := confirm(cmd, args, false); err != nil {
					return err
				}
				return run(cmd, args)
			}
		}
	}
	for _, c := range cmd.Commands() {
		addQuestions(c)
	}
}

// confirm asks whether a destructive command shall go on, if somebody sits at a terminal and gave no --yes. always: also where the
// command destroys nothing, because the names were not typed.
func confirm(cmd *cobra.Command, names []string, always bool) error {
	d, destroys := destructionOf(cmd)
	if !always && (!destroys || d.many && len(names) < 2 || d.when != nil && !d.when(cmd)) {
		return nil
	}
	in := cmd.InOrStdin()
	if isSwitchedOn(cmd, "yes") || kit.TerminalWidth(in) == 0 {
		return nil
	}
	text := cmd.CommandPath()
	if len(names) > 0 {
		text += " " + kit.StripControlChars(shortenList(names))
	}
	if destroys {
		text += ": the command " + d.effect
	}
	return askForYes(cmd, text+". Go on? [y/N] ")
}

// askForYes asks a person a question, and fails unless the answer is y.
func askForYes(cmd *cobra.Command, question string) error {
	in, out := cmd.InOrStdin(), cmd.ErrOrStderr()
	fmt.Fprint(out, question)
	defer kit.OnInterrupt(func() { fmt.Fprintln(out) })()
	// Byte by byte: what is typed after the line is for somebody else, such as the question for a password.
	var line []byte
	for one := make([]byte, 1); ; {
		if n, err := in.Read(one); n == 0 || err != nil || one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	switch strings.ToLower(strings.TrimSpace(string(line))) {
	case "y", "yes":
		return nil
	}
	return kit.WithStatus(kit.StatusFailed, errors.New("nothing was done, because the answer was not y; --yes does it without a question"))
}

// shortenList names the first of many, and how many there are.
func shortenList(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s ... (%d in all)", strings.Join(names[:most], ", "), len(names))
}
