// Package loose decodes the JSON of peers that do not keep to a schema, such as BMCs and agents of others. encoding/json refuses a document for
// one value of another type; Decode leaves that value unset, names its path, and reads the rest.
package loose

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
)

// Bounds of a document. A peer's answer is also bounded in bytes, by its reader.
const (
	// MaxDepth bounds how deep lists and objects nest.
	MaxDepth = 64
	// MaxValues bounds how many values a document has, objects and lists included.
	MaxValues = 200_000
	// MaxOdd bounds how many paths Decode returns.
	MaxOdd = 32

	// maxNumber bounds the digits of a number, as JSON or as text.
	maxNumber = 64
	// maxPath bounds a path in bytes, because the keys of maps are the peer's.
	maxPath = 200
)

// errTooMany says that a document has more than MaxValues values or MaxDepth levels.
var errTooMany = fmt.Errorf("the document has more than %d values, or nests deeper than %d levels", MaxValues, MaxDepth)

// Decode decodes a JSON document into the value that the pointer into names, member by member, with the tags and the embedding rules of
// encoding/json.
//
// A value of another type is converted where its meaning is plain: the text "16" to a number, a number to text, "true" to a bool, a value to
// a list of one, a list of one to its value. Otherwise the member stays as it was, and odd has its path, such as Boot.Status or Members[3]. An
// element of a list or a map that cannot be decoded is left out. A value that the peer does not tell (null, "N/A", or an empty text for what
// is no text) leaves its member as it was, and is not odd.
//
// The error says that the text is no JSON, is beyond the bounds, or is of another type as a whole.
func Decode(text []byte, into any) (odd []string, err error) {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return nil, fmt.Errorf("decode JSON into %T: want a pointer that is not nil", into)
	}
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	d := decoder{}
	if !d.decode(root, target.Elem(), "") {
		return nil, fmt.Errorf("the document is %s, which is no %s", root.kind, wanted(target.Elem().Type()))
	}
	return d.odd, nil
}

// wanted names a type in the words of JSON.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "bool"
	}
	return "number"
}

// kind is the type of a JSON value, with its article.
type kind string

const (
	isNull   kind = "null"
	isBool   kind = "a bool"
	isNumber kind = "a number"
	isText   kind = "a text"
	isList   kind = "a list"
	isObject kind = "an object"
)

// value is a JSON value with its text.
type value struct {
	kind    kind
	raw     []byte
	list    []value
	members []member
}

type member struct {
	name  string
	value value
}

// parse reads a document. Some peers begin with a byte order mark, end with zero bytes, or write control characters into texts; parse takes
// these as if they were absent, or blanks.
func parse(text []byte) (value, error) {
	text = bytes.TrimRight(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), "\x00")
	text, err := checkSyntax(text)
	if err != nil {
		return value{}, err
	}
	p := parser{text: text, left: MaxValues}
	v, ok := p.value(0)
	if !ok {
		return value{}, errTooMany
	}
	return v, nil
}

// parser walks over a text whose syntax is right.
type parser struct {
	text []byte
	at   int
	left int // how many values may follow
}

func (p *parser) skipBlanks() {
	for p.at < len(p.text) && bytes.IndexByte([]byte(" \t\r\n"), p.text[p.at]) >= 0 {
		p.at++
	}
}

// value reads the next value; false: the document is beyond the bounds.
func (p *parser) value(depth int) (v value, ok bool) {
	p.skipBlanks()
	if p.left--; p.left < 0 || depth > MaxDepth {
		return v, false
	}
	began := p.at
	ok = true
	switch p.text[p.at] {
	case '{':
		v.kind = isObject
		v.members, ok = p.object(depth)
	case '[':
		v.kind = isList
		v.list, ok = p.elements(depth)
	case '"':
		v.kind = isText
		p.skipText()
	case 'n':
		v.kind = isNull
		p.at += len("null")
	case 't':
		v.kind = isBool
		p.at += len("true")
	case 'f':
		v.kind = isBool
		p.at += len("false")
	default:
		v.kind = isNumber
		for p.at < len(p.text) && bytes.IndexByte([]byte("+-.0123456789eE"), p.text[p.at]) >= 0 {
			p.at++
		}
	}
	v.raw = p.text[began:p.at:p.at]
	return v, ok
}

// object reads members up to the closing brace. Of two members of one name the last counts, as for encoding/json.
func (p *parser) object(depth int) (members []member, ok bool) {
	for p.at++; ; {
		p.skipBlanks()
		switch p.text[p.at] {
		case '}':
			p.at++
			return members, true
		case ',':
			p.at++
			continue
		}
		began := p.at
		p.skipText()
		name := textOf(p.text[began:p.at])
		p.skipBlanks()
		p.at++ // the colon
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		members = append(members, member{name, v})
	}
}

// elements reads a list up to the closing bracket.
func (p *parser) elements(depth int) (list []value, ok bool) {
	for p.at++; ; {
		p.skipBlanks()
		switch p.text[p.at] {
		case ']':
			p.at++
			return list, true
		case ',':
			p.at++
			continue
		}
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, v)
	}
}

// skipText moves behind the closing quotation mark.
func (p *parser) skipText() {
	for p.at++; p.text[p.at] != '"'; p.at++ {
		if p.text[p.at] == '\\' {
			p.at++
		}
	}
	p.at++
}

// errNoJSON stands before the reason why a text is no JSON.
var errNoJSON = errors.New("it is no JSON")
