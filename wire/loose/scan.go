package loose

import "bytes"

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

// value is a JSON value as its text, whose syntax is right and which has no blanks around it.
type value []byte

// kindsOf are the types of values by their first byte; a number has any other.
var kindsOf = [256]kind{'{': isObject, '[': isList, '"': isText, 'n': isNull, 't': isBool, 'f': isBool}

func (v value) kind() kind {
	if k := kindsOf[v[0]]; k != "" {
		return k
	}
	return isNumber
}

// parse gives the value of a document. Some peers begin with a byte order mark, end with zero bytes, or write control characters into texts;
// parse takes these as if they were absent, or blanks.
func parse(text []byte) (value, error) {
	text = bytes.TrimRight(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), "\x00")
	text, err := checkSyntax(text)
	if err != nil {
		return nil, err
	}
	at := skipBlanks(text, 0)
	v := value(text[at:valueEnd(text, at)])
	if !v.isWithinBounds() {
		return nil, errTooMany
	}
	return v, nil
}

// isWithinBounds tells whether a document has at most MaxValues values, and nests no deeper than MaxDepth.
func (v value) isWithinBounds() bool {
	values, depth := 1, 0
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i = textEnd(v, i) - 1
		case ',':
			values++
		case '{', '[':
			if next := v[skipBlanks(v, i+1)]; next != '}' && next != ']' {
				values++
				if depth == MaxDepth {
					return false
				}
			}
			depth++
		case '}', ']':
			depth--
		}
	}
	return values <= MaxValues
}

func skipBlanks(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// skipComma skips blanks, and a comma among them.
func skipComma(text []byte, at int) int {
	at = skipBlanks(text, at)
	if at < len(text) && text[at] == ',' {
		at = skipBlanks(text, at+1)
	}
	return at
}

// textEnd is the place behind the closing quotation mark of the text that begins at a place.
func textEnd(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// valueEnd is the place behind the value that begins at a place.
func valueEnd(text []byte, at int) int {
	switch text[at] {
	case '"':
		return textEnd(text, at)
	case '{', '[':
		for depth := 0; ; at++ {
			switch text[at] {
			case '"':
				at = textEnd(text, at) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
		}
	}
	for at < len(text) && text[at] > ' ' && text[at] != ',' && text[at] != '}' && text[at] != ']' {
		at++
	}
	return at
}

// walker walks over the members of an object, or over the elements of a list.
type walker struct {
	text []byte
	at   int
}

func (v value) walk() walker { return walker{v, 1} }

// element is the next element of a list; false: there is none.
func (w *walker) element() (v value, ok bool) {
	w.at = skipComma(w.text, w.at)
	if c := w.text[w.at]; c == ']' || c == '}' {
		return nil, false
	}
	end := valueEnd(w.text, w.at)
	v = w.text[w.at:end:end]
	w.at = end
	return v, true
}

// member is the next member of an object; false: there is none. Of two members of one name the last counts, as for encoding/json.
func (w *walker) member() (name, v value, ok bool) {
	if name, ok = w.element(); !ok {
		return nil, nil, false
	}
	w.at = skipBlanks(w.text, w.at) + 1 // the colon
	v, ok = w.element()
	return name, v, ok
}
