package native_test

import (
	"fmt"
	"testing"

	"salvor/record"
	"salvor/rescue"
)

// TestMembersSeeWhatTheyMayBoot but not where it lies, nor who uses it.
func TestMembersSeeWhatTheyMayBoot(t *testing.T) {
	w := newWorld(t)
	add := func(name string) *rescue.Image {
		img := &rescue.Image{Name: name, TargetOS: "debian", TargetOSFamily: "linux",
			Source: rescue.Source{Kind: rescue.ISO, Access: rescue.NoAccess, LocationType: rescue.LocationFile, Location: name + ".iso"}}
		if err := w.services.RescueImages.Create(t.Context(), img, record.Asker{}); err != nil {
			t.Fatal(err)
		}
		return img
	}
	live, gone := add("live"), add("gone")
	if err := w.services.RescueImages.Remove(t.Context(), gone.ID, false, record.Asker{}); err != nil {
		t.Fatal(err)
	}
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
