package ipmi

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

var _ driver.Health = (*Driver)(nil)

// Commands of sensors and their descriptions (IPMI 2.0, chapters 33 and 35).
const (
	netFnSensor          = 0x04
	commandSensorReading = 0x2d
	commandReserveSDR    = 0x22
	commandGetSDR        = 0x23
)

// What one look at the sensors reads at most.
const (
	healthTime    = 24 * time.Second
	maxSDRs       = 512
	maxSDR        = 5 + 64 // bytes of a record that describes a sensor
	sdrHeader     = 5
	sdrPart       = 16 // bytes of a partial read, which every BMC can send
	maxUnhealthy  = 200
	bmcController = 0x20 // the BMC's own address
)

// sensorKey names a sensor: the controller or the software that has it, and its number there.
type sensorKey struct{ owner, number byte }

// bmcSensor is what a Sensor Data Record says of a sensor.
type bmcSensor struct {
	name      string
	kind      types.SensorType
	eventType byte
	full      *types.SDRFull // nil: it has no number as reading
}

type sensorTable map[sensorKey]*bmcSensor

func (s *bmcSensor) hasReading() bool { return s != nil && s.full != nil && s.full.HasAnalogReading() }

// reading is a raw reading in the unit of the sensor. A number that no reading can be has no text in JSON either: it is left out.
func (s *bmcSensor) reading(raw byte) (*float64, string) {
	if !s.hasReading() {
		return nil, ""
	}
	v := s.full.ConvertReading(raw)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, ""
	}
	v = math.Round(v*1000) / 1000
	unit := s.full.SensorUnit.String()
	return &v, driver.LogText(cmp.Or(unitNames[unit], unit))
}

func (s *bmcSensor) format(raw byte) string {
	v, unit := s.reading(raw)
	if v == nil {
		return fmt.Sprintf("0x%02x", raw)
	}
	return fmt.Sprintf("%g %s", *v, unit)
}

// unitNames are units as people write them, by the library's names.
var unitNames = map[string]string{"degrees C": "°C", "degrees F": "°F", "Volts": "V", "Amps": "A", "Watts": "W", "percent": "%"}

// sdrReader reads Sensor Data Records.
type sdrReader struct {
	ctx         context.Context
	c           commandSender
	byParts     bool // the BMC cannot send a record as a whole
	reservation [2]byte
}

// readSensors reads the descriptions of sensors. With an error, or a list cut short, come those that were read before.
func readSensors(ctx context.Context, c commandSender) (table sensorTable, truncated bool, err error) {
	r, table := sdrReader{ctx: ctx, c: c}, sensorTable{}
	seen := map[uint16]bool{}
	for id := uint16(firstRecord); id != lastRecord; {
		if seen[id] || len(seen) >= maxSDRs {
			return table, true, nil
		}
		seen[id] = true
		record, next, err := r.get(id)
		if isMissingRecord(err) {
			return table, false, nil
		}
		if err != nil {
			return table, true, err
		}
		if key, sensor := parseSensor(record); sensor != nil {
			table[key] = sensor
		}
		id = next
	}
	return table, false, nil
}

// isTooLong tells whether a BMC refuses to send so many bytes at once. BMCs differ in the code.
func isTooLong(err error) bool {
	var code completionCode
	return errors.As(err, &code) && slices.Contains([]completionCode{codeTooLong, codeBadLength, codeBadSize, codeUnspecified}, code)
}

// get reads a record: as a whole, or by parts where the BMC cannot.
func (r *sdrReader) get(id uint16) (record []byte, next uint16, err error) {
	if !r.byParts {
		if record, next, err = r.part(id, 0, wholeRecord); err == nil || !isTooLong(err) {
			return record, next, err
		}
		answer, err := r.c.send(r.ctx, netFnStorage, commandReserveSDR)
		if err != nil {
			return nil, 0, err
		}
		if len(answer) < 2 {
			return nil, 0, problem.Unavailablef("the reservation of the sensor records has %d bytes, not 2", len(answer))
		}
		r.byParts, r.reservation = true, [2]byte(answer)
	}
	if record, next, err = r.part(id, 0, sdrHeader); err != nil {
		return nil, 0, err
	}
	if len(record) < sdrHeader {
		return nil, 0, problem.Unavailablef("the header of sensor record 0x%04x has %d bytes, not %d", id, len(record), sdrHeader)
	}
	for size := min(sdrHeader+int(record[4]), maxSDR); len(record) < size; {
		more, _, err := r.part(id, byte(len(record)), byte(min(size-len(record), sdrPart)))
		if err != nil {
			return nil, 0, err
		}
		if len(more) == 0 {
			break
		}
		record = append(record, more...)
	}
	return record, next, nil
}

