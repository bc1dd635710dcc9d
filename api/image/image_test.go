package image_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"salvor/api/image"
	"salvor/compute"
	"salvor/fetch"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

const raw = `{"name":"r","disk_format":"raw","container_format":"bare"}`

func TestAnImageComesAndGoes(t *testing.T) {
	w := newWorld(t, nil)
	id := w.create("p1", `{"name":"debian","disk_format":"qcow2","container_format":"bare","min_disk":2,"tags":["a","a","b"],"os_distro":"debian","hw_rescue_bus":"virtio"}`)
	fresh := w.show("p1", id)
	if fresh["status"] != "queued" || fresh["size"] != nil || fresh["owner"] != "p1" || fresh["visibility"] != "shared" || fresh["os_distro"] != "debian" || len(fresh["tags"].([]any)) != 2 {
		t.Fatalf("%v", fresh)
	}
	if a := w.ask("p1", "GET", "/v2/images/"+id+"/file", nil, ""); a.Status != http.StatusNoContent || a.Body != "" {
		t.Errorf("bytes of a queued image: %s", a)
	}
	data := qcow2(nil)
	w.upload("p1", id, data, http.StatusNoContent)
	short, long := md5.Sum(data), sha512.Sum512(data)
	is := w.show("p1", id)
	for key, want := range map[string]any{
		"status": "active", "size": float64(len(data)), "virtual_size": float64(1 << 30), "checksum": hex.EncodeToString(short[:]),
		"os_hash_algo": "sha512", "os_hash_value": hex.EncodeToString(long[:]), "min_disk": 2.0, "hw_rescue_bus": "virtio",
	} {
		if is[key] != want {
			t.Errorf("%s is %v, want %v", key, is[key], want)
		}
	}
	if _, told := is["salvor:upload"]; told {
		t.Error("who brought the bytes is shown")
	}
	a := w.ask("p1", "GET", "/v2/images/"+id+"/file", nil, "")
	if a.Status != 200 || a.Body != string(data) || a.Header.Get("Content-MD5") != is["checksum"] {
		t.Errorf("download: %d, %d bytes, %v", a.Status, len(a.Body), a.Header)
	}
	w.upload("p1", id, data, http.StatusConflict)
	w.json("p1", "DELETE", "/v2/images/"+id, "", http.StatusNoContent)
	w.json("p1", "GET", "/v2/images/"+id, "", http.StatusNotFound)
	if w.blobs() != 0 {
		t.Error("the bytes are still there")
	}
}

func TestARangeOfBytes(t *testing.T) {
	w := newWorld(t, nil)
	id := w.create("p1", raw)
	w.upload("p1", id, []byte("0123456789"), http.StatusNoContent)
	req := must.Get(http.NewRequest("GET", w.url+"/image/v2/images/"+id+"/file", nil))(t)
	req.Header.Set("X-Auth-Token", "p1")
	req.Header.Set("Range", "bytes=3-5")
	resp := must.Get(w.client.Do(req))(t)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusPartialContent || string(b) != "345" {
		t.Errorf("%d %q %v", resp.StatusCode, b, err)
	}
}

func TestDisguisesAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	be := binary.BigEndian
	with := func(at int, v uint64) []byte { return qcow2(func(b []byte) { be.PutUint64(b[at:], v) }) }
	extension := func(kind, length uint32) []byte {
		return qcow2(func(b []byte) { be.PutUint32(b[104:], kind); be.PutUint32(b[108:], length) })
	}
	for _, tt := range []struct {
		name, format string
		data         []byte
		ok           bool
	}{
		{"raw", "raw", []byte("anything"), true},
		{"qcow2", "qcow2", qcow2(nil), true},
		{"qcow2 of version 2", "qcow2", qcow2(func(b []byte) { be.PutUint32(b[4:], 2) }), true},
		{"qcow2 with a harmless extension", "qcow2", extension(0x6803f857, 48), true},
		{"iso", "iso", iso(), true},
		{"kernel", "aki", []byte("MZ..."), true},
		{"qcow2 as raw", "raw", qcow2(nil), false},
		{"qcow2 as kernel", "aki", qcow2(nil), false},
		{"vmdk as raw", "raw", []byte("KDMV...."), false},
		{"text descriptor as raw", "raw", []byte("# Disk DescriptorFile\n"), false},
		{"luks as raw", "raw", []byte("LUKS\xba\xbe\x00\x02"), false},
		{"raw as qcow2", "qcow2", []byte("nothing of the kind"), false},
		{"raw as iso", "iso", make([]byte, 50<<10), false},
		{"a short iso", "iso", []byte("CD001"), false},
		{"a backing file", "qcow2", with(8, 0x1000), false},
		{"an external data file by feature", "qcow2", with(72, 4), false},
		{"an external data file by name", "qcow2", extension(0x44415441, 8), false},
		{"encryption", "qcow2", extension(0x0537be77, 16), false},
		{"corrupt", "qcow2", with(72, 2), false},
		{"an unknown feature", "qcow2", with(72, 1<<40), false},
		{"an extension without end", "qcow2", extension(0x6803f857, 1<<31), false},
		{"no disk", "qcow2", with(24, 0), false},
		{"a disk beyond all", "qcow2", with(24, 1<<63), false},
		{"a cut header", "qcow2", qcow2(nil)[:40], false},
		{"no bytes", "raw", nil, false},
	} {
		id := w.create("p1", fmt.Sprintf(`{"name":%q,"disk_format":%q,"container_format":"bare"}`, tt.name, tt.format))
		want, status := http.StatusNoContent, "active"
		if !tt.ok {
			want, status = http.StatusBadRequest, "queued"
		}
		w.upload("p1", id, tt.data, want)
		if is := w.show("p1", id)["status"]; is != status {
			t.Errorf("%s: the image is %v", tt.name, is)
		}
	}
}

func TestABrokenWireLeavesNoActiveImage(t *testing.T) {
	w := newWorld(t, func(c *image.Config) { c.MaxBytes = 1 << 20 })
	id := w.create("p1", raw)
	u := must.Get(url.Parse(w.url))(t)
	for _, head := range []string{"Content-Length: 100000", "Transfer-Encoding: chunked"} {
		conn := must.Get(net.Dial("tcp", u.Host))(t)
		fmt.Fprintf(conn, "PUT /image/v2/images/%s/file HTTP/1.1\r\nHost: x\r\nX-Auth-Token: p1\r\nContent-Type: application/octet-stream\r\n%s\r\n\r\n5\r\nabcde\r\n", id, head)
		fixture.Poll(w.t, "the upload has begun", func() bool { return w.show("p1", id)["status"] == "saving" })
		w.upload("p1", id, []byte("another"), http.StatusConflict)
		must.OK(t, conn.Close())
		fixture.Poll(w.t, "the image is queued again", func() bool { return w.show("p1", id)["status"] == "queued" })
	}
	w.upload("p1", id, make([]byte, 1<<20+1), http.StatusRequestEntityTooLarge)
	a := w.ask("p1", "PUT", "/v2/images/"+id+"/file", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), strings.NewReader("x")), "application/octet-stream")
	if a.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("too long without a length: %s", a)
	}
	if is := w.show("p1", id); is["status"] != "queued" || w.blobs() != 0 {
		t.Errorf("%v, %d blobs", is, w.blobs())
	}
	w.upload("p1", id, make([]byte, 1<<20), http.StatusNoContent)
}

// TestAnUploadWhoseProcessDiedIsTakenForBroken: nobody says any longer that it lives.
func TestAnUploadWhoseProcessDiedIsTakenForBroken(t *testing.T) {
	w := newWorld(t, nil)
	id := w.create("p1", raw)
	must.Get(w.images.Update(t.Context(), id, record.Asker{}, func(i *compute.Image) error {
		i.Status, i.Properties = compute.ImageSaving, map[string]string{"salvor:upload": "of a process that is gone"}
		return nil
	}))(t)
	w.upload("p1", id, []byte("x"), http.StatusConflict)
	w.skip(3 * time.Minute)
	if is := w.show("p1", id)["status"]; is != "queued" {
		t.Errorf("it is %v", is)
	}
	if names := w.names("p1", "?status=queued"); names != "r" {
		t.Errorf("queued ones: %q", names)
	}
	w.upload("p1", id, []byte("x"), http.StatusNoContent)
}

