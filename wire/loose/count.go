package loose

import "bytes"

// CountValues counts the values of a JSON text, lists and objects included, and stops behind most. It decodes nothing and needs no memory, so a list of
// lists of 24 MiB is refused before it becomes 500 MiB of values. Of a text that is no JSON it counts what looks like a value.
func CountValues(text []byte, most int) int {
	count := 0
	for i := 0; i < len(text) && count <= most; i++ {
		switch c := text[i]; {
		case c == '"':
			count++
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '[' || c == '{':
			count++
		case c == ':': // the text before the colon was a name
			count--
		case isScalar(c):
			count++
			for i+1 < len(text) && isScalar(text[i+1]) {
				i++
			}
		}
	}
	return count
}

// isScalar tells whether a character is part of a number, true, false or null.
func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || bytes.IndexByte([]byte("+-.E"), c) >= 0
}
