package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"salvor/cmd/salvor/kit"
	"salvor/test/must"
)

// openTerminal makes a pseudo-terminal: what is written to the master is typed at the slave.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master = must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { master.Close() })
	must.OK(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number := must.Get(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN))(t)
	slave = must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// atTerminal runs the program with a terminal as its standard input, at which the lines are typed.
func atTerminal(t *testing.T, f *fakeAPI, typed string, args ...string) (stderr string, status int) {
	t.Helper()
	server := httptest.NewServer(f)
	defer server.Close()
	t.Setenv("SALVOR_URL", server.URL)
	master, slave := openTerminal(t)
	must.Get(master.WriteString(typed))(t)
	root := newRootCommand()
	var errs bytes.Buffer
	root.SetArgs(args)
	root.SetIn(slave)
	root.SetOut(&errs)
	root.SetErr(&errs)
	if err := root.ExecuteContext(t.Context()); err != nil {
		status = kit.ExitStatus(err)
		fmt.Fprintln(&errs, "salvor:", err)
	}
	return errs.String(), status
}

func nodesAPI() *fakeAPI {
	return &fakeAPI{answers: map[string][]string{
		"DELETE /v1/nodes/a": {"204 "}, "DELETE /v1/nodes/b": {"204 "},
		"PUT /v1/nodes/a/states/power": {"202 "}, "PUT /v1/nodes/b/states/power": {"202 "},
		"PUT /v1/nodes/a/states/provision": {"202 "}, "DELETE /v1/ports/p": {"204 "},
		"PATCH /salvor/v1/hosts/vm1": {"{}"}, "GET /salvor/v1/hosts/vm1": {"{}"},
	}}
}

// TestQuestions asks on a terminal before what destroys, and does it after y only.
func TestQuestions(t *testing.T) {
	for _, c := range []struct {
		args, typed string
		question    string // empty: none
		asked       int    // requests for a change
		status      int
	}{
		{"node delete a", "y\n", "salvor node delete a: the command deletes the records of the nodes. Go on? [y/N] ", 1, 0},
		{"node delete a", "YES\n", "Go on?", 1, 0},
		{"node delete a b", "n\n", "salvor node delete a, b: ", 0, kit.StatusFailed},
		{"node delete a", "\n", "Go on?", 0, kit.StatusFailed},
		{"node delete a", "\x04", "Go on?", 0, kit.StatusFailed}, // end of file
		{"node delete a --yes", "", "", 1, 0},
		{"node power off a", "", "", 1, 0},
		{"node power off a b", "n\n", "switches the nodes off", 0, kit.StatusFailed},
		{"node power on a b", "", "", 2, 0},
		{"node undeploy a", "n\n", "deletes the instances", 0, kit.StatusFailed},
		{"node clean a --clean-steps []", "n\n", "clean steps", 0, kit.StatusFailed},
		{"port delete p", "n\n", "salvor port delete p: the command deletes what is named.", 0, kit.StatusFailed},
		{"host set vm1 --disable", "", "", 1, 0},
		{"host set vm1 --forced-down", "n\n", "stops the guests of the host", 0, kit.StatusFailed},
		{"host set vm1 --forced-down=false", "", "", 1, 0},
	} {
		t.Run(c.args+" "+strings.TrimSpace(c.typed), func(t *testing.T) {
			api := nodesAPI()
			errs, status := atTerminal(t, api, c.typed, strings.Fields(c.args)...)
			if status != c.status || len(api.asked) != c.asked || !strings.Contains(errs, c.question) || strings.Contains(errs, "Go on?") != (c.question != "") {
				t.Errorf("status %d, asked %q:\n%s", status, api.asked, errs)
			}
			if c.status != 0 && !strings.Contains(errs, "nothing was done, because the answer was not y; --yes does it without a question") {
				t.Error(errs)
			}
		})
	}
}

// TestNoQuestionWithoutTerminal: scripts go on as they did.
func TestNoQuestionWithoutTerminal(t *testing.T) {
	api := nodesAPI()
	if _, errs, status := salvor(t, api, "", "node", "delete", "a", "b"); status != 0 || len(api.asked) != 2 || strings.Contains(errs, "Go on?") {
		t.Errorf("status %d, asked %q:\n%s", status, api.asked, errs)
	}
}

