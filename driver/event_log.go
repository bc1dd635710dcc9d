package driver

import (
	"strings"
	"time"
	"unicode/utf8"

	"salvor/metal"
	"salvor/secret"
)

// maxLogText bounds a text of an event log or of a component's health, in bytes.
const maxLogText = 512

// LogText makes a text of a BMC fit for an entry of an event log: one line without control characters, of at most 512 bytes.
func LogText(text string, secrets ...secret.Value) string {
	text = SanitizeUpTo(maxLogText, text, secrets...)
	for len(text) > maxLogText {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// The clock of a BMC that was not set yet begins at one of 1970, 1980, 1999 and 1 January 2000. Some BMCs write the last day of 9999 for none.
var (
	firstEventTime = time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
	lastEventTime  = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

// EventTime is a time of a BMC's clock in UTC; zero if the clock was not set.
func EventTime(t time.Time) time.Time {
	if t.Before(firstEventTime) || !t.Before(lastEventTime) {
		return time.Time{}
	}
	return t.UTC()
}

// Severity reads a severity or a health as Redfish and IPMI name it. Names that it does not know are ok.
func Severity(name string) metal.HealthSeverity {
	switch strings.ToLower(name) {
	case "critical", "fatal", "non-recoverable", "nonrecoverable", "emergency", "alert":
		return metal.HealthCritical
	case "warning", "degraded", "non-fatal", "error":
		return metal.HealthWarning
	}
	return metal.HealthOK
}
