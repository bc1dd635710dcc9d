package native_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/api/native"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// TestMembersSeeWhatTheyMayBoot but not where it lies, nor who uses it.
func TestMembersSeeWhatTheyMayBoot(t *testing.T) {
	w := newWorld(t)
	add := func(name string) *rescue.Image {
		img := &rescue.Image{Name: name, TargetOS: "debian", TargetOSFamily: "linux",
			Source: rescue.Source{Kind: rescue.ISO, Access: rescue.NoAccess, LocationType: rescue.LocationFile, Location: name + ".iso"}}
		must.OK(t, w.services.RescueImages.Create(t.Context(), img, record.Asker{}))
		return img
	}
	live, gone := add("live"), add("gone")
	must.OK(t, w.services.RescueImages.Remove(t.Context(), gone.ID, false, record.Asker{}))
	want := fmt.Sprintf("map[access:none default:false id:%d kind:iso name:live os: os_family: target_os:debian target_os_family:linux uuid:%s]", live.Num, live.ID)
	list := w.ask("p1", "GET", "/rescue-images", "", 200)["rescue_images"].([]any)
	if len(list) != 1 || fmt.Sprint(list[0]) != want {
		t.Errorf("%v", list)
	}
	if got := w.ask("p1", "GET", "/rescue-images/"+live.ID, "", 200); fmt.Sprint(got) != want {
		t.Errorf("%v", got)
	}
	w.ask("p1", "GET", "/rescue-images/"+gone.ID, "", 404)
	w.ask("p1", "GET", "/rescue-images?deleted=true", "", 403)
	w.ask("p1", "PATCH", "/rescue-images/"+live.ID, "{}", 403)
	w.ask("p1", "DELETE", "/rescue-images/"+live.ID, "", 403)
	w.ask("", "GET", "/rescue-images", "", 401)
	if got := w.ask("admin", "GET", "/rescue-images/"+live.ID, "", 200); got["location"] != "live.iso" || got["used_by"] == nil {
		t.Errorf("%v", got)
	}
}

// TestARescueImageTellsWhichHostsLackItsFile, and is refused where none has it, unless it is forced.
func TestARescueImageTellsWhichHostsLackItsFile(t *testing.T) {
	w := newWorld(t)
	h := w.host("vm1")
	must.OK(t, w.s.SaveLeases(t.Context(), []compute.Lease{{HostID: h.ID, BootID: h.BootID, RenewedAt: time.Now().Add(time.Hour), Renewals: 2}})) // nobody renews it here
	w.services = service.New(w.s, w.s, service.Options{RescueImagePath: "/srv/rescue", FindFilesWithin: 30 * time.Second}, time.Now)
	must.OK(t, w.services.Liveness.Listen(t.Context()))
	server := httptest.NewServer(native.New(native.Config{Services: w.services, Nodes: w, Fleet: w.s, Jobs: w.s, Auth: fakeAuth{}, Feed: w.feed, Log: slog.New(slog.DiscardHandler), Now: time.Now}))
	t.Cleanup(server.Close)
	w.url = server.URL + "/salvor/v1"
	ctx, cancel := context.WithCancel(context.Background())
	var agent sync.WaitGroup
	agent.Go(func() { // it has live.iso
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			orders, _ := w.s.OpenOrders(ctx, h.ID)
			for _, o := range orders {
				result := compute.Result{}
				if !strings.Contains(string(o.Args), `"live.iso"`) {
					result.Missing = []string{"it"}
				}
				_ = w.s.Do(ctx, func(tx job.Tx) error {
					_, err := w.s.FinishOrder(tx, o.ID, h.ID, o.BootID, o.Epoch, result)
					return err
				})
			}
		}
	})
	defer func() { cancel(); agent.Wait() }()
	w.has(w.admin("POST", "/rescue-images", `{"name":"live","location":"live.iso"}`, 201), object{"found_on": "vm1", "missing_on": "", "unknown_on": ""})
	w.says("POST", "/rescue-images", `{"name":"gone","location":"gone.iso"}`, 409, "gone.iso is not among the rescue images of any host (asked: vm1)")
	w.many("/rescue-images", "rescue_images", 1)
	w.has(w.admin("POST", "/rescue-images", `{"name":"later","location":"later.iso","force":true}`, 201), object{"missing_on": "vm1"})
	w.says("PATCH", "/rescue-images/1", `{"location":"other.iso"}`, 409, "other.iso")
	w.has(w.admin("PATCH", "/rescue-images/1", `{"location":"other.iso","force":true}`, 200), object{"missing_on": "vm1", "location": "other.iso"})
	w.has(w.admin("PATCH", "/rescue-images/1", `{"name":"renamed"}`, 200), object{"name": "renamed"}) // nothing is asked
	w.has(w.admin("PATCH", "/rescue-images/1", `{"location":"https://example.org/a.iso"}`, 200), object{"location_type": "http"})
}
