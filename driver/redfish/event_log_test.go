package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// replayNode serves documents by their paths below /redfish/v1, with a system 1 that the manager 1 manages.
func replayNode(t *testing.T, docs map[string]string) *metal.Node {
	t.Helper()
	tree := fstest.MapFS{}
	for at, text := range map[string]string{
		"Systems":    `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`,
		"Systems/1":  `{"LogServices": {"@odata.id": "/redfish/v1/Systems/1/LogServices"}, "Links": {"ManagedBy": [{"@odata.id": "/redfish/v1/Managers/1"}], "Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]}}`,
		"Managers/1": `{"LogServices": {"@odata.id": "/redfish/v1/Managers/1/LogServices"}}`,
	} {
		tree["redfish/v1/"+at+"/index.json"] = &fstest.MapFile{Data: []byte(text)}
	}
	for at, text := range docs {
		tree["redfish/v1/"+at+"/index.json"] = &fstest.MapFile{Data: []byte(text)}
	}
	server := httptest.NewServer(drivertest.NewReplay(tree, nil))
	t.Cleanup(server.Close)
	return node(server.URL)
}

// logDocs are the documents of the logs of an owner: each has the entries that are given by its id.
func logDocs(owner string, logs map[string]string) map[string]string {
	docs, members := map[string]string{}, []string{}
	for id, entries := range logs {
		at := owner + "/LogServices/" + id
		members = append(members, `{"@odata.id": "/redfish/v1/`+at+`"}`)
		docs[at] = `{"Id": "` + id + `", "Entries": {"@odata.id": "/redfish/v1/` + at + `/Entries"}}`
		docs[at+"/Entries"] = `{"Members": [` + entries + `]}`
	}
	slices.Sort(members)
	docs[owner+"/LogServices"] = `{"Members": [` + strings.Join(members, ",") + `]}`
	return docs
}

// TestTheLogsOfAMaker: the logs about the hardware are read, those first that tell most, and no log of logins.
func TestTheLogsOfAMaker(t *testing.T) {
	entry := func(id, members string) string {
		return `{"@odata.id": "/e/` + id + `", "Id": "` + id + `", "Message": "m` + id + `", "Severity": "Warning"` + members + `}`
	}
	for name, c := range map[string]struct {
		docs map[string]string
		logs []string
		ids  []string
	}{
		"iLO": {
			docs: logDocs("Systems/1", map[string]string{"IML": entry("9", `, "Oem": {"Hpe": {"Repaired": true, "ClassDescription": "Network"}}`), "SL": entry("1", ""), "Event": entry("2", ""), "IEL": entry("3", "")}),
			logs: []string{"IML"}, ids: []string{"9"},
		},
		"iDRAC": {
			docs: logDocs("Managers/1", map[string]string{"Lclog": entry("83434", "") + "," + entry("83433", ""), "Sel": entry("1024", "") + "," + entry("1023", ""), "FaultList": ""}),
			logs: []string{"Sel", "FaultList", "Lclog"}, ids: []string{"1023", "1024", "83433", "83434"},
		},
		"OpenBMC": {
			docs: logDocs("Systems/1", map[string]string{"EventLog": entry("100", "") + "," + entry("1010", "") + "," + entry("101", ""), "PostCodes": entry("1", ""), "Dump": entry("1", ""), "Journal": entry("1", "")}),
			logs: []string{"EventLog"}, ids: []string{"100", "101", "1010"},
		},
		"unknown": {docs: logDocs("Systems/1", map[string]string{"Notes": entry("1", "")}), logs: []string{"Notes"}, ids: []string{"1"}},
	} {
		log, err := (&Driver{}).ReadEventLog(t.Context(), replayNode(t, c.docs), metal.MaxLogEntries)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var logs, ids []string
		for _, l := range log.Logs {
			logs = append(logs, l.Name)
		}
		for _, e := range log.Entries {
			ids = append(ids, e.ID)
		}
		if !slices.Equal(logs, c.logs) || !slices.Equal(ids, c.ids) {
			t.Errorf("%s: entries %q of %q, want %q of %q", name, ids, logs, c.ids, c.logs)
		}
		if name == "iLO" && (log.Entries[0].State != metal.EventDeasserted || log.Entries[0].Sensor != "Network") {
			t.Errorf("a repaired fault: %+v", log.Entries[0])
		}
	}
	log := must.Get((&Driver{}).ReadEventLog(t.Context(), replayNode(t, func() map[string]string {
		docs := logDocs("Systems/1", map[string]string{"Log1": entry("1", "")})
		for at, text := range logDocs("Managers/1", map[string]string{"Log1": entry("2", "")}) {
			docs[at] = text
		}
		return docs
	}()), 10))(t)
	if log.Logs[0].Name != "Systems/1 Log1" || log.Entries[1].Log != "Managers/1 Log1" {
		t.Errorf("two logs of one id: %+v", log)
	}
	if _, err := (&Driver{}).ReadEventLog(t.Context(), replayNode(t, nil), 10); !problem.Is(err, problem.Unsupported) {
		t.Errorf("no log: %v, want unsupported", err)
	}
}

