package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/debian"
	"salvor/test/must"
	wire "salvor/wire/host"
)

func wireOrder(order, hidden []byte) wire.Order { return wire.Order{Order: order, Secret: hidden} }

// joined is an agent with a certificate and no loops.
func joined(t *testing.T, w *world, c Config) *Agent {
	t.Helper()
	a := must.Get(Open(c))(t)
	t.Cleanup(func() { _ = a.Close() })
	must.OK(t, a.join(t.Context()))
	return a
}

func (a *Agent) must(t *testing.T, verb compute.Verb, id string, args compute.Args, s compute.OrderSecret) compute.Result {
	t.Helper()
	r, err := a.do(t.Context(), orderTask{order: &compute.Order{ID: uuid.NewString(), ServerID: id, Epoch: 1, Verb: verb, Args: mustEncodeJSON(args)}, secret: s})
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return r
}

// TestRescueRoads: every kind of location ends as files beside the guest or where they lie, and a release removes all of them.
func TestRescueRoads(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	a := joined(t, w, c)
	put(t, filepath.Join(c.RescueDir, "live", "a.iso"), []byte("an iso"))
	kernel, ramdisk, disk := w.images.add([]byte("kernel")), w.images.add([]byte("ramdisk")), w.images.add([]byte("disk"))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "web") }))
	defer web.Close()
	webDigest := "sha256:71cf6cfa44d2ec0041b8a5ee6e05f9a34c1a4b0b8d0c6ba0ffb9d4b1a4e4d0b0"
	for _, r := range []struct {
		name           string
		rescue         compute.SpecRescue
		image, ramdisk string
		kind           problem.Kind
	}{
		{"built in", compute.SpecRescue{Source: rescue.Source{Kind: rescue.Kernel, Access: rescue.ByChannel, Digest: kernel, RamdiskDigest: ramdisk},
			Image: &compute.SpecImage{Digest: kernel, Format: "aki"}, RamdiskImage: &compute.SpecImage{Digest: ramdisk, Format: "ari"}}, "kernel", "ramdisk", 0},
		{"file", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "file", Location: "live/a.iso"}}, "an iso", "", 0},
		{"file with another digest", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "file", Location: "live/a.iso", Digest: kernel}}, "", "", problem.Invalid},
		{"file that is not here, known by digest", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "file", Location: "b.iso", Digest: disk},
			Image: &compute.SpecImage{Digest: disk, Format: "iso"}}, "disk", "", 0},
		{"file that is not here", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "file", Location: "b.iso"}}, "", "", problem.NotFound},
		{"disk by digest", compute.SpecRescue{Source: rescue.Source{Kind: rescue.Disk, ImageUUID: "u"}, Image: &compute.SpecImage{Digest: disk, Format: "raw"}}, "disk", "", 0},
		{"web", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "http", Location: web.URL + "/x.iso"}}, "web", "", 0},
		{"web with another digest", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "http", Location: web.URL + "/x.iso", Digest: webDigest}}, "", "", problem.Invalid},
		{"upwards", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "file", Location: "../s/host.key"}}, "", "", problem.Invalid},
		{"absolute", compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: "file", Location: "/etc/shadow"}}, "", "", problem.Invalid},
	} {
		t.Run(r.name, func(t *testing.T) {
			id := uuid.NewString()
			spec := specFor(id)
			spec.Rescue = &r.rescue
			o := &compute.Order{ID: uuid.NewString(), ServerID: id, Epoch: 1, Verb: compute.Prepare, Args: mustEncodeJSON(compute.Args{Spec: spec})}
			_, err := a.do(t.Context(), orderTask{order: o})
			if r.kind != 0 {
				if !problem.Is(err, r.kind) {
					t.Fatalf("%v, want %s", err, r.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			drive := compute.OrderSecret{RescueDrive: map[string][]byte{"openstack/latest/user_data": []byte("#cloud-config")}}
			a.must(t, compute.Prepare, id, compute.Args{Spec: spec}, drive)
			a.must(t, compute.Define, id, compute.Args{Spec: spec}, drive)
			d := g.domains[id]
			if got := string(mustRead(t, d.RescueImage)); got != r.image {
				t.Errorf("image %q", got)
			}
			if r.ramdisk != "" && string(mustRead(t, d.RescueRamdisk)) != r.ramdisk {
				t.Errorf("ramdisk at %q", d.RescueRamdisk)
			}
			if !bytes.Contains(mustRead(t, d.RescueDrivePath), []byte("#cloud-config")) {
				t.Error("no config drive")
			}
			for range 2 {
				a.must(t, compute.Release, id, compute.Args{}, compute.OrderSecret{})
			}
			left, err := os.ReadDir(filepath.Join(c.StateDir, "servers", id))
			if err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
	// A link out of the directory is no way out.
	must.OK(t, os.Symlink("/etc", filepath.Join(c.RescueDir, "out")))
	work := &orderExecution{Agent: a, order: &compute.Order{}}
	if path, err := work.rescuePath(t.Context(), &rescueFile{location: "out/passwd"}); err == nil {
		t.Errorf("out by a link: %s", path)
	}
	// What members read of a failure names the host, and nowhere where it keeps its files.
	told := func(p *rescueFile) {
		t.Helper()
		if _, err := work.rescuePath(t.Context(), p); err == nil || !strings.Contains(err.Error(), c.Name) || strings.Contains(err.Error(), filepath.Dir(c.RescueDir)) {
			t.Errorf("%s: %v", p.location, err)
		}
	}
	for _, location := range []string{"gone.iso", "live", "out/passwd", "../x"} {
		told(&rescueFile{location: location})
	}
	told(&rescueFile{location: "live/a.iso", digest: "sha256:" + strings.Repeat("0", 64)})
	a.RescueDir = filepath.Join(c.RescueDir, "gone")
	told(&rescueFile{location: "live/a.iso"})
}

// TestARescueBeginsClean: a new session has nothing of the former one, a repetition of its own all.
func TestARescueBeginsClean(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a := joined(t, w, w.config(g))
	id := uuid.NewString()
	spec := specFor(id)
	digest := w.images.add([]byte("disk"))
	spec.Rescue = &compute.SpecRescue{Source: rescue.Source{Kind: rescue.Disk, ImageUUID: "u"}, Session: "1", Image: &compute.SpecImage{Digest: digest, Format: "raw"}}
	prepare := func(s compute.OrderSecret) hypervisor.Domain {
		a.must(t, compute.Prepare, id, compute.Args{Spec: spec}, s)
		a.must(t, compute.Define, id, compute.Args{Spec: spec}, s)
		return g.domains[id]
	}
	d := prepare(compute.OrderSecret{RescueDrive: map[string][]byte{"user_data": []byte("old password")}})
	put(t, d.RescueImage, []byte("used"))
	if d = prepare(compute.OrderSecret{}); d.RescueDrivePath == "" || string(mustRead(t, d.RescueImage)) != "used" {
		t.Error("a repetition lost what the session had")
	}
	spec.Rescue.Session = "2"
	if d = prepare(compute.OrderSecret{}); d.RescueDrivePath != "" || string(mustRead(t, d.RescueImage)) != "disk" {
		t.Errorf("a new session has the former one's: drive %q, disk %q", d.RescueDrivePath, mustRead(t, d.RescueImage))
	}
}

// TestRemovedDiskLeavesNothing, be it whole or not.
func TestRemovedDiskLeavesNothing(t *testing.T) {
	w := newWorld(t)
	a := joined(t, w, w.config(newGuests()))
	id := uuid.NewString()
	for _, ends := range [][]string{{"", ".json"}, {".part"}, {".part", ".json"}, {".json.new"}, {".json"}, {".next", ".next.json"}, {".next.part"}} {
		d := compute.SpecDisk{Name: "vda", File: id + "-vda"}
		path := must.Get(a.stores.place(id, d))(t)
		for _, end := range ends {
			put(t, path+end, mustEncodeJSON(diskProof{Server: id, Disk: "vda"}))
		}
		if err := a.stores.erase(t.Context(), id, d); err != nil {
			t.Errorf("%q: %v", ends, err)
		}
		if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 0 {
			t.Errorf("%q: left %q, %v", ends, left, err)
		}
	}
	another := compute.SpecDisk{Name: "vda", File: "another"}
	path, _ := a.stores.place(id, another)
	put(t, path, nil)
	put(t, path+".json", mustEncodeJSON(diskProof{Server: "other", Disk: "vda"}))
	if err := a.stores.erase(t.Context(), id, another); !problem.Is(err, problem.Conflict) || !fileIsThere(path) {
		t.Errorf("another server's disk: %v", err)
	}
}

// TestUnlock: the guest comes up late, makes noise, and answers; the credential reaches it and no disk.
func TestUnlock(t *testing.T) {
	w, g := newWorld(t), newGuests()
	dir, err := os.MkdirTemp("/tmp", "host") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := w.config(g)
	c.StateDir = dir
	a := joined(t, w, c)
	id := uuid.NewString()
	must.OK(t, a.identity.makeDir("servers", id))
	heard := make(chan map[string]any, 1)
	go func() {
		l, err := net.Listen("unix", a.identity.path("servers", id, channelFile))
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		first, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(first, "{\"version\":1,\"error\":\"the line is no JSON\",\"retry\":true}\n") // half a line came before ours
		_, _ = bufio.NewReader(first).ReadBytes(0)                                              // until the host hangs up
		first.Close()
		second, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer second.Close()
		line, _ := bufio.NewReader(second).ReadBytes('\n')
		var got map[string]any
		_ = json.Unmarshal(line, &got)
		heard <- got
		fmt.Fprint(second, "noise\n{\"version\":1,\"fingerprint\":\"SHA256:abc\",\"host_key\":\"ssh-ed25519 AAAA\",\"agent\":\"salvor-agent/0.1.0\"}\n")
	}()
	r := a.must(t, compute.Unlock, id, compute.Args{}, compute.OrderSecret{Hash: "$6$hunter2", Keys: []string{"ssh-ed25519 A"}})
	if got := <-heard; r.Fingerprint != "SHA256:abc" || r.HostKey != "ssh-ed25519 AAAA" || got["hash"] != "$6$hunter2" || got["version"] != 1.0 {
		t.Errorf("%+v %v", r, got)
	}
	err = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && bytes.Contains(mustRead(t, path), []byte("hunter2")) {
			t.Errorf("the credential lies in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestQcow2 is converted, and refused where it names another file of the host.
func TestQcow2(t *testing.T) {
	convert := debian.Program(t, "qemu-img", "qemu-utils")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("raw"), bytes.Repeat([]byte("x"), 1<<20))
	for _, args := range [][]string{
		{"convert", "-f", "raw", "-O", "qcow2", at("raw"), at("good")},
		{"create", "-q", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", at("bad"), "1M"},
		{"create", "-q", "-f", "qcow2", "-o", "data_file=" + at("data"), at("data.qcow2"), "1M"},
	} {
		if out, err := exec.Command(convert, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	must.OK(t, toRaw(t.Context(), at("good"), "qcow2", at("out"), 3<<20))
	if b := mustRead(t, at("out")); len(b) != 3<<20 || b[0] != 'x' || b[1<<20] != 0 {
		t.Errorf("%d bytes", len(b))
	}
	for _, name := range []string{"bad", "data.qcow2", "raw"} {
		if err := toRaw(t.Context(), at(name), "qcow2", at("no"), 0); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := toRaw(t.Context(), at("good"), "qcow2", at("small"), 1<<19); !problem.Is(err, problem.Invalid) {
		t.Errorf("too large: %v", err)
	}
}

// TestImagesAreBounded: the longest unused one goes, one that a guest has a link to stays.
func TestImagesAreBounded(t *testing.T) {
	w := newWorld(t)
	c := w.config(newGuests())
	c.ImageBytes = 2500
	a := joined(t, w, c)
	var paths []string
	for i := range 4 {
		content := bytes.Repeat([]byte{byte(i)}, 1000)
		path, release, err := a.images.get(t.Context(), compute.SpecImage{Digest: w.images.add(content), Size: 1000}, nil)
		if err != nil {
			t.Fatal(err)
		}
		release()
		paths = append(paths, path)
		if i == 0 {
			must.OK(t, os.Link(path, filepath.Join(c.StateDir, "link")))
		}
	}
	got := ""
	for _, p := range paths {
		got += fmt.Sprint(fileIsThere(p), " ")
	}
	if got != "true false false true " {
		t.Errorf("kept: %s", got)
	}
}

func TestConsole(t *testing.T) {
	w := newWorld(t)
	c := w.config(newGuests())
	c.ConsoleBytes = 1000
	a := joined(t, w, c)
	id := uuid.NewString()
	log := filepath.Join(c.StateDir, "servers", id, consoleFile)
	put(t, log, []byte(strings.Repeat("old line\n", 200)+"one\n"))
	a.trimConsoles()
	put(t, log, []byte("\x00\x00two\n\xffthree\n"))
	if got := a.must(t, compute.Console, id, compute.Args{Lines: 3}, compute.OrderSecret{}).Console; got != "one\ntwo\n\ufffdthree\n" {
		t.Errorf("%q", got)
	}
	if got := a.must(t, compute.Console, id, compute.Args{}, compute.OrderSecret{}).Console; len(got) > 1100 || len(got) < 900 {
		t.Errorf("%d bytes", len(got))
	}
	if got := a.must(t, compute.Console, uuid.NewString(), compute.Args{}, compute.OrderSecret{}).Console; got != "" {
		t.Errorf("%q", got)
	}
}

// TestFindFiles: what is looked for when a rescue image is added is what a rescue would find.
func TestFindFiles(t *testing.T) {
	c := newWorld(t).config(newGuests())
	put(t, filepath.Join(c.RescueDir, "live", "a.iso"), []byte("an iso"))
	must.OK(t, os.Symlink("/etc", filepath.Join(c.RescueDir, "out")))
	a := must.Get(Open(c))(t)
	t.Cleanup(func() { _ = a.Close() })
	for _, tt := range []struct{ files, missing []string }{
		{[]string{"live/a.iso"}, nil}, {[]string{filepath.Join(c.RescueDir, "live/a.iso")}, nil},
		{[]string{"live/a.iso", "live/b.iso", "live", "out/passwd", "../a.iso"}, []string{"live/b.iso", "live", "out/passwd", "../a.iso"}},
	} {
		order := &compute.Order{ID: uuid.NewString(), ServerID: a.ID(), Verb: compute.FindFiles, Args: mustEncodeJSON(compute.Args{Files: tt.files})}
		r, err := a.do(t.Context(), orderTask{order: order})
		if err != nil || !slices.Equal(r.Missing, tt.missing) {
			t.Errorf("%q: %q %v", tt.files, r.Missing, err)
		}
	}
	if !isReadOnlyVerb(compute.FindFiles) {
		t.Error("a search for files waits for the orders of a server, or is written down")
	}
}
