package redfish

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/rescue"
	"salvor/test/must"
)

// TestTrees runs the verbs of a rescue against each recorded tree below SALVOR_TREES, and prints a row for each with what it was sent. A tree
// is a directory with redfish/v1. It fails where neither the verb works nor validate says why.
func TestTrees(t *testing.T) {
	root := os.Getenv("SALVOR_TREES")
	if root == "" {
		t.Skip("SALVOR_TREES names no directory of recorded trees")
	}
	trees := must.Get(filepath.Glob(root + "/*/redfish"))(t)
	if len(trees) == 0 {
		t.Fatalf("%s has no tree", root)
	}
	for _, tree := range trees {
		dir := filepath.Dir(tree)
		t.Run(filepath.Base(dir), func(t *testing.T) { runTree(t, dir) })
	}
}

func runTree(t *testing.T, dir string) {
	files := os.DirFS(dir)
	replay := drivertest.NewReplay(files, nil)
	server := httptest.NewServer(replay)
	defer server.Close()
	n := node(server.URL)
	n.DriverInfo[SystemKey] = drivertest.SystemIn(files)
	d := &Driver{Locks: &driver.AddressLocks{}}
	m := &Media{Driver: d, Files: bootFiles}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx, notes := driver.WithNotes(ctx)
	b, err := d.DescribeBMC(ctx, n)
	if err != nil {
		t.Logf("manage: %v", err)
		return
	}
	metal.KeepBMC(n, b)
	t.Logf("%s | %s | %s | %s | quirks %v | drives %v | targets %v", b.Vendor, b.Model, b.BMCModel, b.Firmware, b.Quirks, b.Drives, b.BootTargets)
	refused := m.CheckBMC(n, b)
	if refused != nil {
		t.Logf("validate: %v", refused)
	}
	verb := func(name string, needsMedia bool, do func() error) {
		if needsMedia && refused != nil {
			return
		}
		began := time.Now()
		err := do()
		writes := writesOf(replay)
		result := "ok"
		if err != nil {
			result = err.Error()
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %s (%s) %s", name, result, time.Since(began).Round(time.Millisecond), strings.Join(writes, " ; "))
	}
	verb("probe", false, func() error { _, err := d.ProbeBMC(ctx, n); return err })
	verb("event log", false, func() error {
		log, err := d.ReadEventLog(ctx, n, metal.MaxLogEntries)
		t.Logf("%d entries of %+v", len(log.Entries), log.Logs)
		checkEntries(t, log)
		return tolerate(err)
	})
	verb("health", false, func() error {
		health, err := d.ReadHealth(ctx, n)
		t.Logf("health %q, truncated %t", health.Health, health.Truncated)
		for _, c := range health.Unhealthy {
			t.Logf("unhealthy: %+v", c)
		}
		return err
	})
	verb("inspect", false, func() error {
		found, err := d.Inspect(ctx, n)
		t.Logf("found %v, %d MACs, inventory %+v", found.Properties, len(found.MACs), found.Inventory)
		return err
	})
	verb("bios", false, func() error {
		settings, err := BIOS{d}.BIOSSettings(ctx, n)
		typed := 0
		for _, s := range settings {
			if s.AttributeType != "" {
				typed++
			}
		}
		t.Logf("%d settings, %d with a type", len(settings), typed)
		return tolerate(err)
	})
	verb("firmware", false, func() error {
		parts, err := Firmware{d}.Components(ctx, n)
		t.Logf("%d parts", len(parts))
		return err
	})
	verb("raid", false, func() error { _, err := RAID{d}.RAIDConfig(ctx, n); return tolerate(err) })
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
	for _, v := range changes(m, n) {
		verb(v.name, v.needsMedia, func() error { return v.do(ctx) })
	}
	for _, text := range notes.Texts() {
		t.Logf("note: %s", text)
	}
	// The search of thousands of resources takes longer than the verbs may take together, so it comes last.
	recording := recordAll(t, d, n)
	if found := leaks(files, recording); len(found) > 0 {
		t.Errorf("the recording of %d resources has %q", len(recording), found)
	}
}

// change is a verb that changes something at a BMC.
type change struct {
	name       string
	needsMedia bool
	do         func(context.Context) error
}

// changes are the verbs of a rescue, and others of a boot, in their order.
func changes(m *Media, n *metal.Node) []change {
	d := m.Driver
	bootFrom := func(b rescue.Boot) func(context.Context) error {
		return func(ctx context.Context) error { return tolerate(d.SetBootDevice(ctx, n, b)) }
	}
	return []change{
		{"power off", false, func(ctx context.Context) error { return d.SetPower(ctx, n, metal.PowerOff) }},
		{"rescue: insert and boot device", true, func(ctx context.Context) error { return m.PrepareRamdisk(ctx, n) }},
		{"rescue: power on", true, func(ctx context.Context) error { return d.SetPower(ctx, n, metal.PowerOn) }},
		{"unrescue: eject", true, func(ctx context.Context) error { return m.CleanUpRamdisk(ctx, n) }},
		{"boot from disk", false, bootFrom(rescue.Boot{Device: "disk", Persistent: true})},
		{"boot from network", false, bootFrom(rescue.Boot{Device: "pxe"})},
		{"no boot device", false, bootFrom(rescue.Boot{})},
	}
}

var salvorImage = regexp.MustCompile(`/boot/[A-Za-z0-9_-]{32}/` + regexp.QuoteMeta(metal.BootISO))

// writesOf are the changes that a BMC took, without what differs from run to run.
func writesOf(replay *drivertest.Replay) []string {
	writes := replay.Writes()
	for i, w := range writes {
		writes[i] = salvorImage.ReplaceAllString(strings.ReplaceAll(w, bootFiles.URL, ""), "/IMAGE")
	}
	return writes
}

// bootFiles is where images of these tests would lie; no replay fetches them.
var bootFiles = driver.BootFiles{URL: "https://198.51.100.7:6386", APIURL: "https://198.51.100.7:6385"}

// tolerate takes that a BMC has no such part, and says so.
func tolerate(err error) error {
	if err != nil && (strings.Contains(err.Error(), "the BMC shows no") || strings.Contains(err.Error(), "the BMC has no event log") || strings.Contains(err.Error(), "the BMC does not offer boot device")) {
		return nil
	}
	return err
}

// checkEntries wants what metal.LogEntry promises of every BMC.
func checkEntries(t *testing.T, log metal.EventLog) {
	t.Helper()
	last := map[string]uint64{}
	for _, e := range log.Entries {
		for _, text := range []string{e.Log, e.ID, e.Sensor, e.Message, e.MessageID} {
			if len(text) > 512 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s %s: the text %q", e.Log, e.ID, text)
			}
		}
		if e.ID == "" || e.Message == "" || e.Severity == "" {
			t.Errorf("an entry lacks a part: %+v", e)
		}
		if number, err := strconv.ParseUint(e.ID, 10, 64); err == nil {
			if number <= last[e.Log] {
				t.Errorf("%s: record %d follows %d", e.Log, number, last[e.Log])
			}
			last[e.Log] = number
		}
	}
	if len(log.Entries) > metal.MaxLogEntries {
		t.Errorf("%d entries", len(log.Entries))
	}
}
