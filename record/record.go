// Package record holds the common parts of records of every kind. These are the version that an update compares, the table that keeps the
// records, and pages and marks of lists. The service through which requests change records belongs to them too. The package knows no kind
// of record, no SQL and no HTTP.
package record

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
)

// Asker is who asks for something, for the timeline.
type Asker struct{ RequestID, User string }

// Jobs is what services need of the job store.
type Jobs interface {
	job.Transactor
	job.Queue
	job.Timeline
}

// IsUUID tells whether s is a UUID in its usual form.
func IsUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// Record is what every record of a table has beside its own fields.
type Record struct {
	ID                   string // UUID
	Version              int64  // raised by each change; updates compare it
	CreatedAt, UpdatedAt time.Time
}

// Head gives the common part of a record that embeds it.
func (r *Record) Head() *Record { return r }

// Table keeps the records of one kind: R is the record, F narrows a list of them.
type Table[R, F any] interface {
	// Insert adds a record. A taken UUID, name or other key is problem.Conflict, a parent that is not there problem.NotFound.
	Insert(tx job.Tx, r *R) error
	// Get reads by UUID, and by name where the kind has names; problem.NotFound if there is none. A nil tx reads outside of any.
	Get(ctx context.Context, tx job.Tx, ident string) (*R, error)
	// Save writes the record WHERE id and version are its own, and raises the version; problem.Conflict otherwise.
	Save(tx job.Tx, r *R) error
	// Delete removes the record WHERE id and version are its own; problem.Conflict otherwise.
	Delete(tx job.Tx, r *R) error
	// List reads a page in one query; a nil tx reads outside of any.
	List(ctx context.Context, tx job.Tx, f F, p Page) ([]*R, error)
	// Marks is List without the records themselves, for whoever keeps what was made of them.
	Marks(ctx context.Context, f F, p Page) ([]Mark, error)
	// Marked reads records by the Num of their marks; those that are gone meanwhile are left out.
	Marked(ctx context.Context, nums []int64) (map[int64]*R, error)
}

// Page is a window of a sorted list: the rows after the one with the id Marker.
type Page struct {
	Limit   int
	Marker  string // UUID; problem.NotFound if there is no such row
	SortKey string // the store's word for a column; problem.Invalid if it cannot be sorted by
	Desc    bool
}

// EachPage reads a list page by page, in the order of its rows, and calls do with each page. id gives the marker of a row: the next page
// begins after it. The first error ends it.
func EachPage[R any](read func(Page) ([]R, error), id func(R) string, do func([]R) error) error {
	const size = 500
	for p := (Page{Limit: size}); ; {
		rows, err := read(p)
		if err == nil && len(rows) > 0 {
			err = do(rows)
		}
		if err != nil || len(rows) < size {
			return err
		}
		p.Marker = id(rows[len(rows)-1])
	}
}

// Mark tells one state of a record from every other, of this record and of all of its kind that ever were.
type Mark struct {
	Num     int64 // of the row, never given again, as a UUID may be
	ID      string
	Version int64
}

// Change is what somebody asks of a record: a nil Old is a creation, a nil New a removal.
type Change[R any] struct {
	Old, New *R
	Asker    Asker
}

