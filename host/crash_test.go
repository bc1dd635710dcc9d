package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

var errKilled = errors.New("killed")

// life opens the state directory and does an order, until the process is killed (by a panic out of the hypervisor).
func life(t *testing.T, c Config, o *compute.Order) (r compute.Result, killed bool) {
	t.Helper()
	a := must.Get(Open(c))(t)
	defer func() {
		_ = a.Close() // the lock goes with the process; nothing else is tidied up
		if p := recover(); p != nil {
			if p != errKilled {
				panic(p)
			}
			killed = true
		}
	}()
	o.HostID = a.ID()
	r, ok := a.perform(t.Context(), orderTask{order: o})
	if !ok {
		t.Fatal("broken off")
	}
	return r, false
}

// TestKilledAtEachPoint: whenever the agent dies in an order, its next life does the order once and tells the same from then on.
func TestKilledAtEachPoint(t *testing.T) {
	w := newWorld(t)
	for _, point := range []string{"before the effect", "after the effect", "after the result"} {
		t.Run(point, func(t *testing.T) {
			g := newGuests()
			c := w.config(g)
			id := uuid.NewString()
			g.set(compute.Guest{ID: id, Ours: true, Power: compute.PowerOff})
			o := &compute.Order{ID: uuid.NewString(), BootID: "boot-1", ServerID: id, Epoch: 3, Verb: compute.SetPower, Within: 60,
				Args: mustEncodeJSON(compute.Args{Power: compute.PowerOn, Soft: true})}
			switch point {
			case "before the effect":
				g.stopAt = func(string) { panic(errKilled) }
			case "after the effect":
				g.after = func(string) { panic(errKilled) }
			}
			first, killed := life(t, c, o)
			if killed != (point != "after the result") {
				t.Fatalf("killed: %v", killed)
			}
			g.stopAt, g.after = nil, nil
			second, _ := life(t, c, o)
			if second.ErrorKind != "" || g.changes(id) != 1 || g.get(id).Power != compute.PowerOn {
				t.Fatalf("%+v after %d changes", second, g.changes(id))
			}
			if !killed && !bytes.Equal(mustEncodeJSON(first), mustEncodeJSON(second)) {
				t.Errorf("another answer: %+v, %+v", first, second)
			}
			// From now on the answer comes from the journal, though the guest has changed meanwhile.
			g.set(compute.Guest{ID: id, Ours: true, Power: compute.PowerOff})
			third, _ := life(t, c, o)
			if !bytes.Equal(mustEncodeJSON(second), mustEncodeJSON(third)) || g.changes(id) != 1 {
				t.Errorf("replayed as %+v after %d changes", third, g.changes(id))
			}
			// What another boot did does not last: there it is done again.
			c.BootID = func() (string, error) { return "boot-2", nil }
			if r, _ := life(t, c, o); r.ErrorKind != "" || g.changes(id) != 2 {
				t.Errorf("next boot: %+v after %d changes", r, g.changes(id))
			}
			stale := *o
			stale.ID, stale.Epoch = uuid.NewString(), 2
			if r, _ := life(t, c, &stale); r.ErrorKind != problem.Conflict.String() || g.changes(id) != 2 {
				t.Errorf("a stale epoch: %+v", r)
			}
		})
	}
}

