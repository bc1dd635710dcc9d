package loose

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decoder collects the paths of values that could not be decoded.
type decoder struct {
	odd   []string
	trims bool    // texts lose the blanks around them
	at    []place // where the value in hand stands, from the document on
}

// place is a member of an object by its name, or an element of a list by its index.
type place struct {
	name      string
	isElement bool
	index     int
}

// path is where the value in hand stands, such as Boot.Status or Members[3].
func (d *decoder) path() (out string) {
	for _, p := range d.at {
		switch {
		case p.isElement:
			out += "[" + strconv.Itoa(p.index) + "]"
		case out == "":
			out = p.name
		default:
			out += "." + p.name
		}
	}
	return out
}

func (d *decoder) note() {
	if len(d.odd) < MaxOdd {
		path := d.path()
		if len(path) > maxPath {
			path = strings.ToValidUTF8(path[:maxPath], "") + "..."
		}
		d.odd = append(d.odd, path)
	}
}

// member decodes a value that is part of another, and notes its path if that fails. It tells whether the target was set.
func (d *decoder) member(p *plan, v value, target reflect.Value, at place) bool {
	d.at = append(d.at, at)
	set := d.decode(p, v, target)
	if !set && !v.isUntold(p.isText) {
		d.note()
	}
	d.at = d.at[:len(d.at)-1]
	return set
}

// decode sets a target. False: the value is not told, or is of another type, and the target is as it was.
func (d *decoder) decode(p *plan, v value, target reflect.Value) bool {
	switch p.way {
	case asRaw:
		target.SetBytes(slices.Clone(v))
		return true
	case asPointer:
		return d.pointer(p, v, target)
	case byItself:
		return unmarshalByItself(v, target)
	}
	switch {
	case p.kind == reflect.Interface:
		return decodeAny(v, target)
	case v.isUntold(p.isText):
		return false
	case p.way == byText:
		return unmarshalText(v, target)
	case p.way == asJSONNumber:
		return setJSONNumber(v, target)
	case !p.isList() && v.kind() == isList:
		w := v.walk()
		only, ok := w.element()
		_, more := w.element()
		return ok && !more && only.kind() != isList && d.decode(p, only, target)
	}
	return d.byKind(p, v, target)
}

func (d *decoder) byKind(p *plan, v value, target reflect.Value) bool {
	switch p.kind {
	case reflect.Struct:
		return v.kind() == isObject && d.object(p, v, target)
	case reflect.Map:
		return v.kind() == isObject && d.mapOf(p, v, target)
	case reflect.Slice:
		return d.slice(p, v, target)
	case reflect.Array:
		return d.array(p, v, target)
	case reflect.String:
		text, ok := v.asText()
		if ok {
			if d.trims {
				text = strings.TrimSpace(text)
			}
			target.SetString(text)
		}
		return ok
	case reflect.Bool:
		is, ok := v.asBool()
		if ok {
			target.SetBool(is)
		}
		return ok
	}
	return (target.CanInt() || target.CanUint() || target.CanFloat()) && v.setNumber(target)
}

// pointer decodes into what the pointer points to, and leaves a pointer nil whose value cannot be decoded.
func (d *decoder) pointer(p *plan, v value, target reflect.Value) bool {
	if v.kind() == isNull {
		return false
	}
	to := reflect.New(p.elem.t)
	if !target.IsNil() {
		to.Elem().Set(target.Elem())
	}
	if !d.decode(p.elem, v, to.Elem()) {
		return false
	}
	target.Set(to)
	return true
}

// decodeAny decodes into an interface; one with methods takes null only.
func decodeAny(v value, target reflect.Value) bool {
	if target.NumMethod() > 0 {
		return unmarshalInto(v, target)
	}
	out, _, ok := anyAt(v, 0)
	switch {
	case !ok:
	case out == nil:
		target.SetZero()
	default:
		target.Set(reflect.ValueOf(out))
	}
	return ok
}

// unmarshalInto lets encoding/json decode; a failure leaves the target as it was.
func unmarshalInto(v value, target reflect.Value) bool {
	to := reflect.New(target.Type())
	if json.Unmarshal(v, to.Interface()) != nil {
		return false
	}
	target.Set(to.Elem())
	return true
}

// unmarshalByItself lets a type decode itself; a failure leaves the target as it was.
func unmarshalByItself(v value, target reflect.Value) bool {
	to := reflect.New(target.Type())
	if to.Interface().(json.Unmarshaler).UnmarshalJSON(v) != nil {
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
func (d *decoder) object(p *plan, v value, target reflect.Value) bool {
	for w := v.walk(); ; {
		name, member, ok := w.member()
		if !ok {
			return true
		}
		f := p.fields.find(name)
		if f == nil {
			continue
		}
		if to, ok := fieldByIndex(target, f.index); ok {
			d.member(f.plan, member, to, place{name: f.name})
		}
	}
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
func (d *decoder) mapOf(p *plan, v value, target reflect.Value) bool {
	if p.elem == nil {
		return unmarshalInto(v, target) // its keys are no texts
	}
	out := reflect.MakeMap(p.t)
	for w := v.walk(); ; {
		name, member, ok := w.member()
		if !ok {
			break
		}
		key, to := textOf(name), reflect.New(p.elem.t).Elem()
		if d.member(p.elem, member, to, place{name: key}) {
			out.SetMapIndex(reflect.ValueOf(key).Convert(p.t.Key()), to)
		}
	}
	target.Set(out)
	return true
}

// slice decodes a list, or a value as a list of one. An element that cannot be decoded is left out.
func (d *decoder) slice(p *plan, v value, target reflect.Value) bool {
	switch {
	case p.way == asBytes:
		return unmarshalInto(v, target)
	case v.kind() != isList:
		out := reflect.MakeSlice(p.t, 1, 1)
		if !d.decode(p.elem, v, out.Index(0)) {
			return false
		}
		target.Set(out)
		return true
	}
	length := 0
	for w := v.walk(); ; length++ {
		if _, ok := w.element(); !ok {
			break
		}
	}
	out := reflect.MakeSlice(p.t, length, length)
	set := 0
	w := v.walk()
	for i := range length {
		element, _ := w.element()
		if d.member(p.elem, element, out.Index(set), place{isElement: true, index: i}) {
			set++
		}
	}
	target.Set(out.Slice3(0, set, set))
	return true
}

// array is slice for an array, which has no room for some elements.
func (d *decoder) array(p *plan, v value, target reflect.Value) bool {
	list := reflect.New(reflect.SliceOf(p.elem.t)).Elem()
	if !d.slice(&plan{t: list.Type(), kind: reflect.Slice, elem: p.elem}, v, list) {
		return false
	}
	reflect.Copy(target, list)
	return true
}
