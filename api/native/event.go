package native

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	wire "salvor/wire/native"
)

const (
	maxSubjects = 100
	// eventPage is how many events a page holds where nobody says.
	eventPage = 100
	// streamLife ends a stream, so that who follows proves again who it is; clients go on by themselves where it ended.
	streamLife = 10 * time.Minute
	// streamBeat is how often a stream says that it lives.
	streamBeat = 15 * time.Second
)

// streamPatience is how long a client may take to read what it was sent.
var streamPatience = 20 * time.Second

// streamTrust is how long a follower who may see what it follows is told of it before that is asked again.
var streamTrust = api.TokenMemory

// eventRoutes tell the timeline, of all subjects or of those that are named, to whoever may see them.
func (s *server) eventRoutes() []api.Route {
	return []api.Route{{Method: http.MethodGet, Path: "/events", Do: s.events}}
}

// eventWatch is what a request for events asks for.
type eventWatch struct {
	filter job.FeedFilter
	// names of the subjects that were named.
	names map[job.Subject]string
	last  int  // the newest so many; 0: those after the cursor
	now   bool // only what comes
	limit int
	// tenant is who may see servers, and not what runs them.
	tenant bool
	// redacted: the reader may not see text of BMCs, agents and hosts.
	redacted bool
}

func (s *server) events(c *api.Call) error {
	if s.Feed == nil {
		return problem.Unsupportedf("There is no timeline here.")
	}
	w, err := s.watchOf(c)
	if err != nil {
		return err
	}
	if strings.Contains(c.R.Header.Get("Accept"), "text/event-stream") && c.R.Method == http.MethodGet {
		return s.stream(c, w)
	}
	return s.eventPage(c, w)
}

func (s *server) watchOf(c *api.Call) (w eventWatch, err error) {
	w.names, w.filter.Type, w.tenant = map[job.Subject]string{}, c.Query.Get("type"), !c.Admin()
	w.redacted = !c.Principal.SeesQuotations()
	if len(c.Query["subject"]) > maxSubjects {
		return w, problem.Invalidf("Invalid value for subject: at most %d may be named.", maxSubjects)
	}
	for _, text := range c.Query["subject"] {
		subject, name, err := s.subjectOf(c, text)
		if err != nil {
			return w, err
		}
		if _, again := w.names[subject]; !again {
			w.filter.Subjects, w.names[subject] = append(w.filter.Subjects, subject), name
		}
	}
	if len(w.filter.Subjects) == 0 && !s.seesTimeline(c) {
		return w, problem.Forbiddenf("Name the subjects whose events you want: subject=node:UUID or subject=server:UUID.")
	}
	for _, n := range []struct {
		name     string
		to       *int
		from, by int
	}{{"limit", &w.limit, eventPage, maxPage}, {"last", &w.last, 0, maxPage}} {
		*n.to = n.from
		if text := c.Query.Get(n.name); text != "" {
			if *n.to, err = strconv.Atoi(text); err != nil || *n.to < 1 || *n.to > n.by {
				return w, problem.Invalidf("Invalid value for %s: %.40q; want 1 to %d.", n.name, text, n.by)
			}
		}
	}
	after := c.R.Header.Get("Last-Event-ID") // of a client that goes on; it asks with the query of its first request
	if after == "" {
		after = c.Query.Get("after")
	} else {
		w.last = 0
	}
	switch {
	case after == "now":
		w.now = true
	case after != "":
		if w.filter.After, err = strconv.ParseInt(after, 10, 64); err != nil || w.filter.After < 0 {
			return w, problem.Invalidf("Invalid value for after: %.40q is no cursor.", after)
		}
	case w.last == 0:
		w.last = w.limit
	}
	return w, nil
}

// seesTimeline tells whether the asker may see the events of all subjects.
func (s *server) seesTimeline(c *api.Call) bool {
	return c.Admin() && s.Policy.SeesFleet(c.Principal)
}