func TestTwoImagesMayShareTheirBytes(t *testing.T) {
	w := newWorld(t, nil)
	a, b := w.create("p1", raw), w.create("p2", raw)
	w.upload("p1", a, []byte("same"), http.StatusNoContent)
	w.upload("p2", b, []byte("same"), http.StatusNoContent)
	w.json("p1", "DELETE", "/v2/images/"+a, "", http.StatusNoContent)
	if a := w.ask("p2", "GET", "/v2/images/"+b+"/file", nil, ""); a.Status != 200 || a.Body != "same" {
		t.Error(a)
	}
	w.json("p2", "DELETE", "/v2/images/"+b, "", http.StatusNoContent)
	if w.blobs() != 0 {
		t.Error("bytes that nobody has are kept")
	}
}

func TestPatches(t *testing.T) {
	w := newWorld(t, nil)
	id := w.create("p1", `{"name":"n","disk_format":"raw","container_format":"bare","a/b~c":"1"}`)
	path := "/v2/images/" + id
	is := w.json("p1", "PATCH", path, `[{"op":"replace","path":"/name","value":"m"},{"op":"add","path":"/os_type","value":"linux"},
		{"op":"replace","path":"/tags","value":["x"]},{"op":"replace","path":"/a~1b~0c","value":"2"},{"op":"add","path":"/os_hidden","value":true},{"op":"replace","path":"/min_ram","value":64}]`, 200)
	if is["name"] != "m" || is["os_type"] != "linux" || is["a/b~c"] != "2" || is["os_hidden"] != true || is["min_ram"] != 64.0 || is["tags"].([]any)[0] != "x" {
		t.Errorf("%v", is)
	}
	is = w.json("p1", "PATCH", path, `[{"op":"add","path":"/tags/0","value":"w"},{"op":"add","path":"/tags/-","value":"z"},{"op":"replace","path":"/tags/2","value":"y"},{"op":"remove","path":"/tags/2"},{"op":"remove","path":"/tags/0"}]`, 200)
	if fmt.Sprint(is["tags"]) != "[x]" {
		t.Errorf("tags by place: %v", is["tags"])
	}
	is = w.json("p1", "PATCH", path, `[{"op":"remove","path":"/os_type"},{"op":"replace","path":"/os_hidden","value":false}]`, 200)
	if _, there := is["os_type"]; there || is["os_hidden"] != false {
		t.Errorf("%v", is)
	}
	for body, status := range map[string]int{
		`{}`: 400, `[7]`: 400, `[{"op":"move","path":"/name"}]`: 400, `[{"op":"add","path":"name","value":"x"}]`: 400, `[{"op":"add","path":"/a/b","value":"x"}]`: 400,
		`[{"op":"add","path":"/a~2","value":"x"}]`: 400, `[{"op":"replace","path":"/nothing","value":"x"}]`: 409, `[{"op":"remove","path":"/nothing"}]`: 409,
		`[{"op":"replace","path":"/status","value":"active"}]`: 403, `[{"op":"replace","path":"/checksum","value":"x"}]`: 403, `[{"op":"replace","path":"/id","value":"x"}]`: 403,
		`[{"op":"replace","path":"/visibility","value":"public"}]`: 403, `[{"op":"replace","path":"/owner","value":"p2"}]`: 403, `[{"op":"replace","path":"/visibility","value":"open"}]`: 400,
		`[{"op":"replace","path":"/disk_format","value":"vmdk"}]`: 400, `[{"op":"replace","path":"/min_disk","value":-1}]`: 400, `[{"op":"replace","path":"/min_disk","value":1.5}]`: 400,
		`[{"op":"add","path":"/x","value":{"a":1}}]`: 400, `[{"op":"add","path":"/tags","value":"x"}]`: 400, `[{"op":"add","path":"/salvor:upload","value":"x"}]`: 403,
		`[{"op":"remove","path":"/tags/5"}]`: 400, `[{"op":"add","path":"/tags/x","value":"x"}]`: 400, `[{"op":"replace","path":"/tags/1","value":"x"}]`: 400, `[{"op":"add","path":"/tags/0","value":7}]`: 400,
		`[{"op":"add","path":"/locations","value":[]}]`: 403, `[{"op":"remove","path":"/visibility"}]`: 403, `[{"op":"replace","path":"/protected","value":"yes"}]`: 400,
	} {
		w.json("p1", "PATCH", path, body, status)
	}
	if a := w.ask("p1", "PATCH", path, "[]", "application/json"); a.Status != 415 || a.Header.Get("Accept-Patch") == "" {
		t.Errorf("another form of patch: %d", a.Status)
	}
	w.json("p1", "PUT", path+"/tags/y", "", 204)
	w.json("p1", "DELETE", path+"/tags/x", "", 204)
	w.json("p1", "DELETE", path+"/tags/x", "", 404)
	w.json("p1", "PATCH", path, `[{"op":"replace","path":"/protected","value":true}]`, 200)
	w.json("p1", "DELETE", path, "", 403)
	w.upload("p1", id, []byte("x"), 204)
	w.json("p1", "PATCH", path, `[{"op":"replace","path":"/disk_format","value":"iso"}]`, 403)
	w.json("p1", "POST", path+"/actions/deactivate", "", 403)
	w.json("admin", "POST", path+"/actions/deactivate", "", 204)
	if a := w.ask("p1", "GET", path+"/file", nil, ""); a.Status != 403 {
		t.Errorf("bytes of a deactivated image: %d", a.Status)
	}
	w.json("admin", "POST", path+"/actions/reactivate", "", 204)
}

