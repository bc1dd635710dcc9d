package ironic

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/ironic"
)

// historyFields are all fields, with their first versions where that is not the history's own.
var historyFields = []string{"uuid", "created_at", "severity", "event", "event_type", "conductor", "user", "node_uuid",
	"project", "state", "target_provision_state", "duration_seconds", "links"}

var newerHistoryFields = map[string]metal.Version{"project": 113, "state": 115, "target_provision_state": 115, "duration_seconds": 115}

// historySortKeys both follow the order of the timeline.
var historySortKeys = map[string]metal.Version{"uuid": 78, "created_at": 78}

// eventID makes a UUID of an event's place in its node's timeline, from which the place
// can be read again: 8 bytes of the node's hash, version 8, and the counter.
func eventID(nodeID string, seq int64) string {
	var id uuid.UUID
	sum := sha256.Sum256([]byte(nodeID))
	copy(id[:8], sum[:8])
	binary.BigEndian.PutUint64(id[8:], uint64(seq))
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// eventSeq reads the place back; ok is false for an id that is not of this node.
func eventSeq(nodeID, id string) (seq int64, ok bool) {
	u, err := uuid.Parse(id)
	if err != nil {
		return 0, false
	}
	seq = int64(binary.BigEndian.Uint64(u[8:]) &^ (0xff << 56))
	return seq, eventID(nodeID, seq) == u.String()
}

func (c *ironicCall) shownEvent(nodeID string, e job.Event) ironic.HistoryEvent {
	id := eventID(nodeID, e.Seq)
	out := ironic.HistoryEvent{
		// Ironic's words are INFO and ERROR.
		UUID: id, CreatedAt: e.At.UTC().Format(timeLayout), Severity: strings.ToUpper(e.Severity), Event: e.Text, EventType: e.Type,
		NodeUUID: nodeID, Links: c.links("nodes/" + nodeID + "/history/" + id),
	}
	if !c.seesAll(wholeNode) {
		out.Event = problem.Redact(out.Event)
	}
	if e.User != "" {
		out.User = &e.User
	}
	if e.Type == "state" {
		state, _, _ := strings.Cut(e.Text, ": ")
		target := string(metal.State(state).Info().Target)
		if out.State = &state; target != "" {
			out.Target = &target
		}
	}
	if e.Duration > 0 {
		seconds := int(e.Duration.Round(time.Second) / time.Second)
		out.Duration = &seconds
	}
	return out
}

func (s *server) listHistory(c *ironicCall) error {
	if err := c.only(pageArgs...); err != nil {
		return err
	}
	names, err := c.historyFieldNames()
	if err != nil {
		return err
	}
	p, err := c.page(historySortKeys)
	if err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	events, err := c.historyPage(c.R.Context(), n, p)
	if err != nil {
		return err
	}
	list := []map[string]json.RawMessage{}
	for _, e := range events {
		one, err := selectFields(c.shownEvent(n.ID, e), names)
		if err != nil {
			return err
		}
		list = append(list, one)
	}
	out := map[string]any{"history": list}
	if len(events) > 0 {
		if next := c.next("nodes/"+n.ID+"/history", p, len(events), eventID(n.ID, events[len(events)-1].Seq)); next != "" {
			out["next"] = next
		}
	}
	return c.JSON(http.StatusOK, out)
}

func (c *ironicCall) historyFieldNames() ([]string, error) {
	names, err := c.fieldNames()
	if err != nil {
		return nil, err
	}
	detail, err := c.detail(names)
	switch {
	case err != nil:
		return nil, err
	case detail:
		return c.allHistoryFields(), nil
	case names == nil:
		return []string{"uuid", "created_at", "severity", "event", "links"}, nil
	}
	for _, name := range names {
		if !slices.Contains(historyFields, name) {
			return nil, unknownField(name, historyFields)
		}
		if since := newerHistoryFields[name]; since > c.version {
			return nil, newerField(name, since)
		}
	}
	return append(names, "links"), nil
}

// allHistoryFields are those that the version knows.
func (c *ironicCall) allHistoryFields() []string {
	return slices.DeleteFunc(slices.Clone(historyFields), func(name string) bool { return newerHistoryFields[name] > c.version })
}

// historyPage reads one page. The timeline only goes forward, and is kept short enough
// by age and count to be read whole for the other direction.
func (c *ironicCall) historyPage(ctx context.Context, n *metal.Node, p record.Page) ([]job.Event, error) {
	after := int64(0)
	if p.Marker != "" {
		seq, ok := eventSeq(n.ID, p.Marker)
		if !ok {
			return nil, problem.NotFoundf("The marker could not be found.")
		}
		after = seq
	}
	if !p.Desc {
		return c.s.Timeline.Events(ctx, job.Node(n.ID), after, p.Limit)
	}
	var all []job.Event
	for last := int64(0); ; {
		some, err := c.s.Timeline.Events(ctx, job.Node(n.ID), last, 1000)
		if err != nil {
			return nil, err
		}
		for _, e := range some {
			if last = e.Seq; after == 0 || e.Seq < after {
				all = append(all, e)
			}
		}
		if len(some) < 1000 {
			break
		}
	}
	slices.Reverse(all)
	return all[:min(len(all), p.Limit)], nil
}

func (s *server) getHistory(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	missing := problem.NotFoundf("Node history record %s could not be found.", truncateInput(c.Args[1]))
	seq, ok := eventSeq(n.ID, c.Args[1])
	if !ok {
		return missing
	}
	events, err := s.Timeline.Events(c.R.Context(), job.Node(n.ID), seq-1, 1)
	if err != nil {
		return err
	}
	if len(events) == 0 || events[0].Seq != seq {
		return missing
	}
	one, err := selectFields(c.shownEvent(n.ID, events[0]), c.allHistoryFields())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, one)
}
