package redfish

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
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
		wait, err := raid.RunStep(drivertest.WithShortPauses(t.Context()), n, step("raid", "delete_configuration", metal.Object{}))
		if err != nil || wait != want.wait || len(asked) != want.asked {
			t.Fatalf("call %d: wait %t, asked %v, %v", call, wait, asked, err)
		}
	}
	if len(n.InternalInfo) != 0 {
		t.Errorf("left in the node: %v", n.InternalInfo)
	}
	n.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"raid_level": "0", "size_gb": 1.0}}}
	for range 3 {
		if wait, err := raid.RunStep(drivertest.WithShortPauses(t.Context()), n, step("raid", "create_configuration", metal.Object{"delete_existing": true})); !wait || err != nil || made != 1 {
			t.Fatalf("create: wait %t, made %d, %v", wait, made, err)
		}
	}
}

// TestVolumesThatCannotBeRead: while a volume is not shown, salvor neither makes nor deletes volumes, because the drives may be in use.
func TestVolumesThatCannotBeRead(t *testing.T) {
	const storage = "/redfish/v1/Systems/1/Storage"
	orders := 0
	_, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		docs := map[string]map[string]any{
			drivertest.SystemPath: {"PowerState": "On", "Storage": map[string]any{"@odata.id": storage}},
			storage:               {"Members": []any{map[string]any{"@odata.id": storage + "/1"}}},
			storage + "/1":        {"Id": "1", "Drives": []any{map[string]any{"@odata.id": storage + "/1/D"}}, "Volumes": map[string]any{"@odata.id": storage + "/1/V"}},
			storage + "/1/D":      {"Id": "D", "MediaType": "SSD"},
			storage + "/1/V":      {"Members": []any{map[string]any{"@odata.id": storage + "/1/V/1"}, map[string]any{"@odata.id": storage + "/1/V/2"}}},
			storage + "/1/V/2":    {"Id": "2", "RAIDType": "RAID0", "Name": "other"},
		}
		if method != http.MethodGet {
			orders++
			w.WriteHeader(http.StatusNoContent)
			return true
		}
		if path == storage+"/1/V/1" {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return docs[path] != nil && answerJSON(w, http.StatusOK, docs[path])
	})
	n.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"size_gb": "MAX", "raid_level": "0"}}}
	for _, step := range []string{"create_configuration", "delete_configuration"} {
		_, err := RAID{&Driver{}}.RunStep(drivertest.WithShortPauses(t.Context()), n, metal.Step{Interface: "raid", Step: step})
		if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "/1/V/1") || orders != 0 {
			t.Errorf("%s: %v after %d orders; want unavailable, the name of the volume, and no order", step, err, orders)
		}
	}
}

// TestAVolumeWhoseAnswerWasLost: the controller has made the volume, and shows the volume only later; salvor looks before it asks again.
func TestAVolumeWhoseAnswerWasLost(t *testing.T) {
	const volumes = drivertest.SystemPath + "/Storage/RAID1/Volumes"
	for name, c := range map[string]struct {
		isTaken bool // the controller has made the volume
		hidden  int  // how many looks at the list show the volume not yet
		want    int  // requests for a volume, until the step ends
	}{
		"shown at once": {true, 0, 1}, "shown at the fifth look": {true, 4, 1}, "not taken": {false, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bmc := drivertest.NewBMC("admin", password)
				asked, hidden := 0, 0
				network := drivertest.NewNetwork(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Method == http.MethodPost && r.URL.Path == volumes:
						if asked++; asked > 1 {
							break
						}
						if hidden = c.hidden; c.isTaken {
							bmc.ServeHTTP(httptest.NewRecorder(), r)
						}
						panic(http.ErrAbortHandler)
					case r.Method == http.MethodGet && r.URL.Path == volumes && hidden > 0:
						hidden--
						_, _ = io.WriteString(w, `{"Members": []}`)
						return
					}
					bmc.ServeHTTP(w, r)
				}))
				defer network.Close()
				ctx, n := driver.WithDial(t.Context(), network.Dial), node(network.URL)
				n.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"size_gb": 10.0, "raid_level": "1", "volume_name": "root"}}}
				var err error
				for range 10 {
					var wait bool
					if wait, err = (RAID{&Driver{}}).RunStep(ctx, n, step("raid", "create_configuration", nil)); err == nil && !wait {
						break
					}
				}
				if err != nil || asked != c.want || bmc.Volumes() != 1 {
					t.Errorf("%v after %d requests, %d volumes; want one volume after %d", err, asked, bmc.Volumes(), c.want)
				}
			})
		})
	}
}
