package redfish

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"salvor/metal"
)

// TestSlowController: one that takes its time over a volume is asked once for each, to delete and to make it.
func TestSlowController(t *testing.T) {
	const storage = "/redfish/v1/Systems/1/Storage"
	there := []string{"1", "2"}
	var asked []string
	made := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			if slices.Contains(asked, r.URL.Path) {
				w.WriteHeader(http.StatusConflict)
				return
			}
			asked = append(asked, r.URL.Path)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		if r.Method == http.MethodPost {
			made++
			w.WriteHeader(http.StatusAccepted)
			return
		}
		members := ""
		for i, id := range there {
			if i > 0 {
				members += ", "
			}
			members += `{"@odata.id": "` + storage + `/1/Volumes/` + id + `"}`
		}
		doc := `{"Id": "v", "RAIDType": "RAID1"}`
		switch r.URL.Path {
		case "/redfish/v1/", "/redfish/v1":
			doc = `{"Systems": {"@odata.id": "/redfish/v1/Systems"}}`
		case "/redfish/v1/Systems":
			doc = `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`
		case "/redfish/v1/Systems/1":
			doc = `{"@odata.id": "/redfish/v1/Systems/1", "PowerState": "Off", "Storage": {"@odata.id": "` + storage + `"}}`
		case storage:
			doc = `{"Members": [{"@odata.id": "` + storage + `/1"}]}`
		case storage + "/1":
			doc = `{"Id": "1", "Drives": [{"@odata.id": "` + storage + `/1/Drives/1"}], "Volumes": {"@odata.id": "` + storage + `/1/Volumes"}}`
		case storage + "/1/Volumes":
			doc = `{"Members": [` + members + `]}`
		}
		_, _ = io.WriteString(w, doc)
	}))
	defer server.Close()
	n, raid := node(server.URL), RAID{&Driver{}}
	for call, want := range []struct {
		wait  bool
		asked int
	}{{true, 1}, {true, 1}, {true, 2}, {true, 2}, {false, 2}} {
		switch call {
		case 2:
			there = []string{"2"}
		case 4:
			there = nil
		}
		wait, err := raid.RunStep(t.Context(), n, step("raid", "delete_configuration", metal.Object{}))
		if err != nil || wait != want.wait || len(asked) != want.asked {
			t.Fatalf("call %d: wait %t, asked %v, %v", call, wait, asked, err)
		}
	}
	if len(n.InternalInfo) != 0 {
		t.Errorf("left in the node: %v", n.InternalInfo)
	}
	n.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"raid_level": "0", "size_gb": 1.0}}}
	for range 3 {
		if wait, err := raid.RunStep(t.Context(), n, step("raid", "create_configuration", metal.Object{"delete_existing": true})); !wait || err != nil || made != 1 {
			t.Fatalf("create: wait %t, made %d, %v", wait, made, err)
		}
	}
}