func (r *sdrReader) part(id uint16, offset, size byte) ([]byte, uint16, error) {
	answer, err := r.c.send(r.ctx, netFnStorage, commandGetSDR, r.reservation[0], r.reservation[1], byte(id), byte(id>>8), offset, size)
	if err != nil {
		return nil, 0, err
	}
	if len(answer) < 2 {
		return nil, 0, problem.Unavailablef("sensor record 0x%04x has %d bytes", id, len(answer))
	}
	return answer[2:], binary.LittleEndian.Uint16(answer), nil
}

// parseSensor reads a Sensor Data Record; nil: it is not about a sensor, or makes no sense.
func parseSensor(record []byte) (key sensorKey, sensor *bmcSensor) {
	defer func() {
		if recover() != nil { // the library trusts the lengths in the record
			sensor = nil
		}
	}()
	sdr, err := types.ParseSDR(record, lastRecord)
	if err != nil {
		return key, nil
	}
	var owner types.GeneratorID
	switch {
	case sdr.Full != nil:
		s := sdr.Full
		owner, sensor = s.GeneratorID, &bmcSensor{kind: s.SensorType, eventType: byte(s.SensorEventReadingType), full: s}
	case sdr.Compact != nil:
		s := sdr.Compact
		owner, sensor = s.GeneratorID, &bmcSensor{kind: s.SensorType, eventType: byte(s.SensorEventReadingType)}
	case sdr.EventOnly != nil:
		s := sdr.EventOnly
		owner, sensor = s.GeneratorID, &bmcSensor{kind: s.SensorType, eventType: byte(s.SensorEventReadingType)}
	default:
		return key, nil
	}
	sensor.name = driver.LogText(sdr.SensorName())
	return sensorKey{byte(owner), byte(sdr.SensorNumber())}, sensor
}

// ReadHealth reads the chassis status and the sensors of the BMC.
func (d *Driver) ReadHealth(ctx context.Context, n *metal.Node) (metal.Health, error) {
	out := metal.Health{Unhealthy: []metal.UnhealthyComponent{}}
	err := d.with(ctx, n, "read the health", func(ctx context.Context, c commandSender) error { return readHealth(ctx, c, &out) })
	return out, err
}

func readHealth(ctx context.Context, c commandSender, out *metal.Health) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	status, err := sendChassisCommand(ctx, c, commandStatus)
	if err != nil {
		return err
	}
	out.Unhealthy = append(out.Unhealthy, chassisFaults(status)...)
	table, truncated, err := readSensors(ctx, c)
	out.Truncated = truncated && !problem.Is(err, problem.Unsupported) // a BMC without sensors has shown all that it has
	h := healthReader{ctx, c, out}
	for _, key := range slices.SortedFunc(maps.Keys(table), func(a, b sensorKey) int { return cmp.Compare(a.number, b.number) }) {
		if key.owner != bmcController {
			continue
		}
		if !h.read(key.number, table[key]) {
			out.Truncated = true
			break
		}
	}
	out.Health = worst(out.Unhealthy)
	return nil
}

// Bits of the chassis status (IPMI 2.0, 28.2), by the byte that has them.
var chassisBits = []struct {
	at   int
	bit  byte
	kind string
	text string
}{
	{0, 0x02, "power", "power overload"}, {0, 0x08, "power", "main power fault"}, {0, 0x10, "power", "power control fault"},
	{2, 0x04, "drive", "drive fault"}, {2, 0x08, "fan", "cooling or fan fault"},
}

func chassisFaults(status []byte) (out []metal.UnhealthyComponent) {
	for _, b := range chassisBits {
		if b.at < len(status) && status[b.at]&b.bit != 0 {
			out = append(out, metal.UnhealthyComponent{Component: b.kind, Name: "chassis status", State: b.text, Health: metal.HealthCritical})
		}
	}
	return out
}

