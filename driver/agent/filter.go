package agent

import (
	"io"
	"slices"
)

// Members of a command that an agent's answer repeats or carries, and how deep they lie in the answer about one command and in the list of all.
const (
	paramsMember  = "command_params"
	outcomeMember = "command_result"
	commandDepth  = 1
	listDepth     = 3
)

// memberFilter reads JSON and writes 0 in place of the values of some members, without holding them in memory. What its source sends is hostile: text that is no
// JSON passes as it is, or is cut off where a value without an end begins.
type memberFilter struct {
	from  io.Reader
	names []string
	at    int // the depth of the objects whose members are looked at

	depth          int
	inText, escape bool
	name           []byte // the newest text at that depth
	skips, begins  bool   // a value is left out, and nothing of it has been read
}

// withoutMembers reads JSON without the values of the named members of objects at a depth; the outermost object has the depth 1.
func withoutMembers(from io.Reader, depth int, names ...string) io.Reader {
	return &memberFilter{from: from, names: names, at: depth}
}

// Read is io.Reader's.
func (f *memberFilter) Read(into []byte) (int, error) {
	for {
		n, err := f.from.Read(into)
		out := into[:0] // each byte leaves one byte at most
		for _, c := range into[:n] {
			out = f.add(out, c)
		}
		if len(out) > 0 || err != nil {
			return len(out), err
		}
	}
}

// add takes the next byte and appends what is left of the text.
func (f *memberFilter) add(out []byte, c byte) []byte {
	switch {
	case f.inText:
		f.addText(c)
	case c == '"':
		f.inText, f.name = true, f.name[:0]
	case c == ':' && f.depth == f.at && !f.skips && slices.Contains(f.names, string(f.name)):
		f.skips, f.begins = true, true
		return append(out, c)
	case c == '{' || c == '[':
		f.depth++
	case c == '}' || c == ']':
		f.skips = f.skips && f.depth > f.at
		f.depth--
	case c == ',' && f.depth == f.at:
		f.skips, f.name = false, f.name[:0]
	}
	if f.skips && !f.begins {
		return out
	}
	if f.begins && f.skips {
		c = '0'
	}
	f.begins = false
	return append(out, c)
}

// longestName bounds what is held of a text: a longer one is no name that is left out.
const longestName = 32

func (f *memberFilter) addText(c byte) {
	switch {
	case f.escape:
		f.escape = false
	case c == '\\':
		f.escape = true
	case c == '"':
		f.inText = false
		return
	}
	if f.depth == f.at && len(f.name) < longestName {
		f.name = append(f.name, c)
	}
}
