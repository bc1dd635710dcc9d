package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
)

// TestBadInput answers bad input in one line with one prefix: what was typed, and what is allowed or where to read it.
func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"nod list":                                      `unknown command "nod" of salvor; did you mean node?; see: salvor --help`,
		"node lst":                                      `unknown command "lst" of salvor node; did you mean get or list or set or ssh?; see: salvor node --help`,
		"node maintenance begin":                        `unknown command "begin" of salvor node maintenance; want one of set, unset; see: salvor node maintenance --help`,
		"node list --maintenence":                       "unknown flag: --maintenence; did you mean --maintenance?; see: salvor node list --help",
		"node list -f xml":                              "-f xml: want table, json, yaml, value, csv or shell; see: salvor node list --help",
		"node show":                                     "NODE is missing; want salvor node show NODE; see: salvor node show --help",
		"node show a b":                                 `unexpected argument "b"; see: salvor node show --help`,
		"host show a b":                                 `unexpected argument "b"; want salvor host show HOST; see: salvor host show --help`,
		"node power web-1 off":                          `unknown command "web-1" of salvor node power; want salvor node power off web-1; see: salvor node power --help`,
		"node rescue web-1 --key /dev/null":             "--key /dev/null: the file holds no public key; give a .pub file of ssh-keygen; see: salvor node rescue --help",
		"events --last -3":                              "--last -3: want 1 or more events, or --follow; see: salvor events --help",
		"node list --provision-state up":                `--provision-state "up": want one of active, adopt failed, `,
		"server list --status UP":                       `--status "UP": want one of ACTIVE, BUILD, `,
		"events --type bogus":                           `--type "bogus": want one of state, action, contact, request, boot; see: salvor events --help`,
		"allocation list --state x":                     `--state "x": want one of allocating, active, error; see: salvor allocation list --help`,
		"rescue-session list --kind x":                  `--kind "x": want one of server, node; see: salvor rescue-session list --help`,
		"evacuate list --state x":                       `--state "x": want one of drafted, `,
		"node list --os-cloud nowhere":                  `cloud "nowhere": `,
		"why --kind rack a":                             "--kind rack: want node, server, host; see: salvor why --help",
		"completion ksh":                                `shell "ksh": want one of bash, fish, powershell, zsh; see: salvor completion --help`,
		"ramdisk build --profile x":                     `--profile "x": want one of minimal, diagnose, full; see: salvor ramdisk build --help`,
		"ramdisk build --kernel x":                      `--kernel "x": want one of cloud-amd64, amd64, cloud-arm64, arm64; see: salvor ramdisk build --help`,
		"ramdisk build --arch x":                        `--arch "x": want one of amd64, arm64; see: salvor ramdisk build --help`,
		"ramdisk build --compression x":                 `--compression "x": want one of lz4, zstd, gzip, none; see: salvor ramdisk build --help`,
		"ramdisk build":                                 `required flag(s) "out" not set; see: salvor ramdisk build --help`,
		"server create a --flavor s":                    `at least one of the flags in the group [image volume] is required; see: salvor server create --help`,
		"image create a --file b --disk-format x":       `--disk-format "x": want one of raw, qcow2, iso, aki, ari; see: salvor image create --help`,
		"image create a --file b --container-format x":  `--container-format "x": want one of bare, aki, ari; see: salvor image create --help`,
		"image create a --file b --visibility x":        `--visibility "x": want one of private, public, community, shared; see: salvor image create --help`,
		"cluster add a --ironic self --login x":         `--login "x": want one of none, http_basic, keystone; see: salvor cluster add --help`,
		"db restored --release x":                       `--release "x": want one of as-it-is, end-operations; see: salvor db restored --help`,
		"server set a --state x":                        `--state "x": want one of active, error; see: salvor server set --help`,
		"token create a --role x":                       `--role "x": want one of admin, member, reader; see: salvor token create --help`,
		"node passthru call a b --http-method x":        `--http-method "x": want one of GET, POST, PUT, PATCH, DELETE; see: salvor node passthru call --help`,
		"host group set a --reimage x":                  `--reimage "x": want one of ask, never, always; see: salvor host group set --help`,
		"host group set a --require power,x":            `--require "x": want one of power, storage, self-fence, acknowledgement, attestation; see: salvor host group set --help`,
		"rescue-image add --location-type x":            `--location-type "x": want one of file, http; see: salvor rescue-image add --help`,
		"rescue-image add --kind x":                     `--kind "x": want one of iso, disk, kernel; see: salvor rescue-image add --help`,
		"rescue-image add --access x":                   `--access "x": want one of channel, config-drive, none; see: salvor rescue-image add --help`,
		"node power off a --wait --soft=":               "invalid argument",
		"node power sideways a":                         `unknown command "sideways" of salvor node power; want one of off, on; see: salvor node power --help`,
		"config sampel":                                 `unknown command "sampel" of salvor config; did you mean sample?; see: salvor config --help`,
		"db repair":                                     `unknown command "repair" of salvor db; want one of backup, copy, hold, migrate, restored, status; see: salvor db --help`,
		"serve now":                                     `unknown command "now" for "salvor serve"; want salvor serve; see: salvor serve --help`,
		"serve --listen here":                           "--listen here: want ADDRESS:PORT; see: salvor serve --help",
		"why a -f yaml":                                 "-f yaml: want text or json; see: salvor why --help",
		"doctor -f xml":                                 "-f xml: want text or json; see: salvor doctor --help",
		"events -f xml":                                 "-f xml: want text or json; see: salvor events --help",
		"version -f xml":                                "-f xml: want text or json; see: salvor version --help",
		"server create --imge x":                        "unknown flag: --imge; did you mean --image?; see: salvor server create --help",
		"node list --url ftp://x":                       `endpoint "ftp://x": want http://host:port or https://host:port; see: salvor node list --help`,
		"node list --api-version 9.9":                   `--api-version: microversion "9.9": want 1.N; see: salvor node list --help`,
		"token create a --role admin --expires-in soon": `--expires-in "soon": want 45m, 12h, 90d or seconds; see: salvor token create --help`,
	} {
		t.Setenv("OS_CLIENT_CONFIG_FILE", t.TempDir()+"/none.yaml")
		_, errs, status := salvor(t, &fakeAPI{}, "", strings.Fields(args)...)
		if status != kit.StatusUsage || !strings.HasPrefix(errs, "salvor: "+want) && !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || strings.Count(errs, "salvor: ") != 1 {
			t.Errorf("%s: status %d:\n%s", args, status, errs)
		}
	}
}

