package oddbmc

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/lab/odd"
)

// finding is a combination that went wrong.
type finding struct {
	of    combination
	fault string
	o     outcome
}

func (f finding) String() string {
	text := "done"
	if f.o.err != nil {
		text = f.o.err.Error()
	}
	return fmt.Sprintf("%s: %s: %s [session %t, %s]", f.of, f.fault, text, f.of.session, f.o.took.Round(time.Millisecond))
}

// shrink gives the smallest combination that still goes wrong: one oddity in place of two, one member in place of all.
func shrink(t *testing.T, f finding, p *profile) finding {
	for i := range f.of.oddities {
		if len(f.of.oddities) < 2 {
			break
		}
		one := f.of
		one.oddities = []odd.BMCOddity{f.of.oddities[i]}
		if fault, o := judge(t, one, p); fault != "" {
			f = finding{one, fault, o}
			break
		}
	}
	for i, at := range f.of.oddities {
		if at.Kind.Scope != odd.ScopeMember || at.Place.Member != "" {
			continue
		}
		doc, _ := p.gets[at.Place.Path]
		for _, member := range at.Kind.Members(doc) {
			smaller := f.of
			smaller.oddities = slices.Clone(f.of.oddities)
			smaller.oddities[i].Place.Member = member
			if fault, o := judge(t, smaller, p); fault != "" {
				f = finding{smaller, fault, o}
				break
			}
		}
	}
	return f
}

// shownFindings bounds how many findings of one kind a report shows.
const shownFindings = 12

// report prints what went wrong by kind, the worst first. SALVOR_ODD_REPORT names a file that gets more of it.
func report(t *testing.T, findings []finding, of int) {
	byKind := map[string]map[string]finding{}
	for _, f := range findings {
		name := f.of.oddities[0].Kind.Name
		if len(f.of.oddities) > 1 {
			name = "pairs of which each alone is right"
		}
		if byKind[name] == nil {
			byKind[name] = map[string]finding{}
		}
		byKind[name][f.of.String()] = f
	}
	names := slices.SortedFunc(maps.Keys(byKind), func(a, b string) int {
		return cmp.Or(len(byKind[b])-len(byKind[a]), strings.Compare(a, b))
	})
	var all strings.Builder
	fmt.Fprintf(&all, "%d combinations, %d wrong; by kind:\n", of, len(findings))
	for _, name := range names {
		fmt.Fprintf(&all, "%6d  %-60s %s\n", len(byKind[name]), name, count(byKind[name], func(f finding) string { f.fault, _, _ = strings.Cut(f.fault, ":"); return f.fault }))
	}
	for _, name := range names {
		fmt.Fprintf(&all, "\n== %s: %d\nverbs: %s\n", name, len(byKind[name]), count(byKind[name], func(f finding) string { return f.of.verb.name }))
		shown := map[string]bool{}
		for _, key := range slices.Sorted(maps.Keys(byKind[name])) {
			f := byKind[name][key]
			if of := f.of.verb.name + f.fault; shown[of] || len(shown) >= shownFindings {
				continue
			} else {
				shown[of] = true
			}
			fmt.Fprintf(&all, "%.600s\n", f)
			if len(shown) <= 3 {
				t.Errorf("%s", f)
			}
		}
	}
	if file := os.Getenv("SALVOR_ODD_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// count tells how many findings have which property, the most frequent first.
func count(findings map[string]finding, of func(finding) string) string {
	n := map[string]int{}
	for _, f := range findings {
		n[of(f)]++
	}
	var out []string
	for _, name := range slices.SortedFunc(maps.Keys(n), func(a, b string) int { return cmp.Or(n[b]-n[a], strings.Compare(a, b)) }) {
		out = append(out, fmt.Sprintf("%s %d", name, n[name]))
	}
	return strings.Join(out, ", ")
}
