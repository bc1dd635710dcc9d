package redfish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
)

var _ driver.EventLog = (*Driver)(nil)

// What one question to the event log reads at most.
const (
	eventLogTime     = 40 * time.Second
	maxEventLogBytes = 4 << 20
	maxLogOwners     = 4 // managers, and chassis
	maxLogs          = 6
	maxEntryCount    = 10_000_000 // of a log that tells its size
)

// ReadEventLog reads the logs of the system, of its managers and of its chassis that are about the hardware. Logs of logins, of the BMC's
// own processes and of dumps are left out.
func (d *Driver) ReadEventLog(ctx context.Context, n *metal.Node, limit int) (metal.EventLog, error) {
	ctx, cancel := context.WithTimeout(ctx, eventLogTime)
	defer cancel()
	out := metal.EventLog{Entries: []metal.LogEntry{}, Logs: []metal.LogSummary{}}
	err := d.with(ctx, n, "read the event log", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		r := logReader{s: s, left: maxEventLogBytes}
		logs, err := r.find(sys)
		if err != nil {
			return err
		}
		return r.readAll(logs, min(limit, metal.MaxLogEntries), &out)
	})
	return out, err
}

// logReader reads logs until it has read too much.
type logReader struct {
	s    *bmcSession
	left int // bytes of answers
}

var errLogTooLarge = errors.New("the logs of the BMC are larger than 4 MiB")

func (r *logReader) get(at string, doc any) error {
	if r.left <= 0 {
		return problem.Unavailablef("%w", errLogTooLarge)
	}
	before := r.s.bmc.Received()
	_, err := r.s.bmc.Get(at, doc)
	r.left -= r.s.bmc.Received() - before
	return err
}

// logService is a LogService resource.
type logService struct {
	ID           string `json:"Id"`
	Name         string
	LogEntryType string
	Entries      link.Link
	owner        string
	rank         int
}

// otherLogs are the logs that are not about the hardware: iLO's SL and IEL tell of logins, and its Event repeats its IML in numbers.
var otherLogs = regexp.MustCompile(`(?i)audit|security|journal|dump|post ?code|debug|diagnostic|hostlogger|decoded|telemetry|^(SL|IEL|SaLog|FDR|Event|XID)$`)

// logRanks tell by id, name or type of a log how much it tells of the hardware. The first pattern that matches decides.
var logRanks = []struct {
	pattern *regexp.Regexp
	rank    int
}{
	{regexp.MustCompile(`(?i)maintenance|lclog|life ?cycle`), 3}, // what was installed and configured beside faults; thousands of entries
	{regexp.MustCompile(`(?i)\bSEL\b|^IML$|system event|integrated management|health event`), 0},
	{regexp.MustCompile(`(?i)fault|platform|activelog`), 1},
	{regexp.MustCompile(`(?i)event ?log`), 2},
}

// unknownLog is the rank of a log that no pattern matches. It is read where no other log is.
const unknownLog = 4

func (l *logService) rankIt() {
	l.rank = unknownLog
	for _, known := range logRanks {
		if known.pattern.MatchString(l.ID) || known.pattern.MatchString(l.Name) || known.pattern.MatchString(l.LogEntryType) {
			l.rank = known.rank
			return
		}
	}
}

// find lists the logs to read, those first that tell most of the hardware.
func (r *logReader) find(sys *computerSystem) ([]*logService, error) {
	lists := link.Links{sys.LogServices}
	var first error
	noteFault := func(err error) {
		if r.s.bmc.LeaveOut(err) != nil || err != nil && !errors.Is(err, conversation.ErrMissing) {
			first = cmp.Or(first, err)
		}
	}
	managers, err := r.s.managers(sys)
	noteFault(err)
	for _, owners := range []link.Links{managers, sys.Links.Chassis} {
		for _, owner := range owners[:min(len(owners), maxLogOwners)] {
			var doc struct{ LogServices link.Link }
			noteFault(r.get(owner.Path, &doc))
			lists = append(lists, doc.LogServices)
		}
	}
	var all []*logService
	var noEntries []string
	seen := map[string]bool{"": true}
	for _, list := range lists {
		if seen[list.Path] {
			continue
		}
		seen[list.Path] = true
		members, err := r.s.bmc.Members(list.Path, maxParts)
		noteFault(err)
		for _, m := range members {
			id := link.ID(m.Path)
			if seen[m.Path] || otherLogs.MatchString(id) {
				continue
			}
			seen[m.Path] = true
			log := &logService{owner: ownerName(list.Path)}
			if err := r.get(m.Path, log); err != nil {
				noteFault(err)
				continue
			}
			log.ID = cmp.Or(log.ID, id)
			if log.Entries.Path == "" {
				noEntries = append(noEntries, log.ID)
			}
			if log.Entries.Path == "" || otherLogs.MatchString(log.ID) || otherLogs.MatchString(log.Name) {
				continue
			}
			log.rankIt()
			all = append(all, log)
		}
	}
	slices.SortStableFunc(all, func(a, b *logService) int { return cmp.Compare(a.rank, b.rank) })
	if i := slices.IndexFunc(all, func(l *logService) bool { return l.rank == unknownLog }); i > 0 {
		all = all[:i]
	}
	switch {
	case len(all) > 0:
		return all[:min(len(all), maxLogs)], nil
	case first != nil:
		return nil, first
	}
	if len(noEntries) > 0 {
		return nil, problem.Unsupportedf("the BMC has no event log: %s link to no entries", r.s.bmc.Quote(strings.Join(noEntries, ", ")))
	}
	return nil, r.s.bmc.Lacking(problem.Unsupportedf("the BMC has no event log in its lists of logs (LogServices)"))
}

