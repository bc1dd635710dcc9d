package fake

import (
	"context"
	"encoding/json"
	"strconv"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// Keys of driver_info that say what the machine that is not there has logged, and what of it is not well: lists of objects with the fields
// of metal.LogEntry and metal.UnhealthyComponent, or such a list as text.
const (
	EventLogKey  = "fake_bmc_log"
	UnhealthyKey = "fake_unhealthy"
)

var (
	_ driver.EventLog = Hardware{}
	_ driver.Health   = Hardware{}
)

// listOf reads a list out of driver_info.
func listOf[T any](n *metal.Node, key string) (out []T, err error) {
	var text []byte
	switch v := n.DriverInfo[key].(type) {
	case nil:
		return nil, nil
	case string:
		text = []byte(v)
	default:
		if text, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, problem.Invalidf("node %s: %s must be a list of objects: %s", n.ID, key, driver.Sanitize(err.Error()))
	}
	return out, nil
}

// ReadEventLog gives the newest entries of driver_info. Their ids are their places in the list.
func (Hardware) ReadEventLog(ctx context.Context, n *metal.Node, limit int) (metal.EventLog, error) {
	if err := wait(ctx, n); err != nil {
		return metal.EventLog{}, err
	}
	all, err := listOf[metal.LogEntry](n, EventLogKey)
	if err != nil {
		return metal.EventLog{}, err
	}
	for i, e := range all {
		state := metal.EventState("")
		if e.State == metal.EventAsserted || e.State == metal.EventDeasserted {
			state = e.State
		}
		all[i] = metal.LogEntry{
			Log: "SEL", ID: strconv.Itoa(i + 1), Time: driver.EventTime(e.Time), Severity: driver.Severity(string(e.Severity)), State: state,
			Sensor: driver.LogText(e.Sensor), Message: driver.LogText(e.Message), MessageID: driver.LogText(e.MessageID),
		}
	}
	first := max(0, len(all)-min(limit, metal.MaxLogEntries))
	return metal.EventLog{Entries: append([]metal.LogEntry{}, all[first:]...), Logs: []metal.LogSummary{{Name: "SEL", Truncated: first > 0}}}, nil
}

// ReadHealth gives the components of driver_info; without any, the machine is well.
func (Hardware) ReadHealth(ctx context.Context, n *metal.Node) (metal.Health, error) {
	out := metal.Health{Health: metal.HealthOK, Unhealthy: []metal.UnhealthyComponent{}}
	if err := wait(ctx, n); err != nil {
		return out, err
	}
	all, err := listOf[metal.UnhealthyComponent](n, UnhealthyKey)
	if err != nil {
		return out, err
	}
	for _, c := range all {
		c.Health = driver.Severity(string(c.Health))
		for _, text := range []*string{&c.Component, &c.Name, &c.State, &c.Unit, &c.Message} {
			*text = driver.LogText(*text)
		}
		out.Unhealthy = append(out.Unhealthy, c)
		if c.Health.AtLeast(out.Health) {
			out.Health = c.Health
		}
	}
	return out, nil
}
