package native

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"

	"salvor/api"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// defaultLogEntries is how many entries of a BMC's event log are read unless the request says another limit.
const defaultLogEntries = 100

// readBMCLog answers with the newest entries of the BMC's event log, or those of them that are at least as severe as wanted.
func (s *server) readBMCLog(c *api.Call) error {
	args := metal.EventLogArgs{Limit: defaultLogEntries}
	if text := c.Query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		args.Limit = limit
		if err = cmp.Or(err, args.Check()); err != nil {
			return problem.Invalidf("Invalid value for limit: %.40q; want 1 to %d.", text, metal.MaxLogEntries)
		}
	}
	least, err := oneOf(c, "severity", metal.HealthOK, metal.HealthWarning, metal.HealthCritical)
	if err != nil {
		return err
	}
	answer, err := s.answerOfBMC(c, metal.Question{Class: job.Background, Kind: metal.EventLogKind, Part: "management", Args: args})
	if err != nil {
		return err
	}
	var log metal.EventLog
	if err := json.Unmarshal(answer, &log); err != nil {
		return err
	}
	entries := []map[string]any{}
	for _, e := range log.Entries {
		if !e.Severity.AtLeast(least) {
			continue
		}
		entries = append(entries, map[string]any{
			"log": e.Log, "id": e.ID, "time": timeOrNull(e.Time), "severity": e.Severity, "sensor": e.Sensor, "message": e.Message, "message_id": e.MessageID,
			"state": e.State,
		})
	}
	return c.JSON(http.StatusOK, map[string]any{"entries": entries, "logs": append([]metal.LogSummary{}, log.Logs...)})
}

// readBMCHealth answers with the components that the BMC calls unhealthy.
func (s *server) readBMCHealth(c *api.Call) error {
	return s.askBMC(c, metal.Question{Class: job.Background, Kind: metal.HealthKind, Part: "management", Args: struct{}{}})
}
