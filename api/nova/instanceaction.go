package nova

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// maxEvents is how much of a server's timeline is read for its actions: the newest.
const maxEvents = 5000

// instanceAction is a request that somebody made, with what the timeline tells of its work.
type instanceAction struct {
	request job.Event
	work    []job.Event
}

// moveWords are Nova's for requests that the timeline tells in sentences.
var moveWords = []struct{ said, word string }{
	{"its host was fenced", "evacuate"}, {"(" + string(compute.LiveMigration) + ")", "live-migration"}, {"(" + string(compute.Migration) + ")", "migrate"},
	{"is given a disk from quarantine", "restore_disk"},
}

// novaName is Nova's name of the action.
func (a *instanceAction) novaName() string {
	for _, m := range moveWords {
		if strings.Contains(a.request.Text, m.said) {
			return m.word
		}
	}
	word := strings.TrimPrefix(a.request.Text, "asked to ")
	if nova, ok := actionWords[compute.Action(word)]; ok {
		return nova
	}
	return strings.ReplaceAll(word, " ", "_")
}

// failed tells whether the action went wrong, as far as the action came. A try that failed and was followed by one that went well does not count, and
// neither does what was undone after a failure.
func (a *instanceAction) failed() bool {
	for _, e := range slices.Backward(a.work) {
		if e.Severity == "error" || !strings.HasPrefix(e.Text, "undo ") {
			return e.Severity == "error"
		}
	}
	return false
}

// changed is when something last happened of it.
func (a *instanceAction) changed() time.Time {
	at := a.request.At
	for _, e := range a.work {
		if e.At.After(at) {
			at = e.At
		}
	}
	return at
}

// instanceActions reads a server's actions, the newest first.
func (c instanceActionCall) instanceActions(srv *compute.Server) ([]*instanceAction, error) {
	events, err := c.s.Timeline.Latest(c.R.Context(), compute.Subject(srv.ID), maxEvents)
	if err != nil {
		return nil, err
	}
	var out []*instanceAction
	byRequest := map[string]*instanceAction{}
	for _, e := range events {
		switch {
		case e.Type == "request" && strings.HasPrefix(e.Text, compute.RecordUpdated):
		case e.Type == "request" && e.RequestID != "":
			a := &instanceAction{request: e}
			out, byRequest[e.RequestID] = append(out, a), a
		case e.Type == "action" && byRequest[e.RequestID] != nil:
			byRequest[e.RequestID].work = append(byRequest[e.RequestID].work, e)
		}
	}
	slices.Reverse(out)
	return out, nil
}

func (c instanceActionCall) instanceActionView(srv *compute.Server, a *instanceAction) jsonObject {
	o := jsonObject{
		"action": a.novaName(), "instance_uuid": srv.ID, "request_id": a.request.RequestID, "user_id": a.request.User, "project_id": srv.Project,
		"start_time": timeOrNil(a.request.At), "message": nil,
	}
	if a.failed() {
		o["message"] = "Error"
	}
	if c.Minor >= 58 {
		o["updated_at"] = timeOrNil(a.changed())
	}
	return o
}

func (c instanceActionCall) listInstanceActions() error {
	srv, err := c.serverOrGone()
	if err != nil {
		return err
	}
	all, err := c.instanceActions(srv)
	if err != nil {
		return err
	}
	if c.Minor < 58 {
		return c.instanceActionPage(srv, all, len(all))
	}
	if err := c.only(58, "limit", "marker", "changes-since", "changes-before"); err != nil {
		return err
	}
	for name, drop := range map[string]func(at, bound time.Time) bool{"changes-since": time.Time.Before, "changes-before": time.Time.After} {
		word := c.Query.Get(name)
		if word == "" || name == "changes-before" && c.Minor < 66 {
			continue
		}
		bound, ok := parseQueryTime(word)
		if !ok {
			return problem.Invalidf("Invalid filter field: %s.", name)
		}
		all = slices.DeleteFunc(all, func(a *instanceAction) bool { return drop(a.changed(), bound) })
	}
	if marker := c.Query.Get("marker"); marker != "" {
		at := slices.IndexFunc(all, func(a *instanceAction) bool { return a.request.RequestID == marker })
		if at < 0 {
			return noMarker(marker)
		}
		all = all[at+1:]
	}
	limit, err := c.number("limit", c.s.MaxLimit)
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = c.s.MaxLimit
	}
	return c.instanceActionPage(srv, all, min(limit, c.s.MaxLimit))
}

func (c instanceActionCall) instanceActionPage(srv *compute.Server, all []*instanceAction, limit int) error {
	out := []jsonObject{}
	for _, a := range all[:min(limit, len(all))] {
		out = append(out, c.instanceActionView(srv, a))
	}
	answer := jsonObject{"instanceActions": out}
	if len(all) > limit {
		answer["links"] = c.next("/servers/"+srv.ID+"/os-instance-actions", limit, limit, all[limit-1].request.RequestID)
	}
	return c.json(http.StatusOK, answer)
}

// serverOrGone is server, but finds deleted ones for everybody whose they were, from the version on that does so.
func (c instanceActionCall) serverOrGone() (*compute.Server, error) {
	srv, err := c.server()
	if c.Minor < 21 || !problem.Is(err, problem.NotFound) {
		return srv, err
	}
	if gone, second := c.s.Services.Servers.Server(c.R.Context(), c.Arg("server"), c.requester); second == nil {
		return gone, nil
	}
	return nil, err
}

func (c instanceActionCall) getInstanceAction() error {
	srv, err := c.serverOrGone()
	if err != nil {
		return err
	}
	all, err := c.instanceActions(srv)
	if err != nil {
		return err
	}
	id := c.Arg("request")
	at := slices.IndexFunc(all, func(a *instanceAction) bool { return a.request.RequestID == id })
	if at < 0 {
		return problem.NotFoundf("Action %s not found", truncateText(id))
	}
	o := c.instanceActionView(srv, all[at])
	if c.admin || c.Minor >= 51 {
		dir, err := c.s.names.get(c.R.Context())
		if err != nil {
			return err
		}
		events := []jsonObject{}
		for _, e := range all[at].work {
			events = append(events, c.instanceEvent(srv, dir, e))
		}
		o["events"] = events
	}
	return c.json(http.StatusOK, jsonObject{"instanceAction": o})
}

func (c instanceActionCall) instanceEvent(srv *compute.Server, dir *nameSnapshot, e job.Event) jsonObject {
	o := jsonObject{
		"event": e.Action, "start_time": timeOrNil(e.At.Add(-e.Duration)), "finish_time": timeOrNil(e.At), "result": "Success",
	}
	if e.Severity == "error" {
		o["result"] = "Error"
	}
	if c.admin {
		o["traceback"] = nil
		if e.Severity == "error" {
			o["traceback"] = e.Text
		}
	}
	host := dir.hosts[srv.HostID]
	if c.Minor >= 62 {
		o["hostId"] = hostID(&serverView{Server: srv})
		if c.admin {
			o["host"] = orNil(host.name)
		}
	}
	if c.Minor >= 84 {
		o["details"] = nil
		if e.Severity == "error" {
			o["details"] = e.Text
			if !c.admin {
				o["details"] = c.Principal.Redact(compute.Outside(e).Text)
			}
		}
	}
	return o
}