// ownerName is the collection and the id of the resource that has a list of logs, as "Systems/1".
func ownerName(list string) string {
	owner := path.Dir(strings.TrimRight(list, "/"))
	return path.Base(path.Dir(owner)) + "/" + path.Base(owner)
}

// readAll reads the logs. Each has its share of the entries, and those that the logs before it did not use.
func (r *logReader) readAll(logs []*logService, limit int, out *metal.EventLog) error {
	var first error
	readable := false
	for i, log := range logs {
		name := driver.LogText(log.ID)
		if slices.ContainsFunc(logs, func(other *logService) bool { return other != log && other.ID == log.ID }) {
			name = driver.LogText(log.owner + " " + log.ID)
		}
		summary := metal.LogSummary{Name: name}
		share := (limit - len(out.Entries)) / (len(logs) - i)
		entries, truncated, err := r.read(log, max(share, 0))
		for _, e := range entries {
			e.Log = name
			out.Entries = append(out.Entries, e)
		}
		if summary.Truncated = truncated; err != nil {
			first, summary.Problem = cmp.Or(first, err), driver.LogText(err.Error())
		}
		readable = readable || err == nil || len(entries) > 0
		out.Logs = append(out.Logs, summary)
	}
	if !readable {
		return first
	}
	return nil
}

// entryPage is a page of a LogEntryCollection.
type entryPage struct {
	Members []*rawEntry
	Count   float64   `json:"Members@odata.count"`
	Next    link.Link `json:"Members@odata.nextLink"`
}

// rawEntry is a LogEntry, or a link to one. BMCs differ in the types of some members.
type rawEntry struct {
	Path                                    any `json:"@odata.id"`
	ID                                      any `json:"Id"`
	Created, EventTimestamp                 any
	Severity, EntryCode                     any
	Message, Description, MessageID         any
	SensorType, OEMSensorType, SensorNumber any
	Resolved                                any
	OEM                                     map[string]map[string]any `json:"Oem"`
	Links                                   struct{ OriginOfCondition link.Link }
}

// isLink tells whether the page has only the path of the entry.
func (e *rawEntry) isLink() bool { return e.ID == nil && e.Created == nil && e.Message == nil }

// record is the number of the entry in its log; false: its id is no number.
func (e *rawEntry) record() (uint64, bool) {
	id := scalarText(e.ID)
	if id == "" {
		id = path.Base(scalarText(e.Path))
	}
	number, err := strconv.ParseUint(id, 10, 64)
	return number, err == nil
}

func (e *rawEntry) time() time.Time {
	for _, v := range []any{e.EventTimestamp, e.Created} { // Created is when the BMC made the entry of it
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05"} {
			if t, err := time.Parse(layout, scalarText(v)); err == nil && !driver.EventTime(t).IsZero() {
				return driver.EventTime(t)
			}
		}
	}
	return time.Time{}
}

// skipParameter is how the link to a next page says where the page begins.
var skipParameter = regexp.MustCompile(`([?&](?:\$|%24)?skip=)([0-9]{1,9})`)

