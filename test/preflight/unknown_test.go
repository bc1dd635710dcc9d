package preflight

import (
	"net/http"
	"strings"
	"testing"
)

// TestWhatCannotBeKnownIsNoReason: a server that refuses the question is no objection, nor is what may hinder us and not the agent
// or the firmware: our guard, a port that is closed to us, a key that we lack; and a fleet asks a server once.
func TestWhatCannotBeKnownIsNoReason(t *testing.T) {
	w := newWorld(t)
	fits := func(c broken) {
		id := w.enroll(t, newMachine(t, nil), c)
		shown, _ := w.must(t, "GET", "/v1/nodes/"+id+"/validate", nil)[c.at].(object)
		if shown["result"] != true {
			t.Errorf("%s: %v", c.name, shown)
		}
	}
	for _, path := range []string{"/broken", "/refuses-head", "/refuses-all", "/signed"} {
		fits(broken{name: path, target: "rescue", info: kernel("$WEB" + path), at: "rescue"})
		fits(broken{name: path, target: "rebuild", instance: object{"image_source": "$WEB" + path}, at: "deploy"})
	}
	for _, place := range []string{"http://127.0.0.2:9/image", "http://127.0.0.1:1/image", "$WEB/away", "$WEB/closed", "$WEB/cut"} {
		fits(broken{name: place, target: "rebuild", instance: object{"image_source": place}, at: "deploy"})
		fits(broken{name: place, target: "rescue", node: object{"boot_interface": "ipxe"}, info: kernel(place), at: "rescue"})
	}
	user := strings.Replace(w.web.URL, "://", "://ann:canary@", 1) + "/missing"
	fits(broken{name: "a URL with a user", target: "rescue", info: kernel(user), at: "rescue"})
	for range 10 {
		fits(broken{name: "fleet", target: "rebuild", instance: object{"image_source": "$WEB/fleet"}, at: "deploy"})
	}
	if n := w.asked.Load(); n != 1 {
		t.Errorf("ten nodes asked for the image %d times", n)
	}
}

// TestStepsThatTheAgentMayHave: a new ramdisk may know more than any before, so they are no reason at the door; and what
// interfaces have is none either.
func TestStepsThatTheAgentMayHave(t *testing.T) {
	w := newWorld(t)
	raid := object{"raid_interface": "agent"}
	settings := object{"priority": 90, "args": object{"settings": []object{{"name": "BootMode", "value": "Uefi"}}}}
	for _, c := range []broken{
		{target: "clean", ask: steps("clean", step("deploy", "made_here", object{"args": object{"deep": true}}), nil)},
		{target: "clean", node: raid, ask: steps("clean", step("raid", "create_configuration", nil), nil)},
		{target: "clean", ask: steps("clean", step("power", "reboot", nil), withoutAgent)},
		{target: "service", ask: steps("service", step("deploy", "made_here", nil), nil)},
		{target: "rebuild", ask: steps("deploy", step("deploy", "made_here", firstPriority), nil)},
		{target: "rebuild", ask: steps("deploy", step("bios", "apply_configuration", settings), nil)},
		{target: "rebuild", ask: steps("deploy", step("bios", "apply_configuration", object{"priority": 0}), nil)},
		{target: "clean", runbook: step("deploy", "made_here", object{"order": 1})},
	} {
		c.info = deployable
		trait := w.withLists(t, &c)
		id := w.enroll(t, newMachine(t, nil), c)
		if trait != "" {
			w.must(t, "PUT", "/v1/nodes/"+id+"/traits/"+trait, nil)
		}
		if status, _, said := w.ask(t, "PUT", "/v1/nodes/"+id+"/states/provision", c.request()); status != http.StatusAccepted {
			t.Errorf("%s %v: %d %s", c.target, c.ask, status, said)
		}
	}
}
