package fleetfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"

	"salvor/secret"
)

// maxValues and maxDepth bound a document: aliases of YAML make much of little.
const (
	maxValues = 2_000_000
	maxDepth  = 64
)

// treeValue is a value of a document, with the line where it begins.
type treeValue struct {
	line int
	// text is a scalar as it was typed, and plain what it means: nil, a bool, a number or a string.
	text  string
	plain any
	list  []*treeValue
	// members are those of an object, in the order of the file.
	members []treeMember
	// lines has the line of each key of an object.
	lines map[string]int
	kind  valueKind
}

type treeMember struct {
	key   string
	line  int
	value *treeValue
}

type valueKind int

const (
	scalar valueKind = iota
	list
	object
)

func (k valueKind) String() string { return [...]string{"a single value", "a list", "an object"}[k] }

// toJSON gives the value as encoding/json does. A scalar under the key of a secret stays as it was typed: a password of digits is no number.
func (v *treeValue) toJSON(key string) any {
	switch v.kind {
	case list:
		out := make([]any, len(v.list))
		for i, one := range v.list {
			out[i] = one.toJSON("")
		}
		return out
	case object:
		out := make(map[string]any, len(v.members))
		for _, m := range v.members {
			out[m.key] = m.value.toJSON(m.key)
		}
		return out
	}
	if v.plain != nil && secret.IsKey(key) {
		return v.text
	}
	return v.plain
}

// syntaxError is a mistake that ends the reading of a file.
type syntaxError struct {
	line int
	what string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.what) }

// treeReader makes values of one document.
type treeReader struct {
	values int
	// repeated are the keys that an object has twice.
	repeated []Mistake
}

func (r *treeReader) count(line, depth int) error {
	if r.values++; r.values > maxValues {
		return &syntaxError{line, fmt.Sprintf("the document has more than %d values", maxValues)}
	}
	if depth > maxDepth {
		return &syntaxError{line, fmt.Sprintf("values lie within each other more than %d times", maxDepth)}
	}
	return nil
}

// add adds a member to an object, unless the object has the key already.
func (r *treeReader) add(o *treeValue, m treeMember) {
	if first, has := o.lines[m.key]; has {
		r.repeated = append(r.repeated, Mistake{m.line, fmt.Sprintf("%s stands here a second time; first in line %d", m.key, first)})
		return
	}
	if o.lines == nil {
		o.lines = map[string]int{}
	}
	o.lines[m.key] = m.line
	o.members = append(o.members, m)
}

// readYAML reads one document of YAML.
func (r *treeReader) readYAML(text []byte) (*treeValue, error) {
	var document yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(text))
	if err := in.Decode(&document); err != nil {
		if err == io.EOF {
			return nil, nil
		}
		return nil, &syntaxError{lineOf(err), "this is not YAML: " + err.Error()}
	}
	if err := in.Decode(new(yaml.Node)); err == nil {
		return nil, &syntaxError{document.Line, "the file has more than one document of YAML"}
	}
	return r.fromYAML(document.Content[0], 0)
}

// lineOf finds the line in the text of an error of the YAML library.
func lineOf(err error) int {
	var line int
	if i := bytes.Index([]byte(err.Error()), []byte("line ")); i >= 0 {
		_, _ = fmt.Sscanf(err.Error()[i:], "line %d", &line)
	}
	return max(line, 1)
}

