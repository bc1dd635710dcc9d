package metal

import (
	"fmt"
	"slices"
	"time"
)

// EventLogKind and HealthKind are the questions to a BMC whose answers are an EventLog and a Health.
const (
	EventLogKind = "read BMC event log"
	HealthKind   = "read BMC health"
)

// MaxLogEntries bounds how many entries one question reads.
const MaxLogEntries = 500

// EventLogArgs ask for the newest entries of a BMC's event log.
type EventLogArgs struct {
	// Limit is the most entries that are wanted, 1 to MaxLogEntries.
	Limit int `json:"limit"`
}

// Check refuses a limit out of bounds.
func (a EventLogArgs) Check() error {
	if a.Limit < 1 || a.Limit > MaxLogEntries {
		return fmt.Errorf("limit %d: want 1 to %d", a.Limit, MaxLogEntries)
	}
	return nil
}

// EventLog is what a BMC has logged about its machine: the SEL of IPMI, the LogServices of Redfish.
type EventLog struct {
	// Entries of one log are together and in the order of their records, the newest last. The order does not depend on the BMC's clock.
	Entries []LogEntry `json:"entries"`
	// Logs are the logs that were read, and those that could not be read.
	Logs []LogSummary `json:"logs"`
}

// LogSummary is a log of a BMC.
type LogSummary struct {
	Name string `json:"name"`
	// Truncated: the log has older entries than those that were read.
	Truncated bool `json:"truncated"`
	// Problem says why the log could not be read, or not to its end; empty: it was read.
	Problem string `json:"problem"`
}

// LogEntry is a record of an event log. Its texts are those of the BMC, each one line without control characters, of at most 512 bytes.
type LogEntry struct {
	// Log is the name of the log, such as SEL or IML.
	Log string `json:"log"`
	// ID is the BMC's own id of the record.
	ID string `json:"id"`
	// Time is in UTC; zero: the BMC's clock was not set when it wrote the record.
	Time     time.Time      `json:"time,omitzero"`
	Severity HealthSeverity `json:"severity"`
	// Sensor is the sensor or the component that the record is about; empty: the BMC does not tell.
	Sensor  string `json:"sensor"`
	Message string `json:"message"`
	// MessageID is the id of a Redfish message, or the event of IPMI as "sensor type/event type/offset" in hexadecimal digits.
	MessageID string `json:"message_id"`
	// State is asserted or deasserted; empty: the record does not tell.
	State EventState `json:"state"`
}

// HealthSeverity is how bad the state of a component is, or an event.
type HealthSeverity string

const (
	HealthOK       HealthSeverity = "ok"
	HealthWarning  HealthSeverity = "warning"
	HealthCritical HealthSeverity = "critical"
)

// AtLeast tells whether a severity is as bad as another, or worse. Every severity is at least the empty one.
func (s HealthSeverity) AtLeast(other HealthSeverity) bool {
	order := []HealthSeverity{"", HealthOK, HealthWarning, HealthCritical}
	return slices.Index(order, s) >= slices.Index(order, other)
}

// EventState is whether an event began or ended.
type EventState string

const (
	EventAsserted   EventState = "asserted"
	EventDeasserted EventState = "deasserted"
)

// Health is what a BMC tells of the state of its machine.
type Health struct {
	// Health is that of the whole machine; empty: the BMC does not tell.
	Health HealthSeverity `json:"health"`
	// Unhealthy are the components whose health is not ok, and the sensors beyond a threshold.
	Unhealthy []UnhealthyComponent `json:"unhealthy"`
	// Truncated: not all components were read, because there are too many or the BMC is too slow.
	Truncated bool `json:"truncated"`
}

// UnhealthyComponent is a component that is not well. Its texts are bounded like those of LogEntry.
type UnhealthyComponent struct {
	// Component is its kind: system, processors, memory, chassis, temperature, fan, voltage, power supply, drive, ...
	Component string `json:"component"`
	Name      string `json:"name"`
	// State is what the BMC says of it: Enabled, Absent, upper critical, uncorrectable ECC, ...
	State  string         `json:"state"`
	Health HealthSeverity `json:"health"`
	// Reading is the measured value and Unit its unit; nil: it has none.
	Reading *float64 `json:"reading,omitempty"`
	Unit    string   `json:"unit,omitempty"`
	// Message is the BMC's reason; empty: it gives none.
	Message string `json:"message"`
}
