package ironic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

func TestPower(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	put := func(version, body string, status int, message string) refusal {
		return refusal{"PUT", "/v1/nodes/n1/states/power", version, body, status, message}
	}
	w.refuse([]refusal{
		put("1.82", `{}`, 400, "power target"), put("1.82", `{"target":7}`, 400, "power target"), put("1.82", `{"target":"explode"}`, 400, `"explode"`),
		put("1.82", `{"target":"power on","bogus":1}`, 400, "Unexpected arguments: bogus"), put("1.82", `{"target":"power on","timeout":0}`, 400, "timeout"),
		put("1.82", `{"target":"power on","timeout":1.5}`, 400, "timeout"), put("1.82", `{"target":"power on","timeout":"x"}`, 400, "timeout"), put("1.82", `{"target":"power on","timeout":1e300}`, 400, "timeout"),
		put("1.26", `{"target":"soft power off"}`, 406, "1.27"), put("1.26", `{"target":"power on","timeout":5}`, 406, "1.27"),
		{"PUT", "/v1/nodes/nope/states/power", "1.82", `{"target":"power on"}`, 404, ""},
	})
	for _, target := range []string{"power on", "power off", "rebooting", "soft rebooting", "soft power off"} {
		a := w.want(202, "PUT", "/v1/nodes/n1/states/power", "1.27", fmt.Sprintf(`{"target":%q,"timeout":5}`, target))
		if a.Body != "" || a.Header.Get("Location") != "http://salvor.example/v1/nodes/n1/states" {
			t.Errorf("%s: %q %v", target, a.Body, a.Header)
		}
		w.refuse([]refusal{put("1.82", `{"target":"power on"}`, 409, "locked")})
		if got := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t); got["target_power_state"] == nil || got["reservation"] == nil {
			t.Errorf("%s: %v", target, got)
		}
		w.free()
	}
	for state, status := range map[metal.State]int{metal.Cleaning: 400, metal.CleanWait: 400, metal.Rescue: 409, metal.RescueFailed: 409} {
		w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = state })
		w.refuse([]refusal{put("1.82", `{"target":"power on"}`, status, string(state))})
	}
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Rescue })
	w.want(202, "PUT", "/v1/nodes/n1/states/power", "1.82", `{"target":"power off"}`)
	w.free()
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState, n.Driver = metal.Active, "gone" })
	w.refuse([]refusal{put("1.82", `{"target":"power on"}`, 503, "gone")})
}

// TestRescueGate walks the states of a rescue with a client that is older than it.
func TestRescueGate(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	for _, state := range []metal.State{metal.Rescuing, metal.RescueWait, metal.Rescue, metal.RescueFailed, metal.Unrescuing, metal.UnrescueFailed} {
		w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = state })
		w.refuse([]refusal{
			{"PATCH", "/v1/nodes/n1", "1.37", `[{"op":"add","path":"/extra/x","value":1}]`, 406, "1.38"}, {"DELETE", "/v1/nodes/n1", "1.37", "", 406, "1.38"},
			{"PUT", "/v1/nodes/n1/states/power", "1.37", `{"target":"power off"}`, 406, "1.38"}, {"PUT", "/v1/nodes/n1/states/provision", "1.37", `{"target":"deleted"}`, 406, "1.38"},
			{"PUT", "/v1/nodes/n1/states/provision", "1.37", `{"target":"bogus"}`, 406, "1.38"}, {"PUT", "/v1/nodes/n1/traits/CUSTOM_A", "1.37", "", 406, "1.38"},
			{"PUT", "/v1/nodes/n1/management/boot_device", "1.37", `{"boot_device":"pxe"}`, 406, "1.38"},
		})
		if got := w.want(200, "GET", "/v1/nodes/n1", "1.37", "").Object(t)["provision_state"]; got != string(state) {
			t.Errorf("shown as %v", got)
		}
	}
}

// answerer plays the conductor for one job.
func (w *world) answerer(ctx context.Context, kind job.Kind, result string, cause error) <-chan json.RawMessage {
	args := make(chan json.RawMessage, 1)
	go func() {
		defer close(args)
		for ctx.Err() == nil {
			claimed, err := w.store.Claim(ctx, "c1/i1", born.AddDate(100, 0, 0), []string{""}, map[job.Kind]int{kind: 1}, 1)
			if err != nil {
				w.Error(err)
				return
			}
			if len(claimed) == 0 {
				time.Sleep(time.Millisecond)
				continue
			}
			j := &claimed[0]
			j.State, j.Result = job.Ended, json.RawMessage(result)
			if cause != nil {
				j.SetCause(cause)
			}
			if err := w.store.Do(ctx, func(tx job.Tx) error { return w.store.Save(tx, j, false) }); err != nil {
				w.Error(err)
			}
			args <- j.Args
			return
		}
	}()
	return args
}

func TestBootDevice(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	const path = "/v1/nodes/n1/management/boot_device"
	w.answerer(t.Context(), "get boot device", `{"device":"pxe","persistent":true}`, nil)
	if got := w.want(200, "GET", path, "1.82", "").Body; got != `{"boot_device":"pxe","persistent":true}` {
		t.Errorf("get: %s", got)
	}
	w.answerer(t.Context(), "get boot device", `{}`, nil)
	if got := w.want(200, "GET", path, "1.82", "").Body; got != `{"boot_device":null,"persistent":null}` {
		t.Errorf("get of none: %s", got)
	}
	w.answerer(t.Context(), "supported boot devices", `["pxe","disk"]`, nil)
	if got := w.want(200, "GET", path+"/supported", "1.82", "").Body; got != `{"supported_boot_devices":["pxe","disk"]}` {
		t.Errorf("supported: %s", got)
	}
	args := w.answerer(t.Context(), "set boot device", `null`, nil)
	w.want(204, "PUT", path, "1.82", `{"boot_device":"disk","persistent":true}`)
	if got := string(<-args); got != `{"boot":{"device":"disk","persistent":true}}` {
		t.Errorf("set: %s", got)
	}
	w.answerer(t.Context(), "set boot device", `null`, problem.Invalidf("no boot device %q here", "floppy"))
	w.refuse([]refusal{{"PUT", path, "1.82", `{"boot_device":"floppy"}`, 400, "floppy"}})
	w.answerer(t.Context(), "get boot device", `null`, problem.Unavailablef("the BMC does not answer"))
	w.refuse([]refusal{
		{"GET", path, "1.82", "", 503, "the BMC does not answer"},
		{"PUT", path, "1.82", `{}`, 400, "boot_device"}, {"PUT", path, "1.82", `{"boot_device":7}`, 400, "boot_device"}, {"PUT", path, "1.82", `{"boot_device":"pxe","persistent":"x"}`, 400, "persistent"},
		{"PUT", path, "1.82", `{"boot_device":"pxe","bogus":"x"}`, 400, "bogus"},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", path, nil))
	if rec.Code != 503 || !strings.Contains(rec.Body.String(), "has not answered yet") {
		t.Errorf("no answer: %d %s", rec.Code, rec.Body)
	}
	w.lock(nodeID)
	w.refuse([]refusal{{"PUT", path, "1.82", `{"boot_device":"pxe"}`, 409, "locked"}})
}