func worst(all []metal.UnhealthyComponent) metal.HealthSeverity {
	out := metal.HealthOK
	for _, c := range all {
		if c.Health == metal.HealthCritical || out == metal.HealthOK {
			out = c.Health
		}
	}
	return out
}

// healthReader reads sensors.
type healthReader struct {
	ctx context.Context
	c   commandSender
	out *metal.Health
}

// Bits of the second byte of a sensor's reading (IPMI 2.0, 35.14).
const (
	readingUnavailable = 0x20
	scanningEnabled    = 0x40
)

// read adds a sensor that is not well; false: the BMC does not answer any more.
func (h healthReader) read(number byte, s *bmcSensor) bool {
	answer, err := h.c.send(h.ctx, netFnSensor, commandSensorReading, number)
	if err != nil {
		return h.ctx.Err() == nil // the BMC has no reading of this one now
	}
	if len(answer) < 3 || answer[1]&scanningEnabled == 0 || answer[1]&readingUnavailable != 0 {
		return true
	}
	states := uint16(answer[2])
	if len(answer) > 3 {
		states |= uint16(answer[3]&0x7f) << 8
	}
	c := metal.UnhealthyComponent{Component: strings.ToLower(nameOfSensorType(s.kind)), Name: s.name, Health: metal.HealthOK}
	if s.eventType == eventThreshold {
		c.State, c.Health = thresholdState(byte(states))
		c.Reading, c.Unit = s.reading(answer[0])
	} else {
		c.State, c.Health = discreteState(s, states)
	}
	if c.Health == metal.HealthOK {
		return true
	}
	c.Name = cmp.Or(c.Name, fmt.Sprintf("#0x%02x", number))
	if len(h.out.Unhealthy) >= maxUnhealthy {
		h.out.Truncated = true
		return true
	}
	h.out.Unhealthy = append(h.out.Unhealthy, c)
	return true
}

// thresholds are the states of a sensor with thresholds by their bits, the worst first.
var thresholds = []struct {
	bit    byte
	text   string
	health metal.HealthSeverity
}{
	{0x20, "upper non-recoverable", metal.HealthCritical}, {0x04, "lower non-recoverable", metal.HealthCritical},
	{0x10, "upper critical", metal.HealthCritical}, {0x02, "lower critical", metal.HealthCritical},
	{0x08, "upper non-critical", metal.HealthWarning}, {0x01, "lower non-critical", metal.HealthWarning},
}

func thresholdState(bits byte) (string, metal.HealthSeverity) {
	for _, t := range thresholds {
		if bits&t.bit != 0 {
			return t.text, t.health
		}
	}
	return "", metal.HealthOK
}

// stateSensors are the types of sensors whose states tell of the hardware's health. The states of others, such as the presence of an
// entity or an opened case, are no faults.
var stateSensors = []types.SensorType{
	types.SensorTypeTemperature, types.SensorTypeVoltage, types.SensorTypeCurrent, types.SensorTypeFan, types.SensorTypeProcessor, types.SensorTypePowerSupply,
	types.SensorTypePowerUnit, types.SensorTypeMemory, types.SensorTypeDriveSlot, types.SensorTypeCriticalInterrupt, types.SensorTypeChipSet,
	types.SensorTypeSlotConnector, types.SensorTypeBattery,
}

// discreteState is the worst of the states that are asserted.
func discreteState(s *bmcSensor, states uint16) (text string, health metal.HealthSeverity) {
	health = metal.HealthOK
	if !slices.Contains(stateSensors, s.kind) {
		return "", health
	}
	for offset := range byte(15) {
		if states&(1<<offset) == 0 {
			continue
		}
		severity := severityOfEvent(s.eventType, s.kind, offset, metal.EventAsserted)
		if severity == metal.HealthOK || severity == metal.HealthWarning && (health != metal.HealthOK || s.eventType != eventSensorSpecific) {
			continue
		}
		if health == metal.HealthCritical {
			continue
		}
		health = severity
		if event := types.EventReadingType(s.eventType).EventForOffset(s.kind, offset); event != nil {
			text = driver.LogText(event.EventName)
		}
	}
	return text, health
}
