package nova_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// states are all that a server can be found in, with the power that goes with it.
var states = map[compute.VMState]compute.Power{
	compute.Building: compute.PowerUnknown, compute.Active: compute.PowerOn, compute.Stopped: compute.PowerOff, compute.Paused: compute.PowerPaused,
	compute.Suspended: compute.PowerSaved, compute.Rescued: compute.PowerOn, compute.Errored: compute.PowerOff,
}

// asked is an action, as Nova answers it.
type asked struct {
	body   string
	word   string // in errors
	status int
	from   []compute.VMState // the states that allow it
	during bool              // a task does not forbid it
	locked bool              // the lock does not forbid it
	boss   bool              // administrators only
}

var everywhere = []compute.VMState{compute.Building, compute.Active, compute.Stopped, compute.Paused, compute.Suspended, compute.Rescued, compute.Errored}

var askedActions = []asked{
	{body: `{"os-start": null}`, word: "start", status: 202, from: []compute.VMState{compute.Stopped}},
	{body: `{"os-stop": null}`, word: "stop", status: 202, from: []compute.VMState{compute.Active, compute.Errored}},
	{body: `{"reboot": {"type": "SOFT"}}`, word: "reboot", status: 202, from: []compute.VMState{compute.Active}},
	{body: `{"reboot": {"type": "HARD"}}`, word: "reboot", status: 202, from: []compute.VMState{compute.Active, compute.Stopped, compute.Paused, compute.Suspended, compute.Errored}},
	{body: `{"pause": null}`, word: "pause", status: 202, from: []compute.VMState{compute.Active}},
	{body: `{"unpause": null}`, word: "unpause", status: 202, from: []compute.VMState{compute.Paused}},
	{body: `{"suspend": null}`, word: "suspend", status: 202, from: []compute.VMState{compute.Active}},
	{body: `{"resume": null}`, word: "resume", status: 202, from: []compute.VMState{compute.Suspended}},
	{body: `{"rescue": null}`, word: "rescue", status: 200, from: []compute.VMState{compute.Active, compute.Stopped, compute.Errored}},
	{body: `{"rescue": {}}`, word: "rescue", status: 200, from: []compute.VMState{compute.Active, compute.Stopped, compute.Errored}},
	{body: `{"unrescue": null}`, word: "unrescue", status: 202, from: []compute.VMState{compute.Rescued}},
	{body: `{"unrescue": {}}`, word: "unrescue", status: 202, from: []compute.VMState{compute.Rescued}},
	{body: `{"rebuild": {"imageRef": "` + imageOne + `"}}`, word: "rebuild", status: 202, from: []compute.VMState{compute.Active, compute.Stopped, compute.Errored}},
	{body: `{"lock": null}`, word: "lock", status: 202, from: everywhere, during: true, locked: true},
	{body: `{"unlock": null}`, word: "unlock", status: 202, from: everywhere, during: true, locked: true},
	{body: `{"os-resetState": {"state": "active"}}`, word: "reset_state", status: 202, from: everywhere, during: true, locked: true, boss: true},
}

// TestEveryStateEveryAction walks all of them: Nova's status, and its words where it refuses.
func TestEveryStateEveryAction(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	put := func(state compute.VMState, task compute.Task, locked bool) {
		w.endJobs(id)
		w.set(id, func(s *compute.Server) {
			s.State, s.Power, s.Task, s.Locked, s.Rescue = state, states[state], task, locked, nil
			if state == compute.Rescued {
				s.Rescue = &rescue.Session{State: rescue.Ready, StartedAt: born, SavedKnown: true}
			}
		})
	}
	for state := range states {
		for _, a := range askedActions {
			for _, v := range []struct {
				task   compute.Task
				locked bool
			}{{}, {task: compute.Stopping}, {locked: true}} {
				put(state, v.task, v.locked)
				if w.as(ann); a.boss {
					w.as(boss)
				}
				got := w.ask("POST", "/servers/"+id+"/action", "2.87", a.body)
				where := fmt.Sprintf("%s in %s, task %q, locked %v: %d %s", a.body, state, v.task, v.locked, got.Status, got.Body)
				name, message := got.fault()
				switch {
				case v.locked && !a.locked:
					if got.Status != 409 || name != "conflictingRequest" || message != "Instance "+id+" is locked" {
						t.Error(where)
					}
				case !slices.Contains(a.from, state):
					if want := fmt.Sprintf("Cannot '%s' instance %s while it is in vm_state %s", a.word, id, state); got.Status != 409 || message != want {
						t.Error(where)
					}
				case v.task != "" && !a.during:
					if want := fmt.Sprintf("Cannot '%s' instance %s while it is in task_state %s", a.word, id, v.task); got.Status != 409 || message != want {
						t.Error(where)
					}
				case got.Status != a.status:
					t.Error(where)
				}
			}
		}
	}
}

