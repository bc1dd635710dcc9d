// Package loose decodes the JSON of peers that do not keep to a schema, such as BMCs and agents of others. encoding/json refuses a document for
// one value of another type; Decode leaves that value unset, names its path, and reads the rest.
package loose

import (
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
	return decodeInto(decoder{}, text, into)
}

// DecodeTrimmed is Decode, and takes the blanks around each text away. Blanks around a word of Redfish, such as " On ", mean nothing.
func DecodeTrimmed(text []byte, into any) (odd []string, err error) {
	return decodeInto(decoder{trims: true}, text, into)
}

func decodeInto(d decoder, text []byte, into any) (odd []string, err error) {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return nil, fmt.Errorf("decode JSON into %T: want a pointer that is not nil", into)
	}
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	if !d.decode(planOf(target.Type().Elem()), root, target.Elem()) {
		return nil, fmt.Errorf("the document is %s, which is no %s", root.kind(), wanted(target.Elem().Type()))
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

// errNoJSON stands before the reason why a text is no JSON.
var errNoJSON = errors.New("it is no JSON")
