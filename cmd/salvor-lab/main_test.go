package main

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/test/debian"
	"salvor/test/must"
)

// run runs a command of the program, and gives its error with its exit status.
func run(t *testing.T, args ...string) (status int, err error) {
	t.Helper()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	if err = root.ExecuteContext(t.Context()); err != nil {
		status = kit.ExitStatus(err)
	}
	return status, err
}

// TestUsageErrors: a word or a flag that is not known is refused with what is, in one line, with the exit status of wrong usage.
func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"lab up --bmc x":      `--bmc "x": want one of redfish, ipmi; see: salvor-lab lab up --help`,
		"lab up --firmware x": `--firmware "x": want one of bios, uefi; see: salvor-lab lab up --help`,
		"lab up --disk x":     `--disk "x": want one of tenant, blank; see: salvor-lab lab up --help`,
		"lab up --accel x":    `--accel "x": want one of tcg, kvm; see: salvor-lab lab up --help`,
		"lab fault m1":        "down|hang|slow=DURATION|503|rubbish|lie-power|lie-off|none is missing; want salvor-lab lab fault MACHINE",
		"lab ip":              `unknown command "ip" of salvor-lab lab; did you mean up?; see: salvor-lab lab --help`,
		"sim --for -1s":       "--for -1s: want 0 or more; see: salvor-lab sim --help",
		"sim --rescue 2":      "shares of 2 and 0 of the nodes in rescue: want 0 to 1 together; see: salvor-lab sim --help",
		"try 40":              `unknown command "40"`,
	} {
		status, err := run(t, strings.Fields(line)...)
		if err == nil || status != kit.StatusUsage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: status %d, %v; want %d and %s", line, status, err, kit.StatusUsage, want)
		}
	}
}

// TestFormerFlag: a flag's name of the former release is taken, and help does not show it.
func TestFormerFlag(t *testing.T) {
	cmd, rest, err := newRootCommand().Find([]string{"sim", "--lying", "0.5"})
	must.OK(t, err)
	if err := cmd.ParseFlags(rest); err != nil || !cmd.Flags().Changed("faulty-acks") || strings.Contains(cmd.Flags().FlagUsages(), "lying") {
		t.Errorf("sim --lying 0.5: %v; help:\n%s", err, cmd.Flags().FlagUsages())
	}
}

// TestManPages: each command that help shows says what it does and has a page, and mandoc finds nothing wrong in any.
func TestManPages(t *testing.T) {
	mandoc, dir := debian.Program(t, "mandoc", "mandoc"), t.TempDir()
	if _, err := run(t, "man", dir); err != nil {
		t.Fatal(err)
	}
	var want []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			return
		}
		if len(strings.Fields(c.Short)) < 2 {
			t.Errorf("%s is described by %q", c.CommandPath(), c.Short)
		}
		want = append(want, filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand())
	if len(want) < 15 {
		t.Errorf("%d commands, want 15 or more", len(want))
	}
	if out, err := exec.CommandContext(t.Context(), mandoc, append([]string{"-T", "lint", "-W", "warning"}, want...)...).CombinedOutput(); err != nil {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
}
