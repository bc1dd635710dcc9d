package fleetfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"salvor/problem"
)

// The forms of a file.
const (
	CSV  = "csv"
	JSON = "json"
	YAML = "yaml"
)

// Forms are all forms of a file.
var Forms = []string{YAML, JSON, CSV}

// File is what a file asks for.
type File struct {
	Chassis []*Part
	Nodes   []*Node
}

// Part is a record that belongs to a node, or a chassis: the fields of its creation, as the Bare Metal API takes them.
type Part struct {
	Line   int
	Fields map[string]any
}

// Text is a field that is a text; empty where it is none.
func (p *Part) Text(field string) string {
	text, _ := p.Fields[field].(string)
	return text
}

// Group is a port group with its ports.
type Group struct {
	Part
	Ports []*Part
}

// Node is a node with its ports. Chassis is that around the node in the file; nil: none.
type Node struct {
	Part
	Traits  []string
	Ports   []*Part
	Groups  []*Group
	Chassis *Part
	// lines has the line of each field.
	lines map[string]int
}

// Label is how the node is called in a report.
func (n *Node) Label() string { return cmp.Or(n.Text("name"), n.Text("uuid"), "a node without a name") }

// AllPorts are the ports of the node, those in groups included.
func (n *Node) AllPorts() []*Part {
	out := slices.Clone(n.Ports)
	for _, g := range n.Groups {
		out = append(out, g.Ports...)
	}
	return out
}

// object gives a field that is an object, which it makes where the node has none.
func (n *Node) object(field string) map[string]any {
	o, ok := n.Fields[field].(map[string]any)
	if !ok {
		o = map[string]any{}
		n.Fields[field] = o
	}
	return o
}

// Mistake is what is wrong in a line of a file. What begins with the node or the field.
type Mistake struct {
	Line int
	What string
}

func (m Mistake) String() string { return fmt.Sprintf("line %d: %s", m.Line, m.What) }

// Form tells which form a file has, by the end of its name, else by its text.
func Form(name string, text []byte) string {
	for end, form := range map[string]string{".csv": CSV, ".tsv": CSV, ".json": JSON, ".yaml": YAML, ".yml": YAML} {
		if strings.HasSuffix(strings.ToLower(name), end) {
			return form
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(string(text), byteOrderMark)), "\n")
	switch {
	case strings.HasPrefix(first, "{"), strings.HasPrefix(first, "["):
		return JSON
	case strings.ContainsAny(first, ",;\t") && !strings.Contains(first, ": "):
		return CSV
	}
	return YAML
}

const byteOrderMark = "\ufeff"

// Read reads a file. The mistakes are those that the file alone shows, in the order of lines; where its syntax is broken, that is the only one.
func Read(form string, text []byte) (*File, []Mistake) {
	text = []byte(strings.TrimPrefix(string(text), byteOrderMark))
	if !utf8.Valid(text) {
		return nil, []Mistake{{lineOfBadText(text), "the file is not UTF-8: save it as UTF-8"}}
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, []Mistake{{1, "the file is empty"}}
	}
	var d fileReader
	var err error
	if form == CSV {
		err = d.readCSV(text)
	} else {
		err = d.readTree(form, text)
	}
	var broken *syntaxError
	if bad, ok := err.(*syntaxError); ok {
		broken = bad
	}
	if broken != nil {
		return nil, []Mistake{{broken.line, broken.what}}
	}
	d.checkIdentities()
	if len(d.file.Nodes)+len(d.file.Chassis) == 0 && len(d.mistakes) == 0 {
		d.wrong(1, "the file has no node")
	}
	slices.SortStableFunc(d.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
	return &d.file, d.mistakes
}

// lineOfBadText is the line of the first byte that is not UTF-8.
func lineOfBadText(text []byte) int {
	line := 1
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		text = text[size:]
	}
	return line
}

// fileReader is a file that is being read.
type fileReader struct {
	file     File
	mistakes []Mistake
}

func (d *fileReader) wrong(line int, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{line, fmt.Sprintf(format, args...)})
}

// readTree reads JSON or YAML.
func (d *fileReader) readTree(form string, text []byte) error {
	var r treeReader
	read := r.readYAML
	if form == JSON {
		read = r.readJSON
	}
	top, err := read(text)
	if err != nil || top == nil {
		return err
	}
	d.mistakes = r.repeated
	switch top.kind {
	case list: // nodes alone, as programs print them
		d.readNodes(top, nil)
	case object:
		for _, m := range top.members {
			switch m.key {
			case "nodes":
				d.readNodes(m.value, nil)
			case "chassis":
				d.eachOf(m.value, "chassis", d.readChassis)
			default:
				d.wrong(m.line, "%s: unknown key; %s", m.key, problem.WantOneOf([]string{"nodes", "chassis"}))
			}
		}
	default:
		d.wrong(top.line, "want an object with the key nodes, or a list of nodes; got %s", top.kind)
	}
	return nil
}

