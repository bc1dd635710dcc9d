package ipmi

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// selSender is a BMC with records of these ids, in their order.
type selSender struct {
	ids   []uint16
	asked int
	// breaks is after how many questions it is silent; 0: never.
	breaks int
}

func (s *selSender) send(_ context.Context, netFn, command byte, data ...byte) ([]byte, error) {
	if netFn != netFnStorage || command != commandSELEntry {
		return nil, classifyCompletionCode(netFn, command, codeBadCommand)
	}
	if s.asked++; s.breaks > 0 && s.asked > s.breaks {
		return nil, problem.Unavailablef("no answer in time")
	}
	i := slices.Index(s.ids, binary.LittleEndian.Uint16(data[2:]))
	switch binary.LittleEndian.Uint16(data[2:]) {
	case firstRecord:
		i = 0
	case lastRecord:
		i = len(s.ids) - 1
	}
	if i < 0 {
		return nil, classifyCompletionCode(netFn, command, codeNotPresent)
	}
	next := uint16(lastRecord)
	if i+1 < len(s.ids) {
		next = s.ids[i+1]
	}
	out := binary.LittleEndian.AppendUint16(nil, next)
	return append(binary.LittleEndian.AppendUint16(out, s.ids[i]), make([]byte, selRecord-2)...), nil
}

func countTo(n int) (ids []uint16) {
	for i := range n {
		ids = append(ids, uint16(i+1))
	}
	return ids
}

// TestTheNewestRecords: the newest records are read, oldest first, whatever their ids are, and few questions more than records.
func TestTheNewestRecords(t *testing.T) {
	var sparse []uint16
	for i := range 60 {
		sparse = append(sparse, uint16(1+i*40))
	}
	for name, c := range map[string]struct {
		ids       []uint16
		most      int
		breaks    int
		want      []uint16
		questions int
	}{
		"none":              {most: 5},
		"fewer than wanted": {ids: countTo(3), most: 5, want: []uint16{1, 2, 3}, questions: 3},
		"the newest":        {ids: countTo(4000), most: 3, want: []uint16{3998, 3999, 4000}, questions: 3},
		"a gap":             {ids: []uint16{1, 2, 9, 10}, most: 3, want: []uint16{2, 9, 10}, questions: 9},
		"begun anew":        {ids: []uint16{0xfffd, 0xfffe, 1, 2}, most: 4, want: []uint16{0xfffd, 0xfffe, 1, 2}, questions: 4},
		"far apart":         {ids: sparse, most: 2, want: sparse[58:], questions: 100},
		"not in order":      {ids: []uint16{500, 20, 900, 4}, most: 2, want: []uint16{900, 4}, questions: 40},
		"silent":            {ids: countTo(9), most: 9, breaks: 3, want: []uint16{7, 8, 9}, questions: 4},
	} {
		s := &selSender{ids: c.ids, breaks: c.breaks}
		records, err := selReader{t.Context(), s}.newest(len(c.ids), c.most)
		var got []uint16
		for _, r := range records {
			got = append(got, recordID(r))
		}
		if !slices.Equal(got, c.want) || (err != nil) != (c.breaks > 0) || s.asked > c.questions {
			t.Errorf("%s: %v by %d questions, %v; want %v by %d", name, got, s.asked, err, c.want, c.questions)
		}
	}
}

