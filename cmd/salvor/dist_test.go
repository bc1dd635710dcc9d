package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"salvor/test/debian"
	"salvor/test/must"
)

// TestUnits says that systemd takes the units in dist and that the program takes the words that they start it with.
func TestUnits(t *testing.T) {
	const program = "/usr/bin/salvor"
	analyze := debian.Program(t, "systemd-analyze", "systemd")
	self := must.Get(os.Executable())(t)
	files, err := filepath.Glob("../../dist/systemd/*.service")
	if err != nil || len(files) != 3 {
		t.Fatalf("units: %v, %v", files, err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=` + program + ` (.*)$`)
	for _, name := range files {
		text := must.Get(os.ReadFile(name))(t)
		line := start.FindStringSubmatch(string(text))
		if line == nil {
			t.Errorf("%s does not start %s", name, program)
			continue
		}
		for _, setting := range []string{"Type=notify", "NotifyAccess=main", "WatchdogSec=60"} {
			if !strings.Contains(string(text), "\n"+setting+"\n") {
				t.Errorf("%s does not set %s", name, setting)
			}
		}
		words := strings.Fields(strings.ReplaceAll(line[1], "$SALVOR_HOST_OPTIONS", "--controller https://salvor.example:6386"))
		cmd, rest, err := newRootCommand().Find(words)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil || cmd.Name() != words[0] || len(cmd.Flags().Args()) > 0 {
			t.Errorf("%s: salvor %s: %v", name, line[1], err)
		}
		// The program is not installed here, so that the units are looked at with another in its place.
		copied := filepath.Join(t.TempDir(), filepath.Base(name))
		must.OK(t, os.WriteFile(copied, []byte(strings.ReplaceAll(string(text), program, self)), 0o600))
		output, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", copied).CombinedOutput()
		if err != nil || strings.Contains(string(output), filepath.Base(name)) {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
	}
}

// TestAlertCommands: each command of salvor that an alert or the dashboard names exists, with its flags.
func TestAlertCommands(t *testing.T) {
	for file, named := range map[string]*regexp.Regexp{
		"prometheus/salvor.rules.yml": regexp.MustCompile(`(?m)^ +command: (.*)$`), "grafana/salvor.json": regexp.MustCompile(`Next: ([^"]*)"`),
	} {
		text := must.Get(os.ReadFile("../../dist/" + file))(t)
		found := 0
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			for _, words := range commandsOf(m[1]) {
				found++
				if err := parses(words); err != nil {
					t.Errorf("%s: salvor %s: %v", file, strings.Join(words, " "), err)
				}
			}
		}
		if found < 5 {
			t.Errorf("%s names only %d commands", file, found)
		}
	}
}
