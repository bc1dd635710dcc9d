package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestBadInput answers bad input in one line with one prefix: what was typed, and what is allowed or where to read it.
func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"nod list":                        `unknown command "nod" of salvor; did you mean node?; see: salvor --help`,
		"node lst":                        `unknown command "lst" of salvor node; did you mean get or list or set?; see: salvor node --help`,
		"node maintenance begin":          `unknown command "begin" of salvor node maintenance; want one of set, unset; see: salvor node maintenance --help`,
		"node list --maintenence":         "unknown flag: --maintenence; did you mean --maintenance?; see: salvor node list --help",
		"node list -f xml":                "-f xml: want table, json, yaml, value, csv or shell; see: salvor node list --help",
		"node show":                       "requires at least 1 arg(s), only received 0; want salvor node show NODE; see: salvor node show --help",
		"node list --provision-state up":  `--provision-state "up": want one of active, adopt failed, `,
		"server list --status UP":         `--status "UP": want one of ACTIVE, BUILD, `,
		"events --type bogus":             `--type "bogus": want one of state, action, contact, request, boot; see: salvor events --help`,
		"allocation list --state x":       `--state "x": want one of allocating, active, error; see: salvor allocation list --help`,
		"rescue-session list --kind x":    `--kind "x": want one of server, node; see: salvor rescue-session list --help`,
		"evacuate list --state x":         `--state "x": want one of drafted, `,
		"node list --os-cloud nowhere":    `cloud "nowhere": `,
		"why --kind rack a":               "--kind rack: want node, server, host; see: salvor why --help",
		"node power off a --wait --soft=": "invalid argument",
	} {
		t.Setenv("OS_CLIENT_CONFIG_FILE", t.TempDir()+"/none.yaml")
		_, errs, status := salvor(t, &fakeAPI{}, "", strings.Fields(args)...)
		if status != statusUsage || !strings.HasPrefix(errs, "salvor: "+want) && !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || strings.Count(errs, "salvor: ") != 1 {
			t.Errorf("%s: status %d:\n%s", args, status, errs)
		}
	}
}

// TestRefusalNamesWhatIsAccepted adds the state and the verbs to a refusal, where the verb is not among them.
func TestRefusalNamesWhatIsAccepted(t *testing.T) {
	refusal := `400 {"error_message": "{\"faultstring\": \"The requested action can not be performed\"}"}`
	why := `{"state": "active", "accepts": ["rescue", "deleted", "power off"]}`
	for args, want := range map[string]string{
		"node deploy web-1":                      "; node web-1 is in state active and accepts now: rescue, undeploy, power off\n",
		"node undeploy web-1":                    "The requested action can not be performed\n",
		"node rescue web-1 --rescue-password x":  "The requested action can not be performed\n",
		"node power on web-1":                    "; node web-1 is in state active and accepts now: rescue, undeploy, power off\n",
		"node manage unknown-to-the-native-api1": "can not be performed\n",
	} {
		name := strings.Fields(args)[2]
		if name == "on" {
			name = "web-1"
		}
		api := &fakeAPI{answers: map[string][]string{
			"PUT /v1/nodes/" + name + "/states/provision": {refusal}, "PUT /v1/nodes/" + name + "/states/power": {refusal},
			"GET /salvor/v1/nodes/web-1/why": {why},
		}}
		if _, errs, status := salvor(t, api, "", strings.Fields(args)...); status != statusFailed || !strings.HasSuffix(errs, want) {
			t.Errorf("%s: status %d:\n%s", args, status, errs)
		}
	}
}

// TestGroupsAreDescribed: each command says in a sentence of its own what it does.
func TestGroupsAreDescribed(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.Hidden && len(strings.Fields(c.Short)) < 2 || strings.Contains(c.Short, "ommands about") {
			t.Errorf("%s: %q", c.CommandPath(), c.Short)
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand())
}

// TestFormerNames: names of the former release work, and help does not show them.
func TestFormerNames(t *testing.T) {
	for line, flag := range map[string]string{
		"evacuate moves --uncleaned":       "pending-cleanup",
		"host restore vm7 --bring-home":    "return-servers",
		"sim --lying 0.5":                  "faulty-acks",
		"server modify web1 --action none": "action",
	} {
		cmd, rest, err := newRootCommand().Find(strings.Fields(line))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil || !cmd.Flags().Changed(flag) {
			t.Errorf("%s: %v", line, err)
		}
		if help := cmd.Flags().FlagUsages(); strings.Contains(help, "uncleaned") || strings.Contains(help, "bring-home") || strings.Contains(help, "lying") {
			t.Error(help)
		}
	}
	out, errs, _ := salvor(t, &fakeAPI{}, "", "server", "modify", "web1", "--action", "none")
	if !strings.Contains(out+errs, "use: salvor server rescue-config") {
		t.Error(errs)
	}
}