func TestWhoSeesWhat(t *testing.T) {
	w := newWorld(t, nil)
	private := w.create("p1", `{"name":"mine","visibility":"private"}`)
	public := w.create("admin", `{"name":"all","visibility":"public"}`)
	w.json("p1", "POST", "/v2/images", `{"name":"x","visibility":"public"}`, 403)
	w.json("p1 reader", "POST", "/v2/images", `{"name":"x"}`, 403)
	w.json("", "GET", "/v2/images", "", 401)
	w.json("p2", "GET", "/v2/images/"+private, "", 404)
	w.json("p2", "DELETE", "/v2/images/"+public, "", 403)
	w.json("p2", "DELETE", "/v2/images/"+private, "", 404)
	w.json("p1 reader", "GET", "/v2/images/"+private, "", 200)
	for requester, want := range map[string]string{"p1": "all mine", "p2": "all", "admin": "all mine"} {
		if names := w.names(requester, ""); names != want {
			t.Errorf("%s sees %q, want %q", requester, names, want)
		}
	}
}

func TestLists(t *testing.T) {
	w := newWorld(t, func(c *image.Config) { c.MaxLimit = 3 })
	for i := range 5 {
		w.create("p1", fmt.Sprintf(`{"name":"i%d","os_distro":"d%d","tags":["t%d"],"os_hidden":%v}`, i, i%2, i, i == 4))
	}
	for query, want := range map[string]string{
		"": "i3 i2 i1", "?sort=name:asc": "i0 i1 i2", "?sort_key=name&sort_dir=asc&limit=2": "i0 i1", "?name=i2": "i2", "?os_distro=d1": "i3 i1", "?tag=t0": "i0",
		"?os_hidden=true": "i4", "?name=in:i1,i2": "i2 i1", "?status=queued&limit=1": "i3", "?status=active": "", "?name=none": "", "?limit=0": "",
		"?created_at=lt:2020-01-01T00:00:00Z": "", "?protected=false&limit=1": "i3", "?size_min=1": "",
	} {
		if names := w.names("p1", query); names != want {
			t.Errorf("%s: %q, want %q", query, names, want)
		}
	}
	for _, query := range []string{"?limit=x", "?limit=-1", "?marker=7", "?sort=color", "?sort_dir=up", "?created_at=yesterday", "?os_hidden=perhaps", "?%zz"} {
		w.json("p1", "GET", "/v2/images"+query, "", 400)
	}
	w.json("p1", "GET", "/v2/images?marker=00000000-0000-4000-8000-000000000000", "", 404)
	var all []string
	for next := "/v2/images?limit=1&sort=name:asc"; next != ""; {
		page := w.json("p1", "GET", next, "", 200)
		for _, i := range page["images"].([]any) {
			all = append(all, i.(object)["name"].(string))
		}
		next, _ = page["next"].(string)
	}
	if got := strings.Join(all, " "); got != "i0 i1 i2 i3" {
		t.Errorf("page by page: %s", got)
	}
}