func TestRescue(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	action := "/servers/" + id + "/action"
	a := w.want(200, "POST", action, "2.1", `{"rescue": {"adminPass": "hush-hush"}}`)
	if a.Body != `{"adminPass":"hush-hush"}` {
		t.Error(a.Body)
	}
	o := w.want(200, "GET", "/servers/"+id, "2.1", "").Object(t)
	if at(o, "server", "status") != "ACTIVE" || at(o, "server", "OS-EXT-STS:task_state") != "rescuing" {
		t.Error(o)
	}
	w.finish(id, compute.Rescued, compute.PowerOn)
	if o = w.want(200, "GET", "/servers/"+id, "2.1", "").Object(t); at(o, "server", "status") != "RESCUE" || at(o, "server", "progress") != nil {
		t.Error(o)
	}
	w.want(409, "POST", action, "", `{"rescue": null}`)
	w.want(202, "POST", action, "", `{"unrescue": "whatever"}`)
	w.finish(id, compute.Active, compute.PowerOn)
	w.set(id, func(s *compute.Server) { s.Rescue = nil })

	password, _ := w.want(200, "POST", action, "", `{"rescue": null}`).Object(t)["adminPass"].(string)
	if len(password) != 12 || strings.Contains(w.log.String(), password) || strings.Contains(w.log.String(), "hush-hush") {
		t.Errorf("password %q, log %s", password, w.log)
	}
	back := func() {
		w.endJobs(id)
		w.set(id, func(s *compute.Server) { s.State, s.Task, s.Rescue = compute.Active, compute.NoTask, nil })
	}
	back()
	events := must.Get(w.store.Events(t.Context(), compute.Subject(id), 0, 1000))(w)
	if all, _ := json.Marshal(events); strings.Contains(string(all), "hush") || strings.Contains(string(all), password) {
		t.Error("the timeline tells a password")
	}
	for _, ref := range []string{nothing, "11111111-1111-4111-8111-111111111111"} {
		name, message := w.want(400, "POST", action, "", `{"rescue": {"rescue_image_ref": "`+ref+`"}}`).fault()
		if name != "badRequest" || message != "Requested rescue image '"+ref+"' is not supported" {
			t.Error(message)
		}
	}
	queued := &compute.Image{Name: "late", Owner: projectA, Visibility: "private", Status: compute.ImageQueued, ContainerFormat: "bare", DiskFormat: "iso"}
	must.OK(w, w.services.Images.Create(t.Context(), queued, record.Asker{}))
	if _, message := w.want(400, "POST", action, "", `{"rescue": {"rescue_image_ref": "`+queued.ID+`"}}`).fault(); !strings.HasPrefix(message, "Requested rescue image '"+queued.ID+"' is not supported") {
		t.Error(message)
	}
	for _, body := range []string{`{"rescue": {"adminPass": " "}}`, `{"rescue": {"adminPass": "a\nb"}}`, `{"rescue": {"nonsense": 1}}`, `{"rescue": {"rescue_image_ref": "debian"}}`, `{"rescue": 1}`, `{"rescue": {"adminPass": 1}}`, `{"rescue": null, "x": 1}`, `{}`, `{"fly": null}`} {
		w.want(400, "POST", action, "", body)
	}
	w.want(404, "POST", "/servers/"+nothing+"/action", "", `{"rescue": null}`)
	w.want(404, "POST", "/servers/nonsense/action", "", `{"rescue": null}`)

	w.want(200, "POST", action, "", `{"rescue": {"rescue_image_ref": "`+imageOne+`"}}`)
	back()
	none := &rescue.Image{Name: "plain", Source: rescue.Source{Kind: rescue.ISO, Access: rescue.NoAccess, LocationType: rescue.LocationFile, Location: "plain.iso"}}
	must.OK(w, w.services.RescueImages.Create(t.Context(), none, record.Asker{}))
	if a := w.want(200, "POST", action, "", `{"rescue": {"rescue_image_ref": "`+none.ID+`"}}`); a.Body != `{}` {
		t.Errorf("a password for a system that takes none: %s", a.Body)
	}
	back()
	must.OK(w, w.services.RescueImages.Remove(t.Context(), none.ID, true, record.Asker{}))
	w.want(400, "POST", action, "", `{"rescue": {"rescue_image_ref": "`+none.ID+`"}}`)
	w.set(id, func(s *compute.Server) { s.LaunchedAt = time.Time{} })
	if _, message := w.want(409, "POST", action, "", `{"rescue": null}`).fault(); message != "Cannot 'rescue' instance "+id+" which has never been active" {
		t.Error(message)
	}
}

