package volume_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/api/volume"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/record"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
)

var tokens = fixture.TokenAuth{"admin": {User: "root", Role: access.Admin, Scope: access.Scope{Project: "p0"}}, "nobody's admin": {Role: access.Admin}, "token's admin": {Role: access.Admin, TokenID: "t1"}}

type world struct {
	t       *testing.T
	volumes *service.Volumes
	url     string
	log     bytes.Buffer
}

func newWorld(t *testing.T, change ...func(*volume.Config)) *world {
	t.Helper()
	s, _ := storetest.SQLite(t)
	w := &world{t: t, volumes: service.New(s, s, service.Options{}, time.Now).Volumes}
	cfg := volume.Config{Volumes: w.volumes, Auth: tokens, MaxLimit: 3, Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(&cfg)
	}
	server := httptest.NewServer(volume.New(cfg))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

type object = map[string]any

func (w *world) ask(who, method, path, body string, header ...string) fixture.Answer {
	w.t.Helper()
	return fixture.Send(w.t, method, w.url+"/volume"+path, body, append(header, "X-Auth-Token", who)...)
}

// json asks, wants a status and gives the answer.
func (w *world) json(who, method, path, body string, want int, header ...string) object {
	w.t.Helper()
	return w.ask(who, method, path, body, header...).Want(w.t, want).ObjectIfAny(w.t)
}

const canary = "canary-7f3e-password"

func place(lun int) string {
	return fmt.Sprintf(`"salvor:portal":"192.0.2.7","salvor:iqn":"iqn.2001-04.com.example:disks","salvor:lun":"%d"`, lun)
}

func (w *world) create(who string, lun int, more string) string {
	w.t.Helper()
	body := fmt.Sprintf(`{"volume":{"size":4,"name":"v%d","metadata":{%s%s}}}`, lun, place(lun), more)
	return w.json("admin", "POST", "/v3/"+who+"/volumes", body, 202)["volume"].(object)["id"].(string)
}

// attach makes it a volume that a server has.
func (w *world) attach(id, server string) {
	w.t.Helper()
	must.Get(w.volumes.Update(w.t.Context(), id, record.Asker{}, func(v *compute.Volume) error {
		v.Status, v.ServerID, v.Device, v.AttachedAt = compute.VolumeInUse, server, "vdb", time.Now()
		return nil
	}))(w.t)
}

func TestAVolumeIsKeptAndItsPasswordIsTold(t *testing.T) {
	w := newWorld(t)
	id := w.create("p1", 1, `,"salvor:chap_user":"ann","salvor:chap_password":"`+canary+`","color":"red"`)
	v := w.json("p1", "GET", "/v3/p1/volumes/"+id, "", 200)["volume"].(object)
	for key, want := range map[string]any{"status": "available", "size": 4.0, "bootable": "false", "name": "v1", "volume_type": "iscsi", "user_id": "root", "os-vol-tenant-attr:tenant_id": "p1"} {
		if v[key] != want {
			t.Errorf("%s is %v, want %v", key, v[key], want)
		}
	}
	if got := fmt.Sprint(w.json("admin", "GET", "/v3/p1/volumes/"+id, "", 200)["volume"].(object)["metadata"]); got != "map[color:red salvor:chap_user:ann salvor:iqn:iqn.2001-04.com.example:disks salvor:lun:1 salvor:portal:192.0.2.7:3260]" {
		t.Errorf("metadata %s", got)
	}
	stored, err := w.volumes.Get(t.Context(), id)
	if err != nil || stored.CHAPPassword.Reveal() != canary || stored.Portal != "192.0.2.7:3260" || stored.LUN != 1 || len(stored.Metadata) != 1 {
		t.Errorf("%+v, %v", stored, err)
	}
	path := "/v3/p1/volumes/" + id
	w.json("admin", "PUT", path+"/metadata/salvor:chap_password", `{"meta":{"salvor:chap_password":"`+canary+`2"}}`, 200)
	for _, sub := range []string{"", "/metadata", "/../detail", "/../../attachments"} {
		if a := w.ask("p1", "GET", path+sub, ""); strings.Contains(a.Body, canary) {
			t.Errorf("%s shows the password", sub)
		}
	}
	if strings.Contains(w.log.String(), canary) {
		t.Error("the log holds the password")
	}
	w.json("admin", "DELETE", path+"/metadata/salvor:chap_user", "", 200)
	if stored, err = w.volumes.Get(t.Context(), id); err != nil || !stored.CHAPPassword.Empty() || stored.CHAPUser != "" {
		t.Errorf("a password without its user: %+v, %v", stored, err)
	}
	w.json("p1", "DELETE", path, "", 202)
	w.json("p1", "GET", path, "", 404)
}

func TestOnlyAdministratorsSayWhereAVolumeIs(t *testing.T) {
	w := newWorld(t)
	login := `,"salvor:chap_user":"ann","salvor:chap_password":"` + canary + `"`
	w.json("p1", "POST", "/v3/p1/volumes", `{"volume":{"size":4,"metadata":{`+place(5)+`}}}`, 403)
	id := w.create("p1", 1, login)
	path := "/v3/p1/volumes/" + id
	for key, value := range map[string]string{
		"portal": `"198.51.100.6"`, "iqn": `"iqn.2001-04.com.example:other"`, "lun": `"2"`, "chap_user": `"eve"`, "chap_password": `"x"`, "project": `"p2"`,
	} {
		meta := fmt.Sprintf(`{"salvor:%s":%s}`, key, value)
		w.json("p1", "POST", path+"/metadata", `{"metadata":`+meta+`}`, 403)
		w.json("p1", "PUT", path+"/metadata", `{"metadata":`+meta+`}`, 403)
		w.json("p1", "PUT", path+"/metadata/salvor:"+key, `{"meta":`+meta+`}`, 403)
		w.json("p1", "PUT", path, `{"volume":{"metadata":`+meta+`}}`, 403)
	}
	w.json("p1", "POST", path+"/metadata", `{"metadata":{"salvor:chap_password":"`+canary+`"}}`, 403)
	for _, key := range []string{"lun", "chap_user", "chap_password"} {
		w.json("p1", "DELETE", path+"/metadata/salvor:"+key, "", 403)
	}
	w.json("p1", "PUT", path+"/metadata", `{"metadata":{"color":"blue"}}`, 200) // read and written back
	if v, err := w.volumes.Get(t.Context(), id); err != nil || v.Portal != "192.0.2.7:3260" || v.CHAPPassword.Reveal() != canary || v.Metadata["color"] != "blue" {
		t.Fatalf("%+v, %v", v, err)
	}
	move := func(meta string, want int, user, password string) {
		t.Helper()
		w.json("admin", "POST", "/v3/volumes/"+id+"/metadata", `{"metadata":{`+meta+`}}`, want)
		if v, err := w.volumes.Get(t.Context(), id); err != nil || v.CHAPUser != user || v.CHAPPassword.Reveal() != password {
			t.Errorf("after %s: login %q, %v", meta, v.CHAPUser, err)
		}
	}
	move(`"salvor:lun":"2"`, 200, "ann", canary)
	move(`"salvor:portal":"198.51.100.6","salvor:chap_user":"eve"`, 400, "ann", canary)
	move(`"salvor:portal":"198.51.100.6"`, 200, "", "")
	move(`"salvor:iqn":"iqn.2001-04.com.example:other","salvor:chap_user":"bob","salvor:chap_password":"new"`, 200, "bob", "new")
	move(`"salvor:iqn":"iqn.2001-04.com.example:third"`, 200, "", "")
	move(`"salvor:project":"p2"`, 200, "", "")
	w.json("p1", "GET", path, "", 404)
	w.json("p2", "GET", "/v3/p2/volumes/"+id, "", 200)
	made := w.json("admin", "POST", "/v3/p0/volumes", `{"volume":{"size":4,"metadata":{"salvor:project":"p2",`+place(6)+`}}}`, 202)["volume"].(object)
	w.json("p2", "GET", "/v3/p2/volumes/"+made["id"].(string), "", 200)
}

func TestBadVolumes(t *testing.T) {
	w := newWorld(t)
	w.create("p1", 7, "")
	body := func(metadata string) string { return `{"volume":{"size":1,"metadata":{` + metadata + `}}}` }
	at := func(portal, iqn, lun string) string {
		return body(fmt.Sprintf(`"salvor:portal":%q,"salvor:iqn":%q,"salvor:lun":%q`, portal, iqn, lun))
	}
	const iqn = "iqn.2001-04.com.example:x"
	for text, status := range map[string]int{
		``: 400, `{}`: 400, `{"volume":[]}`: 400, `{"volume":{"size":1}}`: 400, body(``): 400, body(`"salvor:portal":"192.0.2.1"`): 400,
		`{"volume":{"metadata":{` + place(1) + `}}}`: 400, `{"volume":{"size":0,"metadata":{` + place(1) + `}}}`: 400, `{"volume":{"size":1.5,"metadata":{` + place(1) + `}}}`: 400,
		`{"volume":{"size":"x","metadata":{` + place(1) + `}}}`: 400, `{"volume":{"size":9999999,"metadata":{` + place(1) + `}}}`: 400,
		`{"volume":{"size":1,"imageRef":"x","metadata":{` + place(1) + `}}}`: 400, `{"volume":{"size":1,"snapshot_id":"x"}}`: 400, `{"volume":{"size":1,"volume_type":"ssd"}}`: 404,
		`{"volume":{"size":1,"multiattach":true}}`: 400,
		at("192.0.2.1:99999", iqn, "1"):            400, at("192.0.2.1:0", iqn, "1"): 400, at("-x", iqn, "1"): 400, at("a b", iqn, "1"): 400, at("x;reboot", iqn, "1"): 400, at("192.0.2.1", "disk", "1"): 400,
		at("192.0.2.1", "iqn.2001-04.com.example:x,y", "1"): 400, at("192.0.2.1", iqn, "-1"): 400, at("192.0.2.1", iqn, "99999"): 400, at("192.0.2.1", iqn, "x"): 400,
		body(place(1) + `,"salvor:chap_user":"u"`): 400, body(place(1) + `,"salvor:chap_password":"` + canary + `"`): 400, body(place(1) + `,"salvor:color":"u"`): 400,
		body(place(1) + `,"salvor:chap_user":"a\nb","salvor:chap_password":"x"`): 400, body(place(1) + `,"k":7`): 400, body(place(1) + `,"":"v"`): 400,
		body(place(7)): 409, // the LUN is another's
	} {
		a := w.ask("admin", "POST", "/v3/p1/volumes", text)
		var fault map[string]object
		if err := json.Unmarshal([]byte(a.Body), &fault); err != nil || len(fault) != 1 {
			t.Error(a)
			continue
		}
		for _, f := range fault {
			if f["code"] != float64(status) || f["message"] == "" || strings.Contains(a.Body, canary) {
				t.Errorf("%.200s: answers %s, want %d", text, a.Body, status)
			}
		}
	}
	if a := w.ask("p1", "POST", "/v3/p1/volumes", `{"volume":{"size":1}}`); !strings.Contains(a.Body, "--property salvor:portal=") {
		t.Errorf("without a place it says %s", a.Body)
	}
	for _, ok := range []string{"[2001:db8::1]:3260", "2001:db8::1", "store.example.com", "store:3261"} {
		w.json("admin", "POST", "/v3/p1/volumes", at(ok, "iqn.2001-04.com.example:"+fmt.Sprint(len(ok)), "0"), 202)
	}
}

func TestAVolumeInUseStays(t *testing.T) {
	w := newWorld(t)
	const server = "11111111-2222-4333-8444-555555555555"
	id := w.create("p1", 1, "")
	path := "/v3/p1/volumes/" + id
	w.attach(id, server)
	w.json("p1", "DELETE", path, "", 400)
	w.json("p1", "POST", path+"/action", `{"os-force_delete":null}`, 400)
	w.json("p1", "POST", path+"/metadata", `{"metadata":{"salvor:lun":"2"}}`, 409)
	w.json("p1", "POST", path+"/metadata", `{"metadata":{"color":"red"}}`, 200)
	v := w.json("p1", "GET", path, "", 200)["volume"].(object)
	a := v["attachments"].([]any)[0].(object)
	if v["status"] != "in-use" || a["server_id"] != server || a["device"] != "/dev/vdb" || a["id"] != id {
		t.Errorf("%v", v)
	}
	version := []string{"OpenStack-API-Version", "volume 3.27"}
	all := w.json("p1", "GET", "/v3/p1/attachments", "", 200, version...)["attachments"].([]any)
	if len(all) != 1 || all[0].(object)["id"] != a["attachment_id"] || all[0].(object)["instance"] != server {
		t.Errorf("attachments %v", all)
	}
	w.json("p1", "GET", "/v3/p1/attachments/"+a["attachment_id"].(string), "", 200, version...)
	w.json("p1", "GET", "/v3/p1/attachments/x", "", 404, version...)
	w.json("p1", "GET", "/v3/p1/attachments", "", 404)
	w.json("p1", "POST", "/v3/p1/attachments", "{}", 400, version...)
	w.json("p1", "POST", path+"/action", `{"os-detach":{}}`, 400)
	w.json("p1", "POST", path+"/action", `{"os-reset_status":{"status":"available"}}`, 403)
	w.json("admin", "POST", path+"/action", `{"os-reset_status":{"status":"available"}}`, 400)
	w.json("admin", "POST", path+"/action", `{"os-reset_status":{"status":"available","attach_status":"detached"}}`, 202)
	w.json("p1", "DELETE", path, "", 202)
}

func TestActions(t *testing.T) {
	w := newWorld(t)
	id := w.create("p1", 1, "")
	path := "/v3/p1/volumes/" + id
	act := func(body string, want int) object { return w.json("p1", "POST", path+"/action", body, want) }
	act(`{"os-set_bootable":{"bootable":true}}`, 200)
	act(`{"os-set_bootable":{"bootable":"x"}}`, 400)
	act(`{"os-set_image_metadata":{"metadata":{"os_distro":"debian","hw_firmware_type":"uefi"}}}`, 200)
	act(`{"os-unset_image_metadata":{"key":"hw_firmware_type"}}`, 200)
	act(`{"os-unset_image_metadata":{"key":"hw_firmware_type"}}`, 404)
	act(`{"os-extend":{"new_size":3}}`, 400)
	act(`{"os-extend":{"new_size":9}}`, 202)
	act(`{"os-fly":{}}`, 400)
	act(`{}`, 400)
	act(`{"os-extend":{},"os-detach":{}}`, 400)
	w.json("p1", "PUT", path, `{"volume":{"name":"n","description":"d"}}`, 200)
	w.json("p1", "PUT", path+"/metadata", `{"metadata":{"a":"b"}}`, 200)
	w.json("p1", "PUT", path+"/metadata/c", `{"meta":{"a":"b"}}`, 400)
	w.json("p1", "GET", path+"/metadata/a", "", 200)
	w.json("p1", "DELETE", path+"/metadata/c", "", 404)
	v := w.json("p1", "GET", path, "", 200)["volume"].(object)
	if v["bootable"] != "true" || v["size"] != 9.0 || v["name"] != "n" || v["description"] != "d" || fmt.Sprint(v["volume_image_metadata"]) != "map[os_distro:debian]" {
		t.Errorf("%v", v)
	}
	if got := act(`{"os-show_image_metadata":null}`, 200); fmt.Sprint(got) != "map[metadata:map[os_distro:debian]]" {
		t.Errorf("%v", got)
	}
}

func (w *world) names(who, query string) string {
	w.t.Helper()
	var out []string
	for _, v := range w.json(who, "GET", "/v3/"+who+"/volumes/detail"+query, "", 200)["volumes"].([]any) {
		out = append(out, v.(object)["name"].(string))
	}
	return strings.Join(out, " ")
}

func TestListsOfVolumes(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.create("p1", i, fmt.Sprintf(`,"odd":"%d"`, i%2))
	}
	w.create("p2", 9, "")
	for query, want := range map[string]string{
		"": "v3 v2 v1", "?limit=1": "v3", "?name=v2": "v2", "?sort=name:asc&limit=2": "v0 v1", "?status=in-use": "", "?bootable=true": "", "?all_tenants=1": "v3 v2 v1",
		"?metadata=%7B%27odd%27%3A+%271%27%7D": "v3 v1", "?metadata=%7Bu%27odd%27%3A+u%270%27%2C+%22odd%22%3A+%270%27%7D": "v2 v0",
	} {
		if names := w.names("p1", query); names != want {
			t.Errorf("%s: %q, want %q", query, names, want)
		}
	}
	if names := w.names("admin", "?all_tenants=1&limit=2"); names != "v9 v3" {
		t.Errorf("all: %q", names)
	}
	if names := w.names("admin", ""); names != "" {
		t.Errorf("an administrator's own project: %q", names)
	}
	for _, key := range []string{"id", "name", "display_name", "status", "size", "bootable", "created_at", "updated_at"} {
		if names := w.names("p1", "?limit=2&sort_dir=asc&sort_key="+key); len(strings.Fields(names)) != 2 {
			t.Errorf("by %s: %q", key, names)
		}
	}
	for _, query := range []string{"?limit=x", "?marker=1", "?sort=color", "?color=red", "?offset=1", "?bootable=x", "?metadata=x"} {
		w.json("p1", "GET", "/v3/p1/volumes"+query, "", 400)
	}
	var all []string
	for next := w.url + "/volume/v3/p1/volumes?limit=1&sort=name:asc"; next != ""; {
		page := w.json("p1", "GET", strings.TrimPrefix(next, w.url+"/volume"), "", 200)
		for _, v := range page["volumes"].([]any) {
			all = append(all, v.(object)["name"].(string))
		}
		next = ""
		if links, ok := page["volumes_links"].([]any); ok {
			next = links[0].(object)["href"].(string)
		}
	}
	if got := strings.Join(all, " "); got != "v0 v1 v2 v3" {
		t.Errorf("page by page: %s", got)
	}
	counted := w.json("p1", "GET", "/v3/volumes?with_count=true&limit=1", "", 200, "OpenStack-API-Version", "volume 3.45")
	if counted["count"] != 4.0 {
		t.Errorf("count %v", counted["count"])
	}
	if used := w.json("p1", "GET", "/v3/p1/limits", "", 200)["limits"].(object)["absolute"].(object); used["totalVolumesUsed"] != 4.0 || used["totalGigabytesUsed"] != 16.0 {
		t.Errorf("%v", used)
	}
}

