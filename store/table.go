package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// recordKind says how records of one kind lie in their table: R is the record, F narrows a list.
// Every table has num, id, version, created_at, updated_at and body beside its own columns.
type recordKind[R, F any] struct {
	table string
	// word is what users call one: "volume connector".
	word string
	// columns are the table's own; fields are pointers to what fills them, in the same order.
	columns []string
	fields  func(r *R) []any
	head    func(r *R) recordHead
	// num is where the row's number goes in records that tell it; nil: they do not.
	num func(r *R) *int64
	// body is a pointer to a struct of pointers to what nobody searches or sorts by.
	body func(r *R) any
	// tidy brings fields into the form that is kept before a write; nil: they are.
	tidy func(r *R)
	// fill makes what was empty usable after a read; nil: it is.
	fill func(r *R)
	// secret tells the keys of body whose values are sealed; nil: none.
	secret func(key string) bool
	// names are the columns beside id by which one is found.
	names []string
	// sort has the words to sort by that are no columns.
	sort map[string]string
	keys []uniqueKey[R]
	// node gives the parent; nil where there is none.
	node func(r *R) string
	// inUse says why a row that others point at cannot be removed; nil: none do.
	inUse  func(r *R) string
	narrow func(c *whereClause, f F)
	// mine is the condition for a marker m in a list that is confined to a project; nil: no list is.
	mine func(c *whereClause, f F) string
}

// recordHead is where the common fields of a record are.
type recordHead struct {
	id               *string
	version          *int64
	created, updated *time.Time
}

// ofRecord is the head of records that embed record.Record.
func ofRecord[R any, P interface {
	*R
	Head() *record.Record
}](r *R) recordHead {
	h := P(r).Head()
	return recordHead{&h.ID, &h.Version, &h.CreatedAt, &h.UpdatedAt}
}

// uniqueKey is a rule that no two records may share the columns, unless the first is empty.
type uniqueKey[R any] struct {
	columns []string
	says    func(r *R) string
}

// recordTable is record.Table for one kind.
type recordTable[R, F any] struct {
	s *storeCore
	k *recordKind[R, F]
}

func (k *recordKind[R, F]) allColumns() []string {
	return append(append([]string{"id", "version"}, k.columns...), "created_at", "updated_at", "body")
}

func (k *recordKind[R, F]) title() string { return strings.ToUpper(k.word[:1]) + k.word[1:] }

func (k *recordKind[R, F]) notFound(ident string) error {
	return problem.NotFoundf("%s %s could not be found.", k.title(), ident)
}

func (k *recordKind[R, F]) conflict(id string) error {
	return problem.Conflictf("%s %s has been changed by another request; please retry.", k.title(), id)
}

func (k *recordKind[R, F]) selects() string {
	return `SELECT t.` + strings.Join(k.allColumns(), ", t.") + `, t.num FROM ` + k.table + ` t`
}

// values are the arguments of all.
func (t recordTable[R, F]) values(r *R) ([]any, error) {
	if t.k.tidy != nil {
		t.k.tidy(r)
	}
	h := t.k.head(r)
	args := []any{*h.id, *h.version}
	for _, f := range t.k.fields(r) {
		args = append(args, driverValue(f))
	}
	body, err := t.s.encodeBody(t.k.body(r), t.k.secret, t.k.table+":"+*h.id)
	if err != nil {
		return nil, problem.Invalidf("%s %s: %w", t.k.word, *h.id, err)
	}
	return append(args, toMicros(*h.created), toMicros(*h.updated), body), nil
}

// seals is Tx.seals where a record of the kind may hold a secret.
func (t recordTable[R, F]) seals(x *Tx) error {
	if t.k.secret == nil {
		return nil
	}
	return x.seals()
}

// driverValue reads a field through its pointer as engines want it.
func driverValue(field any) any {
	switch f := field.(type) {
	case *string:
		return *f
	case *bool:
		return *f
	case *int:
		return int64(*f)
	case *int64:
		return *f
	}
	return reflect.ValueOf(field).Elem().String() // a named string
}

func (s *storeCore) encodeBody(body any, secretKey func(string) bool, place string) (string, error) {
	text, err := json.Marshal(nonEmptyFields(body))
	if err != nil || secretKey == nil {
		return string(text), err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return "", err
	}
	sealed, err := s.seal(plain, place, secretKey)
	if err != nil {
		return "", err
	}
	text, err = json.Marshal(sealed)
	return string(text), err
}

