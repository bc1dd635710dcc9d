package redfish

import (
	"context"
	"encoding/json"
	"flag"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/test/must"
)

var update = flag.Bool("update", false, "write the lists in testdata/writes again")

// TestWrites compares what each BMC of testdata/trees is sent with a list, so that a change of it shows in review. The trees are written by
// hand: each has the few resources of a real BMC that the verbs read.
func TestWrites(t *testing.T) {
	files := must.Get(filepath.Glob("testdata/trees/*.json"))(t)
	if len(files) < 8 {
		t.Fatalf("there are only %d trees", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := writesTo(t, readTree(t, file))
			list := filepath.Join("testdata", "writes", name+".txt")
			if *update {
				must.OK(t, os.WriteFile(list, []byte(got), 0o644))
				return
			}
			if want := must.Get(os.ReadFile(list))(t); got != string(want) {
				t.Errorf("the BMC was sent\n%s\nwant, as in %s,\n%s\nIf that is right, write the lists with go test ./driver/redfish -run TestWrites -update", got, list, want)
			}
		})
	}
}

// readTree makes a tree of a file with an object of documents by path.
func readTree(t *testing.T, file string) fs.FS {
	var docs map[string]json.RawMessage
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &docs))
	tree := fstest.MapFS{}
	for at, doc := range docs {
		tree[strings.TrimPrefix(at, "/")+"/index.json"] = &fstest.MapFile{Data: doc}
	}
	return tree
}

// writesTo runs the verbs against a tree, and gives what the BMC took, verb by verb, with the notes.
func writesTo(t *testing.T, tree fs.FS) string {
	replay := drivertest.NewReplay(tree, nil)
	server := httptest.NewServer(replay)
	defer server.Close()
	n := node(server.URL)
	d := &Driver{Locks: &driver.AddressLocks{}}
	m := &Media{Driver: d, Files: bootFiles}
	b := must.Get(d.DescribeBMC(t.Context(), n))(t)
	metal.KeepBMC(n, b)
	must.OK(t, m.CheckBMC(n, b))
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
	first := must.Get(BIOS{d}.BIOSSettings(t.Context(), n))(t)[0].Name
	bios := metal.Step{Interface: "bios", Step: "apply_configuration", Args: metal.Object{"settings": []any{map[string]any{"name": first, "value": "Disabled"}}}}
	all := append(changes(m, n),
		change{"BIOS setting", false, func(ctx context.Context) error {
			_, err := BIOS{d}.RunStep(ctx, n, bios)
			if err == nil {
				_, err = BIOS{d}.RunStep(ctx, n, bios) // the start
			}
			return err
		}},
		change{"attach a medium", true, func(ctx context.Context) error {
			return d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "cdrom", ImageURL: "http://images.invalid/a.iso"})
		}},
		change{"detach media", true, func(ctx context.Context) error { return d.DetachMedia(ctx, n, nil) }},
	)
	var out strings.Builder
	for _, c := range all {
		ctx, notes := driver.WithNotes(t.Context())
		if err := c.do(ctx); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		out.WriteString(c.name + "\n")
		for _, w := range writesOf(replay) {
			out.WriteString("  " + w + "\n")
		}
		for _, note := range notes.Texts() {
			out.WriteString("  note: " + note + "\n")
		}
	}
	return out.String()
}