func TestProjectsAndVersions(t *testing.T) {
	w := newWorld(t)
	id := w.create("p1", 1, "")
	w.json("p2", "GET", "/v3/p2/volumes/"+id, "", 404)
	w.json("p2", "GET", "/v3/p1/volumes/"+id, "", 400)
	w.json("p1", "GET", "/v3/volumes/"+id, "", 200)
	w.json("admin", "GET", "/v3/p0/volumes/"+id, "", 200)
	w.json("", "GET", "/v3/p1/volumes", "", 401)
	if vs := w.json("nobody's admin", "GET", "/v3/p1/volumes", "", 200)["volumes"].([]any); len(vs) != 1 {
		t.Errorf("the project of the path: %v", vs)
	}
	for who, want := range map[string]int{"token's admin": 0, "nobody's admin": 1} { // without authentication the word in the path is no project
		if vs := w.json(who, "GET", "/v3/p2/volumes", "", 200)["volumes"].([]any); len(vs) != want {
			t.Errorf("%s sees %d volumes of another project in the project p2, want %d", who, len(vs), want)
		}
	}
	for path, status := range map[string]int{
		"": 300, "/v3": 200, "/v3/p1/types": 200, "/v3/p1/types/default": 200, "/v3/p1/types/x": 404, "/v3/p1/os-quota-sets/p1?usage=True": 200, "/v3/p1/os-availability-zone": 200,
		"/v3/p1/snapshots/detail": 200, "/v3/p1/volumes/summary": 200, "/v3/p1/x": 404, "/v2/p1/volumes": 404,
	} {
		w.json("p1", "GET", path, "", status)
	}
	for header, status := range map[string]int{"volume 3.70": 200, "volume 3.0": 200, "volume latest": 200, "compute 2.1": 200, "volume 3.71": 406, "volume 2.0": 406, "volume x": 400} {
		a := w.ask("p1", "GET", "/v3/p1/volumes", "", "OpenStack-API-Version", header)
		if a.Status != status || status == 200 && !strings.HasPrefix(a.Header.Get("OpenStack-API-Version"), "volume 3.") {
			t.Errorf("%s: %d %v, want %d", header, a.Status, a.Header, status)
		}
	}
	if v := w.json("p1", "GET", "/v3/p1/volumes/"+id, "", 200, "OpenStack-API-Version", "volume latest")["volume"].(object); v["volume_type_id"] == nil || v["consumes_quota"] != true {
		t.Errorf("%v", v)
	}
}

