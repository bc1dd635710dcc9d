package config

import (
	"fmt"
	"io"
	"strings"
)

const sampleWidth = 78

// WriteSample writes a file with every option, commented out at its default.
func WriteSample(w io.Writer) error {
	b := &strings.Builder{}
	b.WriteString("# Configuration of salvor. Every option stands here at its default.\n" +
		"# Flags win over SALVOR_* variables, and those over this file.\n")
	last := ""
	for _, s := range sampleOrder() {
		for _, o := range Options() {
			if o.Section != s {
				continue
			}
			if s != last {
				fmt.Fprintf(b, "\n[%s]\n", s)
				last = s
			}
			b.WriteString("\n")
			wrapComment(b, o.Doc)
			if o.Idle != "" {
				wrapComment(b, "Taken from Ironic's files; another value than the default is refused: "+o.Idle+".")
			}
			wrapComment(b, "Allowed: "+o.Allowed+".")
			wrapComment(b, "Variable: "+o.Variable())
			b.WriteString(strings.TrimRight("#"+o.Name+" = "+o.Default, " ") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sampleOrder lists the sections as their first options are listed.
func sampleOrder() []string {
	var out []string
	seen := map[string]bool{}
	for _, o := range Options() {
		if !seen[o.Section] {
			seen[o.Section] = true
			out = append(out, o.Section)
		}
	}
	return out
}

func wrapComment(b *strings.Builder, s string) {
	line := "#"
	for _, w := range strings.Fields(s) {
		if len(line)+1+len(w) > sampleWidth && line != "#" {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
}
