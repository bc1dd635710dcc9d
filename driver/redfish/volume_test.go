package redfish

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"salvor/metal"
)

// roughController makes a volume of whatever it is asked for, and shows it with a size of its own while it is being made.
type roughController struct {
	names  []string // of the volumes
	posts  int
	picky  bool // it names volumes itself
	settle bool // sizes are what was asked for
}

func (c *roughController) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const system, storage = "/redfish/v1/Systems/1", "/redfish/v1/Systems/1/Storage"
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		var asked struct{ Name string }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		if c.posts++; c.picky && asked.Name != "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.names = append(c.names, asked.Name)
		w.WriteHeader(http.StatusCreated)
		return
	}
	doc := map[string]any{"Id": "v", "RAIDType": "RAID0"}
	list := func(paths ...string) {
		members := []any{}
		for _, p := range paths {
			members = append(members, map[string]any{"@odata.id": p})
		}
		doc = map[string]any{"Members": members}
	}
	link := func(p string) any { return map[string]any{"@odata.id": p} }
	switch r.URL.Path {
	case "/redfish/v1/", "/redfish/v1":
		doc = map[string]any{"Systems": link("/redfish/v1/Systems")}
	case "/redfish/v1/Systems":
		list(system)
	case system:
		doc = map[string]any{"@odata.id": system, "PowerState": "Off", "Storage": link(storage)}
	case storage:
		list(storage + "/1")
	case storage + "/1":
		doc = map[string]any{"Id": "1", "Drives": []any{link(storage + "/1/Drives/1"), link(storage + "/1/Drives/2")}, "Volumes": link(storage + "/1/Volumes")}
	case storage + "/1/Drives/1", storage + "/1/Drives/2":
		doc = map[string]any{"Id": r.URL.Path[len(r.URL.Path)-1:]}
	case storage + "/1/Volumes":
		var paths []string
		for i := range c.names {
			paths = append(paths, storage+"/1/Volumes/"+string(rune('0'+i)))
		}
		list(paths...)
	default:
		doc["Name"] = c.names[r.URL.Path[len(r.URL.Path)-1]-'0']
		if c.settle {
			doc["CapacityBytes"] = gib
		} else {
			delete(doc, "RAIDType")
		}
	}
	text, _ := json.Marshal(doc)
	_, _ = w.Write(text)
}

// TestVolumesBearOurName: who dies between asking for a volume and noting that, leaves one that is not made again.
func TestVolumesBearOurName(t *testing.T) {
	for _, picky := range []bool{false, true} {
		c := &roughController{picky: picky, settle: picky}
		server := httptest.NewServer(c)
		defer server.Close()
		n, raid := node(server.URL), RAID{&Driver{}}
		disk := map[string]any{"raid_level": "0", "size_gb": 1.0, "share_physical_disks": true}
		n.TargetRAID = metal.Object{"logical_disks": []any{disk, disk}}
		for call, want := range []bool{true, true, false} {
			n.InternalInfo = nil // the note is lost
			if wait, err := raid.RunStep(t.Context(), n, step("raid", "create_configuration", nil)); wait != want || err != nil {
				t.Fatalf("call %d: wait %t, %v; %v", call, wait, err, c.names)
			}
		}
		if len(c.names) != 2 || !picky && (c.names[0] == c.names[1] || len(c.names[0]) != 15 || c.posts != 2) {
			t.Errorf("made %q by %d requests", c.names, c.posts)
		}
	}
}
