package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/job"
)

// Status is what a Why comes down to.
type Status string

const (
	Idle    Status = "idle"    // nothing is asked of the subject
	Working Status = "working" // an action runs, or is about to
	Waiting Status = "waiting" // for a word from outside that may well come
	Stuck   Status = "stuck"   // it goes on only if somebody does something
)

// Why is what can be said of a subject at one moment: what it waits for, since when, what was heard of it, what
// happens next and what can be done. It is reasoned from rows alone.
type Why struct {
	State  string
	Since  time.Time // when the subject came into the state; zero: not known
	Status Status
	// Job works on the subject or waits; nil: nothing was asked of it.
	Job *job.Job
	// Conductor is the host name of the one that holds the job.
	Conductor string
	// WaitsFor ends the sentence "waits for ..."; empty: it waits for nothing.
	WaitsFor   string
	WaitsSince time.Time
	// Problems is what is wrong, the gravest first: clauses without a full stop.
	Problems []string
	// Notes are clauses that belong to the state and are no trouble.
	Notes []string
	// background: jobs work in the background, and a note tells of each.
	background bool
	Contacts   []LastContact
	Deadline   *Deadline
	// Next are the commands to run, the best first.
	Next []Command
	// Accepts lists the requests that the subject's state admits now: provision verbs and power targets of a node, actions of a server.
	Accepts []string
}

// LastContact is the last that was heard of a party.
type LastContact struct {
	From string // "bmc", "agent", "lookup", "dhcp", "boot", "host", "cluster"
	At   time.Time
	Text string
	OK   bool // false for a failure, and for a silence
}

// Deadline is counted in seconds in which a conductor of the group lived.
type Deadline struct {
	What    string
	Seconds int64
	Running bool // false: no conductor lives, so the clock stands
	Then    string
}

// Command is a command line of salvor and what it is good for.
type Command struct{ Run, For string }

// Conductors is who could work on a subject's jobs: the conductors of its group, and the group's clock of alive seconds.
type Conductors struct {
	Group string
	// Live and Dead name the hosts of the conductors of the group.
	Live, Dead []string
	// Owners are the host names of conductors that live, by what they write into the jobs that they hold.
	Owners map[string]string
	Ticks  int64
	// Queue is the place of the subject's job among those that wait for a conductor; nil: it does not wait for one.
	Queue *job.Place
}

// crashes of one action that are told of as trouble.
const crashes = 2

// Lead gives the job that says most of what a subject waits for: the one that locks it, else the operation that waits. No background job is, because
// the operations that it asks for are jobs of their own.
func Lead(jobs []job.Job) *job.Job {
	var lead *job.Job
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.Class == job.Background || j.State == job.Ended:
		case lead == nil, j.Locks() && !lead.Locks():
			lead = j
		}
	}
	return lead
}

// Work reasons about the job that works on the subject or waits. Staff comes last, after all that is particular to the subject.
func (w *Why) Work(jobs []job.Job, conductors Conductors) {
	w.addBackground(jobs)
	j := Lead(jobs)
	if j == nil {
		w.Status = Idle
		return
	}
	w.Job, w.WaitsSince = j, cmp.Or(j.ActionStartedAt, j.CreatedAt)
	w.held(conductors)
	if j.Failed() {
		w.Problems = append(w.Problems, "the "+string(j.Kind)+" failed and is being taken back: "+clause(j.Problem))
	}
	if j.Crashes >= crashes {
		w.Problems = append(w.Problems, fmt.Sprintf("%d conductors ended while they ran %q", j.Crashes, j.Action))
	}
	w.bound(conductors)
}

// addBackground notes the jobs that work in the background, such as a diagnosis or a repair.
func (w *Why) addBackground(jobs []job.Job) {
	for i := range jobs {
		j := &jobs[i]
		if j.Class != job.Background || j.State == job.Ended {
			continue
		}
		at := "and has not begun"
		if j.Action != "" {
			at = fmt.Sprintf("at action %q", j.Action)
		}
		w.background = true
		w.Notes = append(w.Notes, fmt.Sprintf("its %s is under way in the background, %s", j.Kind, at))
	}
}