// TestRecords: what a record says in words. The bytes are those of a Supermicro, a Dell and a Linux that stopped.
func TestRecords(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	stamp := binary.LittleEndian.AppendUint32(nil, uint32(at.Unix()))
	_, inlet := parseSensor(temperatureSensor(t))
	named := sensorTable{{bmcController, 1}: inlet}
	for name, c := range map[string]struct {
		kind byte
		rest []byte // behind the time
		want metal.LogEntry
	}{
		"memory": {0x02, []byte{0x20, 0, 4, 0x0c, 0x40, 0x6f, 0xa1, 0x01, 0x02}, metal.LogEntry{Time: at, Severity: metal.HealthCritical, Sensor: "Memory #0x40", State: metal.EventAsserted, MessageID: "0c/6f/1",
			Message: "Memory: Uncorrectable ECC / other uncorrectable memory error (data 0x01 0x02)"}},
		"drive works again": {0x02, []byte{0x20, 0, 4, 0x0d, 0x50, 0xef, 0x01, 0xff, 0xff}, metal.LogEntry{Time: at, Severity: metal.HealthOK, Sensor: "Drive Slot / Bay #0x50", State: metal.EventDeasserted, MessageID: "0d/6f/1",
			Message: "Drive Slot / Bay: Drive Fault"}},
		"too hot": {0x02, []byte{0x20, 0, 4, 0x01, 0x01, 0x01, 0x59, 95, 90}, metal.LogEntry{Time: at, Severity: metal.HealthCritical, Sensor: "Inlet Temp", State: metal.EventAsserted, MessageID: "01/01/9",
			Message: "Temperature: Upper Critical - going high (reading 95 °C, threshold 90 °C)"}},
		"maker's sensor": {0x02, []byte{0x20, 0, 4, 0xc5, 0x60, 0x71, 0x02, 0, 0}, metal.LogEntry{Time: at, Severity: metal.HealthOK, Sensor: "sensor type 0xc5 #0x60", State: metal.EventAsserted, MessageID: "c5/71/2",
			Message: "sensor type 0xc5: event type 0x71, offset 0x2"}},
		"maker's record": {0xc1, []byte{0xa2, 0x02, 0, 1, 2, 3, 4, 5, 6}, metal.LogEntry{Time: at, Severity: metal.HealthOK, Message: "record type 0xc1 of Dell: 010203040506"}},
		"no time":        {0xe0, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, metal.LogEntry{Severity: metal.HealthOK, Message: fmt.Sprintf("record type 0xe0: %x010203040506070809", stamp)}},
		"panic":          {0xf0, nil, metal.LogEntry{Severity: metal.HealthCritical, Sensor: "operating system", Message: "part 1 of the text of a kernel panic: “Fatal excep”"}},
		"reserved":       {0x03, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, metal.LogEntry{Time: at, Severity: metal.HealthOK, Message: "record type 0x03: 010203040506070809"}},
	} {
		record := append(append([]byte{7, 1, c.kind}, stamp...), c.rest...)
		if c.kind == 0xf0 {
			record = append([]byte{7, 1, 0xf0, 0x20, 1}, "Fatal excep"...)
		}
		c.want.Log, c.want.ID = "SEL", "263"
		if got := decodeSEL(record, named); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// sensorSender is a BMC with records that describe sensors, which it gives in parts of at most so many bytes, and with readings.
type sensorSender struct {
	records  [][]byte
	most     int
	readings map[byte][]byte
	chassis  []byte
}

func (s sensorSender) send(_ context.Context, netFn, command byte, data ...byte) ([]byte, error) {
	switch {
	case netFn == netFnChassis && command == commandStatus:
		return s.chassis, nil
	case netFn == netFnStorage && command == commandReserveSDR:
		return []byte{9, 9}, nil
	case netFn == netFnStorage && command == commandGetSDR:
		i := int(binary.LittleEndian.Uint16(data[2:]))
		offset, size := int(data[4]), int(data[5])
		if i >= len(s.records) {
			return nil, classifyCompletionCode(netFn, command, codeNotPresent)
		}
		if size == wholeRecord {
			size = len(s.records[i])
		}
		if size > s.most {
			return nil, classifyCompletionCode(netFn, command, codeTooLong)
		}
		next := i + 1
		if next == len(s.records) {
			next = lastRecord
		}
		return append(binary.LittleEndian.AppendUint16(nil, uint16(next)), s.records[i][offset:min(offset+size, len(s.records[i]))]...), nil
	case netFn == netFnSensor && command == commandSensorReading:
		if answer, ok := s.readings[data[0]]; ok {
			return answer, nil
		}
		return nil, classifyCompletionCode(netFn, command, codeNotPresent)
	}
	return nil, classifyCompletionCode(netFn, command, codeBadCommand)
}

// compactSensor describes a sensor that has states.
func compactSensor(t *testing.T, number types.SensorNumber, kind types.SensorType, eventType types.EventReadingType, name string) []byte {
	t.Helper()
	s := &types.SDRCompact{GeneratorID: bmcController, SensorNumber: number, SensorType: kind, SensorEventReadingType: eventType, IDStringTypeLength: types.TypeLength(0xc0 | len(name)), IDStringBytes: []byte(name)}
	return must.Get(types.PackSDR(&types.SDR{RecordHeader: &types.SDRHeader{SDRVersion: 0x51, RecordType: types.SDRRecordTypeCompactSensor}, Compact: s}))(t)
}

// scriptedHealth is what a health is made of in these tests.
func scriptedHealth(t *testing.T, c commandSender) metal.Health {
	t.Helper()
	var out metal.Health
	must.OK(t, readHealth(t.Context(), c, &out))
	return out
}

// TestStatesOfSensors: a fault is named, whether the BMC gives a record as a whole or in parts; a presence and an opened case are no faults.
func TestStatesOfSensors(t *testing.T) {
	records := [][]byte{
		temperatureSensor(t),
		compactSensor(t, 0x10, types.SensorTypePowerSupply, types.EventReadingTypeSensorSpecific, "PS1 Status"),
		compactSensor(t, 0x11, types.SensorTypeEntityPresence, types.EventReadingTypeSensorSpecific, "Riser"),
		compactSensor(t, 0x12, types.SensorTypePhysicalSecurity, types.EventReadingTypeSensorSpecific, "Intrusion"),
		compactSensor(t, 0x13, types.SensorTypeBattery, types.EventReadingTypeSensorSpecific, "CMOS\x1bBattery"),
		compactSensor(t, 0x14, types.SensorTypeDriveSlot, types.EventReadingTypeSensorSpecific, "Drive 0"),
		{0, 0, 0x51, 0xc0, 3, 1, 2, 3},
	}
	readings := map[byte][]byte{
		1: {85, scanningEnabled, 0x08}, 0x10: {0, scanningEnabled, 0x09, 0x80}, 0x11: {0, scanningEnabled, 0x02, 0x80}, 0x12: {0, scanningEnabled, 0x01, 0x80},
		0x13: {0, scanningEnabled, 0x01, 0x80}, 0x14: {0, scanningEnabled | readingUnavailable, 0x02, 0x80},
	}
	want := []metal.UnhealthyComponent{
		{Component: "drive", Name: "chassis status", State: "drive fault", Health: metal.HealthCritical},
		{Component: "temperature", Name: "Inlet Temp", State: "upper non-critical", Health: metal.HealthWarning, Unit: "°C"},
		{Component: "power supply", Name: "PS1 Status", State: "Power Supply input lost (AC/DC)", Health: metal.HealthCritical},
		{Component: "battery", Name: "CMOS Battery", State: "battery low (predictive failure)", Health: metal.HealthWarning},
	}
	for _, most := range []int{0xfe, sdrPart} {
		got := scriptedHealth(t, sensorSender{records, most, readings, []byte{1, 0, 0x04}})
		if len(got.Unhealthy) == 4 && got.Unhealthy[1].Reading != nil && *got.Unhealthy[1].Reading == 85 {
			got.Unhealthy[1].Reading = nil
		}
		if !slices.Equal(got.Unhealthy, want) || got.Health != metal.HealthCritical || got.Truncated {
			t.Errorf("at most %d bytes: %+v, want %+v", most, got, want)
		}
	}
	if got := scriptedHealth(t, scriptedSender{"00 01": {1, 0, 0}}); got.Health != metal.HealthOK || got.Truncated {
		t.Errorf("a BMC without sensors: %+v", got)
	}
}

// FuzzRecords: whatever a BMC has in its log and says of its sensors becomes short lines, and JSON.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{7, 1, 2, 0, 0, 0, 0, 0x20, 0, 4, 1, 1, 1, 0x59, 95, 90}, temperatureSensor(f), byte(85), byte(0xff))
	f.Add([]byte{7, 1, 0xf0, 0x1b, '[', '2', 'J', 0xff, 0xfe, '\n', 0, 0, 0, 0, 0, 0}, []byte{0, 0, 0x51, 1, 0xff, 0x20}, byte(0), byte(1))
	f.Fuzz(func(t *testing.T, record, description []byte, reading, states byte) {
		if len(record) != selRecord {
			return
		}
		key, sensor := parseSensor(description)
		entry := decodeSEL(record, sensorTable{key: sensor, {record[7], record[11]}: sensor})
		health := metal.Health{}
		if sensor != nil {
			h := healthReader{t.Context(), sensorSender{readings: map[byte][]byte{1: {reading, scanningEnabled, states, states}}}, &health}
			if !h.read(1, sensor) {
				t.Error("a sensor that answers")
			}
		}
		if _, err := json.Marshal(map[string]any{"entry": entry, "health": health}); err != nil {
			t.Error(err)
		}
		texts := []string{entry.ID, entry.Sensor, entry.Message, entry.MessageID}
		for _, c := range health.Unhealthy {
			texts = append(texts, c.Component, c.Name, c.State, c.Unit)
		}
		for _, text := range texts {
			if len(text) > 512 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q", text)
			}
		}
	})
}
