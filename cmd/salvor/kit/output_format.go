package kit

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"salvor/client"
)

// Output formats of the openstack command in addition to table, json and value.

var (
	shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	notInName = regexp.MustCompile(`[^A-Za-z0-9_]`)
	plainYAML = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+-]+)*$`)
	// inDouble escapes the characters that a shell interprets between double quotes.
	inDouble = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")
)

// json prints a value, indented or on one line.
func (o *Output) json(w io.Writer, v any) error {
	if !o.noIndent {
		return WriteJSON(w, v)
	}
	return WriteJSONLine(w, v)
}

// shell prints a record as assignments that a shell can evaluate, whatever the values hold.
func (o *Output) shell(w io.Writer, columns []Column, r client.Record) error {
	var b strings.Builder
	for _, c := range columns {
		name := notInName.ReplaceAllString(strings.ToLower(c.Field), "_")
		b.WriteString(o.prefix + name + `="` + inDouble.Replace(cellOf(c.Field, r[c.Field])) + "\"\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// csvRows prints records below a line of titles.
func (o *Output) csvRows(w io.Writer, columns []Column, records []client.Record) error {
	var b strings.Builder
	for i, c := range columns {
		o.csvCell(&b, i, c.Title, false)
	}
	b.WriteString("\n")
	for _, r := range records {
		for i, c := range columns {
			v := r[c.Field]
			switch text := shortOf(c.Field, v); v.(type) {
			case nil:
				o.csvCell(&b, i, "", false)
			case bool, float64, int, int64, json.Number:
				o.csvCell(&b, i, text, true)
			default:
				o.csvCell(&b, i, text, false)
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// csvCell writes a cell as --quote says. Without quotes, a backslash precedes each character that would end the cell.
func (o *Output) csvCell(b *strings.Builder, i int, text string, number bool) {
	if i > 0 {
		b.WriteByte(',')
	}
	quoted := o.quote == "all" || o.quote == "nonnumeric" && !number || o.quote == "minimal" && strings.ContainsAny(text, ",\"\n\r")
	switch {
	case quoted:
		b.WriteString(`"` + strings.ReplaceAll(text, `"`, `""`) + `"`)
	case o.quote == "none":
		b.WriteString(strings.NewReplacer(`\`, `\\`, ",", `\,`, `"`, `\"`).Replace(text))
	default:
		b.WriteString(text)
	}
}

// writeYAML prints a record as a mapping. Lists and mappings in it are written as JSON, which YAML holds too.
func writeYAML(w io.Writer, o orderedObject) error {
	var b strings.Builder
	for _, p := range o {
		b.WriteString(yamlText(p.key) + ": " + yamlOf(p.value) + "\n")
	}
	if len(o) == 0 {
		b.WriteString("{}\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeYAMLRows(w io.Writer, columns []Column, records []client.Record) error {
	var b strings.Builder
	for _, r := range records {
		for i, c := range columns {
			lead := "  "
			if i == 0 {
				lead = "- "
			}
			b.WriteString(lead + yamlText(c.Title) + ": " + yamlOf(r[c.Field]) + "\n")
		}
	}
	if len(records) == 0 {
		b.WriteString("[]\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func yamlOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return yamlText(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return yamlText(fmt.Sprint(v))
	}
	return escapeUnprintable(string(text), yamlEscape)
}

// yamlText quotes a text if YAML would read it as another type.
func yamlText(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return strconv.Quote(s)
	}
	if plainYAML.MatchString(s) {
		return s
	}
	text, err := json.Marshal(s)
	if err != nil {
		return strconv.QuoteToASCII(s)
	}
	return escapeUnprintable(string(text), yamlEscape)
}

// narrowest is the minimum width of a folded column.
const narrowest = 8

// foldTable breaks the cells of the widest columns so that a line has at most width characters; 0: as they are.
func foldTable(rows [][]string, width int) [][]string {
	if width <= 0 {
		return rows
	}
	widths := make([]int, len(rows[0]))
	total := 2 * (len(widths) - 1)
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i]
	}
	for total > width {
		widest := 0
		for i := range widths {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
		total--
	}
	var out [][]string
	for _, row := range rows {
		cells := make([][]string, len(row))
		lines := 1
		for i, c := range row {
			cells[i] = wrapCell(c, widths[i])
			lines = max(lines, len(cells[i]))
		}
		for n := range lines {
			line := make([]string, len(row))
			for i := range row {
				if n < len(cells[i]) {
					line[i] = cells[i][n]
				}
			}
			out = append(out, line)
		}
	}
	return out
}

// wrapCell breaks a text into lines of at most width characters, between words where that is possible.
func wrapCell(text string, width int) []string {
	var out []string
	for runes := []rune(text); ; {
		if len(runes) <= width {
			return append(out, string(runes))
		}
		at := width
		for i := width; i > 0; i-- {
			if runes[i] == ' ' {
				at = i
				break
			}
		}
		out = append(out, string(runes[:at]))
		if runes = runes[at:]; runes[0] == ' ' {
			runes = runes[1:]
		}
	}
}