// held says what the job waits for, and who holds it.
func (w *Why) held(conductors Conductors) {
	j := w.Job
	host, lives := conductors.Owners[j.Owner]
	switch {
	case j.State == job.Waiting:
		w.Status, w.WaitsFor = Waiting, j.WaitFor
	case j.Owner != "" && lives:
		w.Status, w.Conductor = Working, host
	case j.Owner != "":
		w.Status, w.WaitsFor = Waiting, "another conductor to take it over: the one that held it is silent"
	case j.WaitFor != "":
		w.Status, w.WaitsFor = Waiting, j.WaitFor
		if j.Attempt > 0 {
			w.Status = Working
		}
	default:
		w.Status, w.WaitsFor = Working, "a conductor to take it up"
	}
	if p := conductors.Queue; p != nil && (p.Before > 0 || p.Full()) {
		w.queued(p)
	}
}

// queued adds that the job waits because all conductors are busy.
func (w *Why) queued(p *job.Place) {
	w.Status = Waiting
	w.WaitsFor = fmt.Sprintf("a conductor to take it up: %d accepted jobs wait before it, and %d run", p.Before, p.Running)
	if p.Limit > 0 {
		w.WaitsFor += fmt.Sprintf("; of %d that wait, [conductor]backlog_limit allows %d", p.Waiting, p.Limit)
	}
	w.Notes = append(w.Notes, "it goes on by itself; to be faster, run more conductors, or raise [conductor]workers_pool_size where processors are free")
	w.Next = append(w.Next, Command{"salvor conductor list", "see which conductors share the work"})
}

// AddConductors says that nobody could work on the subject's jobs, if so: that comes before all else.
func (w *Why) AddConductors(conductors Conductors) {
	if len(conductors.Live) > 0 {
		return
	}
	then := "what is asked of it next would not be done"
	if w.Job != nil {
		then = "it goes on where it stood as soon as one starts"
	}
	silence := "no conductor is known"
	if len(conductors.Dead) > 0 {
		silence = "no conductor lives (" + strings.Join(conductors.Dead, ", ") + ": silent)"
	}
	if conductors.Group != "" {
		silence += " in conductor group " + conductors.Group
	}
	w.Block(silence+"; "+then, Command{"salvor conductor list", "see which conductors live"})
	if w.Job != nil {
		w.WaitsFor = "a conductor of its group to live"
	}
}

// Block says that the subject is stuck, by what, and what helps: before all that was said so far.
func (w *Why) Block(trouble string, next ...Command) {
	w.Status = Stuck
	w.Problems = append([]string{trouble}, w.Problems...)
	w.Next = append(slices.Clone(next), w.Next...)
}

// bound finds the next deadline of the job.
func (w *Why) bound(conductors Conductors) {
	j := w.Job
	at, what := j.Deadline, "the wait"
	if j.State != job.Waiting {
		what = "trying this action"
	}
	if j.Rests() {
		at = 0 // the end of a rest is no deadline
	}
	if j.OperationDeadline > 0 && (at == 0 || j.OperationDeadline < at) {
		at, what = j.OperationDeadline, "the whole "+string(j.Kind)
	}
	if at == 0 {
		return
	}
	then := "the " + string(j.Kind) + " fails and is taken back"
	if j.State == job.Undoing {
		then = "taking it back is given up"
	}
	w.Deadline = &Deadline{What: what, Seconds: max(at-conductors.Ticks, 0), Running: len(conductors.Live) > 0, Then: then}
}

