package drivertest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// Event is something that a BMC logs.
type Event struct {
	Kind EventKind
	// Time is the BMC's; zero: its clock is not set.
	Time time.Time
}

// EventKind is what happened.
type EventKind int

const (
	MemoryError   EventKind = iota // an uncorrectable ECC error of sensor 0x40
	DriveFault                     // a drive failed: sensor 0x50
	DriveReplaced                  // it works again
	ForeignRecord                  // a record of the maker's own kind, with bytes or characters that no terminal should get
)

// LogFormat is how a BMC lists the entries of its log.
type LogFormat struct {
	// PageSize is how many entries a page has; 0: all.
	PageSize int
	// NewestFirst lists the newest entry first.
	NewestFirst bool
	// Links lists links to the entries in place of the entries.
	Links bool
}

// SetLogFormat sets how the BMC lists its entries.
func (b *BMC) SetLogFormat(f LogFormat) { b.mu.Lock(); defer b.mu.Unlock(); b.extra.logFormat = f }

// AddEntry adds an entry to the log; the BMC gives it an id.
func (b *BMC) AddEntry(doc map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := strconv.Itoa(len(b.extra.entries) + 1)
	doc["@odata.id"], doc["Id"] = entriesPath+"/"+id, id
	b.extra.entries = append(b.extra.entries, doc)
}

// Log adds an entry about an event, as the log of an iDRAC has it.
func (b *BMC) Log(e Event) {
	doc := map[string]any{"EntryType": "SEL", "EntryCode": "Assert", "Severity": "Critical", "SensorNumber": 0x50, "SensorType": "Drive Slot/Bay"}
	switch e.Kind {
	case MemoryError:
		doc["SensorNumber"], doc["SensorType"], doc["Message"] = 0x40, "Memory", "Multi-bit memory errors detected on a memory device at location DIMM_A1."
	case DriveFault:
		doc["Message"] = "Fault detected on drive 0."
	case DriveReplaced:
		doc["Message"], doc["EntryCode"], doc["Severity"] = "Drive 0 is operating normally.", "Deassert", "OK"
	case ForeignRecord:
		doc = map[string]any{"EntryType": "Oem", "Severity": nil, "Message": "\x1b[2Jnote\r\n\u202eof the maker" + strings.Repeat(" more", 1000)}
	}
	doc["Created"] = "1970-01-01T00:00:20+00:00"
	if !e.Time.IsZero() {
		doc["Created"] = e.Time.Format(time.RFC3339)
	}
	b.AddEntry(doc)
}

// SetTemperature gives the only temperature sensor a reading and a health.
func (b *BMC) SetTemperature(celsius float64, health string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extra.temperature = map[string]any{"Name": "Inlet Temp", "ReadingCelsius": celsius, "Status": map[string]any{"State": "Enabled", "Health": health}}
}

// entryPage is the collection of entries from a position on.
func (e *extraState) entryPage(skip int) map[string]any {
	all := slices.Clone(e.entries)
	if e.logFormat.NewestFirst {
		slices.Reverse(all)
	}
	total := len(all)
	all = all[min(max(skip, 0), total):]
	out := map[string]any{"Members@odata.count": total}
	if size := e.logFormat.PageSize; size > 0 && len(all) > size {
		all = all[:size]
		out["Members@odata.nextLink"] = fmt.Sprint(entriesPath, "?$skip=", skip+size)
	}
	members := []any{}
	for _, doc := range all {
		if e.logFormat.Links {
			doc = odataLink(fmt.Sprint(doc["@odata.id"]))
		}
		members = append(members, doc)
	}
	out["Members"] = members
	return out
}

// seededTime is when the newest of the seeded events happened.
var seededTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// clockDrift is how much later than seeded an event may be in the log.
const clockDrift = 10 * time.Second

