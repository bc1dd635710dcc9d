package loose

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// decoder collects the paths of values that could not be decoded.
type decoder struct{ odd []string }

func (d *decoder) note(path string) {
	if len(d.odd) < MaxOdd {
		if len(path) > maxPath {
			path = strings.ToValidUTF8(path[:maxPath], "") + "..."
		}
		d.odd = append(d.odd, path)
	}
}

// member decodes a value that is part of another, and notes its path if that fails. It tells whether the target was set.
func (d *decoder) member(v value, target reflect.Value, path string) bool {
	set := d.decode(v, target, path)
	if !set && !v.untold(isTextKind(target.Type())) {
		d.note(path)
	}
	return set
}

// isTextKind tells whether a type is text to the end of its pointers.
func isTextKind(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.String && t != numberType
}

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	numberType      = reflect.TypeFor[json.Number]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decode sets a target. False: the value is not told, or is of another type, and the target is as it was.
func (d *decoder) decode(v value, target reflect.Value, path string) bool {
	t := target.Type()
	switch {
	case t == rawType:
		target.SetBytes(slices.Clone(v.raw))
		return true
	case t.Kind() == reflect.Pointer:
		return d.pointer(v, target, path)
	case reflect.PointerTo(t).Implements(unmarshalerType):
		return unmarshalInto(v.raw, target)
	case v.untold(isTextKind(t)) && t.Kind() != reflect.Interface:
		return false
	case reflect.PointerTo(t).Implements(textType):
		return unmarshalText(v, target)
	case t == numberType:
		return setJSONNumber(v, target)
	case t.Kind() != reflect.Interface && !isListKind(t.Kind()) && v.kind == isList:
		return len(v.list) == 1 && v.list[0].kind != isList && d.decode(v.list[0], target, path)
	}
	return d.byKind(v, target, path)
}

func isListKind(k reflect.Kind) bool { return k == reflect.Slice || k == reflect.Array }

func (d *decoder) byKind(v value, target reflect.Value, path string) bool {
	switch target.Kind() {
	case reflect.Struct:
		return v.kind == isObject && d.object(v, target, path)
	case reflect.Map:
		return v.kind == isObject && d.mapOf(v, target, path)
	case reflect.Slice, reflect.Array:
		return d.list(v, target, path)
	case reflect.String:
		text, ok := v.asText()
		if ok {
			target.SetString(text)
		}
		return ok
	case reflect.Bool:
		is, ok := v.asBool()
		if ok {
			target.SetBool(is)
		}
		return ok
	case reflect.Interface:
		return unmarshalInto(v.raw, target)
	}
	return (target.CanInt() || target.CanUint() || target.CanFloat()) && v.setNumber(target)
}

// pointer decodes into what the pointer points to, and leaves a pointer nil whose value cannot be decoded.
func (d *decoder) pointer(v value, target reflect.Value, path string) bool {
	if v.kind == isNull {
		return false
	}
	to := reflect.New(target.Type().Elem())
	if !target.IsNil() {
		to.Elem().Set(target.Elem())
	}
	if !d.decode(v, to.Elem(), path) {
		return false
	}
	target.Set(to)
	return true
}

// unmarshalInto lets encoding/json or the type itself decode; a failure leaves the target as it was.
func unmarshalInto(raw []byte, target reflect.Value) bool {
	to := reflect.New(target.Type())
	if json.Unmarshal(raw, to.Interface()) != nil {
		return false
	}
	target.Set(to.Elem())
	return true
}

func unmarshalText(v value, target reflect.Value) bool {
	text, ok := v.asText()
	to := reflect.New(target.Type())
	if !ok || to.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)) != nil {
		return false
	}
	target.Set(to.Elem())
	return true
}

func setJSONNumber(v value, target reflect.Value) bool {
	text, ok := v.number()
	var n json.Number
	if !ok || json.Unmarshal([]byte(text), &n) != nil {
		return false
	}
	target.Set(reflect.ValueOf(n))
	return true
}