// eachOf does something for each object of a list.
func (d *fileReader) eachOf(v *treeValue, what string, do func(*treeValue)) {
	if v.kind != list {
		if v.kind != scalar || v.plain != nil {
			d.wrong(v.line, "%s: want a list, got %s", what, v.kind)
		}
		return
	}
	for _, one := range v.list {
		if one.kind != object {
			d.wrong(one.line, "%s: want an object, got %s", what, one.kind)
			continue
		}
		do(one)
	}
}

func (d *fileReader) readChassis(v *treeValue) {
	part := &Part{Line: v.line, Fields: map[string]any{}}
	d.file.Chassis = append(d.file.Chassis, part)
	for _, m := range v.members {
		if m.key == "nodes" {
			d.readNodes(m.value, part)
			continue
		}
		d.setField(part, chassisFields, "chassis", m)
	}
}

func (d *fileReader) readNodes(v *treeValue, chassis *Part) {
	d.eachOf(v, "nodes", func(v *treeValue) { d.readNode(v, chassis) })
}

func (d *fileReader) readNode(v *treeValue, chassis *Part) {
	n := &Node{Part: Part{Line: v.line, Fields: map[string]any{}}, Chassis: chassis, lines: v.lines}
	d.file.Nodes = append(d.file.Nodes, n)
	for _, m := range v.members {
		if m.key == "name" && m.value.kind == scalar { // so that a mistake before the name can tell it
			n.Fields["name"] = m.value.text
		}
	}
	for _, m := range v.members {
		switch m.key {
		case "ports":
			n.Ports = d.readPorts(m.value, n.Label())
		case "portgroups":
			d.eachOf(m.value, n.Label()+": portgroups", func(v *treeValue) { n.Groups = append(n.Groups, d.readGroup(v, n.Label())) })
		case "traits":
			n.Traits = d.readTraits(m.value, n.Label())
		default:
			d.setField(&n.Part, nodeFields, n.Label(), m)
		}
	}
	d.checkNode(n)
}

func (d *fileReader) readPorts(v *treeValue, of string) (out []*Part) {
	d.eachOf(v, of+": ports", func(v *treeValue) {
		p := &Part{Line: v.line, Fields: map[string]any{}}
		for _, m := range v.members {
			d.setField(p, portFields, of+": a port", m)
		}
		out = append(out, p)
	})
	return out
}

func (d *fileReader) readGroup(v *treeValue, of string) *Group {
	g := &Group{Part: Part{Line: v.line, Fields: map[string]any{}}}
	for _, m := range v.members {
		if m.key == "ports" {
			g.Ports = d.readPorts(m.value, of)
			continue
		}
		d.setField(&g.Part, groupFields, of+": a port group", m)
	}
	return g
}

func (d *fileReader) readTraits(v *treeValue, of string) (out []string) {
	if v.kind != list {
		d.wrong(v.line, "%s: traits: want a list, got %s", of, v.kind)
		return nil
	}
	for _, one := range v.list {
		if one.kind != scalar {
			d.wrong(one.line, "%s: traits: want a text, got %s", of, one.kind)
			continue
		}
		out = append(out, one.text)
	}
	return out
}

// setField takes a field of a record, or says what is wrong with it. A field without a value is one that is left out.
func (d *fileReader) setField(p *Part, known map[string]fieldKind, of string, m treeMember) {
	kind, ok := known[m.key]
	if !ok {
		d.wrong(m.line, "%s: %s", of, refuseField(m.key, known))
		return
	}
	v := m.value
	if v.kind == scalar && v.plain == nil {
		return
	}
	want, got := "", any(nil)
	switch kind {
	case textKind:
		want, got = "a text", v.text
		if v.kind == scalar {
			want = ""
		}
	case boolKind:
		want, got = "true or false", v.plain
		if _, ok := v.plain.(bool); ok && v.kind == scalar {
			want = ""
		}
	case objectKind:
		want, got = "an object", v.toJSON(m.key)
		if v.kind == object {
			want = ""
		}
	}
	if want != "" {
		found := v.kind.String()
		if v.kind == scalar {
			found = fmt.Sprintf("%.40q", v.text)
		}
		d.wrong(v.line, "%s: %s: want %s, got %s", of, m.key, want, found)
		return
	}
	if kind == objectKind {
		for _, inner := range v.members {
			if inner.value.kind == scalar && inner.value.text == mask {
				d.wrong(inner.line, "%s: %s.%s is %s, which an export writes in the place of a secret: give the secret itself, or leave the key out", of, m.key, inner.key, mask)
			}
		}
	}
	p.Fields[m.key] = got
}
