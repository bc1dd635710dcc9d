package system

import (
	"fmt"
	"os"
	"strings"
	"testing"

	rules "salvor/diagnose/system"
)

const docsPage = "../../docs/repair.md"

// docsTable is the table of docs/repair.md.
func docsTable() string {
	var out strings.Builder
	out.WriteString("| finding | consent | what salvor does |\n|---|---|---|\n")
	for _, row := range allRows() {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", row.finding, row.consent, row.does)
	}
	return out.String()
}

// TestDocsListAllMends: the page has the table of the program. SALVOR_WRITE_DOCS=1 writes it.
func TestDocsListAllMends(t *testing.T) {
	b, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	page, table := string(b), docsTable()
	from := strings.Index(page, "| finding | consent |")
	if from < 0 {
		t.Fatal("the page has no table of mends")
	}
	to := from
	for to < len(page) && page[to] == '|' {
		to += strings.IndexByte(page[to:], '\n') + 1
	}
	if page[from:to] == table {
		return
	}
	if os.Getenv("SALVOR_WRITE_DOCS") == "" {
		t.Fatalf("the table is not that of the program, which is:\n%s", table)
	}
	if err := os.WriteFile(docsPage, []byte(page[:from]+table+page[to:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Each mend is about an id of a rule, and has one row.
func TestMendsAreAboutRules(t *testing.T) {
	ids := map[string]bool{}
	for _, rule := range rules.Rules() {
		for _, id := range rule.IDs {
			ids[id] = true
		}
	}
	listed := map[string]bool{}
	for _, row := range allRows() {
		if !ids[row.finding] || listed[row.finding] {
			t.Errorf("%s: no rule has the id, or two mends have it", row.finding)
		}
		listed[row.finding] = true
		if row.does == "" || row.change == nil || row.consent == "" {
			t.Errorf("%s: the row is not complete", row.finding)
		}
	}
}
