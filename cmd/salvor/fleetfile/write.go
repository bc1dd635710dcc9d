package fleetfile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"salvor/secret"
)

// firstFields begin a record, in this order; all others follow in the order of the alphabet.
var firstFields = []string{"name", "uuid", "driver", "address"}

// orderedFields is an object that is written in a fixed order.
type orderedFields struct {
	names  []string
	values map[string]any
}

func inOrder(values map[string]any) orderedFields {
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		if d := rankOf(a) - rankOf(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return orderedFields{names, values}
}

// rankOf puts the first fields before all others, and lists of parts behind them.
func rankOf(name string) int {
	if i := slices.Index(firstFields, name); i >= 0 {
		return i
	}
	if name == portsColumn || name == groupsColumn {
		return len(firstFields) + 1
	}
	return len(firstFields)
}

// MarshalJSON writes the fields in their order.
func (f orderedFields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range f.names {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(f.values[name])
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// MarshalYAML writes the fields in their order.
func (f orderedFields) MarshalYAML() (any, error) {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range f.names {
		key, text := &yaml.Node{}, &yaml.Node{}
		key.SetString(name)
		if err := text.Encode(f.values[name]); err != nil {
			return nil, err
		}
		out.Content = append(out.Content, key, text)
	}
	return out, nil
}

// whole is a part as it is written.
func (p *Part) whole() orderedFields { return inOrder(p.Fields) }

func wholeParts(parts []*Part) []orderedFields {
	out := make([]orderedFields, len(parts))
	for i, p := range parts {
		out[i] = p.whole()
	}
	return out
}

// whole is a node with all its parts.
func (n *Node) whole() orderedFields {
	values := maps.Clone(n.Fields)
	if len(n.Traits) > 0 {
		values[traitsColumn] = n.Traits
	}
	if len(n.Ports) > 0 {
		values[portsColumn] = wholeParts(n.Ports)
	}
	var groups []orderedFields
	for _, g := range n.Groups {
		inner := maps.Clone(g.Fields)
		if len(g.Ports) > 0 {
			inner[portsColumn] = wholeParts(g.Ports)
		}
		groups = append(groups, inOrder(inner))
	}
	if len(groups) > 0 {
		values[groupsColumn] = groups
	}
	return inOrder(values)
}

// Write writes a file that Read reads. CSV has no chassis of its own: a column names that of each node.
func Write(form string, f *File) ([]byte, error) {
	nodes := make([]orderedFields, len(f.Nodes))
	for i, n := range f.Nodes {
		nodes[i] = n.whole()
	}
	if form == CSV {
		return writeCSV(nodes)
	}
	top := map[string]any{"nodes": nodes}
	if len(f.Chassis) > 0 {
		top["chassis"] = wholeParts(f.Chassis)
	}
	var b bytes.Buffer
	if form == JSON {
		out := json.NewEncoder(&b)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		err := out.Encode(inOrder(top))
		return b.Bytes(), err
	}
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	err := out.Encode(inOrder(top))
	return b.Bytes(), err
}

// writeCSV writes a row for each node, with a column for each field and for each key of its objects that any node has.
func writeCSV(nodes []orderedFields) ([]byte, error) {
	used, rows := map[string]any{}, make([]map[string]string, len(nodes))
	for i, n := range nodes {
		rows[i] = map[string]string{}
		for _, name := range n.names {
			for column, cell := range cellsOf(name, n.values[name]) {
				rows[i][column], used[column] = cell, nil
			}
		}
	}
	columns := inOrder(used).names
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	if err := out.Write(columns); err != nil {
		return nil, err
	}
	for _, row := range rows {
		cells := make([]string, len(columns))
		for i, column := range columns {
			cells[i] = row[column]
		}
		if err := out.Write(cells); err != nil {
			return nil, err
		}
	}
	out.Flush()
	return b.Bytes(), out.Error()
}

// cellsOf are the cells of a field, by column.
func cellsOf(name string, v any) map[string]string {
	switch v := v.(type) {
	case map[string]any:
		if slices.Contains(csvObjects, name) {
			out := map[string]string{}
			for key, inner := range v {
				text, isText := inner.(string)
				// A text that looks like a number has quotes, so that the text stays one. A secret is a text in any case.
				if !isText || !secret.IsKey(key) && (json.Valid([]byte(text)) || text != strings.TrimSpace(text) || text == "") {
					text = asJSON(inner)
				}
				out[name+"."+key] = text
			}
			return out
		}
	case []orderedFields:
		if macs, alone := addressesOf(v); alone && name == portsColumn {
			return map[string]string{macColumn: strings.Join(macs, " ")}
		}
	case []string:
		return map[string]string{name: strings.Join(v, " ")}
	case string:
		return map[string]string{name: v}
	}
	return map[string]string{name: asJSON(v)}
}

// addressesOf are the addresses of ports; alone tells whether no port has another field.
func addressesOf(ports []orderedFields) (macs []string, alone bool) {
	for _, p := range ports {
		text, _ := p.values["address"].(string)
		if macs = append(macs, text); len(p.values) != 1 {
			return nil, false
		}
	}
	return macs, true
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}
