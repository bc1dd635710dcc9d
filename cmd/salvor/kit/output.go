package kit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/problem"
)

// Output is the form in which records are printed.
type Output struct {
	Format   string
	Columns  []string
	maxWidth int
	noIndent bool
	prefix   string
	quote    string
	// MoreColumns ends the error about a column that a list does not print: how other columns are had.
	MoreColumns string
}

var outputFormats = []string{"table", "json", "yaml", "value", "csv", "shell"}

// Flags adds the flags that choose the form to a command.
func (o *Output) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.Format, "format", "f", "table", "table, json, yaml, value, csv or shell (shell: of one record)")
	aliasFormat(cmd)
	CompleteFlag(cmd, "format", func() []string { return outputFormats })
	f.StringSliceVarP(&o.Columns, "column", "c", nil, "print only this column; may be repeated")
	f.IntVar(&o.maxWidth, "max-width", 0, "table: fold cells so that lines have at most this many characters; 0: do not fold")
	f.BoolVar(&o.noIndent, "noindent", false, "json: print it on one line")
	f.StringVar(&o.prefix, "prefix", "", "shell: put this before the name of each variable")
	f.StringVar(&o.quote, "quote", "nonnumeric", "csv: which cells are quoted: all, minimal, none or nonnumeric")
}

// aliasFormat takes -o for -f, as kubectl has it. Help does not show the alias.
func aliasFormat(cmd *cobra.Command) {
	format := cmd.Flags().Lookup("format")
	if cmd.Flags().ShorthandLookup("o") != nil {
		return
	}
	cmd.Flags().VarP(format.Value, "output", "o", format.Usage)
	_ = cmd.Flags().MarkHidden("output")
}

// Check refuses a form that does not exist, or that the command cannot print, as wrong usage.
func (o *Output) Check(cmd *cobra.Command) error {
	switch {
	case !slices.Contains(outputFormats, o.Format):
		return UsageErrorf(cmd, "-f %s: want table, json, yaml, value, csv or shell", o.Format)
	case !slices.Contains([]string{"all", "minimal", "none", "nonnumeric"}, o.quote):
		return UsageErrorf(cmd, "--quote %s: want all, minimal, none or nonnumeric", o.quote)
	case !shellName.MatchString("x" + o.prefix):
		return UsageErrorf(cmd, "--prefix %s: want letters, digits and underscores", o.prefix)
	case o.Format == "shell" && cmd.Name() == "list":
		return UsageErrorf(cmd, "-f shell prints one record: use it with show, or -f csv or json here")
	}
	return nil
}

// Column is a field of a record and the title it goes by. The titles are those of the
// baremetal command: scripts read the JSON by them.
type Column struct{ Field, Title string }

var titles = map[string]string{
	"id": "ID", "ram": "RAM", "vcpus": "VCPUs", "os": "OS", "url": "URL", "cidr": "CIDR", "target_os": "Target OS", "target_os_family": "Target OS Family",
	"uuid": "UUID", "provision_state": "Provisioning State", "instance_uuid": "Instance UUID", "chassis_uuid": "Chassis UUID",
	"node_uuid": "Node UUID", "portgroup_uuid": "Portgroup UUID", "pxe_enabled": "PXE boot enabled", "is_smartnic": "Is Smart NIC port",
	"raid_config": "Current RAID configuration", "target_raid_config": "Target RAID configuration", "bios_interface": "BIOS Interface",
	"raid_interface": "RAID Interface", "message_id": "Message ID", "allocation_uuid": "Allocation UUID",
}

// ColumnsOf gives fields the titles of the baremetal command.
func ColumnsOf(fields []string) []Column {
	out := make([]Column, len(fields))
	for i, f := range fields {
		title := titles[f]
		if title == "" {
			words := strings.Split(f, "_")
			for j, w := range words {
				if w != "" {
					words[j] = strings.ToUpper(w[:1]) + w[1:]
				}
			}
			title = strings.Join(words, " ")
		}
		out[i] = Column{f, title}
	}
	return out
}

// pick keeps the columns that were asked for by title or field, in the order asked. more is what an error says beside the columns that
// there are.
func (o *Output) pick(all []Column, more string) ([]Column, error) {
	if len(o.Columns) == 0 {
		return all, nil
	}
	var out []Column
	for _, want := range o.Columns {
		i := slices.IndexFunc(all, func(c Column) bool { return strings.EqualFold(c.Title, want) || c.Field == want })
		if i < 0 {
			return nil, WithStatus(StatusUsage, fmt.Errorf("-c %s: no such column; %s%s", want, problem.WantOneOf(fieldsOf(all)), more))
		}
		out = append(out, all[i])
	}
	return out, nil
}

func fieldsOf(columns []Column) []string {
	fields := make([]string, len(columns))
	for i, c := range columns {
		fields[i] = c.Field
	}
	return fields
}