// TestALargeLog: of thousands of entries on pages, the newest ones are a few requests away, whether the BMC lists them first or last.
func TestALargeLog(t *testing.T) {
	for _, newestFirst := range []bool{true, false} {
		bmc, _, n := machine(t)
		bmc.SetLogFormat(drivertest.LogFormat{PageSize: 50, NewestFirst: newestFirst})
		for range 3000 {
			bmc.Log(drivertest.Event{Kind: drivertest.DriveFault})
		}
		log := must.Get((&Driver{}).ReadEventLog(t.Context(), n, 70))(t)
		if len(log.Entries) != 70 || log.Entries[0].ID != "2931" || log.Entries[69].ID != "3000" || !log.Logs[0].Truncated {
			t.Errorf("newest first %t: %d entries, %s to %s", newestFirst, len(log.Entries), log.Entries[0].ID, log.Entries[len(log.Entries)-1].ID)
		}
		if bmc.Requests() > 12 {
			t.Errorf("newest first %t: %d requests", newestFirst, bmc.Requests())
		}
	}
}

// TestALogWithoutEnd: a BMC that has always another page, and large ones, is read to a bound, and the answer says so.
func TestALogWithoutEnd(t *testing.T) {
	page := 0
	n := node("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/Entries") {
			_ = json.NewEncoder(w).Encode(map[string]any{
				"Id": "SEL", "LogServices": map[string]any{"@odata.id": "/l"}, "Members": []any{map[string]any{"@odata.id": "/l/SEL"}}, "Entries": map[string]any{"@odata.id": "/l/SEL/Entries"},
			})
			return
		}
		page++
		fmt.Fprintf(w, `{"Members": [{"@odata.id": "/e/%d", "Id": "%d", "Message": %q}], "Members@odata.nextLink": "/Entries?page=%d"}`, page, page, strings.Repeat("x", 1<<20), page+1)
	}))
	t.Cleanup(server.Close)
	n.DriverInfo[AddressKey], n.DriverInfo[SystemKey] = server.URL, "/redfish/v1/Systems/1"
	log := must.Get((&Driver{}).ReadEventLog(t.Context(), n, metal.MaxLogEntries))(t)
	if page > 5 || len(log.Entries) == 0 || !strings.Contains(log.Logs[0].Problem, "4 MiB") {
		t.Errorf("%d pages, %d entries, %+v", page, len(log.Entries), log.Logs)
	}
}