// subjectOf finds what is named KIND:IDENT, if the asker may see its history.
func (s *server) subjectOf(c *api.Call, text string) (job.Subject, string, error) {
	kind, ident, _ := strings.Cut(text, ":")
	switch {
	case kind == "node" && ident != "":
		n, err := s.nodeOf(c, ident)
		if err != nil {
			return job.Subject{}, "", err
		}
		if c.Principal.Role == access.Scoped && !s.Policy.Allows("node:history:get", c.Principal, nodeTarget(n)) {
			return job.Subject{}, "", problem.Forbiddenf("Access was denied to the following resource: baremetal:node:history:get")
		}
		return job.Node(n.ID), n.Name, nil
	case kind == "server" && ident != "":
		srv, err := s.serverOf(c, ident, "os-instance-actions:list")
		if err != nil {
			return job.Subject{}, "", err
		}
		return compute.Subject(srv.ID), srv.Name, nil
	case kind == "host" && ident != "" && !c.Admin():
		return job.Subject{}, "", problem.NotFoundf("%s could not be found.", text)
	case kind == "host" && ident != "":
		h, err := s.Services.Hosts.Host(c.R.Context(), ident)
		if err != nil {
			return job.Subject{}, "", err
		}
		return compute.HostSubject(h.ID), h.Name, nil
	}
	if ident == "" {
		return job.Subject{}, "", problem.Invalidf("Invalid value for subject: %.100q; want KIND:IDENT, as node:IDENT, server:IDENT, host:IDENT or token:IDENT.", text)
	}
	if !s.seesTimeline(c) { // records that may belong to others
		return job.Subject{}, "", problem.NotFoundf("%.100s could not be found.", text)
	}
	return s.Feed.store.FindSubject(c.R.Context(), kind, ident)
}

// eventPage is a page as far as nothing can come before it any more, so that who goes on from it misses nothing.
func (s *server) eventPage(c *api.Call, w eventWatch) error {
	ctx := c.R.Context()
	head, err := s.Feed.horizon(ctx)
	if err != nil {
		return err
	}
	out := wire.Events{Events: []wire.Event{}, Next: strconv.FormatInt(max(head, w.filter.After), 10)}
	if w.now {
		return c.JSON(http.StatusOK, out)
	}
	limit := w.limit
	if w.last > 0 {
		limit, w.filter.Newest = w.last, true
	}
	rows, err := s.Feed.store.Feed(ctx, w.filter, limit+1)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(e job.Event) bool { return e.Num > head })
	if len(rows) > limit && w.filter.Newest {
		rows = rows[len(rows)-limit:]
	} else if len(rows) > limit {
		rows, out.More = rows[:limit], true
		out.Next = strconv.FormatInt(rows[limit-1].Num, 10)
	}
	if err := w.learnNames(ctx, s.Feed.store, rows); err != nil {
		return err
	}
	for _, e := range rows {
		out.Events = append(out.Events, w.view(e))
	}
	return c.JSON(http.StatusOK, out)
}

// learnNames reads the names of the subjects of events that the watch has not named, by one query.
func (w *eventWatch) learnNames(ctx context.Context, store job.Feed, events []job.Event) error {
	if len(w.filter.Subjects) > 0 {
		return nil // each was found by its name or id already
	}
	var unnamed []job.Subject
	for _, e := range events {
		unnamed = append(unnamed, e.Subject)
	}
	names, err := store.SubjectNames(ctx, unnamed)
	w.names = names // no more than those of a page are kept, and none that is old
	return err
}

func (w *eventWatch) view(e job.Event) wire.Event {
	if w.tenant && e.Subject.Kind == compute.Subject("").Kind {
		e = compute.Outside(e)
	}
	if w.redacted {
		e.Text = problem.Redact(e.Text)
	}
	return wire.Event{
		Cursor: strconv.FormatInt(e.Num, 10), Subject: wire.Subject{Kind: e.Subject.Kind, ID: e.Subject.ID, Name: w.names[e.Subject]}, Seq: e.Seq, At: e.At.UTC(), Type: e.Type,
		Severity: e.Severity, Text: e.Text, Job: e.JobID, Action: e.Action, Seconds: e.Duration.Seconds(), RequestID: e.RequestID, User: e.User,
	}
}

// stream tells events as they come, until the client goes, reads too slowly or has followed for long enough.
func (s *server) stream(c *api.Call, w eventWatch) error {
	release, err := s.Feed.follow(c.Principal.Scope.Project + "/" + c.Principal.Owner())
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(api.Of(c.R.Context()).Connection, streamLife)
	defer cancel()
	if err := s.begin(ctx, &w); err != nil {
		return err
	}
	out := &eventWriter{store: s.Feed.store, w: c.W, control: http.NewResponseController(c.W), watch: w}
	head := c.W.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache")
	head.Set("X-Accel-Buffering", "no") // or proxies keep events back
	c.W.WriteHeader(http.StatusOK)
	if err := out.open(ctx, s.Feed.store); err != nil {
		return nil // the client is told by the end of the stream, as of all that goes wrong from here on
	}
	s.streamEvents(ctx, out, func() error { return s.mayStill(c, &w) })
	return nil
}