// TestUnknownCloud: the cloud of $OS_CLOUD is refused like that of --os-cloud, with the clouds that there are.
func TestUnknownCloud(t *testing.T) {
	file := t.TempDir() + "/clouds.yaml"
	if err := os.WriteFile(file, []byte("clouds:\n  lab:\n    auth_type: none\n    endpoint: http://127.0.0.1:1\n  rack:\n    auth_type: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OS_CLIENT_CONFIG_FILE", file)
	t.Setenv("OS_CLOUD", "lba")
	root, errs := newRootCommand(), ""
	t.Setenv("SALVOR_URL", "")
	t.Setenv("OS_ENDPOINT", "")
	root.SetArgs([]string{"node", "list"})
	err := root.ExecuteContext(t.Context())
	if err != nil {
		errs = err.Error()
	}
	if err == nil || kit.ExitStatus(err) != kit.StatusUsage || strings.Contains(errs, "\n") || !strings.Contains(errs, `cloud "lba"`) || !strings.Contains(errs, "lab, rack") {
		t.Errorf("status %d: %s", kit.ExitStatus(err), errs)
	}
}

// TestUnknownOption: salvor serve ends with one line that names what is allowed, and with the status that keeps systemd from trying again.
func TestUnknownOption(t *testing.T) {
	file := t.TempDir() + "/salvor.conf"
	for text, want := range map[string]string{
		"[conductor]\nrescue_callback_timout = 5\n":      file + `:2: [conductor]"rescue_callback_timout" is not an option; did you mean rescue_callback_timeout?`,
		"[api]\nport = many\n":                           file + `:2: [api]port: the value "many" is not allowed; allowed: a whole number from 0 to 65535`,
		"[DEFAULT]\nroles = cook\n":                      file + `:2: [DEFAULT]roles: the value "cook" is not allowed; allowed: api, conductor and netboot`,
		"[DEFAULT]\nauth_strategy = password\n":          file + `:2: [DEFAULT]auth_strategy: the value "password" is not allowed; allowed: `,
		"[conductor]\nno_such_thing_anywhere_at_all=1\n": file + `:2: [conductor]"no_such_thing_anywhere_at_all" is not an option`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, errs, status := salvor(t, &fakeAPI{}, "", "serve", "--config", file, "--state-dir", t.TempDir())
		if status != kit.StatusBroken || !strings.HasPrefix(errs, "salvor: configuration: "+want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d:\n%s", text, status, errs)
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
		if _, errs, status := salvor(t, api, "", strings.Fields(args)...); status != kit.StatusFailed || !strings.HasSuffix(errs, want) {
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
		"server modify web1 --action none": "action",
	} {
		cmd, rest, err := newRootCommand().Find(strings.Fields(line))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil || !cmd.Flags().Changed(flag) {
			t.Errorf("%s: %v", line, err)
		}
		if help := cmd.Flags().FlagUsages(); strings.Contains(help, "uncleaned") || strings.Contains(help, "bring-home") {
			t.Error(help)
		}
	}
	out, errs, _ := salvor(t, &fakeAPI{}, "", "server", "modify", "web1", "--action", "none")
	if !strings.Contains(out+errs, "use: salvor server rescue-config") {
		t.Error(errs)
	}
}
