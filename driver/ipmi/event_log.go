package ipmi

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

var _ driver.EventLog = (*Driver)(nil)

// Commands of the event log (IPMI 2.0, chapter 31).
const commandSELEntry = 0x43

// Ids of records that have a meaning of their own, and what a record has in bytes.
const (
	firstRecord = 0x0000
	lastRecord  = 0xffff
	selRecord   = 16
	wholeRecord = 0xff // as the number of bytes to read
)

// What one question to the event log reads at most. The session has half a minute.
const (
	selTime        = 18 * time.Second
	sensorNameTime = 6 * time.Second
	// maxMissingRecords is how many ids in a row may have no record before the log is read from its beginning. Most BMCs number their
	// records without gaps; the standard does not demand it.
	maxMissingRecords = 24
	maxRecords        = 0xfffe
)

// selName is the name of the only log that IPMI has.
const selName = "SEL"

// ReadEventLog reads the System Event Log.
func (d *Driver) ReadEventLog(ctx context.Context, n *metal.Node, limit int) (metal.EventLog, error) {
	out := metal.EventLog{Entries: []metal.LogEntry{}}
	err := d.with(ctx, n, "read the event log", func(ctx context.Context, c commandSender) error {
		info, err := c.send(ctx, netFnStorage, commandSELInfo)
		if err != nil {
			return err
		}
		if len(info) < 5 {
			return problem.Unavailablef("the answer about the event log has %d bytes, not 14", len(info))
		}
		count := int(binary.LittleEndian.Uint16(info[1:]))
		limited, cancel := context.WithTimeout(ctx, selTime)
		defer cancel()
		records, err := selReader{limited, c}.newest(count, min(limit, metal.MaxLogEntries))
		if err != nil && len(records) == 0 {
			return err
		}
		summary := metal.LogSummary{Name: selName, Truncated: len(records) < count}
		if err != nil {
			summary.Problem = driver.LogText(err.Error())
		}
		out.Logs = []metal.LogSummary{summary}
		named := namesOfSensors(ctx, c, records)
		for _, record := range records {
			out.Entries = append(out.Entries, decodeSEL(record, named))
		}
		return nil
	})
	return out, err
}

// namesOfSensors reads the sensors that the records are about. An entry without the name of its sensor is of use too, so nothing here fails;
// ipmitool would take minutes for it.
func namesOfSensors(ctx context.Context, c commandSender, records [][]byte) sensorTable {
	_, isSlow := c.(*ipmitoolRunner)
	if isSlow || !slices.ContainsFunc(records, isSystemEvent) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sensorNameTime)
	defer cancel()
	table, _, _ := readSensors(ctx, c)
	return table
}

// selReader reads records.
type selReader struct {
	ctx context.Context
	c   commandSender
}