// TestKilledInPrepare: whatever of a disk a killed agent left, the next one ends with the whole disk, and never takes a half.
func TestKilledInPrepare(t *testing.T) {
	w := newWorld(t)
	content := bytes.Repeat([]byte("image"), 1<<18)
	digest := w.images.add(content)
	leave := map[string]func(t *testing.T, disk string){
		"nothing": func(*testing.T, string) {},
		"a half":  func(t *testing.T, disk string) { put(t, disk+".part", content[:100]) },
		"a proof too": func(t *testing.T, disk string) {
			put(t, disk+".part", content)
			put(t, disk+".json", []byte(`{"server":"x"}`))
		},
		"half a file": func(t *testing.T, disk string) { put(t, disk+".json.new", []byte(`{"ser`)) },
	}
	for what, left := range leave {
		t.Run(what, func(t *testing.T) {
			c := w.config(newGuests())
			a := must.Get(Open(c))(t)
			defer a.Close()
			must.OK(t, a.join(t.Context()))
			id := uuid.NewString()
			d := compute.SpecDisk{Name: "vda", SizeGiB: 1, Image: &compute.SpecImage{Digest: digest, Size: int64(len(content)), Format: "raw"}}
			path := must.Get(a.stores.place(id, d))(t)
			left(t, path)
			// Half an image, too, of which the rest is fetched.
			put(t, filepath.Join(c.StateDir, "images", digest[len("sha256:"):]+".part"), content[:1000])
			o := &compute.Order{ID: uuid.NewString(), ServerID: id}
			for range 2 {
				must.OK(t, a.makeDisk(t.Context(), o, id, d))
			}
			if !bytes.Equal(head(t, path, len(content)), content) || fileIsThere(path+".part") {
				t.Error("the disk is not whole")
			}
			if err := a.makeDisk(t.Context(), o, uuid.NewString(), compute.SpecDisk{Name: "vda", File: id + "/vda.raw", SizeGiB: 1}); !problem.Is(err, problem.Conflict) {
				t.Errorf("another server took it: %v", err)
			}
			other := d
			other.Image = &compute.SpecImage{Digest: w.images.add([]byte("other")), Format: "raw"}
			if err := a.makeDisk(t.Context(), o, id, other); !problem.Is(err, problem.Conflict) {
				t.Errorf("another image: %v", err)
			}
		})
	}
}

func put(t *testing.T, path string, b []byte) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o711))
	must.OK(t, os.WriteFile(path, b, 0o600))
}

// FuzzOrder: what comes as an order is taken as one or refused, and no text of an error holds its secret.
func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"id":"5ac08c4c-6f19-4d3c-b9d4-3a94d26dd9d0","server_id":"5ac08c4c-6f19-4d3c-b9d4-3a94d26dd9d0","verb":"power","args":{"power":"on"}}`), []byte(`{"hash":"$6$hunter2"}`))
	f.Add([]byte(`{"id":"../../x","server_id":".."}`), []byte(`{"hash":7,"keys":["hunter2"]}`))
	f.Fuzz(func(t *testing.T, order, hidden []byte) {
		got, err := parseOrder(wireOrder(order, hidden))
		if err != nil {
			if !problem.Is(err, problem.Invalid) || bytes.Contains([]byte(err.Error()), []byte("hunter2")) && !bytes.Contains(order, []byte("hunter2")) {
				t.Fatalf("%v", err)
			}
			return
		}
		if uuid.Validate(got.order.ServerID) != nil || len(got.order.ServerID) != 36 {
			t.Fatalf("server %q", got.order.ServerID)
		}
		var args compute.Args
		_ = json.Unmarshal(got.order.Args, &args)
		if args.Spec == nil {
			return
		}
		all := diskStores{{Store: Store{Name: "local", Dir: "/srv/disks"}}}
		for _, d := range args.Spec.Disks {
			if path, err := all.place(got.order.ServerID, d); err == nil && !inside("/srv/disks", path) {
				t.Fatalf("a disk at %q", path)
			}
		}
	})
}

func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel) && rel != "."
}

// FuzzAnswer: a guest may write anything.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"version":1,"fingerprint":"SHA256:abc","agent":"salvor-agent/0.1.0"}`))
	f.Add([]byte(`{"version":1,"error":"no\u0007"}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := parseAnswer(line)
		if err == nil && (a.Fingerprint == "" && a.Error == "" || !isPrintableASCII(a.Fingerprint) || !isPrintableASCII(a.Error)) {
			t.Fatalf("%+v", a)
		}
	})
}