// object decodes members into the fields of a struct. A document whose every known member cannot be decoded is still an object.
func (d *decoder) object(v value, target reflect.Value, path string) bool {
	fields := fieldsOf(target.Type())
	for _, m := range v.members {
		f, ok := fields.find(m.name)
		if !ok {
			continue
		}
		to, ok := fieldByIndex(target, f.index)
		if !ok {
			continue
		}
		d.member(m.value, to, join(path, f.name))
	}
	return true
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fieldByIndex is a field of a struct or of what the struct embeds; embedded pointers are allocated. False: an embedded pointer cannot be set.
func fieldByIndex(v reflect.Value, index []int) (reflect.Value, bool) {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !v.CanSet() {
					return v, false
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v, v.CanSet()
}

// mapOf decodes an object into a map; a member that cannot be decoded is left out.
func (d *decoder) mapOf(v value, target reflect.Value, path string) bool {
	t := target.Type()
	if t.Key().Kind() != reflect.String {
		return unmarshalInto(v.raw, target)
	}
	out := reflect.MakeMapWithSize(t, len(v.members))
	for _, m := range v.members {
		at := reflect.New(t.Elem()).Elem()
		if d.member(m.value, at, join(path, m.name)) {
			out.SetMapIndex(reflect.ValueOf(m.name).Convert(t.Key()), at)
		}
	}
	target.Set(out)
	return true
}

// list decodes a list, or a value as a list of one. An element that cannot be decoded is left out.
func (d *decoder) list(v value, target reflect.Value, path string) bool {
	t := target.Type()
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return unmarshalInto(v.raw, target) // base64
	}
	if v.kind != isList {
		at := reflect.New(t.Elem()).Elem()
		if !d.decode(v, at, path) {
			return false
		}
		setElements(target, []reflect.Value{at})
		return true
	}
	elements := make([]reflect.Value, 0, len(v.list))
	for i, element := range v.list {
		at := reflect.New(t.Elem()).Elem()
		if d.member(element, at, fmt.Sprintf("%s[%d]", path, i)) {
			elements = append(elements, at)
		}
	}
	setElements(target, elements)
	return true
}

func setElements(target reflect.Value, elements []reflect.Value) {
	if target.Kind() == reflect.Slice {
		target.Set(reflect.MakeSlice(target.Type(), len(elements), len(elements)))
	}
	for i, e := range elements {
		if i < target.Len() {
			target.Index(i).Set(e)
		}
	}
}

// field is a member that a struct takes.
type field struct {
	name   string
	index  []int
	tagged bool
}

type fields []field

// find looks a name up, then the name in another case, as encoding/json does.
func (all fields) find(name string) (field, bool) {
	for _, f := range all {
		if f.name == name {
			return f, true
		}
	}
	for _, f := range all {
		if strings.EqualFold(f.name, name) {
			return f, true
		}
	}
	return field{}, false
}

var knownFields sync.Map // reflect.Type to fields

func fieldsOf(t reflect.Type) fields {
	if known, ok := knownFields.Load(t); ok {
		return known.(fields)
	}
	all := collect(t, nil, map[reflect.Type]bool{})
	// Of two fields of one name the shallower counts, then the tagged; two that are equal in both hide each other.
	slices.SortStableFunc(all, func(a, b field) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(len(a.index), len(b.index)), cmp.Compare(rank(b.tagged), rank(a.tagged)))
	})
	var out fields
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && all[end].name == all[i].name {
			end++
		}
		if end == i+1 || len(all[i].index) != len(all[i+1].index) || all[i].tagged != all[i+1].tagged {
			out = append(out, all[i])
		}
		i = end
	}
	knownFields.Store(t, out)
	return out
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// collect lists the fields of a struct and of what the struct embeds.
func collect(t reflect.Type, index []int, within map[reflect.Type]bool) (all fields) {
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
			all = append(all, field{cmp.Or(name, f.Name), at, name != ""})
		}
	}
	return all
}
