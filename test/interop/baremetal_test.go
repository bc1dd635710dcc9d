//go:build e2e

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/test/program"
)

const rescuePassword = "Correct-Horse-7"

// TestBaremetalClient leads two nodes of a real server through their lives by Ironic's own
// command: one is deployed, one adopted. They live side by side, for the client sleeps most of
// the time that it waits.
func TestBaremetalClient(t *testing.T) {
	if _, err := exec.LookPath("baremetal"); err != nil {
		t.Fatal("no baremetal client: install the package python3-ironicclient")
	}
	s := program.Serve(t, "")
	home := t.TempDir()
	var all sync.WaitGroup
	for _, life := range []func(*operator){deployed, adopted} {
		all.Go(func() {
			o := &operator{t: t, ctx: t.Context(), url: s.URL, home: home}
			defer o.over()
			life(o)
		})
	}
	all.Wait()
	if log := s.Log(); strings.Contains(log, rescuePassword) || strings.Contains(log, "hush") {
		t.Error("a password is in the server's log")
	}
	if t.Failed() {
		log := s.Log()
		t.Logf("the server's log:\n%s", log[max(0, len(log)-20_000):])
	}
}

// deployed is the life of a machine that salvor puts to use and takes back.
func deployed(o *operator) {
	node := o.object("node create --driver fake-hardware --name deployed --rescue-interface fake --driver-info fake_password=hush" +
		" --property cpus=4 --resource-class big -f json")
	o.same(node, "provision_state", "enroll", "driver_info", map[string]any{"fake_password": "******"},
		"properties", map[string]any{"cpus": 4.0}, "resource_class", "big", "rescue_interface", "fake")
	uuid, _ := node["uuid"].(string)
	port := o.object("port create 52:54:00:5A:17:01 --node " + uuid + " --local-link-connection switch_id=0a:1b:2c:3d:4e:5f --local-link-connection port_id=Eth1 -f json")
	o.same(port, "address", "52:54:00:5a:17:01", "node_uuid", uuid, "pxe_enabled", true)
	o.same(o.row("port list --node deployed -f json", "UUID", port["uuid"]), "Address", "52:54:00:5a:17:01")
	checks := o.list("node validate deployed -f json")
	for _, name := range []string{"power", "management", "boot", "deploy", "rescue"} {
		o.same(o.find(checks, "Interface", name), "Result", true, "Reason", "")
	}

	o.run("node manage deployed --wait 60")
	o.shows("deployed", "provision_state", "manageable", "target_provision_state", nil)
	o.run("node provide deployed --wait 60")
	o.shows("deployed", "provision_state", "available")
	o.run("node deploy deployed")
	o.shows("deployed", "provision_state", "active", "power_state", "power on")

	o.run("node maintenance set deployed --reason testing")
	o.shows("deployed", "maintenance", true, "maintenance_reason", "testing")
	o.refused("node rescue deployed --rescue-password "+rescuePassword, "maintenance")
	o.run("node maintenance unset deployed")
	o.shows("deployed", "maintenance", false, "maintenance_reason", nil, "provision_state", "active")

	o.run("node rescue deployed --rescue-password " + rescuePassword + " --wait 60")
	o.shows("deployed", "provision_state", "rescue", "power_state", "power on", "last_error", nil, "reservation", nil)
	o.refused("--max-retries 0 node power on deployed", "unrescue")
	o.refused("node provide deployed", "can not be performed on node")
	o.run("node unrescue deployed")
	o.shows("deployed", "provision_state", "active", "power_state", "power on")
	o.run("node undeploy deployed")
	o.shows("deployed", "provision_state", "available", "instance_info", map[string]any{})
	o.run("node delete deployed")
	o.refused("node show deployed", "could not be found")
}

