package metal

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
)

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

// Mark tells one state of a record from every other, of this record and of all of its kind that ever were.
type Mark struct {
	Num     int64 // of the row, never given again, as a UUID may be
	ID      string
	Version int64
}

// Change is what somebody asks of a record: a nil Old is a creation, a nil New a removal.
type Change[R any] struct {
	Old, New *R
	Who      Asker
}

// newest is the record as the change leaves it, or as it was before its removal.
func (c Change[R]) newest() *R {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// oldest is the record as it was, or as it is created.
func (c Change[R]) oldest() *R {
	if c.Old != nil {
		return c.Old
	}
	return c.New
}

// done is the change in a word.
func (c Change[R]) done() string {
	switch {
	case c.Old == nil:
		return "created"
	case c.New == nil:
		return "deleted"
	}
	return "updated"
}

// parent reads the node that a record belongs to. That a new record names no node is the asker's mistake, no missing page.
func (s *Nodes) parent(ctx context.Context, tx job.Tx, id string, isNew bool) (*Node, error) {
	n, err := s.store.Node(ctx, tx, id)
	if isNew && problem.Is(err, problem.NotFound) {
		return nil, problem.Invalidf("Invalid input for field/attribute node_uuid. Value: '%s'. Node %s could not be found.", id, id)
	}
	return n, err
}

// checkMove holds a record's move to another node to what holds there: the node exists and is not locked.
func (s *Nodes) checkMove(ctx context.Context, tx job.Tx, from, to string) error {
	if from == to {
		return nil
	}
	n, err := s.parent(ctx, tx, to, true)
	if err == nil && n.Reservation != "" {
		err = Locked(n)
	}
	return err
}

// head is a record that embeds Record.
type head[R any] interface {
	*R
	Head() *Record
}

// Collection is the service of the records of one kind: it keeps their rules and is the
// only way that they are changed on request.
type Collection[R, F any] struct {
	name  string // as errors name it: "volume connector"
	table Table[R, F]
	jobs  Jobs
	now   func() time.Time
	head  func(*R) *Record
	clone func(*R) *R
	// check holds the rules that a record can be held to alone; it may bring fields into their usual form.
	check func(*R) error
	// admit holds the rules that need the store, in the transaction that makes the change, before its write.
	admit func(ctx context.Context, tx job.Tx, c Change[R]) error
	// settle follows up in the same transaction, after the write.
	settle func(ctx context.Context, tx job.Tx, c Change[R]) error
}

func newCollection[R, F any, P head[R]](name string, table Table[R, F], nodes *Nodes) *Collection[R, F] {
	return &Collection[R, F]{
		name: name, table: table, jobs: nodes.jobs, now: nodes.now,
		head:   func(r *R) *Record { return P(r).Head() },
		clone:  func(r *R) *R { c := *r; return &c },
		check:  func(*R) error { return nil },
		admit:  func(context.Context, job.Tx, Change[R]) error { return nil },
		settle: func(context.Context, job.Tx, Change[R]) error { return nil },
	}
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
func (s *Collection[R, F]) Create(ctx context.Context, r *R, who Asker) error {
	if err := s.ready(r); err != nil {
		return err
	}
	return s.write(ctx, Change[R]{New: r, Who: who}, func(tx job.Tx) error { return s.table.Insert(tx, r) })
}

// ready makes a new record complete and checks it.
func (s *Collection[R, F]) ready(r *R) error {
	h := s.head(r)
	if h.ID == "" {
		h.ID = uuid.NewString()
	}
	if !IsUUID(h.ID) {
		return problem.Invalidf("Expected UUID for uuid: %.100s", h.ID)
	}
	h.ID = strings.ToLower(h.ID)
	if err := s.check(r); err != nil {
		return err
	}
	h.CreatedAt = s.now()
	return nil
}

// Update changes a record: edit works on a copy, which is checked and saved if nobody
// else changed the record meanwhile (else edit runs again on the newer one).
func (s *Collection[R, F]) Update(ctx context.Context, ident string, who Asker, edit func(*R) error) (*R, error) {
	for range 5 {
		r, err := s.tryUpdate(ctx, ident, who, edit)
		if err != errChanged {
			return r, err
		}
	}
	return nil, problem.Conflictf("%s %.100s keeps changing; ask again", s.name, ident)
}

func (s *Collection[R, F]) tryUpdate(ctx context.Context, ident string, who Asker, edit func(*R) error) (*R, error) {
	old, err := s.table.Get(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	r := s.clone(old)
	if err := edit(r); err != nil {
		return nil, err
	}
	if err := s.check(r); err != nil {
		return nil, err
	}
	err = s.write(ctx, Change[R]{Old: old, New: r, Who: who}, func(tx job.Tx) error {
		now, err := s.table.Get(ctx, tx, s.head(old).ID)
		if err != nil {
			return err
		}
		if s.head(now).Version != s.head(old).Version {
			return errChanged
		}
		return s.table.Save(tx, r)
	})
	return r, err
}

// Remove deletes a record.
func (s *Collection[R, F]) Remove(ctx context.Context, ident string, who Asker) error {
	old, err := s.table.Get(ctx, nil, ident)
	if err != nil {
		return err
	}
	return s.write(ctx, Change[R]{Old: old, Who: who}, func(tx job.Tx) error { return s.table.Delete(tx, old) })
}

// Clear deletes every record of the kind, or none.
func (s *Collection[R, F]) Clear(ctx context.Context, who Asker) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		all, err := s.table.List(ctx, tx, *new(F), Page{})
		if err != nil {
			return err
		}
		for _, old := range all {
			if err := s.change(ctx, tx, Change[R]{Old: old, Who: who}, func(tx job.Tx) error { return s.table.Delete(tx, old) }); err != nil {
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
	if err := s.admit(ctx, tx, c); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return s.settle(ctx, tx, c)
}

// DocumentKind names what is kept of a node beside its record.
type DocumentKind string

const (
	// ConfigDrive of the instance: a JSON string (base64 of a gzipped ISO, or a URL) or object; sealed at rest.
	ConfigDrive DocumentKind = "configdrive"
	// Inventory is what the last inspection found, as the agent's inventory; PluginData what it found beside.
	Inventory  DocumentKind = "inventory"
	PluginData DocumentKind = "plugin_data"
	// BIOSSettings and Firmware are what the BMC last told.
	BIOSSettings DocumentKind = "bios"
	Firmware     DocumentKind = "firmware"
	// Steps are the clean, deploy or service steps that the operation in progress works off; they may hold secrets and are sealed at rest.
	Steps DocumentKind = "steps"
)

// Document is what is kept of a node beside its record; it goes with the node.
type Document struct {
	NodeID               string
	Kind                 DocumentKind
	Body                 json.RawMessage
	CreatedAt, UpdatedAt time.Time
}

// DocumentStore keeps documents of nodes.
type DocumentStore interface {
	// Document reads one; problem.NotFound if there is none.
	Document(ctx context.Context, tx job.Tx, nodeID string, kind DocumentKind) (Document, error)
	// SaveDocument writes one over what was there.
	SaveDocument(tx job.Tx, d Document) error
	// DeleteDocument removes one; none is no error.
	DeleteDocument(tx job.Tx, nodeID string, kind DocumentKind) error
}
