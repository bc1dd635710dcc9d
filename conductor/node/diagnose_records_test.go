package node

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
	"salvor/wire/agent"
)

// A report has what an inspection found, and what an agent no longer finds; what was done to the machine; and the network_data of its config drive.
func TestDiagnoseComparesWithTheRecords(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOff)
	b.agent.examination = strings.Replace(examined, `"seconds"`, `"hardware": {"memory": 8589934592, "disks": [{"serial": "S2", "size": 10}], "nics": []}, "seconds"`, 1)
	now := b.con.Now()
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		for kind, body := range map[metal.DocumentKind]string{
			metal.Inventory:   `{"memory": {"total": 17179869184, "physical_mb": 16384}, "disks": [{"serial": "S1", "size": 9}, {"serial": "S2", "size": 10}], "interfaces": [{"mac_address": "52:54:00:00:00:01"}]}`,
			metal.ConfigDrive: `{"network_data": {"links": [{"id": "a"}], "networks": [{"id": "n", "link": "b"}]}}`,
			metal.BIOSSettings: string(must.Get(json.Marshal([]metal.BIOSSetting{
				{Name: "BootMode", Value: new(string), Timestamps: metal.Timestamps{UpdatedAt: now.Add(-time.Hour)}}, {Name: "Untouched"}}))(t)),
		} {
			if err := b.store.SaveDocument(tx, metal.Document{NodeID: b.node, Kind: kind, Body: json.RawMessage(body), UpdatedAt: now}); err != nil {
				return err
			}
		}
		for text, at := range map[string]time.Time{"asked to rebuild": now.Add(-2 * time.Hour), "asked for power off": now.Add(-time.Minute), "asked to deploy": now.Add(-changeHistory - time.Hour)} {
			if err := b.store.Append(tx, job.Event{Subject: job.Node(b.node), At: at, Type: "request", Text: text}); err != nil {
				return err
			}
		}
		return nil
	}))
	d := b.diagnose(t, metal.DiagnoseArgs{})
	var ids, changes []string
	for _, f := range d.Report.Findings {
		ids = append(ids, f.ID+" "+string(f.Severity))
	}
	for _, c := range d.Report.Changes {
		changes = append(changes, c.Text)
	}
	for _, want := range []string{"disk-lost blocks-boot", "memory-lost degrades", "network-data-unknown-link degrades"} {
		if !strings.Contains(strings.Join(ids, ", "), want) {
			t.Errorf("no %s among %v", want, ids)
		}
	}
	if d.Report.Verdict.Finding != "disk-lost" || !strings.HasPrefix(strings.Join(changes, ", "), "asked to rebuild, the BIOS setting BootMode has another value since then, ") {
		t.Errorf("verdict %+v, changes %v", d.Report.Verdict, changes)
	}
}

// Records that nobody wrote are no gap, and one that cannot be read is.
func TestDiagnoseWithoutRecords(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOn)
	if d := b.diagnose(t, metal.DiagnoseArgs{}); strings.Contains(gapsOf(d), "stored") || d.Report.Recorded != nil {
		t.Errorf("%s, %+v", gapsOf(d), d.Report.Recorded)
	}
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		return b.store.SaveDocument(tx, metal.Document{NodeID: b.node, Kind: metal.Inventory, Body: json.RawMessage(`{"memory": "much"}`), UpdatedAt: b.con.Now()})
	}))
	must.Get(b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{}, record.Asker{}))(t)
	b.ends(t)
	if d := b.diagnosis(t); !strings.Contains(gapsOf(d), "the stored inventory: ") {
		t.Errorf("%s", gapsOf(d))
	}
}

// A BMC tells what the modules hold, of which a kernel uses less.
func TestRecordedMemory(t *testing.T) {
	mib := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		memory agent.Memory
		total  int64
		fitted bool
	}{
		{agent.Memory{Total: 16000 << 20, PhysicalMB: mib(16384)}, 16000 << 20, false},
		{agent.Memory{Total: 16384 << 20, PhysicalMB: mib(16384)}, 16384 << 20, true},
		{agent.Memory{PhysicalMB: mib(16384)}, 16384 << 20, true},
		{agent.Memory{PhysicalMB: mib(-1)}, 0, false},
		{agent.Memory{}, 0, false},
	} {
		if r := recordedHardware(&agent.Inventory{Memory: tc.memory}, time.Time{}); r.Memory != tc.total || r.Fitted != tc.fitted {
			t.Errorf("%+v: %d, fitted %t", tc.memory, r.Memory, r.Fitted)
		}
	}
}