// Newest is the record as the change leaves it, or as it was before its removal.
func (c Change[R]) Newest() *R {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// Oldest is the record as it was, or as it is created.
func (c Change[R]) Oldest() *R {
	if c.Old != nil {
		return c.Old
	}
	return c.New
}

// Done is the change in a word.
func (c Change[R]) Done() string {
	switch {
	case c.Old == nil:
		return "created"
	case c.New == nil:
		return "deleted"
	}
	return "updated"
}

// head is a record that embeds Record.
type head[R any] interface {
	*R
	Head() *Record
}

// Collection is the service of the records of one kind: it keeps their rules and is the
// only way that they are changed on request.
type Collection[R, F any] struct {
	Name  string // as errors name it: "volume connector"
	table Table[R, F]
	jobs  Jobs
	now   func() time.Time
	head  func(*R) *Record
	Clone func(*R) *R
	// Check holds the rules that a record can be held to alone; it may bring fields into their usual form.
	Check func(*R) error
	// Admit holds the rules that need the store, in the transaction that makes the change, before its write.
	Admit func(ctx context.Context, tx job.Tx, c Change[R]) error
	// Settle follows up in the same transaction, after the write.
	Settle func(ctx context.Context, tx job.Tx, c Change[R]) error
	// Subject is on whose timeline the event of a change stands. By default a record has a timeline of its own. A kind without a
	// Subject writes its events itself.
	Subject func(*R) job.Subject
	// Label names a record in its events: by default its name, or its UUID where the record has no name.
	Label func(*R) string
	// Fields says how the API calls the fields that an event names.
	Fields FieldNames
}

// ErrChanged: the record was changed between a look and a write.
var ErrChanged = problem.Conflictf("the record was changed by someone else")

// NewCollection makes the service of a kind without rules; who calls it fills in the rules.
func NewCollection[R, F any, P head[R]](name string, table Table[R, F], jobs Jobs, now func() time.Time) *Collection[R, F] {
	return &Collection[R, F]{
		Name: name, table: table, jobs: jobs, now: now,
		head:   func(r *R) *Record { return P(r).Head() },
		Clone:  cloneFields[R],
		Check:  func(*R) error { return nil },
		Admit:  func(context.Context, job.Tx, Change[R]) error { return nil },
		Settle: func(context.Context, job.Tx, Change[R]) error { return nil },
		Subject: func(r *R) job.Subject {
			return job.Subject{Kind: strings.ReplaceAll(name, " ", "-"), ID: P(r).Head().ID}
		},
		Label: func(r *R) string { return nameOf(r, P(r).Head().ID) },
	}
}

// cloneFields copies a record with its maps and lists, so that an edit of the copy leaves the record as it was.
func cloneFields[R any](r *R) *R {
	c := *r
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		field := v.Field(i)
		switch {
		case !field.CanSet() || field.Kind() != reflect.Map && field.Kind() != reflect.Slice || field.IsNil():
		case field.Kind() == reflect.Map:
			field.Set(reflect.MakeMapWithSize(field.Type(), field.Len()))
			for of := reflect.ValueOf(r).Elem().Field(i).MapRange(); of.Next(); {
				field.SetMapIndex(of.Key(), of.Value())
			}
		default:
			field.Set(reflect.AppendSlice(reflect.MakeSlice(field.Type(), 0, field.Len()), field))
		}
	}
	return &c
}

// nameOf is the field Name of a record, or other where the record has no name.
func nameOf(r any, other string) string {
	if name := reflect.ValueOf(r).Elem().FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String && name.String() != "" {
		return eventName(name.String())
	}
	return other
}

// Get reads one by UUID, or by name where the kind has names.
func (s *Collection[R, F]) Get(ctx context.Context, ident string) (*R, error) {
	return s.table.Get(ctx, nil, ident)
}

// List reads a page.
func (s *Collection[R, F]) List(ctx context.Context, f F, p Page) ([]*R, error) {
	return s.table.List(ctx, nil, f, p)
}

// Marks reads the marks of a page.
func (s *Collection[R, F]) Marks(ctx context.Context, f F, p Page) ([]Mark, error) {
	return s.table.Marks(ctx, f, p)
}

// Marked reads the records of marks, by their Num.
func (s *Collection[R, F]) Marked(ctx context.Context, nums []int64) (map[int64]*R, error) {
	return s.table.Marked(ctx, nums)
}

// Create adds a record; an empty ID is chosen.
func (s *Collection[R, F]) Create(ctx context.Context, r *R, asker Asker) error {
	if err := s.Ready(r); err != nil {
		return err
	}
	return s.write(ctx, Change[R]{New: r, Asker: asker}, func(tx job.Tx) error { return s.table.Insert(tx, r) })
}

