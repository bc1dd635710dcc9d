package advisory

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"salvor/agent/image"
	"salvor/boot/media"
	"salvor/driver/agent"
	"salvor/metal"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// disk is one in memory that was dirty.
type disk struct{ b []byte }

func newDisk() *disk { return &disk{bytes.Repeat([]byte{0xdb}, 4<<20)} }

func (d *disk) ReadAt(p []byte, off int64) (int, error)  { return copy(p, d.b[off:]), nil }
func (d *disk) WriteAt(p []byte, off int64) (int, error) { return copy(d.b[off:], p), nil }
func (d *disk) Size() int64                              { return int64(len(d.b)) }
func (d *disk) Sync() error                              { return nil }
func (d *disk) Zero(off, n int64) error                  { clear(d.b[off : off+n]); return nil }

// qcow2 is the header of an image, edited, with some room behind.
func qcow2(edit func(b []byte)) []byte {
	b := make([]byte, 256<<10)
	be := binary.BigEndian
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], 16)       // clusters of 64 KiB
	be.PutUint64(b[24:], 1<<20)    // virtual size
	be.PutUint32(b[36:], 1)        // entries of L1
	be.PutUint64(b[40:], 1<<16)    // L1
	be.PutUint64(b[48:], 2<<16)    // reference counts
	be.PutUint32(b[56:], 1)        // their clusters
	be.PutUint32(b[96:], 4)        // their width
	be.PutUint32(b[100:], 104)     // header
	be.PutUint64(b[104:], 0)       // end of the extensions
	copy(b[200:], "/etc/shadow")   // a name to point to
	copy(b[240:], "json:{\"x\":1") // qemu would follow this one
	if edit != nil {
		edit(b)
	}
	return b
}

// disguises are images that reach outside of themselves, or are not what they are said to be.
func disguises() map[string][]byte {
	be := binary.BigEndian
	pad := func(s string) []byte { return append([]byte(s), make([]byte, 128<<10)...) }
	return map[string][]byte{
		"qcow2 with a backing file":  qcow2(func(b []byte) { be.PutUint64(b[8:], 200); be.PutUint32(b[16:], 11) }),
		"qcow2 backed by json":       qcow2(func(b []byte) { be.PutUint64(b[8:], 240); be.PutUint32(b[16:], 11) }),
		"qcow2 with a data file":     qcow2(func(b []byte) { be.PutUint64(b[72:], 1<<2) }),
		"qcow2 naming a data file":   qcow2(func(b []byte) { be.PutUint32(b[104:], 0x44415441); be.PutUint32(b[108:], 8) }),
		"qcow2 of the unknown":       qcow2(func(b []byte) { be.PutUint64(b[72:], 1<<40) }),
		"qcow2 larger than the disk": qcow2(func(b []byte) { be.PutUint64(b[24:], 1<<50) }),
		"encrypted qcow2":            qcow2(func(b []byte) { be.PutUint32(b[32:], 2) }),
		"vmdk":                       pad("KDMV"),
		"vmdk descriptor":            pad("# Disk DescriptorFile\nversion=1\nRW 1 FLAT \"/etc/shadow\" 0\n"),
		"vhdx":                       pad("vhdxfile"),
		"qed":                        pad("QED\x00"),
		"vdi":                        append(append(make([]byte, 0x40), 0x7f, 0x10, 0xda, 0xbe), make([]byte, 128<<10)...),
		"luks":                       pad("LUKS\xba\xbe"),
	}
}

// TestCVE_2024_44082_ImagesAreWhatTheySay: a prepared image had qemu-img read files of the
// conductor or the ramdisk. No program of others opens an image here, its format is read
// from its bytes, and what points outside of them is refused, whatever it is declared to be.
func TestCVE_2024_44082_ImagesAreWhatTheySay(t *testing.T) {
	w := newWorld(t, "")
	for name, content := range disguises() {
		sum := sha256.Sum256(content)
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(content))
		}))
		for _, format := range []string{"", "raw", "qcow2", "iso", "gpt", "vmdk"} {
			to := newDisk()
			writer := image.Writer{HTTP: image.Client(nil), Memory: 1 << 20, Log: slog.New(slog.DiscardHandler), Idle: 5 * time.Second, Pause: time.Millisecond}
			err := writer.Write(t.Context(), wire.Image{ID: "i", URLs: []string{server.URL}, DiskFormat: format, HashAlgo: "sha256", HashValue: hex.EncodeToString(sum[:])}, to)
			if err == nil {
				t.Errorf("%s declared %q is written to a disk", name, format)
			}
			if bytes.Contains(to.b, []byte("root:")) {
				t.Errorf("%s: a file of this machine is on the disk", name)
			}
		}
		server.Close()
		for _, format := range []string{"raw", "qcow2", "iso"} { // the image service takes it no more than the agent
			made := w.want(201, "POST", "/image/v2/images", object{"name": name, "disk_format": format, "container_format": "bare"})
			id, _ := made.Object(t)["id"].(string)
			if status := w.upload(id, content); status < 400 || status >= 500 {
				t.Errorf("%s uploaded as %s: %d", name, format, status)
			}
		}
	}
}

