package system_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	agentrepair "salvor/agent/repair"
	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/repair/repairtest"
	mends "salvor/repair/system"
	"salvor/test/must"
)

// corpusCanary is the secret of each line of the corpus.
const corpusCanary = "Xk9vQz7w"

// corpusOf reads the lines of a corpus of package diagnose: path, line and, of a fact, what must stay readable.
func corpusOf(t *testing.T, name string) (out [][]string) {
	t.Helper()
	for line := range strings.Lines(string(must.Get(os.ReadFile("../testdata/" + name))(t))) {
		if f := strings.Split(strings.TrimRight(line, "\n"), "\t"); len(f) > 1 && !strings.HasPrefix(line, "# ") {
			f[1] = strings.NewReplacer("{S}", corpusCanary, "{T}", corpusCanary).Replace(f[1])
			out = append(out, f)
		}
	}
	return out
}

// readFiles notes which files are read.
type readFiles struct {
	fstest.MapFS
	mu   sync.Mutex
	read map[string]bool
}

func (r *readFiles) Open(name string) (fs.File, error) {
	r.mu.Lock()
	r.read[name] = true
	r.mu.Unlock()
	return r.MapFS.Open(name)
}

// corpusPlace is a file of a damaged system that a rule reads.
type corpusPlace struct {
	system diagnose.System
	files  fstest.MapFS
	file   string
}

// with gives the files with a line in the place: in front, in the middle or at the end of its file.
func (p corpusPlace) with(line string, at int) fstest.MapFS {
	files := maps.Clone(p.files)
	changed := *files[p.file]
	lines := strings.SplitAfter(string(changed.Data), "\n")
	if last := len(lines) - 1; lines[last] != "" {
		lines[last] += "\n"
	}
	at = []int{0, len(lines) / 2, len(lines)}[at%3]
	changed.Data = []byte(strings.Join(slices.Insert(lines, at, line+"\n"), ""))
	files[p.file] = &changed
	return files
}

// recognizedIn are the answers of recognized by the file.
var recognizedIn = map[string][][]string{}

// recognized are the lines whose secret Line masks in a file, by the name of the secret or by its place. Rules and repairs must show no more of
// a line than Line does. A word without a name in a file of another format is out of the reach of Line.
func recognized(lines [][]string, file string) (out [][]string) {
	if known, found := recognizedIn[file]; found {
		return known
	}
	defer func() { recognizedIn[file] = out }()
	for _, line := range lines {
		if shown := diagnose.Line("/"+file, line[1]) + diagnose.Line("/"+file, "# "+line[1]) + diagnose.Line("/"+file, "options "+line[1]); !strings.Contains(shown, corpusCanary) {
			out = append(out, line)
		}
	}
	return out
}

// linesOfRule is how many lines of the corpus each rule is given; all rules together are given each line several times.
const linesOfRule = 5

// ruleOf is the rule that lists an id.
func ruleOf(id string) diagnose.Rule {
	all := rules.Rules()
	return all[slices.IndexFunc(all, func(r diagnose.Rule) bool { return slices.Contains(r.IDs, id) })]
}

// placesByRule are the texts that each rule reads in the systems that its cases damage, by the first id of the rule.
func placesByRule(t *testing.T) map[string][]corpusPlace {
	t.Helper()
	out, seen := map[string][]corpusPlace{}, map[string]bool{}
	for _, tc := range rules.DamagedSystems() {
		s, files := tc.Make(t)
		rule, reads := ruleOf(tc.ID), &readFiles{MapFS: files, read: map[string]bool{}}
		s.Files = diagnose.NewTree(reads)
		diagnose.Run([]diagnose.Rule{rule}, &s)
		for _, name := range slices.Sorted(maps.Keys(reads.read)) {
			f, key := files[name], rule.IDs[0]+" "+tc.ID+" "+name
			if f == nil || !f.Mode.IsRegular() || len(f.Data) > 16<<10 || !utf8.Valid(f.Data) || seen[key] {
				continue
			}
			seen[key] = true
			out[rule.IDs[0]] = append(out[rule.IDs[0]], corpusPlace{s, files, name})
		}
	}
	return out
}

