package fleetfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
	"salvor/secret"
)

// The columns of CSV that are no field: the addresses of a node's ports, and lists in JSON.
const (
	macColumn    = "mac"
	portsColumn  = "ports"
	groupsColumn = "portgroups"
	traitsColumn = "traits"
)

// csvObjects are the objects whose keys are columns, as driver_info.redfish_address.
var csvObjects = []string{"driver_info", "properties", "extra"}

// readCSV reads a table whose first line names the columns. A comma, a semicolon or a tab separates its cells, whichever the first line has.
func (d *fileReader) readCSV(text []byte) error {
	in := csv.NewReader(strings.NewReader(string(text)))
	in.Comma, in.FieldsPerRecord = separatorOf(text), -1
	head, err := in.Read()
	if err != nil {
		return csvError(err)
	}
	columns := d.readHead(head)
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return csvError(err)
		}
		line, _ := in.FieldPos(0)
		if len(cells) != len(head) {
			d.wrong(line, "the row has %d cells and the first line %d columns", len(cells), len(head))
			continue
		}
		if strings.TrimSpace(strings.Join(cells, "")) != "" {
			d.readRow(line, columns, cells)
		}
	}
}

// separatorOf is the one of three separators that the first line has most.
func separatorOf(text []byte) rune {
	head, _, _ := strings.Cut(string(text), "\n")
	best := ','
	for _, r := range ";\t" {
		if strings.Count(head, string(r)) > strings.Count(head, string(best)) {
			best = r
		}
	}
	return best
}

func csvError(err error) error {
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		return &syntaxError{bad.StartLine, fmt.Sprintf("this is not CSV: %v", bad.Err)}
	}
	return &syntaxError{1, fmt.Sprintf("this is not CSV: %v", err)}
}

// readHead gives the names of the columns, as fields are written; an empty name for one that is not known.
func (d *fileReader) readHead(head []string) []string {
	known := slices.Concat(slices.Sorted(maps.Keys(nodeFields)), []string{macColumn, portsColumn, groupsColumn, traitsColumn})
	out, seen := make([]string, len(head)), map[string]bool{}
	for i, cell := range head {
		name := strings.TrimSpace(cell)
		field, key, inner := strings.Cut(name, ".")
		field = strings.ReplaceAll(strings.ToLower(field), "-", "_")
		switch {
		case seen[name]:
			d.wrong(1, "the column %s stands twice", name)
			continue
		case inner && slices.Contains(csvObjects, field) && key != "":
			out[i] = field + "." + key
		case !inner && slices.Contains(known, field):
			out[i] = field
		default:
			hint := problem.WantOneOf(known) + ", or KEY of an object as driver_info.KEY, properties.KEY, extra.KEY"
			if near := problem.Nearest(field, known); near != "" {
				hint = "did you mean " + near + "?"
			} else if i := slices.IndexFunc([]string{"redfish_", "ipmi_"}, func(p string) bool { return strings.HasPrefix(field, p) }); i >= 0 {
				hint = "did you mean driver_info." + field + "?"
			}
			d.wrong(1, "%.60q: unknown column; %s", name, hint)
		}
		seen[name] = true
	}
	return out
}

// readRow makes a node of a row. An empty cell is a field that is left out.
func (d *fileReader) readRow(line int, columns, cells []string) {
	row := &treeValue{kind: object, line: line}
	var r treeReader
	objects := map[string]*treeValue{}
	for i, name := range columns {
		cell := strings.TrimSpace(cells[i])
		if name == "" || cell == "" {
			continue
		}
		field, key, inner := strings.Cut(name, ".")
		switch {
		case inner:
			if secret.IsKey(key) {
				cell = cells[i] // a password may begin or end with a space
			}
			if objects[field] == nil {
				objects[field] = &treeValue{kind: object, line: line}
				r.add(row, treeMember{field, line, objects[field]})
			}
			r.add(objects[field], treeMember{key, line, csvScalar(line, cell)})
		case name == macColumn:
			r.add(row, treeMember{portsColumn, line, portsOf(line, cell)})
		case name == portsColumn || name == groupsColumn || nodeFields[name] == objectKind:
			v, err := (&treeReader{}).readJSON([]byte(cell))
			if err != nil {
				d.wrong(line, "%s: want JSON in the cell: %v", name, err)
				continue
			}
			v.setLine(line)
			r.add(row, treeMember{name, line, v})
		case name == traitsColumn:
			r.add(row, treeMember{name, line, wordsOf(line, cell)})
		case nodeFields[name] == boolKind:
			r.add(row, treeMember{name, line, boolScalar(line, cell)})
		default:
			r.add(row, treeMember{name, line, &treeValue{line: line, text: cell, plain: cell}})
		}
	}
	d.mistakes = append(d.mistakes, r.repeated...)
	d.readNode(row, nil)
}

// csvScalar is the value of a cell in an object: JSON where it is JSON, else a text.
func csvScalar(line int, cell string) *treeValue {
	if v, err := (&treeReader{}).readJSON([]byte(cell)); err == nil {
		v.setLine(line)
		v.text = cell
		return v
	}
	return &treeValue{line: line, text: cell, plain: cell}
}

// boolScalar takes the words that tables have for true and false.
func boolScalar(line int, cell string) *treeValue {
	switch strings.ToLower(cell) {
	case "yes", "on":
		return &treeValue{line: line, text: cell, plain: true}
	case "no", "off":
		return &treeValue{line: line, text: cell, plain: false}
	}
	if on, err := strconv.ParseBool(strings.ToLower(cell)); err == nil {
		return &treeValue{line: line, text: cell, plain: on}
	}
	return &treeValue{line: line, text: cell, plain: cell}
}

// splitWords cuts a cell with several words.
func splitWords(cell string) []string {
	return strings.FieldsFunc(cell, func(r rune) bool { return strings.ContainsRune(" ,;|\n\t", r) })
}

func wordsOf(line int, cell string) *treeValue {
	out := &treeValue{kind: list, line: line}
	for _, word := range splitWords(cell) {
		out.list = append(out.list, &treeValue{line: line, text: word, plain: word})
	}
	return out
}

// portsOf makes ports of MAC addresses.
func portsOf(line int, cell string) *treeValue {
	out := &treeValue{kind: list, line: line}
	for _, word := range splitWords(cell) {
		address := &treeValue{line: line, text: word, plain: word}
		out.list = append(out.list, &treeValue{kind: object, line: line, members: []treeMember{{"address", line, address}}})
	}
	return out
}

// setLine gives a value, and all within it, the line of its row.
func (v *treeValue) setLine(line int) {
	v.line = line
	for _, one := range v.list {
		one.setLine(line)
	}
	for i := range v.members {
		v.members[i].line = line
		v.members[i].value.setLine(line)
	}
}
