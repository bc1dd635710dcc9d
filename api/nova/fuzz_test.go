package nova_test

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"salvor/compute"
	"salvor/test/must"
)

// FuzzActionBody proves that no body of an action is answered with an error of ours.
func FuzzActionBody(f *testing.F) {
	for _, s := range []string{
		`{"rescue": null}`, `{"rescue": {"adminPass": "x", "rescue_image_ref": "` + imageOne + `"}}`, `{"reboot": {"type": "HARD"}}`, `{"unrescue": []}`,
		`{"rebuild": {"imageRef": "` + imageOne + `", "metadata": {"a": null}}}`, `{"lock": {"locked_reason": ""}}`, `{"os-getConsoleOutput": {"length": "9"}}`, `{"": {}}`, `[]`, `{"resize": 1}`,
		`{"os-resetState": {"state": "active"}}`, "{\"rescue\": {\"adminPass\": \"\u0000\"}}",
	} {
		f.Add([]byte(s))
	}
	w := newWorld(f)
	id := w.active()
	w.set(id, func(s *compute.Server) { s.HostID = "" }) // nobody is there to tell the console
	f.Fuzz(func(t *testing.T, body []byte) {
		w.TB = t
		for _, version := range []string{"2.1", "2.88"} {
			switch a := w.ask("POST", "/servers/"+id+"/action", version, string(body)); a.Status {
			case 200, 202, 400, 403, 409, 501:
			default:
				t.Fatalf("%d %s", a.Status, a.Body)
			}
		}
		w.endJobs(id)
	})
}

// FuzzCreateBody proves the same of bodies that ask for servers.
func FuzzCreateBody(f *testing.F) {
	for _, s := range []string{
		`{"server": {"name": "web", "flavorRef": "1", "imageRef": "` + imageOne + `"}}`, `{"server": {"name": "web", "flavorRef": 1e99, "imageRef": ""}}`,
		`{"server": {"name": "web", "flavorRef": "1", "imageRef": "", "networks": "none", "block_device_mapping_v2": [{"source_type": "blank", "volume_size": "1", "boot_index": null}]}}`,
		`{"server": {"name": "web", "flavorRef": "1", "imageRef": "` + imageOne + `", "networks": [{"uuid": null}, 1]}}`, `{"server": {"metadata": {"a": {}}}}`, `{"server": []}`,
		`{"server": {"name": "w", "flavorRef": "/", "imageRef": "` + imageOne + `", "availability_zone": ":", "networks": []}}`, `{"os:scheduler_hints": 1}`,
	} {
		f.Add([]byte(s))
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		w.TB = t
		for _, version := range []string{"2.1", "2.88"} {
			switch a := w.ask("POST", "/servers", version, string(body)); a.Status {
			case 202, 400, 403, 409, 413:
			default:
				t.Fatalf("%d %s", a.Status, a.Body)
			}
		}
	})
}

// FuzzServerQuery proves it of the arguments of lists.
func FuzzServerQuery(f *testing.F) {
	for _, s := range []string{"name=(", "status=ERROR&status=x", "limit=9999999999999", "marker=%00", "ip=[", "tags=,", "changes-since=0", "sort_key=host&sort_dir=asc", "deleted=True&all_tenants", "name=^a$&locked=1", "%"} {
		f.Add(s)
	}
	w := newWorld(f)
	w.active()
	w.as(boss)
	f.Fuzz(func(t *testing.T, query string) {
		w.TB = t
		for _, c := range query {
			if c <= ' ' || c >= 0x7f || c == '#' {
				t.Skip()
			}
		}
		for _, version := range []string{"2.1", "2.88"} {
			switch a := w.ask("GET", "/servers/detail?"+query, version, ""); a.Status {
			case 200, 400, 403:
			default:
				t.Fatalf("%q: %d %s", query, a.Status, a.Body)
			}
		}
	})
}