// Where storage exports volumes, an administrator makes one that has no place yet, and nobody else does.
func TestVolumesWithoutAPlace(t *testing.T) {
	w := newWorld(t, func(c *volume.Config) { c.Exports = true })
	const path, blank = "/v3/p1/volumes", `{"volume":{"size":1}}`
	w.json("p1", "POST", path, blank, 400)
	w.json("admin", "POST", path, `{"volume":{"size":1,"metadata":{"salvor:portal":"192.0.2.1"}}}`, 400)
	w.json("admin", "POST", path, `{"volume":{"size":1,"metadata":{"salvor:chap_user":"u","salvor:chap_password":"x"}}}`, 400)
	w.json("admin", "POST", path, blank, 202)
	id := w.json("admin", "POST", path, blank, 202)["volume"].(object)["id"].(string)
	w.json("p1", "POST", path+"/"+id+"/metadata", `{"metadata":{"color":"red"}}`, 200)
	w.json("admin", "POST", path+"/"+id+"/metadata", `{"metadata":{`+place(1)+`}}`, 200)
}

// TestTenantsDoNotSeeWhereAVolumeIs: portal, target, LUN and CHAP user are for administrators, by every request that shows metadata.
func TestTenantsDoNotSeeWhereAVolumeIs(t *testing.T) {
	w := newWorld(t)
	id := w.create("p1", 1, `,"salvor:chap_user":"carol","salvor:chap_password":"`+canary+`","color":"red"`)
	one := "/v3/p1/volumes/" + id
	for _, ask := range [][3]string{
		{"GET", one, ""}, {"GET", "/v3/p1/volumes/detail", ""}, {"GET", one + "/metadata", ""}, {"POST", one + "/metadata", `{"metadata":{"a":"b"}}`},
		{"PUT", one + "/metadata", `{"metadata":{"color":"red"}}`}, {"PUT", one, `{"volume":{"name":"v"}}`},
	} {
		for _, who := range []string{"p1", "admin"} {
			a := w.ask(who, ask[0], ask[1], ask[2])
			if a.Status != 200 || !strings.Contains(a.Body, "color") {
				t.Errorf("%s: %s", who, a)
			}
			for _, hidden := range []string{"salvor:", "192.0.2.7", "iqn.2001", "carol"} {
				if who == "p1" && strings.Contains(a.Body, hidden) {
					t.Errorf("%s %s shows %s to a tenant: %s", ask[0], ask[1], hidden, a.Body)
				}
			}
			if who == "admin" && !strings.Contains(a.Body, "carol") {
				t.Errorf("%s %s hides it from an administrator: %s", ask[0], ask[1], a.Body)
			}
		}
	}
	for _, key := range []string{"portal", "iqn", "lun", "chap_user"} {
		if a := w.ask("p1", "GET", one+"/metadata/salvor:"+key, ""); a.Status != 404 {
			t.Errorf("%s alone: %s", key, a)
		}
	}
	// Neither a filter nor a value that equals the stored one tells of it.
	if got := w.names("p1", "?metadata="+url.QueryEscape("{'salvor:chap_user': 'carol'}")); got != "" {
		t.Errorf("found by its login: %s", got)
	}
	for _, user := range []string{"carol", "eve"} {
		if a := w.ask("p1", "POST", one+"/metadata", `{"metadata":{"salvor:chap_user":"`+user+`"}}`); a.Status != 403 {
			t.Errorf("a guess of the login: %s", a)
		}
	}
}