func TestSortKeysAndSieves(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 205 {
		img := &compute.Image{Name: fmt.Sprint(i), Owner: "p1", Visibility: "private", Properties: map[string]string{"third": fmt.Sprint(i%100 == 3)}}
		must.OK(t, w.images.Create(t.Context(), img, record.Asker{}))
	}
	for _, key := range []string{"id", "name", "status", "size", "disk_format", "container_format", "created_at", "updated_at", "visibility", "owner"} {
		if names := w.names("p1", "?limit=2&sort="+key+":asc"); len(strings.Fields(names)) != 2 {
			t.Errorf("by %s: %q", key, names)
		}
	}
	page := w.json("p1", "GET", "/v2/images?third=true&limit=2&sort=created_at:asc", "", 200)
	next, _ := page["next"].(string)
	if got := w.names("p1", strings.TrimPrefix(next, "/v2/images")); len(page["images"].([]any)) != 2 || got != "203" {
		t.Errorf("the rest of a sieved list: %q after %s", got, next)
	}
}

func TestBadCreations(t *testing.T) {
	w := newWorld(t, nil)
	for body, status := range map[string]int{
		`[]`: 400, ``: 400, `{"name":7}`: 400, `{"id":"x"}`: 400, `{"status":"active"}`: 403, `{"disk_format":"vmdk"}`: 400, `{"container_format":"ova"}`: 400,
		`{"visibility":null}`: 400, `{"min_ram":"1"}`: 400, `{"x":[]}`: 400, `{"":"x"}`: 400, `{"locations":[]}`: 403, `{"owner":"p2"}`: 403,
		`{"name":"` + strings.Repeat("n", 256) + `"}`: 400,
	} {
		w.json("p1", "POST", "/v2/images", body, status)
	}
	id := w.create("p1", `{"name":"n"}`)
	w.json("p1", "POST", "/v2/images", `{"id":"`+id+`"}`, 409)
	w.upload("p1", id, []byte("x"), 400) // without formats
	if a := w.ask("p1", "PUT", "/v2/images/"+id+"/file", "x", "text/plain"); a.Status != 415 {
		t.Errorf("another content type: %d", a.Status)
	}
	for path, status := range map[string]int{"/v2/schemas/image": 200, "/v2/schemas/images": 200, "/v2/schemas/x": 404, "/v2/info/import": 200, "/v2/images/" + id + "/members": 200, "/v2/nothing": 404, "": 300, "/versions": 200} {
		w.json("p1", "GET", path, "", status)
	}
}