// adopted is the life of a machine that ran before salvor knew it, with an operator who tries things.
func adopted(o *operator) {
	o.run("node create --driver fake-hardware --name adopted")
	o.run("node manage adopted --wait 60")
	o.run("node adopt adopted --wait 60")
	o.shows("adopted", "provision_state", "active")

	o.run("node power off adopted")
	o.shows("adopted", "power_state", "power off", "target_power_state", nil)
	o.run("node power on adopted --power-timeout 60")
	o.shows("adopted", "power_state", "power on", "target_power_state", nil)
	o.run("node reboot adopted --soft")
	o.shows("adopted", "power_state", "power on", "target_power_state", nil, "reservation", nil)
	o.run("node power off adopted --soft")
	o.shows("adopted", "power_state", "power off", "reservation", nil)

	o.same(o.object("node boot device show adopted --supported -f json"), "supported_boot_devices", "pxe, disk, cdrom")
	o.run("node boot device set adopted pxe --persistent")
	if device := o.object("node boot device show adopted -f json"); device["boot_device"] == nil || device["persistent"] == nil {
		o.failf("boot device show: %v", device)
	}
	o.run("node add trait adopted CUSTOM_FAST")
	o.row("node trait list adopted -f json", "Traits", "CUSTOM_FAST")
	o.run("node set adopted --instance-uuid 7c9e6679-7425-40de-944b-e07fc1f90ae7 --owner ann --extra rack=7")
	o.shows("adopted", "owner", "ann", "extra", map[string]any{"rack": 7.0}, "traits", []any{"CUSTOM_FAST"})
	o.row("node list --associated --provision-state active -f json", "Name", "adopted")
	o.same(o.row("node list --fields name driver conductor rescue_interface automated_clean -f json", "Name", "adopted"),
		"Driver", "fake-hardware", "Rescue Interface", "fake", "Automated Clean", nil)
	o.same(o.row("node list --long -f json", "Name", "adopted"), "Owner", "ann", "Provisioning State", "active")
	o.row("driver list -f json", "Supported driver(s)", "fake-hardware")
	o.row("conductor list -f json", "Alive", true)

	o.run("node rescue adopted --rescue-password " + rescuePassword)
	o.shows("adopted", "provision_state", "rescue", "power_state", "power on")
	o.run("node unrescue adopted --wait 60")
	o.shows("adopted", "provision_state", "active", "power_state", "power on")
	o.same(o.row("node history list adopted -f json", "Description of the event", "rescue"), "Severity", "INFO")
	o.run("node rescue adopted --rescue-password " + rescuePassword)
	o.shows("adopted", "provision_state", "rescue")
	o.run("node undeploy adopted")
	o.shows("adopted", "provision_state", "available", "instance_uuid", nil)
	o.run("node delete adopted")
	o.refused("node show adopted", "could not be found")
}

// operator gives commands to one node; the first that goes wrong ends the life.
type operator struct {
	t         *testing.T
	ctx       context.Context
	url, home string
}

// errEnded is what a failed life panics with: t.Fatal is not for goroutines of a test.
var errEnded = errors.New("ended")

func (o *operator) over() {
	if r := recover(); r != nil && r != any(errEnded) {
		panic(r)
	}
}

func (o *operator) failf(format string, args ...any) {
	o.t.Helper()
	o.t.Errorf(format, args...)
	panic(errEnded)
}

// command runs the client with words between blanks.
func (o *operator) command(line string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(o.ctx, 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "baremetal", append([]string{"--os-auth-type", "none", "--os-endpoint", o.url}, strings.Fields(line)...)...)
	cmd.Env = append(os.Environ(), "HOME="+o.home, "no_proxy=*", "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (o *operator) run(line string) string {
	o.t.Helper()
	out, errs, err := o.command(line)
	if err != nil {
		o.failf("baremetal %s: %v\n%s%s", line, err, out, errs)
	}
	if strings.Contains(out+errs, rescuePassword) {
		o.failf("baremetal %s tells the password: %s%s", line, out, errs)
	}
	return out
}

// refused runs a command that must fail and say a text.
func (o *operator) refused(line, text string) {
	o.t.Helper()
	out, errs, err := o.command(line)
	if err == nil || !strings.Contains(errs, text) {
		o.failf("baremetal %s: %v, want a refusal with %q:\n%s%s", line, err, text, out, errs)
	}
	if strings.Contains(errs, "HTTP 5") {
		o.failf("baremetal %s: %s", line, errs)
	}
}

func (o *operator) object(line string) map[string]any {
	o.t.Helper()
	var v map[string]any
	if out := o.run(line); json.Unmarshal([]byte(out), &v) != nil {
		o.failf("baremetal %s: no JSON object: %s", line, out)
	}
	return v
}

func (o *operator) list(line string) []map[string]any {
	o.t.Helper()
	var rows []map[string]any
	if out := o.run(line); json.Unmarshal([]byte(out), &rows) != nil {
		o.failf("baremetal %s: no JSON list: %s", line, out)
	}
	return rows
}

// find is the row with this value in a column.
func (o *operator) find(rows []map[string]any, column string, value any) map[string]any {
	o.t.Helper()
	for _, row := range rows {
		if reflect.DeepEqual(row[column], value) {
			return row
		}
	}
	o.failf("no row with %s %v in %v", column, value, rows)
	return nil
}

// row runs a listing and finds a row in it.
func (o *operator) row(line, column string, value any) map[string]any {
	o.t.Helper()
	return o.find(o.list(line), column, value)
}

// different is the first of the pairs of field and value that an object does not hold.
func different(object map[string]any, pairs []any) string {
	for i := 0; i < len(pairs); i += 2 {
		name, want := pairs[i].(string), pairs[i+1]
		if got, there := object[name]; !there || !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("%s is %v, want %v", name, got, want)
		}
	}
	return ""
}

func (o *operator) same(object map[string]any, pairs ...any) {
	o.t.Helper()
	if d := different(object, pairs); d != "" {
		o.failf("%s in %v", d, object)
	}
}

// shows waits until the client shows a node so; what is asked for without --wait takes its time.
func (o *operator) shows(node string, pairs ...any) {
	o.t.Helper()
	line := "node show " + node + " -f json --fields"
	for i := 0; i < len(pairs); i += 2 {
		line += " " + pairs[i].(string)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		shown := o.object(line)
		d := different(shown, pairs)
		if d == "" {
			return
		}
		if time.Now().After(end) {
			o.failf("node %s: %s in %v", node, d, shown)
		}
	}
}
