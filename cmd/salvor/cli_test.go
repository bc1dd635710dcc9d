package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/test/must"
)

// fakeAPI answers by "METHOD path" and keeps what it was asked.
type fakeAPI struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   []string
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/v1" {
		w.Header().Set(client.MinVersionHeader, "1.1")
		w.Header().Set(client.MaxVersionHeader, "1.82")
		fmt.Fprint(w, "{}")
		return
	}
	call := r.Method + " " + r.URL.Path
	if r.Method != http.MethodGet || r.URL.RawQuery != "" {
		f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	}
	answers := f.answers[call]
	if len(answers) == 0 {
		w.WriteHeader(404)
		fmt.Fprintf(w, `{"error_message": "{\"faultstring\": \"nothing at %s\"}"}`, call)
		return
	}
	answer := answers[0]
	if len(answers) > 1 {
		f.answers[call] = answers[1:]
	}
	var status int
	if n, _ := fmt.Sscanf(answer, "%3d ", &status); n == 1 {
		w.WriteHeader(status)
		answer = answer[4:]
	}
	fmt.Fprint(w, answer)
}

// salvor runs the program against a fake API.
func salvor(t *testing.T, f *fakeAPI, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	server := httptest.NewServer(f)
	defer server.Close()
	t.Setenv("SALVOR_URL", server.URL)
	root := newRootCommand()
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	if err := root.ExecuteContext(t.Context()); err != nil {
		status = kit.ExitStatus(err)
		fmt.Fprintln(&errs, "salvor:", err)
	}
	return out.String(), strings.ReplaceAll(errs.String(), server.URL, "URL"), status
}

const twoNodes = `{"nodes": [
 {"uuid": "u1", "name": "a", "instance_uuid": null, "power_state": "power on", "provision_state": "rescue", "maintenance": false, "links": []},
 {"uuid": "u2", "name": null, "instance_uuid": "i", "power_state": null, "provision_state": "rescue failed", "maintenance": true, "extra": {"k": 1}}]}`