// Ready makes a new record complete and checks it.
func (s *Collection[R, F]) Ready(r *R) error {
	h := s.head(r)
	if h.ID == "" {
		h.ID = uuid.NewString()
	}
	if !IsUUID(h.ID) {
		return problem.Invalidf("Expected UUID for uuid: %.100s", h.ID)
	}
	h.ID = strings.ToLower(h.ID)
	if err := s.Check(r); err != nil {
		return err
	}
	h.CreatedAt = s.now()
	return nil
}

// Update changes a record: edit works on a copy, which is checked and saved if nobody
// else changed the record meanwhile (else edit runs again on the newer one).
func (s *Collection[R, F]) Update(ctx context.Context, ident string, asker Asker, edit func(*R) error) (*R, error) {
	for range 5 {
		r, err := s.tryUpdate(ctx, ident, asker, edit)
		if err != ErrChanged {
			return r, err
		}
	}
	return nil, problem.Conflictf("%s %.100s keeps changing; ask again", s.Name, ident)
}

func (s *Collection[R, F]) tryUpdate(ctx context.Context, ident string, asker Asker, edit func(*R) error) (*R, error) {
	old, err := s.table.Get(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	r := s.Clone(old)
	if err := edit(r); err != nil {
		return nil, err
	}
	if err := s.Check(r); err != nil {
		return nil, err
	}
	err = s.write(ctx, Change[R]{Old: old, New: r, Asker: asker}, func(tx job.Tx) error {
		now, err := s.table.Get(ctx, tx, s.head(old).ID)
		if err != nil {
			return err
		}
		if s.head(now).Version != s.head(old).Version {
			return ErrChanged
		}
		return s.table.Save(tx, r)
	})
	return r, err
}

// Remove deletes a record.
func (s *Collection[R, F]) Remove(ctx context.Context, ident string, asker Asker) error {
	old, err := s.table.Get(ctx, nil, ident)
	if err != nil {
		return err
	}
	return s.write(ctx, Change[R]{Old: old, Asker: asker}, func(tx job.Tx) error { return s.table.Delete(tx, old) })
}

// Clear deletes every record of the kind, or none.
func (s *Collection[R, F]) Clear(ctx context.Context, asker Asker) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		all, err := s.table.List(ctx, tx, *new(F), Page{})
		if err != nil {
			return err
		}
		for _, old := range all {
			if err := s.change(ctx, tx, Change[R]{Old: old, Asker: asker}, func(tx job.Tx) error { return s.table.Delete(tx, old) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Collection[R, F]) write(ctx context.Context, c Change[R], do func(job.Tx) error) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error { return s.change(ctx, tx, c, do) })
}

func (s *Collection[R, F]) change(ctx context.Context, tx job.Tx, c Change[R], do func(job.Tx) error) error {
	if err := s.Admit(ctx, tx, c); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	if err := s.Settle(ctx, tx, c); err != nil {
		return err
	}
	return s.Tell(tx, c)
}

// Tell writes the event of a change. Whoever writes a record past the Collection calls Tell in the same transaction.
func (s *Collection[R, F]) Tell(tx job.Tx, c Change[R]) error {
	if s.Subject == nil {
		return nil
	}
	return s.jobs.Append(tx, job.Event{Subject: s.Subject(c.Newest()), At: s.now(), Type: "request", Severity: "info", RequestID: c.Asker.RequestID, User: c.Asker.User,
		Text: s.Name + " " + s.Label(c.Newest()) + " " + s.Done(c)})
}

// Done is what a change did, in the words of an event. Of an update it names the fields that changed.
func (s *Collection[R, F]) Done(c Change[R]) string {
	if c.Old == nil || c.New == nil {
		return c.Done()
	}
	return s.Fields.Updated(c.Old, c.New)
}