func TestAServerThatBootsFromAVolumeIsRescuedSince287(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.set(id, func(s *compute.Server) { s.Disks = []compute.Disk{{Name: "vda", VolumeID: nothing}} })
	action := "/servers/" + id + "/action"
	for _, version := range []string{"", "2.1", "2.86"} {
		name, message := w.want(400, "POST", action, version, `{"rescue": null}`).fault()
		if name != "badRequest" || message != "Instance "+id+" cannot be rescued: Cannot rescue a volume-backed instance" {
			t.Errorf("%s: %s", version, message)
		}
	}
	w.set(id, func(s *compute.Server) { s.State = compute.Paused })
	w.want(409, "POST", action, "2.1", `{"rescue": null}`)
	w.set(id, func(s *compute.Server) { s.State = compute.Active })
	w.want(200, "POST", action, "2.87", `{"rescue": null}`)
}

func TestLockReason(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.want(400, "POST", "/servers/"+id+"/action", "2.73", `{"lock": {"nonsense": 1}}`)
	w.want(202, "POST", "/servers/"+id+"/action", "2.73", `{"lock": {"locked_reason": "mine"}}`)
	o := w.want(200, "GET", "/servers/"+id, "2.73", "").Object(t)
	if at(o, "server", "locked") != true || at(o, "server", "locked_reason") != "mine" {
		t.Error(o)
	}
	if l := w.want(200, "GET", "/servers?locked=true", "2.73", "").Object(t)["servers"].([]any); len(l) != 1 {
		t.Error(l)
	}
	w.want(409, "DELETE", "/servers/"+id, "", "")
	w.as(boss)
	w.want(202, "POST", "/servers/"+id+"/action", "", `{"os-stop": null}`)
}

func TestActionsThatAreNot(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	for _, body := range []string{`{"resize": {"flavorRef": "1"}}`, `{"createImage": {"name": "x"}}`, `{"addSecurityGroup": {"name": "x"}}`, `{"shelve": null}`} {
		if name, message := w.want(501, "POST", "/servers/"+id+"/action", "", body).fault(); name != "notImplemented" || message == "" {
			t.Error(message)
		}
	}
	w.want(403, "POST", "/servers/"+id+"/action", "", `{"os-resetState": {"state": "error"}}`)
	w.as(boss)
	w.want(202, "POST", "/servers/"+id+"/action", "", `{"os-resetState": {"state": "error"}}`)
	w.want(400, "POST", "/servers/"+id+"/action", "", `{"os-resetState": {"state": "paused"}}`)
}