// bodyFields are properties of the bodies of creations and actions.
var bodyFields = []string{
	"name", "flavorRef", "imageRef", "metadata", "networks", "block_device_mapping_v2", "key_name", "config_drive", "availability_zone", "security_groups",
	"min_count", "max_count", "return_reservation_id", "OS-DCF:diskConfig", "accessIPv4", "personality", "description", "tags", "trusted_image_certificates", "host",
	"type", "locked_reason", "rescue_image_ref", "preserve_ephemeral", "salvor:discard", "salvor:keys", "salvor:expires_in", "onSharedStorage", "force", "block_migration", "disk_over_commit", "state", "length",
	"uuid", "fixed_ip", "source_type", "destination_type", "volume_size", "boot_index", "delete_on_termination", "nonsense",
}

// anyValue draws JSON that is often right somewhere.
func anyValue(r *rapid.T, depth int) any {
	switch rapid.IntRange(0, 8+depth).Draw(r, "shape") {
	case 9:
		return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) any { return anyValue(r, depth-1) }), 0, 3).Draw(r, "list")
	case 10, 11:
		return anyObject(r, depth-1)
	}
	return rapid.SampledFrom([]any{nil, "", "1", "x", "auto", "none", "HARD", "AUTO", "active", "blank", "local", "192.0.2.1", " ", "a,b", imageOne, strings.Repeat("x", 256), 0.0, 1.0, -1.0, 1.5, 1e99, true}).Draw(r, "value")
}

func anyObject(r *rapid.T, depth int) map[string]any {
	o := map[string]any{}
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(bodyFields), 0, 4).Draw(r, "fields") {
		o[name] = anyValue(r, depth)
	}
	return o
}

// TestAnyBody proves of random bodies that none ends a handler, that what a schema takes is decoded, and that no error repeats a secret.
func TestAnyBody(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.as(boss)
	w.set(id, func(s *compute.Server) { s.HostID = "" }) // nobody is there to tell the console
	actions := []string{"reboot", "lock", "rescue", "rebuild", "evacuate", "migrate", "os-migrateLive", "os-resetState", "os-getConsoleOutput"}
	taken, asked := map[bool]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		path, args := "/servers", map[string]any{"name": "web", "flavorRef": "1", "imageRef": imageOne, "networks": "none"}
		key := rapid.SampledFrom(append([]string{"server", "server", "server"}, actions...)).Draw(r, "request")
		if key != "server" {
			path, args = "/servers/"+id+"/action", map[string]any{}
		}
		if rapid.Bool().Draw(r, "more fields") {
			maps.Copy(args, anyObject(r, 3))
		}
		const hidden = "hidden-from-errors"
		for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"adminPass", "user_data"}), 0, 1).Draw(r, "secrets") {
			args[name] = rapid.SampledFrom([]any{hidden, strings.Repeat(hidden, 5000), []any{hidden}, map[string]any{hidden: hidden}}).Draw(r, "secret")
		}
		body := must.Get(json.Marshal(map[string]any{key: args}))(w)
		a := w.ask("POST", path, "2."+strconv.Itoa(rapid.IntRange(1, 88).Draw(r, "minor")), string(body))
		switch a.Status {
		case 200, 202, 400, 403, 404, 409, 413, 501: // 404: the server that is to migrate has no host
		default:
			r.Fatalf("%s: %d %s", body, a.Status, a.Body)
		}
		if a.Status >= 400 && strings.Contains(a.Body, hidden) {
			r.Fatalf("%s: the answer repeats a secret: %s", body, a.Body)
		}
		taken[a.Status < 300]++
		asked++
		w.endJobs(id)
	})
	// A short run may draw one kind alone, and does so once in a while.
	if asked >= 100 && (taken[true] == 0 || taken[false] == 0) {
		t.Errorf("%d bodies were taken and %d refused; some of each are needed", taken[true], taken[false])
	}
}
