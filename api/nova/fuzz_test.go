package nova_test

import (
	"testing"

	"salvor/compute"
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
			switch a := w.ask("POST", "/servers/"+id+"/action", version, string(body)); a.status {
			case 200, 202, 400, 403, 409, 501:
			default:
				t.Fatalf("%d %s", a.status, a.body)
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
			switch a := w.ask("POST", "/servers", version, string(body)); a.status {
			case 202, 400, 403, 409, 413:
			default:
				t.Fatalf("%d %s", a.status, a.body)
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
			switch a := w.ask("GET", "/servers/detail?"+query, version, ""); a.status {
			case 200, 400, 403:
			default:
				t.Fatalf("%q: %d %s", query, a.status, a.body)
			}
		}
	})
}
