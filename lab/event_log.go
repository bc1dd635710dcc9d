package lab

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/problem"
)

// EventKind is something that a BMC logs about its machine.
type EventKind string

const (
	EventPowerOn       EventKind = "power-on"
	EventPowerOff      EventKind = "power-off"
	EventMemoryError   EventKind = "memory-error" // an uncorrectable ECC error
	EventDriveFault    EventKind = "drive-fault"
	EventDriveReplaced EventKind = "drive-replaced" // ends a drive fault
	EventBatteryLow    EventKind = "battery-low"    // of the CMOS clock
)

// hardwareEvent is how a BMC logs an event, by Redfish and by IPMI.
type hardwareEvent struct {
	kind                          EventKind
	severity, sensor, id, message string
	// ends is the event that this one ends; empty: it begins something.
	ends EventKind
	// sensorType, number and offset are those of a sensor-specific event of IPMI (IPMI 2.0, table 42-3).
	sensorType, number, offset byte
}

var hardwareEvents = []hardwareEvent{
	{EventPowerOff, "OK", "Power Unit", "Platform.1.0.PowerOff", "The machine was powered off.", "", 0x09, 0x01, 0},
	{EventPowerOn, "OK", "Power Unit", "Platform.1.0.PowerOn", "The machine was powered on.", EventPowerOff, 0x09, 0x01, 0},
	{EventMemoryError, "Critical", "Memory", "Memory.1.0.UncorrectableECCError", "An uncorrectable ECC error occurred in memory module DIMM_A1.", "", 0x0c, 0x40, 1},
	{EventDriveFault, "Critical", "Drive Slot/Bay", "StorageDevice.1.0.DriveFailure", "Drive 0 failed.", "", 0x0d, 0x50, 1},
	{EventDriveReplaced, "OK", "Drive Slot/Bay", "StorageDevice.1.0.DriveFailureCleared", "Drive 0 works again.", EventDriveFault, 0x0d, 0x50, 1},
	{EventBatteryLow, "Warning", "Battery", "Platform.1.0.BatteryLow", "The voltage of the CMOS battery is low.", "", 0x29, 0x60, 0},
}

// EventKinds are the names of all events.
func EventKinds() (names []string) {
	for _, e := range hardwareEvents {
		names = append(names, string(e.kind))
	}
	return names
}

// loggedEvent is an entry of a log.
type loggedEvent struct {
	hardwareEvent
	id int
	at time.Time
}

// maxLogged bounds a log; a full one loses its oldest entries.
const maxLogged = 1000

// eventLog is the log of a BMC. It is safe for use by several goroutines.
type eventLog struct {
	mu      sync.Mutex
	entries []loggedEvent
	written int
	// forward gives each entry to a BMC that has its log elsewhere; nil: none does. It does not wait.
	forward func(loggedEvent) error
}

// forwardTo has the log give each entry to a BMC from now on.
func (l *eventLog) forwardTo(bmc func(loggedEvent) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forward = bmc
}