// shownOf is all that a report and a plan show of a system's files: findings with their evidence, gaps, and the diffs of the repairs.
func shownOf(t *testing.T, p corpusPlace, files fstest.MapFS, which []diagnose.Rule) (report string, diffs []string, found []diagnose.Finding) {
	t.Helper()
	e := repairtest.New(p.system, files)
	e.Programs = fakePrograms
	raw, gaps := diagnose.Run(which, e.System())
	x := diagnose.Examination{NotExamined: gaps, Systems: []diagnose.ExaminedSystem{{Findings: raw}}}
	clean := x.Sanitize()
	report = string(must.Get(json.Marshal(clean))(t))
	byID := map[string]func() error{}
	for _, m := range mends.Mends() {
		byID[m.Finding] = func() error {
			i := slices.IndexFunc(raw, func(f diagnose.Finding) bool { return f.ID == m.Finding })
			return m.Do(t.Context(), e, raw[i])
		}
	}
	for _, f := range raw {
		if f.Repair == nil || f.Repair.Consent == diagnose.ConsentData || byID[f.ID] == nil {
			continue
		}
		before := e.Snapshot()
		if err := byID[f.ID](); err != nil {
			report += "\n" + diagnose.Sentence(err.Error())
		}
		for name, now := range e.Snapshot() {
			if old := before[name]; now.Mode.IsRegular() && (old == nil || string(old.Data) != string(now.Data)) {
				var was []byte
				if old != nil {
					was = old.Data
				}
				diffs = append(diffs, agentrepair.MaskedDiff("/"+name, was, now.Data))
			}
		}
	}
	return report, diffs, clean.Systems[0].Findings
}

// TestCorpusThroughEachRule puts each line of the corpus of secrets into files that each rule reads. No secret is in a finding, its evidence,
// a gap, or the diff of a repair.
func TestCorpusThroughEachRule(t *testing.T) {
	lines, places := corpusOf(t, "secrets.txt"), placesByRule(t)
	if len(lines) < 100 || len(places) < 40 {
		t.Fatalf("%d lines and %d rules that read texts: want at least 100 and 40", len(lines), len(places))
	}
	next, runs, quoted, withDiff, files, hidden := 0, 0, 0, 0, map[string]bool{}, map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(places)) {
		rule := ruleOf(id)
		for range linesOfRule {
			place := places[id][next%len(places[id])]
			here := recognized(lines, place.file)
			line := here[next%len(here)]
			next++
			files[place.file], hidden[line[1]] = true, true
			runs++
			report, diffs, _ := shownOf(t, place, place.with(line[1], next), []diagnose.Rule{rule})
			if strings.Contains(report, diagnose.Masked) {
				quoted++
			}
			if strings.Contains(report, corpusCanary) {
				t.Errorf("rule %s, /%s with the line %q: the report shows the secret: %s", id, place.file, line[1], around(report))
			}
			for _, diff := range diffs {
				withDiff++
				if strings.Contains(diff, corpusCanary) {
					t.Errorf("rule %s, /%s with the line %q: the diff shows the secret: %s", id, place.file, line[1], around(diff))
				}
			}
		}
	}
	t.Logf("%d lines, %d rules, %d files: %d runs, %d reports with a masked secret, %d diffs; %d lines kept secret", len(lines), len(places), len(files), runs, quoted, withDiff, len(hidden))
}

// around is what stands around the secret.
func around(text string) string {
	i := strings.Index(text, corpusCanary)
	return text[max(0, i-160):min(len(text), i+60)]
}

// TestFactsThroughEachRule: an evidence that quotes a harmless line keeps its fact readable.
func TestFactsThroughEachRule(t *testing.T) {
	facts, quoted := corpusOf(t, "harmless.txt"), 0
	for _, layout := range rules.HealthyLayouts() {
		s, files := rules.HealthySystem(layout)
		for _, fact := range facts {
			name := strings.TrimPrefix(fact[0], "/")
			if fact[0] == "" || files[name] == nil || !files[name].Mode.IsRegular() {
				continue
			}
			place := corpusPlace{s, files, name}
			number := len(strings.SplitAfter(strings.TrimSuffix(string(files[name].Data), "\n")+"\n", "\n"))
			_, _, found := shownOf(t, place, place.with(fact[1], 2), rules.Rules())
			for _, f := range found {
				for _, e := range f.Evidence {
					if e.Path != fact[0] || e.Line != number || !strings.Contains(e.Text, strings.Fields(fact[1])[0]) { // a sentence about the line
						continue
					}
					if quoted++; !strings.Contains(e.Text, fact[2]) && !strings.Contains(fact[1], e.Text) {
						t.Errorf("%s, %s: %s: the evidence is %q, want %q in it", layout, fact[0], f.ID, e.Text, fact[2])
					}
				}
			}
		}
	}
	if quoted == 0 {
		t.Error("no evidence quotes a line of the corpus")
	}
	t.Logf("%d facts, %d evidences quote one", len(facts), quoted)
}
