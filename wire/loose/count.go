package loose

import "bytes"

// CountValues counts the values of a JSON text, lists and objects included, and stops behind most. It decodes nothing and needs no memory, so a list of
// lists of 24 MiB is refused before it becomes 500 MiB of values. Of a text that is no JSON it counts what looks like a value.
func CountValues(text []byte, most int) int {
	var c ValueCounter
	return c.Add(text, most)
}

// ValueCounter counts the values of a JSON text that comes in pieces, as CountValues counts those of a whole text. The zero value has seen nothing.
type ValueCounter struct {
	count int
	state countState
}

// countState says within what the last piece of a text ended.
type countState int

const (
	betweenValues countState = iota
	inString
	inEscape // behind a backslash of a string
	inScalar // in a number, true, false or null
)

// Add counts the values that begin in the next piece of the text, stops behind most, and returns the count of all pieces.
func (v *ValueCounter) Add(piece []byte, most int) int {
	for i := 0; i < len(piece) && v.count <= most; i++ {
		c := piece[i]
		switch {
		case v.state == inEscape:
			v.state = inString
			continue
		case v.state == inString && c == '\\':
			v.state = inEscape
			continue
		case v.state == inString:
			if c == '"' {
				v.state = betweenValues
			}
			continue
		case isScalar(c):
			if v.state != inScalar {
				v.count++
			}
			v.state = inScalar
			continue
		}
		v.state = betweenValues
		switch c {
		case '"':
			v.count++
			v.state = inString
		case '[', '{':
			v.count++
		case ':': // the text before the colon was a name
			v.count--
		}
	}
	return v.count
}

// isScalar tells whether a character is part of a number, true, false or null.
func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || bytes.IndexByte([]byte("+-.E"), c) >= 0
}