// add logs an event.
func (l *eventLog) add(kind EventKind) error {
	i := slices.IndexFunc(hardwareEvents, func(e hardwareEvent) bool { return e.kind == kind })
	if i < 0 {
		return problem.Invalidf("event %q: want one of %s", kind, strings.Join(EventKinds(), ", "))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written++
	e := loggedEvent{hardwareEvents[i], l.written, time.Now()}
	if l.forward != nil {
		if err := l.forward(e); err != nil {
			return err
		}
	}
	if l.entries = append(l.entries, e); len(l.entries) > maxLogged {
		l.entries = l.entries[1:]
	}
	return nil
}

func (l *eventLog) all() []loggedEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// open are the faults that began and did not end.
func (l *eventLog) open() (out []loggedEvent) {
	for _, e := range l.all() {
		out = slices.DeleteFunc(out, func(before loggedEvent) bool { return before.kind == e.ends || before.kind == e.kind })
		if e.severity != "OK" {
			out = append(out, e)
		}
	}
	return out
}

// record is the entry as a record of the System Event Log (IPMI 2.0, 32.1), without its id.
func (e loggedEvent) record() []byte {
	const systemEvent, sensorSpecific, deasserted, unspecified = 0x02, 0x6f, 0x80, 0xff
	out := binary.LittleEndian.AppendUint32([]byte{systemEvent}, uint32(e.at.Unix()))
	direction := byte(sensorSpecific)
	if e.ends != "" {
		direction |= deasserted
	}
	return append(out, 0x20, 0, 4, e.sensorType, e.number, direction, e.offset, unspecified, unspecified)
}

const (
	logsID    = managerID + "/LogServices"
	selID     = logsID + "/SEL"
	entriesID = selID + "/Entries"
)

// logRoutes serve the log of the BMC.
func (b *redfishBMC) logRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+logsID, serveCollection("Log Service Collection", "LogServiceCollection", logsID, selID))
	mux.HandleFunc("GET "+selID, b.getLog)
	mux.HandleFunc("GET "+entriesID, b.getEntries)
	mux.HandleFunc("GET "+entriesID+"/{id}", b.getEntry)
}

func (b *redfishBMC) getLog(w http.ResponseWriter, _ *http.Request) {
	s := newRedfishResource(selID, "LogService.v1_1_2.LogService", "SEL", "System Event Log")
	s["MaxNumberOfRecords"], s["OverWritePolicy"], s["ServiceEnabled"], s["LogEntryType"] = maxLogged, "WrapsWhenFull", true, "SEL"
	s["Status"], s["Entries"] = healthy, odataLink(entriesID)
	writeJSON(w, http.StatusOK, s)
}

func entryResource(e loggedEvent) jsonObject {
	id := strconv.Itoa(e.id)
	r := newRedfishResource(entriesID+"/"+id, "LogEntry.v1_5_0.LogEntry", id, "Log entry "+id)
	r["EntryType"], r["EntryCode"], r["Severity"], r["Created"] = "SEL", "Assert", e.severity, e.at.UTC().Format(time.RFC3339)
	r["SensorType"], r["SensorNumber"], r["Message"], r["MessageId"], r["MessageArgs"] = e.sensor, e.number, e.message, e.hardwareEvent.id, []string{}
	if e.ends != "" {
		r["EntryCode"] = "Deassert"
	}
	return r
}

func (b *redfishBMC) getEntries(w http.ResponseWriter, _ *http.Request) {
	members := []jsonObject{}
	for _, e := range b.chassis.events.all() {
		members = append(members, entryResource(e))
	}
	writeJSON(w, http.StatusOK, jsonObject{
		"@odata.id": entriesID, "@odata.type": "#LogEntryCollection.LogEntryCollection", "Name": "Log Entry Collection",
		"Members": members, "Members@odata.count": len(members),
	})
}

func (b *redfishBMC) getEntry(w http.ResponseWriter, r *http.Request) {
	for _, e := range b.chassis.events.all() {
		if strconv.Itoa(e.id) == r.PathValue("id") {
			writeJSON(w, http.StatusOK, entryResource(e))
			return
		}
	}
	redfishError(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", fmt.Sprintf("no entry %s", r.PathValue("id")))
}

// status is the health of the machine: it is as bad as the worst of its open faults.
func (b *redfishBMC) status() jsonObject {
	open := b.chassis.events.open()
	if len(open) == 0 {
		return healthy
	}
	worst, conditions := "Warning", []jsonObject{}
	for _, e := range open {
		if e.severity == "Critical" {
			worst = e.severity
		}
		conditions = append(conditions, jsonObject{"Message": e.message, "MessageId": e.hardwareEvent.id, "Severity": e.severity, "Timestamp": e.at.UTC().Format(time.RFC3339)})
	}
	return jsonObject{"State": "Enabled", "Health": worst, "HealthRollup": worst, "Conditions": conditions}
}