func (w *world) upload(id string, content []byte) int {
	w.Helper()
	r := must.Get(http.NewRequestWithContext(w.Context(), http.MethodPut, w.server.URL+"/image/v2/images/"+id+"/file", bytes.NewReader(content)))(w)
	r.Header.Set("Content-Type", "application/octet-stream")
	got := must.Get(http.DefaultClient.Do(r))(w)
	got.Body.Close()
	return got.StatusCode
}

// TestCVE_2024_47211_NothingIsWrittenUnproved: an image without a checksum, or with another
// one, was deployed. What is said to be its checksum may not be a file of the machine.
func TestCVE_2024_47211_NothingIsWrittenUnproved(t *testing.T) {
	content := bytes.Repeat([]byte("system "), 1000)
	sum := sha256.Sum256(content)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(content) }))
	defer server.Close()
	writer := image.Writer{HTTP: image.Client(nil), Memory: 1 << 20, Log: slog.New(slog.DiscardHandler), Idle: 5 * time.Second, Pause: time.Millisecond}
	for _, info := range []wire.Image{
		{}, {Checksum: "0"}, {Checksum: "d41d8cd98f00b204e9800998ecf8427e"}, {HashAlgo: "sha256"}, {HashValue: strings.Repeat("0a", 32)}, {HashAlgo: "md5", HashValue: "d41d8cd98f00b204e9800998ecf8427e"},
		{Checksum: "file:///dev/zero"}, {HashAlgo: "sha256", HashValue: "file:///etc/passwd"}, {HashAlgo: "sha256", HashValue: strings.Repeat("0a", 32)},
	} {
		info.ID, info.URLs = "i", []string{server.URL}
		to := newDisk()
		if err := writer.Write(t.Context(), info, to); err == nil {
			t.Errorf("%+v is written", info)
		}
		if bytes.Contains(to.b[:1<<20], []byte("system")) {
			t.Errorf("%+v: the start of the disk holds it", info)
		}
	}
	if err := writer.Write(t.Context(), wire.Image{ID: "i", URLs: []string{server.URL}, HashAlgo: "sha256", HashValue: hex.EncodeToString(sum[:])}, newDisk()); err != nil {
		t.Errorf("the right one: %v", err)
	}
}

// TestCVE_2026_42997_CredentialsStayWithTheirServer (OSSA-2026-010): a URL in a node's
// record was sent the service's token. No request here carries a credential that its own
// record does not name, and a redirect to another server carries none.
func TestCVE_2026_42997_CredentialsStayWithTheirServer(t *testing.T) {
	content := bytes.Repeat([]byte("system "), 1000)
	sum := sha256.Sum256(content)
	var told []string
	other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			told = append(told, name+": "+strings.Join(values, " "))
		}
		_, _ = rw.Write(content)
	}))
	defer other.Close()
	home := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "canary" {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(rw, r, other.URL+"/elsewhere", http.StatusFound)
	}))
	defer home.Close()
	writer := image.Writer{HTTP: image.Client(nil), Memory: 1 << 20, Log: slog.New(slog.DiscardHandler), Idle: 5 * time.Second, Pause: time.Millisecond}
	order := wire.Image{ID: "i", URLs: []string{home.URL + "/x?signature=canary"}, HashAlgo: "sha256", HashValue: hex.EncodeToString(sum[:]), AuthStrategy: "http_basic", User: "u", Password: "canary"}
	must.OK(t, writer.Write(t.Context(), order, newDisk()))
	plain, encoded := "canary", base64.StdEncoding.EncodeToString([]byte("u:canary"))
	for _, line := range told {
		if strings.Contains(line, plain) || strings.Contains(line, encoded) || strings.HasPrefix(line, "Authorization") || strings.HasPrefix(line, "Referer") {
			t.Errorf("the other server was told %q", line)
		}
	}
	if len(told) == 0 {
		t.Error("the redirect was not followed")
	}
}

// TestCVE_2026_48681_PathsInImages: names with .. in a config drive or a deploy ISO wrote
// outside of the folder that it was made in.
func TestCVE_2026_48681_PathsInImages(t *testing.T) {
	for _, name := range []string{"../evil", "a/../../evil", "/etc/evil", "..", ".", "", "a//b", "a\x00b", `..\evil`, strings.Repeat("a", 300)} {
		if _, err := media.DataISO("config-2", []media.File{{Path: name, Data: io.NewSectionReader(strings.NewReader("x"), 0, 1)}}); err == nil && strings.Contains(name, "..") {
			t.Errorf("%q is a name in an image", name)
		}
	}
	// A drive that is given as an object has the names of the specification, whatever else it holds.
	drive, err := json.Marshal(object{"meta_data": object{"../../evil": "x"}, "../../../../tmp/evil": "x", "user_data": "../evil", "files": object{"../evil": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	n := &metal.Node{ID: owned, InstanceInfo: metal.Object{"image_source": "http://images.example/i", "image_checksum": strings.Repeat("0a", 32)}}
	got, err := (agent.Direct{Formats: []string{"raw"}}).Prepare(n, drive)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"/tmp/evil", "/dev/shm/evil"} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s was written", left)
		}
	}
	if got.ConfigDrive == "" {
		t.Error("there is no drive")
	}
}