// List prints records under the columns' titles.
func (o *Output) List(w io.Writer, all []Column, records []client.Record) error {
	columns, err := o.pick(all, o.MoreColumns)
	if err != nil {
		return err
	}
	switch o.Format {
	case "json":
		rows := make([]orderedObject, len(records))
		for i, r := range records {
			for _, c := range columns {
				rows[i] = append(rows[i], objectMember{c.Title, r[c.Field]})
			}
		}
		return o.json(w, rows)
	case "yaml":
		return writeYAMLRows(w, columns, records)
	case "csv":
		return o.csvRows(w, columns, records)
	case "shell":
		return WithStatus(StatusUsage, fmt.Errorf("-f shell prints one record, and this is a list: use -f csv or json"))
	case "value":
		for _, r := range records {
			cells := make([]string, len(columns))
			for i, c := range columns {
				cells[i] = shortOf(c.Field, r[c.Field])
			}
			fmt.Fprintln(w, strings.Join(cells, " "))
		}
		return nil
	}
	rows := [][]string{make([]string, len(columns))}
	for i, c := range columns {
		rows[0][i] = c.Title
	}
	for _, r := range records {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = shortOf(c.Field, shownTimes(r[c.Field]))
		}
		rows = append(rows, row)
	}
	return writeAlignedRows(w, foldTable(rows, o.maxWidth))
}

// HiddenFields are links, of use to programs only.
var HiddenFields = []string{"links", "ports", "portgroups", "states", "volume", "bios", "firmware", "history", "nodes"}

// Show prints one record, a field a line, in the order of the alphabet.
func (o *Output) Show(w io.Writer, r client.Record) error {
	var all []Column
	for _, f := range slices.Sorted(maps.Keys(r)) {
		if !slices.Contains(HiddenFields, f) {
			all = append(all, Column{f, f})
		}
	}
	columns, err := o.pick(all, "")
	if err != nil {
		return err
	}
	var out orderedObject
	for _, c := range columns {
		out = append(out, objectMember{c.Field, r[c.Field]})
	}
	switch o.Format {
	case "json":
		return o.json(w, out)
	case "yaml":
		return writeYAML(w, out)
	case "csv":
		rows := make([]client.Record, len(columns))
		for i, c := range columns {
			rows[i] = client.Record{"Field": c.Field, "Value": r[c.Field]}
		}
		return o.csvRows(w, []Column{{"Field", "Field"}, {"Value", "Value"}}, rows)
	case "shell":
		return o.shell(w, columns, r)
	case "value":
		for _, c := range columns {
			fmt.Fprintln(w, cellOf(c.Field, r[c.Field]))
		}
		return nil
	}
	rows := [][]string{{"Field", "Value"}}
	for _, c := range columns {
		rows = append(rows, []string{StripControlChars(c.Field), cellOf(c.Field, shownTimes(r[c.Field]))})
	}
	return writeAlignedRows(w, foldTable(rows, o.maxWidth))
}

// writeAlignedRows pads the columns of rows; the first row is the head.
func writeAlignedRows(w io.Writer, rows [][]string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if n == 0 {
			for i, width := range widths {
				b.WriteString(strings.Repeat("-", width))
				if i < len(widths)-1 {
					b.WriteString("  ")
				}
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Reimaged is the disposition reimage of an evacuation, in words.
const Reimaged = "re-image"

// cellOf writes the value of a field.
func cellOf(field string, v any) string {
	if nets, ok := v.(map[string]any); ok && field == "addresses" {
		return StripControlChars(addressWords(nets))
	}
	if fence, ok := v.(map[string]any); ok && field == "fenced" {
		return StripControlChars(fmt.Sprintf("by %s, since %s; waits for %s", FormatCell(fence["how"]), FormatCell(fence["since"]), FormatCell(fence["waits_for"])))
	}
	if field == "disposition" && v == "reimage" {
		return Reimaged
	}
	return FormatCell(v)
}

// shortOf writes the value of a field in a list, where a fence is told by its evidence alone.
func shortOf(field string, v any) string {
	if fence, ok := v.(map[string]any); ok && field == "fenced" {
		return StripControlChars("by " + FormatCell(fence["how"]))
	}
	return cellOf(field, v)
}

// addressWords writes the addresses of a server as the openstack command does: lan=192.0.2.7, 192.0.2.8; wan=198.51.100.7.
func addressWords(nets map[string]any) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(nets)) {
		var found []string
		all, _ := nets[name].([]any)
		for _, a := range all {
			if address, ok := a.(map[string]any); ok {
				found = append(found, fmt.Sprint(address["addr"]))
			}
		}
		words = append(words, name+"="+strings.Join(found, ", "))
	}
	return strings.Join(words, "; ")
}

// FormatCell writes a value as scripts for the baremetal command expect it: None, True, False.
func FormatCell(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return StripControlChars(v)
	case []string:
		return StripControlChars(strings.Join(v, ", "))
	case []any:
		if words, ok := plainWords(v); ok {
			return words
		}
	case fmt.Stringer:
		return StripControlChars(v.String())
	}
	text, err := json.Marshal(v)
	if err != nil {
		return StripControlChars(fmt.Sprint(v))
	}
	return StripControlChars(string(text))
}

// plainWords joins a list of nothing but strings.
func plainWords(list []any) (string, bool) {
	words := make([]string, len(list))
	for i, v := range list {
		word, ok := v.(string)
		if !ok {
			return "", false
		}
		words[i] = word
	}
	return StripControlChars(strings.Join(words, ", ")), len(list) > 0
}

// orderedObject is a JSON object that keeps the order of its keys.
type orderedObject []objectMember

type objectMember struct {
	key   string
	value any
}

func (o orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(p.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(p.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
