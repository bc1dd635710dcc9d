package ironic

import (
	"slices"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// recordKind describes one kind of record: R is the record, F narrows a list of them. All
// that the API does with records of the kind is derived from it; see resource.go.
type recordKind[R, F any] struct {
	name  string        // of one, in errors: "volume connector"
	path  string        // below /v1: "volume/connectors"
	list  string        // the key of the list in answers: "connectors"
	since metal.Version // of the endpoints; older versions see a 404
	// service keeps the rules; every change goes through it.
	service func(*server) *record.Collection[R, F]
	// blank is a record with its defaults, before a creation fills it.
	blank func(*ironicCall) *R
	// fields in the order of answers.
	fields []recordField[R]
	// brief names the fields of a list that asks for none (links are always there).
	brief   []string
	filters []queryFilter[F]
	// detail is the first version of ?detail= on the list; 0 where there is none.
	detail metal.Version
	// detailPath serves <path>/detail too.
	detailPath bool
	// noNames: paths name records by UUID only; namedSince is the first version whose paths may name one by its name.
	noNames    bool
	namedSince metal.Version
	// removable refuses removals that the rules allow and the version of the request does not; nil: none.
	removable func(*ironicCall, *R) error
	// nodeOf is the node that a record belongs to, whose state may close it to older clients; nil: none.
	nodeOf func(*R) string
	// byLessee is the field of a record for the project of the lessee who made it; nil: the kind treats lessees as owners.
	byLessee func(*R) *string
	// shared: a lessee may change records that others made.
	shared bool
	// patched refuses what a patch made of a record; nil: none.
	patched func(before, after *R, ops []patchOp) error
	// hides is the rule of the policy without which a part of each record is not shown; empty: nothing is hidden.
	hides string
	// bare lets a creation come without a body.
	bare bool

	head       func(*R) *record.Record
	index      map[string]int           // of fields, by name
	sortKeys   map[string]metal.Version // fields that lists can be sorted by
	patchPaths map[string]metal.Version // fields that PATCH takes
}

// fieldUse is what a field may be used for.
type fieldUse uint8

const (
	creatable fieldUse = 1 << iota // taken on creation
	patchable                      // taken by PATCH
	required                       // a creation needs it, and PATCH cannot remove it
	ordered                        // lists can be sorted by it
	inRow                          // shown without what is stored of a node as JSON
	settable  = creatable | patchable
)

// recordField is one field of a record.
type recordField[R any] struct {
	name  string
	since metal.Version
	use   fieldUse
	// named is the first version whose creations and queries may name the field, where PATCH and answers have it before; 0: since.
	named metal.Version
	// write appends the value to an answer; nil: the field is never shown.
	write func([]byte, *R, *ironicCall) []byte
	// get gives the present value, unmasked, for PATCH to work on.
	get func(*R) any
	// set takes a decoded value; nil resets the field, and is never given where the field is required.
	set func(*ironicCall, *R, any) error
}

// queryFilter is a query argument that narrows a list.
type queryFilter[F any] struct {
	name  string
	since metal.Version
	set   func(c *ironicCall, f *F, value string) error
}

// parentResource is a resource below which a kind is listed too.
type parentResource[F any] struct {
	path  string        // below /v1: "nodes/{node}"
	since metal.Version // the kind's own where that is later
	// narrow finds the parent by the arguments of the path, narrows the list to what
	// belongs to it and gives the parent's own path: "nodes/UUID".
	narrow func(*ironicCall, *F) (string, error)
}

// recordOf is a pointer to a record that embeds record.Record.
type recordOf[R any] interface {
	*R
	Head() *record.Record
}

// defineKind completes a kind with what follows from its fields.
func defineKind[R, F any, P recordOf[R]](k recordKind[R, F]) *recordKind[R, F] {
	k.head = func(r *R) *record.Record { return P(r).Head() }
	return k.indexed()
}

// indexed is the kind with its fields by name and by use.
func (k recordKind[R, F]) indexed() *recordKind[R, F] {
	k.index = make(map[string]int, len(k.fields))
	k.sortKeys, k.patchPaths = map[string]metal.Version{}, map[string]metal.Version{}
	for i, f := range k.fields {
		k.index[f.name] = i
		if f.use&ordered != 0 {
			k.sortKeys[f.name] = f.since
		}
		if f.use&patchable != 0 {
			k.patchPaths[f.name] = f.since
		}
	}
	return &k
}

// shown gives the named fields that the version knows, all for nil, in the order of answers.
func (k *recordKind[R, F]) shown(names []string, v metal.Version) []*recordField[R] {
	fields := make([]*recordField[R], 0, len(k.fields))
	for i := range k.fields {
		f := &k.fields[i]
		if f.since <= v && f.write != nil && (names == nil || slices.Contains(names, f.name)) {
			fields = append(fields, f)
		}
	}
	return fields
}

func fieldNamesOf[R any](fields []*recordField[R]) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// choose decides what an answer shows: the fields that the query names, all, or in a list the brief ones.
func (k *recordKind[R, F]) choose(c *ironicCall, brief bool) ([]*recordField[R], error) {
	names, err := c.fieldNames()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		i, ok := k.index[name]
		if !ok || k.fields[i].write == nil {
			return nil, unknownField(name, fieldNamesOf(k.shown(nil, c.version)))
		}
		if since := max(k.fields[i].since, k.fields[i].named); since > c.version {
			return nil, newerField(name, since)
		}
	}
	if brief {
		detail, err := c.detailSince(names, k.detail)
		if err != nil {
			return nil, err
		}
		if names == nil && !detail {
			names = k.brief
		}
	}
	if names != nil {
		names = append(slices.Clip(names), "links")
	}
	return k.shown(names, c.version), nil
}

func (k *recordKind[R, F]) append(b []byte, c *ironicCall, r *R, fields []*recordField[R]) []byte {
	b = append(b, '{')
	for _, f := range fields {
		b = f.write(appendKey(b, f.name), r, c)
	}
	return append(b, '}')
}

// show answers with one record, whole.
func (k *recordKind[R, F]) show(c *ironicCall, status int, r *R) error {
	return c.Raw(status, k.append(make([]byte, 0, 1024), c, r, k.shown(nil, c.version)))
}

// ident is what the path names a record by.
func (k *recordKind[R, F]) ident(c *ironicCall) (string, error) {
	word := c.Args[0]
	switch {
	case record.IsUUID(word):
		return word, nil
	case k.noNames, c.version < k.namedSince:
		return "", problem.Invalidf("Expected a UUID but received %s.", truncateInput(word))
	case !metal.IsName(word):
		return "", problem.Invalidf("Expected a UUID or the name of a %s but received %s.", k.name, truncateInput(word))
	}
	return word, nil
}

// self is the path of a record below /v1.
func (k *recordKind[R, F]) self(r *R) string { return k.path + "/" + k.head(r).ID }