func TestRebuild(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	a := w.want(202, "POST", "/servers/"+id+"/action", "2.57", `{"rebuild": {"imageRef": "`+imageOne+`", "name": "new", "metadata": {"k": "v"}, "user_data": "aGk="}}`)
	o := a.Object(t)
	if at(o, "server", "status") != "REBUILD" || at(o, "server", "name") != "new" || at(o, "server", "metadata", "k") != "v" || at(o, "server", "user_data") != "aGk=" || at(o, "server", "adminPass") == nil {
		t.Error(a.Body)
	}
	w.finish(id, compute.Active, compute.PowerOn)
	w.want(400, "POST", "/servers/"+id+"/action", "", `{"rebuild": {"imageRef": "`+nothing+`"}}`)
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error { // no room for two disks
		h, err := w.store.Hosts().Get(w.Context(), tx, hostOne)
		if err != nil {
			return err
		}
		h.UsedDisk = h.Inventory.Disk
		return w.store.Hosts().Save(tx, h)
	}))
	w.says(409, "POST", "/servers/"+id+"/action", "2.57", `{"rebuild": {"imageRef": "`+imageOne+`"}}`, "salvor:discard")
	w.want(400, "POST", "/servers/"+id+"/action", "2.57", `{"rebuild": {"imageRef": "`+imageOne+`", "discard": true}}`)
	w.want(202, "POST", "/servers/"+id+"/action", "2.57", `{"rebuild": {"imageRef": "`+imageOne+`", "salvor:discard": true}}`)
	w.finish(id, compute.Active, compute.PowerOn)
	w.want(400, "POST", "/servers/"+id+"/action", "", `{"rebuild": {}}`)
}

func TestAttachments(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	v := &compute.Volume{Name: "data", Project: projectA, SizeGiB: 1, Status: compute.VolumeAvailable, Portal: "192.0.2.7:3260", IQN: "iqn.2026-01.example:data", LUN: 1}
	must.OK(w, w.services.Volumes.Create(t.Context(), v, record.Asker{}))
	all := "/servers/" + id + "/os-volume_attachments"
	body := `{"volumeAttachment": {"volumeId": "` + v.ID + `"}}`
	o := w.want(200, "POST", all, "2.1", body).Object(t)
	if at(o, "volumeAttachment", "volumeId") != v.ID || at(o, "volumeAttachment", "serverId") != id || !strings.HasPrefix(at(o, "volumeAttachment", "device").(string), "/dev/") {
		t.Error(o)
	}
	w.finish(id, compute.Active, compute.PowerOn)
	w.set(id, func(s *compute.Server) {
		if !slices.ContainsFunc(s.Disks, func(d compute.Disk) bool { return d.VolumeID == v.ID }) {
			s.Disks = append(s.Disks, compute.Disk{Name: "vdb", BootIndex: -1, VolumeID: v.ID})
		}
	})
	must.Get(w.services.Volumes.Update(t.Context(), v.ID, record.Asker{}, func(v *compute.Volume) error { v.Status = compute.VolumeInUse; return nil }))(w)
	o = w.want(200, "GET", all+"/"+v.ID, "2.79", "").Object(t)
	if _, ok := at(o, "volumeAttachment").(map[string]any)["delete_on_termination"]; !ok {
		t.Error(o)
	}
	if l := w.want(200, "GET", all, "2.1", "").Object(t)["volumeAttachments"].([]any); len(l) != 1 {
		t.Error(l)
	}
	w.want(404, "GET", all+"/"+nothing, "", "")
	w.want(404, "DELETE", all+"/"+nothing, "", "")
	w.want(202, "DELETE", all+"/"+v.ID, "", "")
	w.want(400, "POST", all, "", `{"volumeAttachment": {"volumeId": "x"}}`)
	w.finish(id, compute.Active, compute.PowerOn)
	w.want(404, "POST", all, "", `{"volumeAttachment": {"volumeId": "`+nothing+`"}}`)
}

