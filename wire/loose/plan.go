package loose

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// way is how values of a type are decoded.
type way int

const (
	byKind way = iota
	asRaw
	asPointer
	byItself // by its own UnmarshalJSON
	byText   // by its own UnmarshalText
	asJSONNumber
	asBytes // from base64
)

// plan says how values of a type are decoded. It is made once for each type.
type plan struct {
	t    reflect.Type
	kind reflect.Kind
	way  way
	// isText: the type is text to the end of its pointers.
	isText bool
	elem   *plan // of a pointer, list or map
	fields fields
}

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	numberType      = reflect.TypeFor[json.Number]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

var plans sync.Map // reflect.Type to *plan

func planOf(t reflect.Type) *plan {
	if known, ok := plans.Load(t); ok {
		return known.(*plan)
	}
	made := map[reflect.Type]*plan{}
	p := newPlan(t, made)
	for t, p := range made { // none is visible before all are whole
		plans.LoadOrStore(t, p)
	}
	return p
}

// newPlan makes the plan of a type and of all types within it. made has those that are being made, for a type may hold itself.
func newPlan(t reflect.Type, made map[reflect.Type]*plan) *plan {
	if p := made[t]; p != nil {
		return p
	}
	p := &plan{t: t, kind: t.Kind()}
	made[t] = p
	switch {
	case t == rawType:
		p.way = asRaw
	case p.kind == reflect.Pointer:
		p.way, p.elem = asPointer, newPlan(t.Elem(), made)
	case reflect.PointerTo(t).Implements(unmarshalerType):
		p.way = byItself
	case reflect.PointerTo(t).Implements(textType):
		p.way = byText
	case t == numberType:
		p.way = asJSONNumber
	case p.kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		p.way = asBytes
	case p.isList(), p.kind == reflect.Map && t.Key().Kind() == reflect.String:
		p.elem = newPlan(t.Elem(), made)
	case p.kind == reflect.Struct:
		p.fields = newFields(t, made)
	}
	end := t
	for end.Kind() == reflect.Pointer {
		end = end.Elem()
	}
	p.isText = end.Kind() == reflect.String && end != numberType
	return p
}

func (p *plan) isList() bool { return p.kind == reflect.Slice || p.kind == reflect.Array }

// field is a member that a struct takes.
type field struct {
	name   string
	index  []int
	tagged bool
	plan   *plan
}

// fields are the members that a struct takes, by name.
type fields struct {
	all []field
	// byName has the indices in all by name, and byFolded by the name in lower case. hasForeign: a name has other letters than those of ASCII.
	byName, byFolded map[string]int
	hasForeign       bool
}

// maxFolded bounds the names that find looks up in lower case without an allocation.
const maxFolded = 64

// find looks up a name with its quotation marks, then the name in another case, as encoding/json does; nil: the struct takes no such member.
func (all *fields) find(name value) *field {
	if i, ok := all.byName[string(name[1:len(name)-1])]; ok {
		return &all.all[i]
	}
	if all.hasForeign || len(name) > maxFolded || !name.isPlain() {
		return all.findSlowly(textOf(name))
	}
	var room [maxFolded]byte
	folded := room[:len(name)-2]
	for i := range folded {
		if folded[i] = name[i+1]; folded[i] >= 'A' && folded[i] <= 'Z' {
			folded[i] += 'a' - 'A'
		}
	}
	if i, ok := all.byFolded[string(folded)]; ok {
		return &all.all[i]
	}
	return nil
}

func (all *fields) findSlowly(name string) *field {
	for _, is := range []func(string) bool{
		func(n string) bool { return n == name },
		func(n string) bool { return strings.EqualFold(n, name) },
	} {
		if i := slices.IndexFunc(all.all, func(f field) bool { return is(f.name) }); i >= 0 {
			return &all.all[i]
		}
	}
	return nil
}

func newFields(t reflect.Type, made map[reflect.Type]*plan) fields {
	all := collect(t, nil, map[reflect.Type]bool{})
	// Of two fields of one name the shallower counts, then the tagged; two that are equal in both hide each other.
	slices.SortStableFunc(all, func(a, b field) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(len(a.index), len(b.index)), cmp.Compare(rank(b.tagged), rank(a.tagged)))
	})
	out := fields{byName: map[string]int{}, byFolded: map[string]int{}}
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && all[end].name == all[i].name {
			end++
		}
		if end == i+1 || len(all[i].index) != len(all[i+1].index) || all[i].tagged != all[i+1].tagged {
			out.all = append(out.all, all[i])
		}
		i = end
	}
	for i := range out.all {
		f := &out.all[i]
		f.plan = newPlan(t.FieldByIndex(f.index).Type, made)
		if strings.ContainsFunc(f.name, func(r rune) bool { return r >= utf8.RuneSelf || r == '\\' }) {
			out.hasForeign = true
			continue
		}
		out.byName[f.name] = i
		if folded := strings.ToLower(f.name); !hasKey(out.byFolded, folded) {
			out.byFolded[folded] = i
		}
	}
	return out
}

func hasKey(m map[string]int, key string) bool { _, ok := m[key]; return ok }

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// collect lists the fields of a struct and of what the struct embeds.
func collect(t reflect.Type, index []int, within map[reflect.Type]bool) (all []field) {
	if within[t] {
		return nil // a type that embeds itself by pointer
	}
	within[t] = true
	defer delete(within, t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		at := append(slices.Clone(index), i)
		switch {
		case tag == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			all = append(all, collect(inner, at, within)...)
		case f.IsExported():
			all = append(all, field{name: cmp.Or(name, f.Name), index: at, tagged: name != ""})
		}
	}
	return all
}