func TestImports(t *testing.T) {
	var answer http.HandlerFunc
	from := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { answer(rw, r) }))
	defer from.Close()
	w := newWorld(t, func(c *image.Config) { c.ImportHosts, c.Web = []string{"127.0.0.1"}, fetch.Client(fetch.Loopback) })
	run := func(name string, h http.HandlerFunc, want string) object {
		t.Helper()
		answer = h
		id := w.create("p1", raw)
		w.json("p1", "POST", "/v2/images/"+id+"/import", `{"method":{"name":"web-download","uri":"`+from.URL+`/secret-path"}}`, 202)
		var is object
		fixture.Poll(w.t, name, func() bool {
			is = w.show("p1", id)
			return is["status"] == "active" || is["salvor:import_problem"] != nil
		})
		if is["status"] != want || strings.Contains(fmt.Sprint(is), "secret-path") {
			t.Errorf("%s: %v", name, is)
		}
		return is
	}
	if is := run("whole", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "0123456789") }, "active"); is["size"] != 10.0 {
		t.Errorf("%v", is)
	}
	run("not there", http.NotFound, "queued")
	run("cut off", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "100")
		fmt.Fprint(rw, "short")
	}, "queued")
	run("elsewhere", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://192.0.2.1/", http.StatusFound)
	}, "queued")
	run("disguised", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(qcow2(nil)) }, "queued")

	id := w.create("p1", raw)
	for body, status := range map[string]int{
		`{"method":{"name":"glance-direct"}}`: 400, `{}`: 400, `{"method":{"name":"web-download","uri":"file:///etc/passwd"}}`: 400,
		`{"method":{"name":"web-download","uri":"http://u:p@127.0.0.1/"}}`: 400, `{"method":{"name":"web-download","uri":"http://192.0.2.1/x"}}`: 403,
	} {
		w.json("p1", "POST", "/v2/images/"+id+"/import", body, status)
	}
	closed := newWorld(t, nil)
	id = closed.create("p1", raw)
	closed.json("p1", "POST", "/v2/images/"+id+"/import", `{"method":{"name":"web-download","uri":"`+from.URL+`"}}`, 403)
}

// TestAnImageDeletedWhileItComesLeavesNothing: the upload says that it is gone.
func TestAnImageDeletedWhileItComesLeavesNothing(t *testing.T) {
	w := newWorld(t, nil)
	id := w.create("p1", raw)
	r, pipe := io.Pipe()
	done := make(chan int)
	go func() {
		done <- w.ask("p1", "PUT", "/v2/images/"+id+"/file", r, "application/octet-stream").Status
	}()
	must.Get(pipe.Write([]byte("some")))(t)
	fixture.Poll(w.t, "the upload has begun", func() bool { return w.show("p1", id)["status"] == "saving" })
	w.json("p1", "DELETE", "/v2/images/"+id, "", 204)
	must.OK(t, pipe.Close())
	if status := <-done; status != http.StatusGone || w.blobs() != 0 {
		t.Errorf("%d, %d blobs", status, w.blobs())
	}
}

func TestBytesThatOthersHoldStay(t *testing.T) {
	var asked string
	w := newWorld(t, func(c *image.Config) {
		c.Held = func(_ context.Context, digest string) (bool, error) { asked = digest; return true, nil }
	})
	id := w.create("p1", raw)
	w.upload("p1", id, []byte("a kernel"), http.StatusNoContent)
	w.json("p1", "DELETE", "/v2/images/"+id, "", http.StatusNoContent)
	if w.blobs() != 1 || !strings.HasPrefix(asked, "sha256:") {
		t.Errorf("%d blobs; asked about %q", w.blobs(), asked)
	}
}

// TestASlowUploadIsNotCutOff: what bounds requests bounds a piece of the bytes, not all of them.
func TestASlowUploadIsNotCutOff(t *testing.T) {
	w := newWorld(t, nil)
	slow := httptest.NewUnstartedServer(w.handler)
	slow.Config.ReadTimeout, slow.Config.WriteTimeout = time.Second, time.Second
	slow.Start()
	defer slow.Close()
	id := w.create("p1", raw)
	quick := w.url
	w.url = slow.URL
	r, pipe := io.Pipe()
	go func() {
		for range 6 {
			time.Sleep(300 * time.Millisecond)
			if _, err := pipe.Write([]byte("piece ")); err != nil {
				return
			}
		}
		_ = pipe.Close()
	}()
	w.ask("p1", "PUT", "/v2/images/"+id+"/file", r, "application/octet-stream").Want(t, http.StatusNoContent)
	w.url = quick
	if is := w.show("p1", id); is["size"] != 36.0 {
		t.Errorf("%v", is)
	}
}
