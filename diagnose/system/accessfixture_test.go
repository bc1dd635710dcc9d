package system

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
)

// machine is an installed system whose files a test changes in place: a changed file has the mode and the owner that it had.
type machine struct{ *installed }

func (m machine) write(path, text string) {
	path = strings.TrimPrefix(path, "/")
	if f := m.files[path]; f != nil && f.Mode.IsRegular() {
		changed := *f
		changed.Data = []byte(text)
		m.files[path] = &changed
		return
	}
	m.installed.write(path, text)
}

// add appends lines to a file.
func (m machine) add(path, text string) {
	old := ""
	if f := m.files[strings.TrimPrefix(path, "/")]; f != nil {
		old = string(f.Data)
	}
	m.write(path, old+text)
}

// edit replaces a text of a file, which has to be there.
func (m machine) edit(path, from, to string) {
	data := string(m.files[strings.TrimPrefix(path, "/")].Data)
	if !strings.Contains(data, from) {
		panic(path + " has no " + from)
	}
	m.write(path, strings.Replace(data, from, to, 1))
}

func (m machine) program(path, text string) { m.writeMode(path, text, 0o755) }

func (m machine) mode(path string, mode fs.FileMode) {
	changed := *m.files[strings.TrimPrefix(path, "/")]
	changed.Mode = changed.Mode&fs.ModeType | mode
	m.files[strings.TrimPrefix(path, "/")] = &changed
}

func (m machine) owner(path string, uid, gid uint32) {
	changed := *m.files[strings.TrimPrefix(path, "/")]
	changed.Sys = &diagnose.Owner{UID: uid, GID: gid}
	m.files[strings.TrimPrefix(path, "/")] = &changed
}

func (m machine) folder(path string, mode fs.FileMode) {
	m.installed.folder(path, mode, diagnose.Owner{})
}

// aliceHash is the password field of alice in all layouts.
const aliceHash = "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7"

const (
	aliceLine   = "alice:x:1000:1000:Alice,,,:/home/alice:/bin/bash\n"
	aliceShadow = "alice:" + aliceHash + ":19700:0:99999:7:::\n"
)

// rootOnly takes alice away, who can log in beside root.
func rootOnly(m machine) {
	m.edit("/etc/passwd", aliceLine, "")
	m.edit("/etc/shadow", aliceShadow, "")
	m.remove("/home/alice")
}

// accessCase is a change of a healthy system, and what the rules have to make of it.
type accessCase struct {
	name   string
	change func(machine)
	id     string
	want   diagnose.Severity // nearMiss where the system has no finding above info
	text   string            // part of the title
	line   int               // of the first evidence; 0 is not compared
}

// accessCases are those of the stages network, sshd and login, by layout.
var accessCases = map[string][]accessCase{}

// addAccessCases adds cases, and lists their ids among those of all rules; TestAccessCases runs them.
func addAccessCases(layout string, cases []accessCase) {
	accessCases[layout] = append(accessCases[layout], cases...)
	for _, tc := range cases {
		ruleCases = append(ruleCases, ruleCase{name: tc.name, layout: layout, id: tc.id, severity: tc.want})
	}
}

// madeLayouts are the layouts that a test has made: to compress their kernels again for each case takes longer than all rules.
var madeLayouts = map[string]*installed{}

// freshLayout is a layout that a test may change.
func freshLayout(name string) *installed {
	if madeLayouts[name] == nil {
		madeLayouts[name] = layouts[name]()
	}
	in := *madeLayouts[name]
	in.files, in.esp = maps.Clone(in.files), maps.Clone(in.esp)
	in.Devices, in.NICs = slices.Clone(in.Devices), slices.Clone(in.NICs)
	return &in
}

// TestAccessCases demands more than TestRuleCases: what the title says, where the evidence lies, that the verdict names the finding, and that a
// near miss makes no other finding either.
func TestAccessCases(t *testing.T) {
	for layout, cases := range accessCases {
		for _, tc := range cases {
			t.Run(layout+"/"+tc.id+"/"+tc.name, func(t *testing.T) {
				m := machine{freshLayout(layout)}
				tc.change(m)
				findings, gaps := diagnose.Run(accessRules(), m.system())
				failOnBrokenRules(t, gaps)
				checkAccessCase(t, tc, findings)
			})
		}
	}
}

func checkAccessCase(t *testing.T, tc accessCase, findings []diagnose.Finding) {
	t.Helper()
	checkFindings(t, findings)
	if tc.want == nearMiss {
		for _, f := range findings {
			if !isHarmless(f) {
				t.Errorf("a healthy system has %s (%s): %s", f.ID, f.Severity, f.Title)
			}
		}
		return
	}
	i := slices.IndexFunc(findings, func(f diagnose.Finding) bool { return f.ID == tc.id && strings.Contains(f.Title, tc.text) })
	if i < 0 {
		t.Fatalf("no %s with %q among %+v", tc.id, tc.text, findings)
	}
	f := findings[i]
	if f.Severity != tc.want || (tc.line > 0 && f.Evidence[0].Line != tc.line) {
		t.Errorf("%+v; want %s, line %d", f, tc.want, tc.line)
	}
	if _, verdict := diagnose.Judge(findings); f.Severity == diagnose.BlocksAccess && verdict.Finding != tc.id {
		t.Errorf("the verdict names %s among %+v", verdict.Finding, findings)
	}
}

// checkFindings holds findings to what a report promises: edges to known ids, sentences, no secrets.
func checkFindings(t *testing.T, findings []diagnose.Finding) {
	t.Helper()
	var ids, ours []string
	for _, rule := range Rules() {
		ids = append(ids, rule.IDs...)
	}
	for _, rule := range accessRules() {
		ours = append(ours, rule.IDs...)
	}
	for _, f := range findings {
		if !slices.Contains(ours, f.ID) {
			continue
		}
		for _, id := range f.Explains {
			if !slices.Contains(ids, id) {
				t.Errorf("%s explains %s, which no rule finds", f.ID, id)
			}
		}
		if !titleForm.MatchString(f.Title) {
			t.Errorf("no sentence: %s", f.Title)
		}
		if strings.Contains(f.Title+f.ByHand, diagnose.Masked) {
			t.Errorf("%s: Excerpt takes a word of its own text for a secret: %s %s", f.ID, f.Title, f.ByHand)
		}
		for _, e := range append(slices.Clone(f.Evidence), diagnose.Evidence{Text: f.Title + f.ByHand}) {
			for _, secret := range []string{aliceHash, "X3DX6M94c7o", "AAAAC3NzaC1lZDI1NTE5", "PRIVATE KEY"} {
				if strings.Contains(e.Text, secret) {
					t.Errorf("%s shows a secret: %s", f.ID, e.Text)
				}
			}
		}
	}
}