// read reads the newest entries of a log, in the order of their records. BMCs list the newest first or last.
func (r *logReader) read(log *logService, most int) (_ []metal.LogEntry, truncated bool, err error) {
	if most < 1 {
		return nil, true, nil
	}
	var all []*rawEntry
	seen := map[string]bool{}
	next := log.Entries.Path
	for pages := 0; next != ""; pages++ {
		var page entryPage
		if err = r.get(next, &page); err != nil {
			break
		}
		before := len(all)
		for _, e := range page.Members {
			key := cmp.Or(scalarText(e.Path), scalarText(e.ID))
			if key != "" && !seen[key] && !link.Same(key, log.Entries.Path) {
				seen[key] = true
				all = append(all, e)
			}
		}
		next = link.Join(next, page.Next.Path)
		newestFirst := isNewestFirst(all)
		switch {
		case len(all) == before: // no further entry, or a BMC that gives the same page always
			next = ""
		case next == "":
		case newestFirst && len(all) >= most, pages+1 >= conversation.MaxPages:
			truncated, next = true, ""
		case pages == 0 && !newestFirst && page.Count < maxEntryCount:
			if begin := int(page.Count) - most; begin > len(all) && skipParameter.MatchString(next) {
				next, all, truncated = skipParameter.ReplaceAllString(next, fmt.Sprintf("${1}%d", begin)), nil, true
			}
		}
	}
	if isNewestFirst(all) {
		slices.Reverse(all)
	}
	slices.SortStableFunc(all, func(a, b *rawEntry) int {
		x, isNumber := a.record()
		y, isOther := b.record()
		if !isNumber || !isOther {
			return 0
		}
		return cmp.Compare(x, y)
	})
	if len(all) > most {
		all, truncated = all[len(all)-most:], true
	}
	entries, linkErr := r.entries(all)
	return entries, truncated || len(entries) < len(all), cmp.Or(err, linkErr)
}

// isNewestFirst tells by record numbers, or else by times, whether a list begins with the newest entry.
func isNewestFirst(all []*rawEntry) bool {
	if len(all) < 2 {
		return false
	}
	a, b := all[0], all[len(all)-1]
	x, isNumber := a.record()
	y, isOther := b.record()
	if isNumber && isOther {
		return x > y
	}
	return a.time().After(b.time())
}

// entries makes entries of what a list has, and reads those to which it has only links, the newest first.
func (r *logReader) entries(all []*rawEntry) ([]metal.LogEntry, error) {
	var out []metal.LogEntry
	for _, e := range slices.Backward(all) {
		if e.isLink() {
			if err := r.get(scalarText(e.Path), e); errors.Is(err, errLogTooLarge) || r.s.bmc.LeaveOut(err) != nil {
				return reversed(out), err
			} else if err != nil {
				continue // it was removed meanwhile, or cannot be read
			}
		}
		out = append(out, r.entry(e))
	}
	return reversed(out), nil
}

func reversed(all []metal.LogEntry) []metal.LogEntry {
	slices.Reverse(all)
	return all
}

func (r *logReader) entry(e *rawEntry) metal.LogEntry {
	text := func(v any) string { return driver.LogText(scalarText(v), r.s.bmc.Secrets()...) }
	out := metal.LogEntry{
		ID: text(e.ID), Time: e.time(), Severity: driver.Severity(scalarText(e.Severity)), MessageID: text(e.MessageID),
		Message: cmp.Or(text(e.Message), text(e.Description), text(e.MessageID)),
		Sensor:  cmp.Or(text(e.SensorType), text(e.OEMSensorType)),
	}
	switch code := strings.ToLower(scalarText(e.EntryCode)); {
	case strings.HasPrefix(code, "deassert"), e.Resolved == true:
		out.State = metal.EventDeasserted
	case strings.HasPrefix(code, "assert"):
		out.State = metal.EventAsserted
	}
	for _, maker := range slices.Sorted(maps.Keys(e.OEM)) {
		own := e.OEM[maker]
		out.Sensor = cmp.Or(out.Sensor, text(own["ClassDescription"])) // iLO
		if own["Repaired"] == true {                                   // iLO
			out.State = metal.EventDeasserted
		}
		if raw, _ := own["RawEventData"].(map[string]any); raw != nil { // Supermicro
			out.Sensor = cmp.Or(text(raw["SensorName"]), out.Sensor)
		}
	}
	if number, ok := e.SensorNumber.(float64); ok && out.Sensor != "" && number >= 0 && number < 0xff { // 255: of no sensor
		out.Sensor = driver.LogText(fmt.Sprintf("%s #0x%02x", out.Sensor, int(number)))
	}
	if out.Sensor == "" {
		out.Sensor = driver.LogText(strings.TrimPrefix(e.Links.OriginOfCondition.Path, conversation.RootPath))
	}
	return out
}

// scalarText is a text, or a number in decimal digits; empty for anything else.
func scalarText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