// Text is all of it as one paragraph. kind and name are the subject's.
func (w *Why) Text(kind, name string, now time.Time) string {
	sentences := []string{fmt.Sprintf("%s %s is in state %q", kind, name, w.State) + since(w.Since, now)}
	sentences = append(sentences, w.work(now)...)
	sentences = append(sentences, w.Notes...)
	sentences = append(sentences, w.Problems...)
	if len(w.Contacts) > 0 {
		var contacts []string
		for _, word := range w.Contacts {
			text := word.From + ": " + clause(word.Text)
			if !word.At.IsZero() {
				text += " (" + Ago(word.At, now) + ")"
			}
			contacts = append(contacts, text)
		}
		sentences = append(sentences, "last heard: "+strings.Join(contacts, "; "))
	}
	if d := w.Deadline; d != nil {
		sentences = append(sentences, d.text())
	}
	if len(w.Next) > 0 {
		sentences = append(sentences, "next: "+w.Next[0].Run+" ("+w.Next[0].For+")")
	} else if w.isWell() {
		sentences = append(sentences, "nothing need be done, as far as was last heard")
	}
	for i := range sentences {
		sentences[i] = sentence(sentences[i])
	}
	return strings.Join(sentences, " ")
}

// isWell tells whether somebody was heard of the subject, all of them well, and nothing is wrong. What nobody was heard of is not called well.
func (w *Why) isWell() bool {
	return w.Status == Idle && len(w.Problems) == 0 && len(w.Contacts) > 0 && !slices.ContainsFunc(w.Contacts, func(c LastContact) bool { return !c.OK })
}

// work is what the job does.
func (w *Why) work(now time.Time) []string {
	j := w.Job
	if j == nil && w.WaitsFor != "" {
		return []string{"it waits for " + clause(w.WaitsFor) + since(w.WaitsSince, now)}
	}
	if j == nil && w.background {
		return nil
	}
	if j == nil {
		return []string{"it is idle"}
	}
	asked := "its " + string(j.Kind) + ", asked for"
	if j.User != "" {
		asked += " by " + j.User
	}
	asked += " " + Ago(j.CreatedAt, now)
	if j.RequestID != "" {
		asked += " (" + j.RequestID + ")"
	}
	asked += ","
	switch {
	case j.Action != "":
		asked += fmt.Sprintf(" is at action %q", j.Action) + since(w.WaitsSince, now)
	case w.Conductor != "":
		asked += " is at its first action"
	default:
		asked += " has not begun"
	}
	switch {
	case w.WaitsFor != "":
		asked += " and waits for " + clause(w.WaitsFor)
	case w.Conductor != "":
		asked += ", on conductor " + w.Conductor
	}
	return []string{asked}
}

func (d *Deadline) text() string {
	left := "in " + Span(time.Duration(d.Seconds)*time.Second)
	if d.Seconds == 0 {
		left = "now"
	}
	text := d.What + " ends " + left + ", counted only while a conductor lives"
	if !d.Running {
		text = d.What + " has " + Span(time.Duration(d.Seconds)*time.Second) + " left, but its clock stands while no conductor lives"
	}
	return text + "; then " + d.Then
}

// since says from when on something is so.
func since(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " since " + Moment(at) + " (" + Span(now.Sub(at)) + ")"
}

// Ago says how long before now a time was.
func Ago(at, now time.Time) string { return Span(now.Sub(at)) + " ago" }

// Span writes a duration as people say it: its two greatest units.
func Span(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	for _, unit := range []struct {
		of, in       time.Duration
		name, second string
	}{{24 * time.Hour, time.Hour, "d", "h"}, {time.Hour, time.Minute, "h", "min"}, {time.Minute, time.Second, "min", "s"}} {
		if d < unit.of {
			continue
		}
		text := fmt.Sprintf("%d %s", d/unit.of, unit.name)
		if rest := d % unit.of / unit.in; rest > 0 {
			text += fmt.Sprintf(" %d %s", rest, unit.second)
		}
		return text
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// clause is a text of anybody's that becomes part of a sentence.
func clause(s string) string {
	return strings.TrimRight(strings.Join(strings.Fields(s), " "), ". ")
}

// sentence gives a clause its capital letter and its full stop.
func sentence(s string) string {
	if s = strings.TrimRight(s, ". "); s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// Moment is a time in a sentence.
func Moment(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// Because puts a reason behind a sentence, if there is one.
func Because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