func (r *treeReader) fromYAML(n *yaml.Node, depth int) (*treeValue, error) {
	if err := r.count(n.Line, depth); err != nil {
		return nil, err
	}
	out := &treeValue{line: n.Line}
	switch n.Kind {
	case yaml.AliasNode:
		return r.fromYAML(n.Alias, depth+1)
	case yaml.SequenceNode:
		out.kind = list
		for _, one := range n.Content {
			v, err := r.fromYAML(one, depth+1)
			if err != nil {
				return nil, err
			}
			out.list = append(out.list, v)
		}
	case yaml.MappingNode:
		out.kind = object
		var merged []*treeValue
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			v, err := r.fromYAML(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			switch {
			case key.Kind != yaml.ScalarNode:
				return nil, &syntaxError{key.Line, "a key is no text"}
			case key.Tag == "!!merge":
				merged = append(merged, v)
			default:
				r.add(out, treeMember{key.Value, key.Line, v})
			}
		}
		return out, r.merge(out, merged)
	default:
		out.text = n.Value
		switch n.Tag {
		case "!!null", "!!bool", "!!int", "!!float":
			if err := n.Decode(&out.plain); err != nil {
				return nil, &syntaxError{n.Line, "this is not YAML: " + err.Error()}
			}
			if whole, ok := out.plain.(int); ok {
				out.plain = int64(whole)
			}
		default: // a date of YAML is a text in every field of a node
			out.plain = n.Value
		}
	}
	return out, nil
}

// merge adds the members of the objects behind << that an object has not itself.
func (r *treeReader) merge(o *treeValue, all []*treeValue) error {
	for _, from := range all {
		switch from.kind {
		case list:
			if err := r.merge(o, from.list); err != nil {
				return err
			}
		case object:
			for _, m := range from.members {
				if _, has := o.lines[m.key]; !has {
					r.add(o, m)
				}
			}
		default:
			return &syntaxError{from.line, "<< takes an object"}
		}
	}
	return nil
}

// jsonReader reads tokens of JSON, and knows their lines.
type jsonReader struct {
	*treeReader
	in   *json.Decoder
	text []byte
	// counted and line are how far lines have been counted.
	counted int64
	line    int
}

// readJSON reads one document of JSON.
func (r *treeReader) readJSON(text []byte) (*treeValue, error) {
	j := &jsonReader{treeReader: r, in: json.NewDecoder(bytes.NewReader(text)), text: text, line: 1}
	j.in.UseNumber()
	v, err := j.next(0)
	if err == nil {
		if _, end := j.in.Token(); end != io.EOF {
			err = &syntaxError{j.at(), "something follows the end of the document"}
		}
	}
	return v, err
}

// at is the line of the last token that was read.
func (j *jsonReader) at() int {
	end := min(j.in.InputOffset(), int64(len(j.text)))
	j.line += bytes.Count(j.text[j.counted:end], []byte("\n"))
	j.counted = end
	return j.line
}

func (j *jsonReader) token() (json.Token, error) {
	t, err := j.in.Token()
	if err != nil {
		what := "this is not JSON: " + err.Error()
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			what = "the document ends too early"
		}
		line := j.at()
		if bad, ok := err.(*json.SyntaxError); ok {
			line = 1 + bytes.Count(j.text[:min(bad.Offset, int64(len(j.text)))], []byte("\n"))
		}
		return nil, &syntaxError{line, what}
	}
	return t, nil
}

func (j *jsonReader) next(depth int) (*treeValue, error) {
	t, err := j.token()
	if err != nil {
		return nil, err
	}
	out := &treeValue{line: j.at()}
	if err := j.count(out.line, depth); err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if out.kind = list; t == '{' {
			out.kind = object
		}
		for j.in.More() {
			key, line := "", 0
			if out.kind == object {
				k, err := j.token()
				if err != nil {
					return nil, err
				}
				key, line = k.(string), j.at()
			}
			v, err := j.next(depth + 1)
			if err != nil {
				return nil, err
			}
			if out.kind == object {
				j.add(out, treeMember{key, line, v})
			} else {
				out.list = append(out.list, v)
			}
		}
		_, err := j.token()
		return out, err
	case json.Number:
		out.text, out.plain = t.String(), toNumber(t)
	case bool:
		out.text, out.plain = strconv.FormatBool(t), t
	case string:
		out.text, out.plain = t, t
	}
	return out, nil
}

// toNumber is a whole number where it can be.
func toNumber(n json.Number) any {
	if whole, err := n.Int64(); err == nil {
		return whole
	}
	f, err := n.Float64()
	if err != nil {
		return n.String()
	}
	return f
}
