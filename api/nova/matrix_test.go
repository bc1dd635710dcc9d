package nova_test

import (
	"fmt"
	"slices"
	"testing"

	"salvor/compute"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// TestVolumesAndDeletionInEveryState walks what is no action of the body: attaching, detaching, deleting.
func TestVolumesAndDeletionInEveryState(t *testing.T) {
	w := newWorld(t)
	lun := 0
	volume := func(change func(*compute.Volume)) string {
		lun++
		v := &compute.Volume{
			Name: fmt.Sprint("v", lun), Project: projectA, SizeGiB: 1, Status: compute.VolumeAvailable, Portal: "192.0.2.7:3260", IQN: "iqn.2026-01.example:matrix", LUN: lun,
		}
		change(v)
		must.OK(w, w.services.Volumes.Create(t.Context(), v, record.Asker{}))
		return v.ID
	}
	for state, power := range states {
		for _, locked := range []bool{false, true} {
			for _, c := range []struct {
				verb   string
				status int
				from   []compute.VMState
			}{
				{verb: "attach_volume", status: 200, from: []compute.VMState{compute.Active, compute.Stopped, compute.Paused}},
				{verb: "detach_volume", status: 202, from: []compute.VMState{compute.Active, compute.Stopped, compute.Paused}},
				{verb: "delete", status: 204, from: everywhere},
			} {
				id := w.active()
				taken := volume(func(v *compute.Volume) { v.Status, v.ServerID, v.Device = compute.VolumeInUse, id, "vdb" })
				w.set(id, func(s *compute.Server) {
					s.State, s.Power, s.Locked = state, power, locked
					s.Disks = append(s.Disks, compute.Disk{Name: "vdb", BootIndex: -1, VolumeID: taken})
					if state == compute.Rescued {
						s.Rescue = &rescue.Session{State: rescue.Ready, StartedAt: born, SavedKnown: true}
					}
				})
				path := "/servers/" + id
				var got answer
				switch c.verb {
				case "attach_volume":
					free := volume(func(*compute.Volume) {})
					got = w.ask("POST", path+"/os-volume_attachments", "2.87", `{"volumeAttachment": {"volumeId": "`+free+`"}}`)
				case "detach_volume":
					got = w.ask("DELETE", path+"/os-volume_attachments/"+taken, "2.87", "")
				default:
					got = w.ask("DELETE", path, "2.87", "")
				}
				where := fmt.Sprintf("%s in %s, locked %v: %d %s", c.verb, state, locked, got.Status, got.Body)
				_, message := got.fault()
				switch {
				case locked:
					if got.Status != 409 || message != "Instance "+id+" is locked" {
						t.Error(where)
					}
				case !slices.Contains(c.from, state):
					want := fmt.Sprintf("Cannot '%s' instance %s while it is in vm_state %s", c.verb, id, state)
					if state == compute.Suspended {
						want += ": resume it first" // the guest would go on with the volumes that it had
					}
					if got.Status != 409 || message != want {
						t.Error(where)
					}
				case got.Status != c.status:
					t.Error(where)
				}
			}
		}
	}
}

// TestAServerThatCycladesPreparedInEveryAction: its session is open and it is off. To this face it is in rescue.
func TestAServerThatCycladesPreparedInEveryAction(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	for _, a := range askedActions {
		w.endJobs(id)
		w.set(id, func(s *compute.Server) {
			s.State, s.Power, s.Task, s.Locked = compute.Rescued, compute.PowerOff, compute.NoTask, false
			s.Rescue = &rescue.Session{State: rescue.Prepared, StartedAt: born, SavedKnown: true, Saved: rescue.Boot{Power: "off"}}
		})
		if w.as(ann); a.boss {
			w.as(boss)
		}
		got := w.ask("POST", "/servers/"+id+"/action", "2.87", a.body)
		_, message := got.fault()
		if slices.Contains(a.from, compute.Rescued) {
			if got.Status != a.status {
				t.Errorf("%s: %d %s", a.body, got.Status, got.Body)
			}
			continue
		}
		if want := fmt.Sprintf("Cannot '%s' instance %s while it is in vm_state rescued", a.word, id); got.Status != 409 || message != want {
			t.Errorf("%s: %d %s", a.body, got.Status, got.Body)
		}
	}
}