// TestTheHealthOfParts: a machine that is not well has its parts looked at, and an empty slot is no fault.
func TestTheHealthOfParts(t *testing.T) {
	links := func(paths ...string) string {
		return `{"Members": [{"@odata.id": "/redfish/v1/` + strings.Join(paths, `"}, {"@odata.id": "/redfish/v1/`) + `"}]}`
	}
	n := replayNode(t, map[string]string{
		"Systems/1": `{"Name": "System", "Status": {"Health": "Critical", "HealthRollup": "Critical", "State": "Enabled", "Conditions": [{"Message": "Drive 3\u0007 failed", "Severity": "Critical", "OriginOfCondition": {"@odata.id": "/redfish/v1/D/3"}}]},
			"MemorySummary": {"Status": {"Health": "Warning"}}, "ProcessorSummary": {"Status": {"Health": "OK"}}, "Storage": {"@odata.id": "/redfish/v1/S"}, "Memory": {"@odata.id": "/redfish/v1/M"},
			"Links": {"Chassis": [{"@odata.id": "/redfish/v1/C"}]}}`,
		"S": links("S/1"), "S/1": `{"Name": "RAID", "Status": {"Health": "OK"}, "Drives": [{"@odata.id": "/redfish/v1/D/3"}]}`,
		"D/3": `{"Name": "Drive", "Id": "3", "Status": {"State": "Enabled", "Health": "Critical"}}`,
		"M":   links("M/1", "M/2"), "M/1": `{"Id": "A1", "Name": "DIMM", "Status": {"State": "Absent", "Health": "Critical"}}`, "M/2": `{"Id": "A2", "Name": "DIMM", "Status": {"State": "Enabled", "Health": "Warning"}}`,
		"C":         `{"Name": "Chassis", "Status": {"Health": "OK"}, "Sensors": {"@odata.id": "/redfish/v1/C/Sensors"}, "PowerSubsystem": {"@odata.id": "/redfish/v1/C/P"}}`,
		"C/Sensors": links("C/Sensors/1"), "C/Sensors/1": `{"Name": "Fan 1", "ReadingType": "Rotational", "Reading": 0, "ReadingUnits": "{rev}/min", "Status": {"State": "Enabled", "Health": "Critical"}}`,
		"C/P": `{"PowerSupplies": {"@odata.id": "/redfish/v1/C/P/S"}}`, "C/P/S": links("C/P/S/1"), "C/P/S/1": `{"Name": "PSU 1", "Status": {"State": "UnavailableOffline", "Health": "Warning"}}`,
	})
	health := must.Get((&Driver{}).ReadHealth(t.Context(), n))(t)
	var got []string
	for _, c := range health.Unhealthy {
		text := fmt.Sprintf("%s %s %s", c.Component, c.Name, c.Health)
		if c.Reading != nil {
			text += fmt.Sprintf(" %g %s", *c.Reading, c.Unit)
		}
		got = append(got, strings.TrimSpace(text+" "+c.Message))
	}
	want := []string{
		"drive Drive (3) critical", "fan Fan 1 critical 0 RPM", "memory DIMM (A2) warning", "memory memory warning", "power supply PSU 1 warning", "system System critical 3: Drive 3 failed",
	}
	if !slices.Equal(got, want) || health.Health != metal.HealthCritical || health.Truncated {
		t.Errorf("%+v\n%q, want\n%q", health, got, want)
	}
}

// TestTimesOfEntries: the time of the event goes before that of the entry, in UTC, and an unset clock is no time.
func TestTimesOfEntries(t *testing.T) {
	for text, want := range map[string]time.Time{
		`{"Created": "2024-06-11T00:13:00-05:00"}`:                                           time.Date(2024, 6, 11, 5, 13, 0, 0, time.UTC),
		`{"Created": "2024-07-08T16:40:04Z", "EventTimestamp": "2024-07-08T16:38:52+00:00"}`: time.Date(2024, 7, 8, 16, 38, 52, 0, time.UTC),
		`{"Created": "2024-07-08T16:40:04", "EventTimestamp": "1970-01-01T00:00:20+00:00"}`:  time.Date(2024, 7, 8, 16, 40, 4, 0, time.UTC),
		`{"Created": "9999-12-31T23:59:59+00:00"}`:                                           {}, `{"Created": "2000-01-01T00:00:10+00:00"}`: {}, `{"Created": 7}`: {}, `{}`: {},
	} {
		var e rawEntry
		must.OK(t, json.Unmarshal([]byte(text), &e))
		if got := e.time(); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