// nonEmptyFields gives the fields of a body that say anything, by their names: what is not in a row costs no reader anything.
func nonEmptyFields(body any) map[string]any {
	v := reflect.ValueOf(body).Elem()
	out := make(map[string]any, v.NumField())
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Pointer && f.Elem().IsZero() {
			continue
		}
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			name = v.Type().Field(i).Name
		}
		out[name] = f.Interface()
	}
	return out
}

func (s *storeCore) decodeBody(text []byte, body any, secretKey func(string) bool, place string) error {
	if secretKey != nil && bytes.Contains(text, []byte(sealedMark)) {
		var sealed any
		if err := json.Unmarshal(text, &sealed); err != nil {
			return err
		}
		plain, err := s.open(sealed, place, secretKey)
		if err != nil {
			return err
		}
		if text, err = json.Marshal(plain); err != nil {
			return err
		}
	}
	return json.Unmarshal(text, body)
}

// scan reads a row of selects, and its number.
func (t recordTable[R, F]) scan(rows *sql.Rows) (*R, int64, error) {
	r := new(R)
	h := t.k.head(r)
	var created, updated, num int64
	var body sql.RawBytes
	into := append([]any{h.id, h.version}, t.k.fields(r)...)
	if err := rows.Scan(append(into, &created, &updated, &body, &num)...); err != nil {
		return nil, 0, err
	}
	*h.created, *h.updated = fromMicros(created), fromMicros(updated)
	if t.k.num != nil {
		*t.k.num(r) = num
	}
	if err := t.s.decodeBody(body, t.k.body(r), t.k.secret, t.k.table+":"+*h.id); err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", t.k.word, *h.id, err)
	}
	if t.k.fill != nil {
		t.k.fill(r)
	}
	return r, num, nil
}

func (t recordTable[R, F]) read(ctx context.Context, tx job.Tx, text string, args ...any) ([]*R, error) {
	var out []*R
	err := t.s.read(ctx, tx, func(rows *sql.Rows) error {
		r, _, err := t.scan(rows)
		out = append(out, r)
		return err
	}, text, args...)
	if err != nil {
		return nil, fmt.Errorf("read %ss: %w", t.k.word, err)
	}
	return out, nil
}

// Get is record.Table's.
func (t recordTable[R, F]) Get(ctx context.Context, tx job.Tx, ident string) (*R, error) {
	if ident == "" {
		return nil, t.k.notFound(ident)
	}
	where, args := `COALESCE((SELECT id FROM `+t.k.table+` WHERE id = $1)`, []any{ident}
	for _, name := range t.k.names {
		mark := "$1"
		if name == "address" {
			args, mark = []any{ident, strings.ToLower(ident)}, "$2"
		}
		where += `, (SELECT id FROM ` + t.k.table + ` WHERE ` + name + ` = ` + mark + ` AND ` + name + ` <> '')`
	}
	out, err := t.read(ctx, tx, t.k.selects()+` WHERE t.id = `+where+`, '')`, args...)
	if err == nil && len(out) == 0 {
		err = t.k.notFound(ident)
	}
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// List is record.Table's.
func (t recordTable[R, F]) List(ctx context.Context, tx job.Tx, f F, p record.Page) ([]*R, error) {
	return readPage(ctx, t, tx, f, p, func(tail string, args []any) ([]*R, error) {
		return t.read(ctx, tx, t.k.selects()+tail, args...)
	})
}

// readPage reads a page of a table; tail is all of the query that comes after the table's name.
func readPage[R, F, T any](ctx context.Context, t recordTable[R, F], tx job.Tx, f F, p record.Page, read func(tail string, args []any) ([]T, error)) ([]T, error) {
	c := t.s.newWhere()
	t.k.narrow(c, f)
	mine := func(c *whereClause) string {
		if t.k.mine == nil {
			return ""
		}
		return t.k.mine(c, f)
	}
	order, err := c.page(p, t.k.table, "t", c.marker(p, mine), t.k.sortable())
	if err != nil {
		return nil, err
	}
	tail := c.where() + order
	if c.node {
		tail = ` JOIN node n ON n.id = t.node_id` + tail
	}
	out, err := read(tail, c.args)
	if err == nil && len(out) == 0 && p.Marker != "" {
		var ok bool
		if ok, err = t.s.markerExists(ctx, tx, t.k.table, p, mine); err == nil && !ok {
			err = t.k.notFound(p.Marker)
		}
	}
	return out, err
}

// sortable maps words to columns: the columns' own names, what Ironic calls them, and num for none.
func (k *recordKind[R, F]) sortable() map[string]string {
	words := map[string]string{"": "num", "id": "num", "uuid": "id", "created_at": "created_at", "updated_at": "updated_at"}
	for _, column := range k.columns {
		words[column] = column
	}
	for word, column := range k.sort {
		words[word] = column
	}
	return words
}