// get reads the record of an id; nil: there is none.
func (r selReader) get(id uint16) (record []byte, next uint16, err error) {
	answer, err := r.c.send(r.ctx, netFnStorage, commandSELEntry, 0, 0, byte(id), byte(id>>8), 0, wholeRecord)
	if isMissingRecord(err) {
		return nil, lastRecord, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if len(answer) != 2+selRecord {
		return nil, 0, problem.Unavailablef("record 0x%04x of the event log has %d bytes, not %d", id, len(answer)-2, selRecord)
	}
	return answer[2:], binary.LittleEndian.Uint16(answer), nil
}

func recordID(record []byte) uint16 { return binary.LittleEndian.Uint16(record) }

// newest reads the newest records, at most so many of those that the log has, oldest first. With an error come those that were read
// before it.
func (r selReader) newest(count, most int) ([][]byte, error) {
	want := min(count, most)
	if want < 1 {
		return nil, nil
	}
	last, _, err := r.get(lastRecord)
	if err != nil || last == nil {
		return nil, err
	}
	out := [][]byte{last}
	for id, missing := recordID(last)-1, 0; len(out) < want; id-- {
		if id == firstRecord || id == lastRecord { // ids begin anew behind 0xfffe
			id = lastRecord - 1
		}
		record, _, err := r.get(id)
		if err != nil {
			slices.Reverse(out)
			return out, err
		}
		if record == nil || recordID(record) != id {
			if missing++; missing > maxMissingRecords {
				return r.fromBeginning(want)
			}
			continue
		}
		missing = 0
		out = append(out, record)
	}
	slices.Reverse(out)
	return out, nil
}

// fromBeginning follows the log from its first record and gives the last ones.
func (r selReader) fromBeginning(want int) (out [][]byte, err error) {
	seen := map[uint16]bool{}
	for id := uint16(firstRecord); id != lastRecord && !seen[id] && len(seen) < maxRecords; {
		seen[id] = true
		record, next, err := r.get(id)
		if err != nil {
			return out, err
		}
		if record == nil {
			break
		}
		if out = append(out, record); len(out) > want {
			out = out[1:]
		}
		id = next
	}
	return out, nil
}

// isMissingRecord tells whether a BMC has no record or no sensor of this number.
func isMissingRecord(err error) bool {
	var code completionCode
	return errors.As(err, &code) && code == codeNotPresent
}

// Types of records (IPMI 2.0, chapter 32).
const (
	recordSystemEvent   = 0x02
	recordOEMTimed      = 0xc0 // and above: with a time and a manufacturer
	recordOEMUntimed    = 0xe0 // and above: with neither
	recordKernelPanic   = 0xf0 // the system's own: Linux writes the text of a panic so
	bitDeasserted       = 0x80
	eventThreshold      = 0x01
	eventSensorSpecific = 0x6f
)

func isSystemEvent(record []byte) bool { return record[2] == recordSystemEvent }

// decodeSEL reads a record of 16 bytes.
func decodeSEL(record []byte, named sensorTable) metal.LogEntry {
	out := metal.LogEntry{Log: selName, ID: strconv.Itoa(int(recordID(record))), Severity: metal.HealthOK}
	kind := record[2]
	if kind < recordOEMUntimed {
		out.Time = driver.EventTime(time.Unix(int64(binary.LittleEndian.Uint32(record[3:])), 0))
	}
	switch {
	case kind == recordKernelPanic:
		out.Severity, out.Sensor = metal.HealthCritical, "operating system"
		out.Message = driver.LogText(fmt.Sprintf("part %d of the text of a kernel panic: %s", record[4], problem.Quote(strings.TrimRight(string(record[5:]), "\x00"))))
	case kind >= recordOEMUntimed:
		out.Message = fmt.Sprintf("record type 0x%02x: %s", kind, hex.EncodeToString(record[3:]))
	case kind >= recordOEMTimed:
		maker := int(record[7]) | int(record[8])<<8 | int(record[9])<<16
		name := manufacturers[maker]
		if name == "" {
			name = fmt.Sprint("manufacturer ", maker)
		}
		out.Message = fmt.Sprintf("record type 0x%02x of %s: %s", kind, name, hex.EncodeToString(record[10:]))
	case kind == recordSystemEvent:
		decodeSystemEvent(record, named, &out)
	default:
		out.Message = fmt.Sprintf("record type 0x%02x: %s", kind, hex.EncodeToString(record[7:]))
	}
	return out
}

// decodeSystemEvent reads a record of type 02h (IPMI 2.0, 32.1), whose data depend on the kind of the sensor (29.7).
func decodeSystemEvent(record []byte, named sensorTable, out *metal.LogEntry) {
	sensorType, number, eventType := types.SensorType(record[10]), record[11], record[12]&^bitDeasserted
	data := types.EventData{EventData1: record[13], EventData2: record[14], EventData3: record[15]}
	offset := data.EventReadingOffset()
	out.MessageID = fmt.Sprintf("%02x/%02x/%x", record[10], eventType, offset)
	out.State = metal.EventAsserted
	if record[12]&bitDeasserted != 0 {
		out.State = metal.EventDeasserted
	}
	out.Severity = severityOfEvent(eventType, sensorType, offset, out.State)
	kind := nameOfSensorType(sensorType)
	sensor := named[sensorKey{record[7], number}]
	out.Sensor = fmt.Sprintf("%s #0x%02x", kind, number)
	if sensor != nil && sensor.name != "" {
		out.Sensor = sensor.name
	}
	event := types.EventReadingType(eventType).EventForOffset(sensorType, offset)
	text := fmt.Sprintf("event type 0x%02x, offset 0x%x", eventType, offset)
	if event != nil {
		text = event.EventName
	}
	text = kind + ": " + strings.TrimSpace(text)
	second, third := record[13]>>6, record[13]>>4&3 // what the other bytes are: 0 means nothing
	switch {
	case eventType == eventThreshold && second == 1 && third == 1 && sensor.hasReading():
		text += fmt.Sprintf(" (reading %s, threshold %s)", sensor.format(record[14]), sensor.format(record[15]))
	case second != 0 || third != 0:
		text += fmt.Sprintf(" (data 0x%02x 0x%02x)", record[14], record[15])
	}
	out.Message = driver.LogText(text)
}

func nameOfSensorType(t types.SensorType) string {
	if t >= 0xc0 {
		return fmt.Sprintf("sensor type 0x%02x", byte(t))
	}
	if name := t.String(); name != "unknown" {
		return name
	}
	return fmt.Sprintf("sensor type 0x%02x", byte(t))
}

// severityOfEvent takes the severity from the library's table. A fault that ended is ok, although the table calls its end as grave as its
// beginning.
func severityOfEvent(eventType byte, sensorType types.SensorType, offset byte, state metal.EventState) metal.HealthSeverity {
	kind, data := types.EventReadingType(eventType), types.EventData{EventData1: offset}
	asserted := driver.Severity(string(kind.EventSeverity(sensorType, data, types.EventDirAssertion)))
	switch {
	case state != metal.EventDeasserted:
		return asserted
	case asserted != metal.HealthOK:
		return metal.HealthOK
	}
	return driver.Severity(string(kind.EventSeverity(sensorType, data, types.EventDirDeassertion)))
}