// mayStill finds out again who follows, and whether that one may still see what it named.
func (s *server) mayStill(c *api.Call, w *eventWatch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.R.Context()), streamPatience) // the request itself has timed out
	defer cancel()
	again, err := c.Again(ctx, s.Auth)
	if err != nil || s.seesTimeline(again) {
		return err
	}
	now, err := s.watchOf(again)
	if err == nil && !slices.Equal(now.filter.Subjects, w.filter.Subjects) {
		err = problem.NotFoundf("A record of that name is another one now: watch it again.")
	}
	return err
}

// begin turns "now" and "the newest N" into a cursor.
func (s *server) begin(ctx context.Context, w *eventWatch) error {
	if !w.now && w.last == 0 {
		return nil
	}
	head, err := s.Feed.horizon(ctx)
	if err != nil {
		return err
	}
	w.filter.After = head
	if w.now {
		return nil
	}
	newest := w.filter
	newest.After, newest.Newest = 0, true
	rows, err := s.Feed.store.Feed(ctx, newest, w.last)
	if err == nil && len(rows) > 0 {
		w.filter.After = min(head, rows[0].Num-1)
	}
	return err
}

// streamEvents sends events while may allows the follower to see them. It asks may no more often than tokens are looked up.
func (s *server) streamEvents(ctx context.Context, out *eventWriter, may func() error) {
	beat, asked := time.NewTicker(streamBeat), time.Now()
	defer beat.Stop()
	for ctx.Err() == nil {
		p, err := s.Feed.next(ctx, out.watch.filter)
		if err == nil && len(p.events) > 0 && time.Since(asked) >= streamTrust {
			err, asked = may(), time.Now()
		}
		if err == nil {
			err = out.send(ctx, p.events, p.cursor)
		}
		if err != nil || p.over {
			return
		}
		if p.news == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-p.news:
		case <-beat.C:
			if asked = time.Now(); may() != nil || out.sendKeepalive() != nil {
				return
			}
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	watch   eventWatch
	store   job.Feed
	sent    int64 // the cursor that the client has
}

// open says how soon to come again and from where, and whether events were dropped that the cursor had before it.
func (t *eventWriter) open(ctx context.Context, store job.Feed) error {
	after := t.watch.filter.After
	t.sent = after
	text := fmt.Sprintf("retry: 2000\nid: %d\n\n", after)
	if after > 0 && !t.watch.now && t.watch.last == 0 {
		oldest, err := store.Feed(ctx, job.FeedFilter{}, 1)
		if err != nil {
			return err
		}
		if len(oldest) == 0 || oldest[0].Num > after+1 {
			text += "event: lost\ndata: {\"events\":[],\"next\":\"" + strconv.FormatInt(after, 10) + "\",\"more\":true}\n\n"
		}
	}
	return t.write(text)
}

// send tells events; cursor is where the client is then, whether or not it was told any.
func (t *eventWriter) send(ctx context.Context, events []job.Event, cursor int64) error {
	t.watch.filter.After = cursor
	if len(events) == 0 {
		return nil
	}
	if err := t.watch.learnNames(ctx, t.store, events); err != nil {
		return err
	}
	var b strings.Builder
	for i := range events {
		data, err := json.Marshal(t.watch.view(events[i]))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "id: %d\nevent: event\ndata: %s\n\n", events[i].Num, data)
	}
	t.sent = events[len(events)-1].Num
	return t.write(b.String())
}

// sendKeepalive keeps the connection, and the client's cursor beside what was not for it.
func (t *eventWriter) sendKeepalive() error {
	if at := t.watch.filter.After; at > t.sent {
		t.sent = at
		return t.write(": beat\nid: " + strconv.FormatInt(at, 10) + "\n\n")
	}
	return t.write(": beat\n\n")
}

// write gives up on a client that does not read.
func (t *eventWriter) write(text string) error {
	if err := t.control.SetWriteDeadline(time.Now().Add(streamPatience)); err != nil {
		return err
	}
	if _, err := t.w.Write([]byte(text)); err != nil {
		return err
	}
	return t.control.Flush()
}