// TestPrinted compares what commands print with testdata; SALVOR_UPDATE=1 writes it anew.
func TestPrinted(t *testing.T) {
	answers := map[string]string{
		"GET /v1/nodes":                                    twoNodes,
		"GET /v1/nodes/a":                                  `{"uuid": "u1", "name": "a", "driver_info": {"redfish_password": "******", "n": 12345678901234567890}, "last_error": "bad \u001b[31m line\nnext", "maintenance": true, "links": [{"href": "x"}]}`,
		"GET /v1/nodes/a/validate":                         `{"power": {"result": true}, "boot": {"result": false, "reason": "no rescue kernel"}, "raid": {"result": null, "reason": "not supported"}}`,
		"GET /v1/nodes/a/history":                          `{"history": [{"uuid": "e1", "created_at": "2026-11-21T20:00:00+00:00", "severity": "INFO", "event": "asked to rescue"}]}`,
		"GET /v1/nodes/a/management/boot_device":           `{"boot_device": "pxe", "persistent": false}`,
		"GET /v1/nodes/a/management/boot_device/supported": `{"supported_boot_devices": ["pxe", "disk"]}`,
		"GET /salvor/v1/nodes/a/probe": `{"protocol": "Redfish 1.6.0", "login": "basic", "vendor": "Example", "model": "E\u001b1", "bmc_model": "", "firmware": "2.1",
			"abilities": [{"name": "power on", "able": "yes", "detail": "On"}, {"name": "boot device", "able": "unknown", "detail": "the BMC does not list its boot targets"}, {"name": "RAID", "able": "no", "detail": ""}],
			"quirks": [{"fact": "cd_target=UsbCd", "source": "some page"}]}`,
		"GET /salvor/v1/nodes/a/bmc-log": `{"entries": [
			{"log": "SEL", "id": "1", "time": "2026-03-04T05:06:07Z", "severity": "critical", "sensor": "Memory #0x40", "state": "asserted", "message": "Memory: Uncorrectable\u001b ECC", "message_id": "0c/6f/1"},
			{"log": "SEL", "id": "2", "time": null, "severity": "ok", "sensor": "", "state": "", "message": "record type 0xe0", "message_id": ""}], "logs": [{"name": "SEL", "truncated": false, "problem": ""}]}`,
		"GET /salvor/v1/nodes/a/bmc-health": `{"health": "critical", "unhealthy": [{"component": "temperature", "name": "Inlet\u001b Temp", "state": "upper critical", "health": "critical", "reading": 99, "unit": "°C", "message": ""},
			{"component": "drive", "name": "Drive 0", "state": "Enabled", "health": "warning", "message": "predicted failure"}], "truncated": false}`,
		"GET /v1/ports":      `{"ports": [{"uuid": "p1", "address": "52:54:00:00:00:01"}]}`,
		"GET /v1/drivers":    `{"drivers": [{"name": "redfish", "hosts": ["c1", "c2"]}]}`,
		"GET /v1/conductors": `{"conductors": [{"hostname": "c1", "conductor_group": "", "alive": true}]}`,
	}
	for name, args := range map[string]string{
		"node-list": "node list", "node-list-json": "node list -f json", "node-list-value": "node list -f value -c name -c provision_state",
		"node-list-fields": "node list --fields uuid provision_state", "node-list-long": "node list --long",
		"node-show": "node show a", "node-show-json": "node show a -f json", "node-show-value": "node show a -f value -c driver_info",
		"node-validate": "node validate a", "node-history": "node history a", "node-history-list": "node history list a -f json",
		"boot-device": "node boot device show a", "boot-devices": "node boot device show --supported a",
		"node-bmc-log": "node bmc-log a", "node-bmc-log-json": "node bmc-log a --long --severity warning -f json", "node-bmc-health": "node bmc-health a",
		"node-probe": "node probe a", "port-list": "port list -f json", "driver-list": "driver list", "conductor-list": "conductor list",
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeAPI{answers: map[string][]string{}}
			for call, answer := range answers {
				f.answers[call] = []string{answer}
			}
			out, errs, status := salvor(t, f, "", strings.Fields(args)...)
			if status != 0 {
				t.Fatal(errs)
			}
			file := filepath.Join("testdata", name+".golden")
			if os.Getenv("SALVOR_UPDATE") != "" {
				must.OK(t, os.WriteFile(file, []byte(out), 0o644))
			}
			want := must.Get(os.ReadFile(file))(t)
			if diff := cmp.Diff(string(want), out); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAsked proves what commands send.
func TestAsked(t *testing.T) {
	f := func() *fakeAPI {
		return &fakeAPI{answers: map[string][]string{
			"POST /v1/nodes": {`{"uuid": "u"}`}, "PATCH /v1/nodes/a": {`{}`}, "PATCH /v1/nodes/b": {`{}`}, "DELETE /v1/nodes/a": {"204 "},
			"PUT /v1/nodes/a/states/provision": {"202 "}, "PUT /v1/nodes/a/states/power": {"202 "}, "PUT /v1/nodes/a/maintenance": {"202 "},
			"DELETE /v1/nodes/a/maintenance": {"202 "}, "PUT /v1/nodes/a/management/boot_device": {"204 "}, "GET /v1/nodes": {`{"nodes": []}`},
			"GET /v1/nodes/a": {`{"uuid": "ua"}`}, "GET /v1/drivers/ipmi": {"{}"}, "PATCH /v1/volume/targets/t": {"{}"}, "GET /v1/volume/connectors": {`{"connectors": []}`}, "POST /v1/nodes/a/vifs": {""},
			"PUT /v1/nodes/a/states/secure_boot": {""}, "PATCH /v1/portgroups/g": {"{}"}, "DELETE /v1/drivers/redfish/vendor_passthru": {""},
			"POST /salvor/v1/nodes/a/rescue": {`{"id": "ua"}`}, "GET /compute/v2.1/os-keypairs/me": {`{"keypair": {"name": "me", "public_key": "ssh-ed25519 BBBB\n"}}`},
			"POST /v1/ports": {`{"uuid": "p"}`}, "PATCH /v1/ports/p": {`{}`}, "DELETE /v1/ports/p": {"204 "},
		}}
	}
	file := filepath.Join(t.TempDir(), "pw")
	must.OK(t, os.WriteFile(file, []byte("from a file\nsecond line\n"), 0o600))
	for _, c := range []struct{ args, stdin, want string }{
		{"node create --driver redfish --name a --driver-info redfish_password=0123 --driver-info redfish_verify_ca=false --property cpus=8 --rescue-interface agent --no-automated-clean", "",
			`POST /v1/nodes {"automated_clean":false,"driver":"redfish","driver_info":{"redfish_password":"0123","redfish_verify_ca":false},"name":"a","properties":{"cpus":8},"rescue_interface":"agent"}`},
		{"node create --driver redfish --driver-info redfish_password=123 --network-data -", `{"links": []}`, `POST /v1/nodes {"driver":"redfish","driver_info":{"redfish_password":"123"},"network_data":{"links":[]}}`},
		{"node set a --name n --extra x/y=z --reset-boot-interface", "", `PATCH /v1/nodes/a [{"op":"add","path":"/name","value":"n"},{"op":"remove","path":"/boot_interface"},{"op":"add","path":"/extra/x/y","value":"z"}]`},
		{"node set a --driver-info-file redfish_password=-", "007\nmore", `PATCH /v1/nodes/a [{"op":"add","path":"/driver_info/redfish_password","value":"007"}]`},
		{"node set a --driver ipmi --reset-interfaces --protected", "", `PATCH /v1/nodes/a?reset_interfaces=true [{"op":"add","path":"/driver","value":"ipmi"},{"op":"add","path":"/protected","value":true}]`},
		{"node unset a --name --rescue-interface --driver-info x", "", `PATCH /v1/nodes/a [{"op":"remove","path":"/name"},{"op":"remove","path":"/rescue_interface"},{"op":"remove","path":"/driver_info/x"}]`},
		{"node delete a", "", "DELETE /v1/nodes/a"},
		{"node maintenance set a --reason why", "", `PUT /v1/nodes/a/maintenance {"reason":"why"}`},
		{"node maintenance unset a", "", `DELETE /v1/nodes/a/maintenance`},
		{"node power on a", "", `PUT /v1/nodes/a/states/power {"target":"power on"}`},
		{"node power off a --soft --power-timeout 30", "", `PUT /v1/nodes/a/states/power {"target":"soft power off","timeout":30}`},
		{"node reboot a", "", `PUT /v1/nodes/a/states/power {"target":"rebooting"}`},
		{"node boot device set a disk --persistent", "", `PUT /v1/nodes/a/management/boot_device {"boot_device":"disk","persistent":true}`},
		{"node manage a", "", `PUT /v1/nodes/a/states/provision {"target":"manage"}`},
		{"node deploy a --config-drive -", `{"user_data": "x"}`, `PUT /v1/nodes/a/states/provision {"target":"active","configdrive":{"user_data":"x"}}`},
		{"node rebuild a --config-drive H4sI", "", `PUT /v1/nodes/a/states/provision {"target":"rebuild","configdrive":"H4sI"}`},
		{"node undeploy a", "", `PUT /v1/nodes/a/states/provision {"target":"deleted"}`},
		{"node clean a --clean-steps []", "", `PUT /v1/nodes/a/states/provision {"target":"clean","clean_steps":[]}`},
		{"node rescue a --rescue-password p", "", `PUT /v1/nodes/a/states/provision {"target":"rescue","rescue_password":"p"}`},
		{"node rescue a --rescue-password-file -", "from stdin\r\n", `PUT /v1/nodes/a/states/provision {"target":"rescue","rescue_password":"from stdin"}`},
		{"node rescue a --rescue-password-file " + file, "", `PUT /v1/nodes/a/states/provision {"target":"rescue","rescue_password":"from a file"}`},
		{"node rescue a", "", `POST /salvor/v1/nodes/a/rescue {}`},
		{"node rescue a --key - --expires-in 2h", "ssh-ed25519 AAAA me\n", `POST /salvor/v1/nodes/a/rescue {"expires_in":7200,"keys":["ssh-ed25519 AAAA me"]}`},
		{"node rescue a --rescue-password p --expires-in 60", "", `POST /salvor/v1/nodes/a/rescue {"expires_in":60,"password":"p"}`},
		{"node rescue a --keypair me", "", `POST /salvor/v1/nodes/a/rescue {"keys":["ssh-ed25519 BBBB"]}`},
		{"node unrescue a", "", `PUT /v1/nodes/a/states/provision {"target":"unrescue"}`},
		{"node list --no-maintenance --driver ipmi --limit 5 --sort name:desc", "", `GET /v1/nodes?driver=ipmi&limit=5&maintenance=false&sort_dir=desc&sort_key=name`},
		{"port create 52:54:00:00:00:01 --node a -l port_id=tap0 --pxe-enabled true", "", "GET /v1/nodes/a?fields=uuid\n" +
			`POST /v1/ports {"address":"52:54:00:00:00:01","local_link_connection":{"port_id":"tap0"},"node_uuid":"ua","pxe_enabled":true}`},
		{"volume target set t --boot_index 2 --properties target_lun=1 --property a/b=c", "", `PATCH /v1/volume/targets/t [{"op":"add","path":"/boot_index","value":2},{"op":"add","path":"/properties/a~1b","value":"c"},{"op":"add","path":"/properties/target_lun","value":1}]`},
		{"volume connector list --type iqn --connector_id x --detail", "", `GET /v1/volume/connectors?connector_id=x&detail=true&type=iqn`},
		{"node vif attach a v --port-uuid p", "", `POST /v1/nodes/a/vifs {"id":"v","port_uuid":"p"}`},
		{"node secure boot off a", "", `PUT /v1/nodes/a/states/secure_boot {"target":false}`},
		{"node service a --runbook CUSTOM_X", "", `PUT /v1/nodes/a/states/provision {"target":"service","runbook":"CUSTOM_X"}`},
		{"port group set g --unsupport-standalone-ports", "", `PATCH /v1/portgroups/g [{"op":"add","path":"/standalone_ports_supported","value":false}]`},
		{"driver passthru call redfish reset --http-method DELETE", "", `DELETE /v1/drivers/redfish/vendor_passthru?method=reset`},
		{"port set p --pxe-disabled --extra k=v", "", `PATCH /v1/ports/p [{"op":"add","path":"/pxe_enabled","value":false},{"op":"add","path":"/extra/k","value":"v"}]`},
		{"port unset p --physical-network --extra k", "", `PATCH /v1/ports/p [{"op":"remove","path":"/physical_network"},{"op":"remove","path":"/extra/k"}]`},
		{"port delete p", "", "DELETE /v1/ports/p"},
	} {
		t.Run(c.args, func(t *testing.T) {
			api := f()
			_, errs, status := salvor(t, api, c.stdin, strings.Fields(c.args)...)
			if status != 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(c.want, strings.Join(api.asked, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"nod", `did you mean node?`},
		{"node rescu a", `did you mean rescue?`},
		{"node rescue", "at least 1 arg"},
		{"node rescue a --expires-in soon", "--expires-in"},
		{"node rescue a --key /nonexistent", "no such file"},
		{"node ssh", "NODE is missing"},
		{"node rescue a --rescue-password-file /nonexistent", "no such file"},
		{"node rescue a --rescue-password-file -", "the rescue password is empty"},
		{"node rescue a --rescue-password x --rescue-password-file y", "none of the others can be"},
		{"node rescue a --wait=soon --rescue-password x", "invalid argument"},
		{"node rescue a --wait=-1 --rescue-password x", "want 0 or more"},
		{"node list --bogus", "unknown flag"},
		{"node list extra", `unexpected argument "extra"`},
		{"node list -f xml", "want table, json, yaml, value, csv or shell"},
		{"node list --sort name:up", "want KEY"},
		{"node list --maintenance --no-maintenance", "none of the others can be"},
		{"node create", `required flag(s) "driver" not set`},
		{"node create --driver redfish --driver-info x", "want KEY=VALUE"},
		{"node create --driver redfish --network-data {]", "not JSON"},
		{"node set a", "nothing to change"},
		{"node set a --reset-interfaces", "needs --driver"},
		{"node clean a", "clean-steps"},
		{"node power on a --power-timeout 0", "want at least 1"},
		{"port create 52:54:00:00:00:01", `"node" not set`},
		{"node list --url localhost", "want http://"},
		{"node list --api-version latest", "want 1.N"},
	} {
		t.Run(c.args, func(t *testing.T) {
			api := &fakeAPI{}
			_, errs, status := salvor(t, api, "", strings.Fields(c.args)...)
			if status != kit.StatusUsage || !strings.Contains(errs, c.want) {
				t.Errorf("status %d, want %d; stderr lacks %q:\n%s", status, kit.StatusUsage, c.want, errs)
			}
			if len(api.asked) > 0 {
				t.Errorf("asked %q", api.asked)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct{ answer, args, want string }{
		{`409 {"error_message": "{\"faultstring\": \"Node a is locked by c1\"}"}`, "node manage a", "Node a is locked by c1"},
		{`401 {}`, "node manage a", "set SALVOR_USER and SALVOR_PASSWORD"},
		{`503 {}`, "node manage a", "salvor conductor list"},
		{`400 {"error_message": "{\"faultstring\": \"no \\u001b[2J\"}"}`, "node manage a", "400: no  [2J"},
	} {
		t.Run(c.want, func(t *testing.T) {
			api := &fakeAPI{answers: map[string][]string{"PUT /v1/nodes/a/states/provision": {c.answer}}}
			_, errs, status := salvor(t, api, "", strings.Fields(c.args)...)
			if status != kit.StatusFailed || !strings.Contains(errs, c.want) {
				t.Errorf("status %d, stderr:\n%s", status, errs)
			}
		})
	}
}

func TestNoAPI(t *testing.T) {
	_, errs, status := salvor(t, &fakeAPI{}, "", "node", "list", "--url", "http://127.0.0.1:1")
	if status != kit.StatusFailed || !strings.Contains(errs, `is "salvor serve" running there?`) {
		t.Errorf("status %d, stderr:\n%s", status, errs)
	}
}

func TestSeveralNodes(t *testing.T) {
	api := &fakeAPI{answers: map[string][]string{"DELETE /v1/nodes/a": {"204 "}, "DELETE /v1/nodes/c": {"204 "}}}
	_, errs, status := salvor(t, api, "", "node", "delete", "a", "b", "c")
	if status != kit.StatusFailed || !strings.Contains(errs, "Deleted node c") || !strings.Contains(errs, "/v1/nodes/b: 404") {
		t.Errorf("status %d, stderr:\n%s", status, errs)
	}
}

func look(state, lastError string) string {
	text, _ := json.Marshal(map[string]any{"uuid": "u", "name": "a", "provision_state": state, "power_state": "power on", "last_error": lastError})
	return string(text)
}

func TestWaiting(t *testing.T) {
	lookOften(t)
	history := `{"history": [{"uuid": "1", "event": "waiting for a heartbeat"}]}`
	for _, c := range []struct {
		name, args string
		looks      []string
		status     int
		out, errs  []string
	}{
		{"reached", "node rescue a --rescue-password p --wait", []string{look("rescuing", ""), "503 {}", look("rescue wait", ""), look("rescue", "")}, 0,
			[]string{"a: rescue (power on, 0 s)"}, []string{"rescuing (last: waiting for a heartbeat)", "the API does not answer", "rescue wait: waits for the ramdisk (last: waiting for a heartbeat)"}},
		{"failed", "node rescue a --rescue-password p --wait=60", []string{look("rescuing", ""), look("rescue failed", "set power: redfish: 503")}, kit.StatusFailed,
			nil, []string{`node a is in state "rescue failed" with power on: set power: redfish: 503`, "what next: salvor node rescue a  # try again", "or: salvor node unrescue a", "salvor node history a"}},
		{"timed out", "node unrescue a --wait=1", []string{look("unrescuing", "")}, kit.StatusTimedOut, nil, []string{"gave up waiting after 1s", "it has not ended: see salvor node show a"}},
		{"aborted", "node abort a --wait", []string{look("rescue wait", ""), look("rescue failed", "")}, 0, []string{"a: rescue failed"}, nil},
		{"power", "node power on a --wait", []string{strings.Replace(look("active", ""), "{", `{"target_power_state": "power on",`, 1), look("active", "")}, 0, []string{"a: active (power on"}, nil},
		{"power stays", "node power off a --wait", []string{look("active", "BMC down")}, kit.StatusFailed, nil, []string{`wait for "power off": node a is in state "active" with power on: BMC down`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := &fakeAPI{answers: map[string][]string{
				"PUT /v1/nodes/a/states/provision": {"202 "}, "PUT /v1/nodes/a/states/power": {"202 "}, "GET /v1/nodes/a": c.looks, "GET /v1/nodes/a/history": {history},
			}}
			out, errs, status := salvor(t, api, "", strings.Fields(c.args)...)
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			for _, want := range c.out {
				if !strings.Contains(out, want) {
					t.Errorf("stdout lacks %q:\n%s", want, out)
				}
			}
			for _, want := range c.errs {
				if !strings.Contains(errs, want) {
					t.Errorf("stderr lacks %q:\n%s", want, errs)
				}
			}
		})
	}
}

func TestLiveLine(t *testing.T) {
	var b bytes.Buffer
	p := &kit.Progress{Out: &b, Name: "a", Width: 30}
	p.Look(client.Progress{Node: &client.Node{ProvisionState: "rescue wait"}, LastEvent: "waiting for a heartbeat", Elapsed: 12 * time.Second})
	p.End()
	if got := b.String(); got != "\r\x1b[Ka    12 s  rescue wait: wa...\r\x1b[K" {
		t.Errorf("%q", got)
	}
}

// TestEveryCommandExplainsItself holds help to: a sentence, and an example that names the command.
func TestEveryCommandExplainsItself(t *testing.T) {
	families := map[string]bool{"node": true, "port": true, "driver": true, "conductor": true, "config": true}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		if len(c.Commands()) == 0 && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("the help of %s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	for _, c := range newRootCommand().Commands() {
		if families[c.Name()] {
			walk(c)
		}
	}
}

// TestNextStep: a state that asks for somebody has commands of its own.
func TestNextStep(t *testing.T) {
	older := httptest.NewServer(&fakeAPI{}) // which knows no why
	defer older.Close()
	api := must.Get(client.New(client.Config{Endpoint: older.URL}))(t)
	for _, state := range []string{"enroll", "inspect failed", "adopt failed", "clean failed", "clean hold", "deploy failed", "deploy hold", "service failed", "service hold", "rescue failed", "unrescue failed", "error"} {
		if text := nextStep(t.Context(), api, &client.Node{Name: "n1", ProvisionState: state}); !strings.Contains(text, "\nwhat next: salvor node ") || strings.Contains(text, "NODE") {
			t.Errorf("%s: %s", state, text)
		}
	}
	if text := nextStep(t.Context(), api, &client.Node{Name: "n1", ProvisionState: "rescue failed", Maintenance: true}); !strings.Contains(text, "maintenance unset n1") {
		t.Error(text)
	}
}

// TestLate: who interrupts a wait sees another status than who waited too long.
func TestLate(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	c, w := &kit.Call{Command: cmd}, &waitOption{seconds: 1}
	bounded, cancel := w.within(c)
	defer cancel()
	if _, has := bounded.Deadline(); !has {
		t.Error("a wait of a second has no end")
	}
	for _, want := range []int{kit.StatusTimedOut, kit.StatusInterrupted} {
		if got := kit.StatusOf(w.late(c, io.EOF)); got != want {
			t.Errorf("%d, want %d", got, want)
		}
		interrupt()
	}
}

// TestWordsOfFlags: what all commands know is known, and nothing is taken and ignored.
func TestWordsOfFlags(t *testing.T) {
	seal := `{"state": "steady", "keys": [{"id": "k1", "state": "current"}], "processes": []}`
	for _, one := range []struct{ args, want string }{
		{"secret status -c state", "steady"},
		{"secret rotate -f json", `"state": "steady"`},
		{"token revoke --help", "Revoke tokens"},
		{"doctor --help", "--database"},
	} {
		api := &fakeAPI{answers: map[string][]string{"GET /salvor/v1/secrets": {seal}, "POST /salvor/v1/secrets/rotate": {seal}}}
		out, errs, status := salvor(t, api, "", strings.Fields(one.args)...)
		if status != 0 || !strings.Contains(out, one.want) || strings.HasSuffix(one.args, "-c state") && strings.Contains(out, "k1") {
			t.Errorf("%s: %d, %s%s", one.args, status, out, errs)
		}
	}
	if _, errs, status := salvor(t, &fakeAPI{}, "", "events", "--last", "0"); status != kit.StatusUsage {
		t.Errorf("%d, %s", status, errs)
	}
}