// testEventLog proves what a reader of event logs promises, with a log of known events.
func testEventLog(t *testing.T, r Machine) {
	d, ok := r.Management.(driver.EventLog)
	if !ok {
		return
	}
	ctx := r.context(t, generous)
	log, err := d.ReadEventLog(ctx, r.Node, metal.MaxLogEntries)
	if err != nil && !problem.Is(err, problem.Unsupported) {
		t.Fatalf("read a log with nothing of ours: %v", err)
	}
	if r.Log == nil {
		return
	}
	before := len(log.Entries)
	r.Log(Event{MemoryError, seededTime})
	r.Log(Event{DriveFault, time.Time{}}) // later, and its clock is behind
	r.Log(Event{DriveReplaced, seededTime})
	r.Log(Event{ForeignRecord, time.Time{}})
	log, err = d.ReadEventLog(ctx, r.Node, metal.MaxLogEntries)
	requireNoError(t, "read the log", err)
	if len(log.Entries) != before+4 || len(log.Logs) == 0 || log.Logs[0].Truncated || log.Logs[0].Problem != "" {
		t.Fatalf("%d entries of %+v, want %d more than %d", len(log.Entries), log.Logs, 4, before)
	}
	all := log.Entries[before:]
	for i, want := range []metal.LogEntry{
		{Time: seededTime, Severity: metal.HealthCritical, State: metal.EventAsserted},
		{Severity: metal.HealthCritical, State: metal.EventAsserted},
		{Time: seededTime, Severity: metal.HealthOK, State: metal.EventDeasserted},
		{Severity: metal.HealthOK},
	} {
		// The clock of a real BMC goes on between its setting and the event.
		if e := all[i]; e.Time.IsZero() != want.Time.IsZero() || e.Time.Before(want.Time) || e.Time.Sub(want.Time) > clockDrift || e.Severity != want.Severity || e.State != want.State || e.Log == "" || e.ID == "" {
			t.Errorf("event %d: %+v, want %+v", i, e, want)
		}
	}
	if text := strings.ToLower(all[0].Sensor + all[0].Message); !strings.Contains(text, "memory") {
		t.Errorf("the memory error: %+v", all[0])
	}
	if text := strings.ToLower(all[1].Sensor + all[1].Message); !strings.Contains(text, "drive") {
		t.Errorf("the failed drive: %+v", all[1])
	}
	for _, e := range log.Entries {
		for _, text := range []string{e.Log, e.ID, e.Sensor, e.Message, e.MessageID} {
			if len(text) > 512 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("record %s has the text %q", e.ID, text)
			}
		}
	}
	newest, err := d.ReadEventLog(ctx, r.Node, 2)
	requireNoError(t, "read the newest two", err)
	if !reflect.DeepEqual(newest.Entries, all[2:]) || !newest.Logs[0].Truncated {
		t.Errorf("the newest two of %+v: %+v", all, newest)
	}
	again, err := d.ReadEventLog(ctx, r.Node, metal.MaxLogEntries)
	if err != nil || !reflect.DeepEqual(log, again) {
		t.Errorf("a second read: %+v, %v; want the same", again, err)
	}
}

// testHealth proves what a reader of the health promises.
func testHealth(t *testing.T, r Machine) {
	d, ok := r.Management.(driver.Health)
	if !ok {
		return
	}
	ctx := r.context(t, generous)
	health, err := d.ReadHealth(ctx, r.Node)
	if err != nil && !problem.Is(err, problem.Unsupported) {
		t.Fatalf("read the health: %v", err)
	}
	if len(health.Unhealthy) > 0 || health.Health == metal.HealthCritical {
		t.Errorf("a machine that is well: %+v", health)
	}
	if r.Overheat == nil {
		return
	}
	r.Overheat()
	health, err = d.ReadHealth(ctx, r.Node)
	requireNoError(t, "read the health of a hot machine", err)
	hot := slices.IndexFunc(health.Unhealthy, func(c metal.UnhealthyComponent) bool { return c.Component == "temperature" })
	if hot < 0 {
		t.Fatalf("a hot machine: %+v", health)
	}
	if c := health.Unhealthy[hot]; c.Health != metal.HealthCritical || c.Name != "Inlet Temp" || c.Reading == nil || *c.Reading != hotCelsius || c.Unit != "°C" || c.State == "" {
		t.Errorf("the hot sensor: %+v", c)
	}
}

// hotCelsius is what the sensor reads after Machine.Overheat.
const hotCelsius = 99

// evidenceOperations are what reads the state of a machine.
func (r Machine) evidenceOperations() map[string]func(context.Context) error {
	ops := map[string]func(context.Context) error{}
	if d, ok := r.Management.(driver.EventLog); ok {
		ops["event log"] = func(ctx context.Context) error { _, err := d.ReadEventLog(ctx, r.Node, 1); return err }
	}
	if d, ok := r.Management.(driver.Health); ok {
		ops["health"] = func(ctx context.Context) error {
			_, err := d.ReadHealth(ctx, r.Node)
			if problem.Is(err, problem.Unsupported) {
				return nil
			}
			return err
		}
	}
	return ops
}