// TestQuestionLeavesTheRest reads no more than its own line.
func TestQuestionLeavesTheRest(t *testing.T) {
	master, slave := openTerminal(t)
	must.Get(master.WriteString("y\nnext\n"))(t)
	cmd := &cobra.Command{Use: "delete"}
	cmd.SetIn(slave)
	cmd.SetErr(&bytes.Buffer{})
	must.OK(t, confirm(cmd, []string{"a"}, false))
	if line, err := bufio.NewReader(slave).ReadString('\n'); line != "next\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// TestEveryDestructiveCommandAsks: each row of the table is a command, and no command that deletes lacks --yes.
func TestEveryDestructiveCommandAsks(t *testing.T) {
	var missing []string
	found := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		words := strings.TrimPrefix(c.CommandPath(), "salvor ")
		found[words] = true
		_, row := destructions[words]
		if (row || slices.Contains([]string{"delete", "remove", "revoke"}, c.Name()) && !c.HasSubCommands()) && c.Flags().Lookup("yes") == nil {
			missing = append(missing, words)
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand())
	for words := range destructions {
		if !found[words] {
			missing = append(missing, words+" is no command")
		}
	}
	if len(missing) > 0 {
		t.Error(missing)
	}
}

const chosenNodes = `{"nodes": [{"uuid": "a", "name": "web-1", "provision_state": "active"}, {"uuid": "b", "name": null, "provision_state": "active"}]}`

// TestSelection chooses nodes by their fields.
func TestSelection(t *testing.T) {
	api := nodesAPI()
	api.answers["GET /v1/nodes"] = []string{chosenNodes}
	_, errs, status := salvor(t, api, "", strings.Fields("node power off --where state=active --where resource_class=gold --where maintenance=False")...)
	if status != 0 || len(api.asked) != 3 || api.asked[0] != "GET /v1/nodes?fields=uuid%2Cname%2Cprovision_state&maintenance=false&provision_state=active&resource_class=gold" {
		t.Errorf("status %d, asked %q", status, api.asked)
	}
	if want := "chosen: web-1 (active)\nchosen: b (active)\n2 nodes are chosen\nweb-1: accepted: power off\nb: accepted: power off\n"; errs != want {
		t.Errorf("%s", errs)
	}
	slices.Sort(api.asked)
	if api.asked[1] != `PUT /v1/nodes/a/states/power {"target":"power off"}` || api.asked[2] != `PUT /v1/nodes/b/states/power {"target":"power off"}` {
		t.Errorf("%q", api.asked)
	}
}

// TestSelectionAsks: names that nobody typed are worth a question, whatever the command does.
func TestSelectionAsks(t *testing.T) {
	api := nodesAPI()
	api.answers["GET /v1/nodes"] = []string{chosenNodes}
	errs, status := atTerminal(t, api, "n\n", strings.Fields("node power on --where state=active")...)
	if status != kit.StatusFailed || len(api.asked) != 1 || !strings.Contains(errs, "salvor node power on web-1, b. Go on? [y/N]") {
		t.Errorf("status %d, asked %q:\n%s", status, api.asked, errs)
	}
}

// TestSelectionGoesOn: one that fails stops no other, and the exit status says so.
func TestSelectionGoesOn(t *testing.T) {
	api := nodesAPI()
	api.answers["GET /v1/nodes"] = []string{chosenNodes}
	delete(api.answers, "DELETE /v1/nodes/a")
	_, errs, status := salvor(t, api, "", "node", "delete", "--where", "driver=ipmi")
	if status != kit.StatusFailed || !strings.Contains(errs, "web-1: failed: DELETE /v1/nodes/a: 404") || !strings.Contains(errs, "Deleted node b\nsalvor: 1 of 2 nodes failed\n") {
		t.Errorf("status %d:\n%s", status, errs)
	}
	api.answers["GET /v1/nodes"] = []string{`{"nodes": []}`}
	if _, errs, status := salvor(t, api, "", "node", "delete", "--where", "fault=none"); status != kit.StatusFailed || !strings.Contains(errs, "no node has fault=none") {
		t.Errorf("status %d:\n%s", status, errs)
	}
}

// TestSelectionRefused tells what is allowed, before anything is asked for.
func TestSelectionRefused(t *testing.T) {
	for args, want := range map[string]string{
		"node reboot":                                 "name a node, or choose some by --where KEY=VALUE",
		"node reboot a --where state=active":          "name nodes or give --where, not both",
		"node reboot --where state":                   "want KEY=VALUE",
		"node reboot --where colour=red":              `unknown key "colour"; want one of associated, bmc, chassis, conductor, conductor-group,`,
		"node reboot --where state=activ":             `--where state "activ": want one of active, adopt failed,`,
		"node reboot --where retired=si":              "want true or false",
		"node reboot --where owner=x --where owner=y": "owner is given twice",
	} {
		api := nodesAPI()
		if _, errs, status := salvor(t, api, "", strings.Fields(args)...); status != kit.StatusUsage || !strings.Contains(errs, want) || len(api.asked) > 0 {
			t.Errorf("%s: status %d, asked %q:\n%s", args, status, api.asked, errs)
		}
	}
}
