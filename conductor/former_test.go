package conductor

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"salvor/conductor/node"
	"salvor/conductor/server"
	"salvor/job"
	"salvor/test/must"
)

// formerList is a list of actions as the former release has it.
type formerList struct {
	kind    job.Kind
	version int
	actions []string
}

func formerLists(t *testing.T) (all []formerList) {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/former_jobs.txt"))(t)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 {
			t.Fatalf("testdata/former_jobs.txt: %q has %d cells", line, len(cells))
		}
		version := must.Get(strconv.Atoi(cells[1]))(t)
		all = append(all, formerList{job.Kind(cells[0]), version, strings.Split(cells[2], ", ")})
	}
	return all
}

// TestFormerJobsAreKnown: a job that the former release left in the database continues at the action that its row names, and does
// what the former release would have done after it, in the same order.
func TestFormerJobsAreKnown(t *testing.T) {
	t.Parallel()
	today := map[job.Kind]job.Definition{}
	for _, d := range New(nil, node.Config{}, server.Config{}).Definitions() {
		today[d.Kind] = d
	}
	former := formerLists(t)
	if len(former) < 50 {
		t.Fatalf("testdata/former_jobs.txt has %d lists", len(former))
	}
	for _, f := range former {
		d, known := today[f.kind]
		if !known {
			t.Errorf("no job of kind %q is known", f.kind)
			continue
		}
		if actions := actionsOf(d, f.version); !slices.Equal(actions, f.actions) {
			t.Errorf("%s, version %d:\nformer release: %s\ntoday:          %s", f.kind, f.version, strings.Join(f.actions, ", "), strings.Join(actions, ", "))
		}
	}
}

// actionsOf names the actions by which a job of a version is worked off.
func actionsOf(d job.Definition, version int) (names []string) {
	for _, a := range d.Actions {
		if a.Since <= version && (a.Until == 0 || version <= a.Until) {
			names = append(names, a.Name)
		}
	}
	return names
}