func TestInstanceActions(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	a := w.want(202, "POST", "/servers/"+id+"/action", "", `{"os-stop": null}`)
	request := a.Header.Get("Openstack-Request-Id")
	l := w.want(200, "GET", "/servers/"+id+"/os-instance-actions", "2.58", "").Object(t)["instanceActions"].([]any)
	if len(l) != 2 || at(l[0], "action") != "stop" || at(l[1], "action") != "create" || at(l[0], "request_id") != request || at(l[0], "user_id") != "ann" {
		t.Fatal(l)
	}
	o := w.want(200, "GET", "/servers/"+id+"/os-instance-actions/"+request, "2.62", "").Object(t)
	if at(o, "instanceAction", "request_id") != request || at(o, "instanceAction", "events") == nil {
		t.Error(o)
	}
	w.want(404, "GET", "/servers/"+id+"/os-instance-actions/req-x", "", "")
	o = w.want(200, "GET", "/servers/"+id+"/os-instance-actions?limit=1", "2.58", "").Object(t)
	if len(o["instanceActions"].([]any)) != 1 || o["links"] == nil {
		t.Error(o)
	}
}

// TestInstanceActionsQuoteForAdministratorsOnly: the details of a failed action hold text of hosts.
func TestInstanceActionsQuoteForAdministratorsOnly(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	request := w.want(202, "POST", "/servers/"+id+"/action", "", `{"os-stop": null}`).Header.Get("Openstack-Request-Id")
	must.OK(w, w.store.Do(t.Context(), func(tx job.Tx) error {
		return w.store.Append(tx, job.Event{
			Subject: compute.Subject(id), Type: "action", Action: "power off", Severity: "error", RequestID: request,
			Text: "power off: host rack1 says " + problem.Quote("no monitor at /run/qemu"),
		})
	}))
	for _, reader := range []struct {
		name string
		who  access.Principal
		sees bool
	}{{"the owner", ann, false}, {"an administrator", boss, true}} {
		w.as(reader.who)
		o := w.want(200, "GET", "/servers/"+id+"/os-instance-actions/"+request, "2.84", "").Object(t)
		details, _ := at(o, "instanceAction", "events").([]any)[0].(map[string]any)["details"].(string)
		if sees := strings.Contains(details, "no monitor") && strings.Contains(details, "rack1"); sees != reader.sees || details == "" {
			t.Errorf("%s reads the details %q; the text of the host shown: %v, want %v", reader.name, details, sees, reader.sees)
		}
	}
}

// TestInstanceActionsOfALongTimeline: the latest are what is asked for.
func TestInstanceActionsOfALongTimeline(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	must.OK(w, w.store.Do(t.Context(), func(tx job.Tx) error {
		for range 5000 {
			if err := w.store.Append(tx, job.Event{Subject: compute.Subject(id), Type: "contact", Text: "seen"}); err != nil {
				return err
			}
		}
		return nil
	}))
	w.want(202, "POST", "/servers/"+id+"/action", "", `{"os-stop": null}`)
	l := w.want(200, "GET", "/servers/"+id+"/os-instance-actions", "2.58", "").Object(t)["instanceActions"].([]any)
	if len(l) != 1 || at(l[0], "action") != "stop" {
		t.Error(l)
	}
}

func TestConsole(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.tellConsole(ctx, "login: ") }()
	o := w.want(200, "POST", "/servers/"+id+"/action", "", `{"os-getConsoleOutput": {"length": 10}}`).Object(t)
	stop()
	if err := <-ended; err != nil || o["output"] != "login: " {
		t.Errorf("%v, %v", o, err)
	}
	for _, body := range []string{`{"os-getConsoleOutput": {"length": -2}}`, `{"os-getConsoleOutput": {"lines": 1}}`, `{"os-getConsoleOutput": 1}`} {
		w.want(400, "POST", "/servers/"+id+"/action", "", body)
	}
	w.set(id, func(s *compute.Server) { s.HostID = "" })
	w.want(409, "POST", "/servers/"+id+"/action", "", `{"os-getConsoleOutput": null}`)
}

// tellConsole answers the first order, as a host does.
func (w *world) tellConsole(ctx context.Context, text string) error {
	for ctx.Err() == nil {
		orders, err := w.store.OpenOrders(ctx, hostOne)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, o := range orders {
			if o.Verb != compute.Console {
				continue
			}
			return w.store.Do(ctx, func(tx job.Tx) error {
				_, err := w.store.FinishOrder(tx, o.ID, o.HostID, o.BootID, o.Epoch, compute.Result{Console: text})
				return err
			})
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}
