package kit

import (
	"encoding/csv"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/test/must"
)

var odd = client.Record{"name": "rack 1, \"a\"", "uuid": nil, "memory": 4.0, "maintenance": true, "extra": map[string]any{"k": "v"}, "owner": "$(touch /tmp/x)`id`\\", "driver": "no"}

func inFormat(t *testing.T, o *Output, list bool) string {
	t.Helper()
	var b strings.Builder
	if o.quote == "" {
		o.quote = "nonnumeric"
	}
	var err error
	if list {
		err = o.List(&b, ColumnsOf([]string{"name", "uuid", "memory", "maintenance"}), []client.Record{odd, {"name": "b", "uuid": "u", "memory": 1.5}})
	} else {
		err = o.Show(&b, odd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFormatsOfTheOpenstackCommand: each form of output that the openstack command has, as that command writes it.
func TestFormatsOfTheOpenstackCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		out  Output
		list bool
		want string
	}{
		"csv":             {Output{Format: "csv"}, true, "\"Name\",\"UUID\",\"Memory\",\"Maintenance\"\n\"rack 1, \"\"a\"\"\",\"\",4,True\n\"b\",\"u\",1.5,\"\"\n"},
		"csv all":         {Output{Format: "csv", quote: "all", Columns: []string{"memory"}}, true, "\"Memory\"\n\"4\"\n\"1.5\"\n"},
		"csv minimal":     {Output{Format: "csv", quote: "minimal", Columns: []string{"Name", "UUID"}}, true, "Name,UUID\n\"rack 1, \"\"a\"\"\",\nb,u\n"},
		"csv none":        {Output{Format: "csv", quote: "none", Columns: []string{"name"}}, true, "Name\nrack 1\\, \\\"a\\\"\nb\n"},
		"yaml list":       {Output{Format: "yaml", Columns: []string{"name", "memory"}}, true, "- Name: \"rack 1, \\\"a\\\"\"\n  Memory: 4\n- Name: b\n  Memory: 1.5\n"},
		"yaml":            {Output{Format: "yaml", Columns: []string{"driver", "extra", "maintenance", "uuid"}}, false, "driver: \"no\"\nextra: {\"k\":\"v\"}\nmaintenance: true\nuuid: null\n"},
		"shell":           {Output{Format: "shell", prefix: "os_", Columns: []string{"name", "memory"}}, false, "os_name=\"rack 1, \\\"a\\\"\"\nos_memory=\"4\"\n"},
		"json, one line":  {Output{Format: "json", noIndent: true, Columns: []string{"memory", "driver"}}, false, "{\"memory\":4,\"driver\":\"no\"}\n"},
		"columns in turn": {Output{Format: "value", Columns: []string{"memory", "driver"}}, false, "4\nno\n"},
		"csv of one":      {Output{Format: "csv", Columns: []string{"memory"}}, false, "\"Field\",\"Value\"\n\"memory\",4\n"},
	} {
		if got := inFormat(t, &tt.out, tt.list); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tt.want)
		}
	}
	if _, err := csv.NewReader(strings.NewReader(inFormat(t, &Output{Format: "csv"}, true))).ReadAll(); err != nil {
		t.Errorf("a reader of csv: %v", err)
	}
}

// TestShellFormIsSafeToEvaluate: whatever a value holds, a shell that evaluates the output gets the value and runs nothing.
func TestShellFormIsSafeToEvaluate(t *testing.T) {
	out, err := exec.Command("sh", "-c", inFormat(t, &Output{Format: "shell"}, false)+`printf %s "$owner"`).Output()
	if err != nil || string(out) != odd["owner"] {
		t.Errorf("%q, %v", out, err)
	}
}

// TestMaxWidthFoldsTables: no line is longer, no character is lost, and columns stay apart.
func TestMaxWidthFoldsTables(t *testing.T) {
	o := Output{Format: "table", maxWidth: 30}
	var b strings.Builder
	long := strings.Repeat("abcdefghij ", 9) + strings.Repeat("x", 60)
	must.OK(t, o.List(&b, ColumnsOf([]string{"name", "description"}), []client.Record{{"name": "n1", "description": long}}))
	kept := strings.NewReplacer(" ", "", "\n", "", "-", "")
	for line := range strings.Lines(b.String()) {
		if len(strings.TrimRight(line, "\n")) > 30 {
			t.Errorf("a line of %d: %q", len(line), line)
		}
	}
	if got := kept.Replace(b.String()); got != "NameDescriptionn1"+kept.Replace(long) {
		t.Errorf("folded: %s", b.String())
	}
}

// TestWrongFormsAreUsageErrors: a form that does not exist, or does not fit, is refused before anything is asked.
func TestWrongFormsAreUsageErrors(t *testing.T) {
	for name, o := range map[string]Output{"-f": {Format: "xml", quote: "all"}, "--quote": {Format: "csv", quote: "some"}, "--prefix": {Format: "shell", quote: "all", prefix: "a b;"}, "-f shell": {Format: "shell", quote: "all"}} {
		if err := o.Check(&cobra.Command{Use: "list"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var v any
	if err := json.Unmarshal([]byte(inFormat(t, &Output{Format: "json", noIndent: true}, true)), &v); err != nil {
		t.Error(err)
	}
}
