package diagnose

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"salvor/test/must"
)

// TestVerdictOfOneThatExplainsItself: a finding that names its own id among its consequences is still the cause.
func TestVerdictOfOneThatExplainsItself(t *testing.T) {
	f := Finding{ID: "disk-full", Stage: Target, Severity: BlocksBoot, Confidence: 0.9, Explains: []string{"disk-full"}}
	if _, v := Judge([]Finding{f}); v.Outcome != CauseFound || v.Finding != f.ID {
		t.Errorf("%+v", v)
	}
}

// TestConsequencesArePresent: a verdict lists as consequences what was found, and what the console shows behind the cause alone.
func TestConsequencesArePresent(t *testing.T) {
	console := func(id string, stage Stage) Finding {
		return Finding{ID: id, Stage: stage, Severity: BlocksBoot, Confidence: 0.8, Evidence: []Evidence{{Kind: FromConsole}}}
	}
	cause := Finding{ID: "root-argument-missing", Stage: Root, Severity: BlocksBoot, Confidence: 0.9, Explains: []string{"fstab-device-missing", "never-found"}, Evidence: []Evidence{{Kind: FromFile}}}
	follows := Finding{ID: "fstab-device-missing", Stage: Target, Severity: BlocksBoot, Confidence: 0.9, Evidence: []Evidence{{Kind: FromFile}}}
	_, v := Judge([]Finding{console("console-loader-prompt", Loader), console("console-root-missing", Root), follows, cause})
	if v.Finding != cause.ID || strings.Join(v.Consequences, " ") != "fstab-device-missing console-root-missing" {
		t.Errorf("%+v", v)
	}
}

// TestUnexaminedDisksAreAGap: a diagnosis whose disks nobody looked at does not call its machine healthy, and says why once.
func TestUnexaminedDisksAreAGap(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change  func(*Record)
		outcome Outcome
		why     string
	}{
		"nobody looked":               {func(*Record) {}, NothingFound, "the machine was not booted"},
		"the agent said why":          {func(r *Record) { r.AddDiskGap("no ramdisk\x1b[31m password=hunter2") }, NothingFound, "no ramdisk?[31m password=" + Masked},
		"something else has a reason": {func(r *Record) { r.AddGap("event log", "no answer") }, NothingFound, "no answer"},
		"the disks were examined":     {func(r *Record) { r.Report.ExaminedIn = 0.1 }, NothingFound, ""},
	} {
		var r Record
		c.change(&r)
		r.End(Finished, at, "the machine was not booted")
		if r.Report.Verdict.Outcome != c.outcome || r.State != Finished || !r.FinishedAt.Equal(at) {
			t.Errorf("%s: %+v", name, r)
		}
		if c.why != "" && (len(r.Report.NotExamined) == 0 || r.Report.NotExamined[0].Why != c.why) {
			t.Errorf("%s: gaps %+v, want %q", name, r.Report.NotExamined, c.why)
		}
		disks := 0
		for _, g := range r.Report.NotExamined {
			if g.What == "disks" {
				disks++
			}
		}
		want := 1
		if r.Report.ExaminedIn > 0 {
			want = 0
		}
		if disks != want {
			t.Errorf("%s: %d gaps of the disks, want %d", name, disks, want)
		}
	}
}

// TestManyFindingsOfARule: what a report has no room for is a gap, because a reader would take the rest for all.
func TestManyFindingsOfARule(t *testing.T) {
	rule := Rule{IDs: []string{"x"}, Look: func(*System) []Finding { return make([]Finding, maxFindings+7) }}
	found, gaps := Run([]Rule{rule}, &System{})
	if len(found) != maxFindings || len(gaps) != 1 || !strings.HasPrefix(gaps[0].What, "7 more findings") {
		t.Errorf("%d findings, gaps %+v", len(found), gaps)
	}
}

// TestHostileExaminations: no text of an agent brings a control character or a secret into a report, and no list is without an end.
func TestHostileExaminations(t *testing.T) {
	const hostile = "\x1b[2Jpassword=hunter2 " + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
	many := func() []string {
		out := make([]string, 500)
		for i := range out {
			out[i] = hostile
		}
		return out
	}
	f := Finding{ID: hostile, Stage: Target, Severity: BlocksBoot, Confidence: 17, Title: hostile, ByHand: hostile, Explains: many(),
		Repair: &Repair{Summary: hostile, Consent: hostile, Writes: many(), Loses: hostile}}
	for range 500 {
		f.Evidence = append(f.Evidence, Evidence{Kind: hostile, Path: hostile, Text: hostile, Command: many()[:50]})
	}
	exit := -9999999
	f.Evidence[0].Line, f.Evidence[0].Exit = math.MinInt32, &exit
	x := &Examination{Seconds: 1e308, Hardware: &Hardware{Memory: -1, NICs: many()}}
	for range 500 {
		x.Disks = append(x.Disks, ExaminedDisk{Path: hostile, Model: hostile, Serial: hostile, Size: math.MinInt64, Written: math.MaxInt64, Changed: -1})
		x.NotExamined = append(x.NotExamined, Gap{What: hostile, Why: hostile})
		x.Systems = append(x.Systems, ExaminedSystem{Root: hostile, Name: hostile})
		x.Hardware.Disks = append(x.Hardware.Disks, DiskRecord{Model: hostile, Serial: hostile, WWN: hostile, Size: -1})
	}
	x.Systems[0].Findings = []Finding{f, {ID: "least", Stage: Loader, Severity: Info, Confidence: -3}, {ID: "stage", Stage: hostile, Severity: Info}, {ID: "severity", Stage: Loader, Severity: hostile}}
	clean := x.Sanitize()
	text := string(must.Get(json.Marshal(clean))(t))
	if strings.Contains(text, "hunter2") || strings.Contains(text, `\u001b`) || len(text) > 2<<20 {
		t.Errorf("%d bytes, such as %.200s", len(text), text)
	}
	for name, n := range map[string]int{"disks": len(clean.Disks), "gaps": len(clean.NotExamined), "systems": len(clean.Systems), "NICs": len(clean.Hardware.NICs), "disks of the hardware": len(clean.Hardware.Disks)} {
		if n != maxParts {
			t.Errorf("%d %s, want %d", n, name, maxParts)
		}
	}
	one := clean.Systems[0].Findings
	if one[0].Confidence != 1 || one[1].Confidence != 0 || len(one[0].Evidence) != maxFindings || len(one[0].Explains) != maxFindings || len(one[0].Evidence[0].Command) != maxFindings {
		t.Errorf("confidence %g and %g, %d pieces of evidence, %d consequences", one[0].Confidence, one[1].Confidence, len(one[0].Evidence), len(one[0].Explains))
	}
	if d, e := clean.Disks[0], one[0].Evidence[0]; clean.Seconds != maxSeconds || d.Size != 0 || d.Written != MaxBytes || d.Changed != 0 || e.Line != 0 || *e.Exit != -1 {
		t.Errorf("numbers of an agent: want them in their ranges, got %g s, disk %+v, line %d, exit %d", clean.Seconds, d, e.Line, *e.Exit)
	}
	if len(one) != 2 || !strings.Contains(clean.NotExamined[len(clean.NotExamined)-1].What, "2 findings") {
		t.Errorf("findings of an unknown stage or severity: want them left out and told as a gap, got %d findings, and the gap %+v", len(one), clean.NotExamined[len(clean.NotExamined)-1])
	}
	if f.Title != hostile || f.Repair.Summary != hostile {
		t.Error("the examination itself was changed")
	}
}

// TestFilesHaveABound: a stranger's file of any size takes no more memory than a rule may read.
func TestFilesHaveABound(t *testing.T) {
	tree := NewTree(fstest.MapFS{"small": {Data: []byte("12345")}, "large": {Data: []byte("123456")}, "pipe": {Mode: 0o600 | 1<<25}})
	if b, err := tree.ReadAtMost("/small", 5); string(b) != "12345" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := tree.ReadAtMost("/large", 5); !errors.Is(err, ErrTooLarge) || b != nil {
		t.Errorf("a larger file: %q, %v", b, err)
	}
	if n, err := tree.ReadThrough("/large", 4); n != 4 || err != nil {
		t.Errorf("%d bytes are read through, %v", n, err)
	}
	if _, err := tree.Open("/pipe"); err == nil {
		t.Error("a pipe was opened, which would wait for ever")
	}
	folder := fstest.MapFS{}
	for i := range maxEntries {
		folder["d/"+strconv.Itoa(i)] = &fstest.MapFile{}
	}
	if entries, err := NewTree(folder).ReadDir("/d"); err != nil || len(entries) != maxEntries {
		t.Errorf("%d entries of %d, %v", len(entries), maxEntries, err)
	}
	folder["d/more"] = &fstest.MapFile{}
	if entries, err := NewTree(folder).ReadDir("/d"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a larger folder: %d entries, %v", len(entries), err)
	}
}

// TestFindingsNameTheirSystem: of two systems, each finding says which one it is about; what both show alike concerns the machine and is listed once.
func TestFindingsNameTheirSystem(t *testing.T) {
	sshd := Finding{ID: "sshd-config-invalid", Stage: SSHD, Severity: BlocksAccess, Confidence: 0.9, Title: "T.", Evidence: []Evidence{{Kind: FromFile, Path: "/etc/ssh/sshd_config", Line: 1}}}
	disk := Finding{ID: DiskFailing, Stage: Root, Severity: Degrades, Confidence: 0.9, Title: "D.", Evidence: []Evidence{{Kind: FromTool, Text: "x"}}}
	x := Examination{Version: ExaminationVersion, Systems: []ExaminedSystem{
		{Root: "/dev/sda1", Disks: []string{"/dev/sda"}, Name: "Debian 12", Findings: []Finding{disk}},
		{Root: "/dev/sdb1", Disks: []string{"/dev/sdb"}, Name: "Debian 11", Findings: []Finding{sshd, disk}},
	}}
	var r Report
	r.Add(&x)
	r.Judge()
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.ID+"@"+f.System+"@"+f.Disk)
	}
	if text := strings.Join(got, " "); text != "sshd-config-invalid@/dev/sdb1@/dev/sdb disk-failing@@ systems-several@@" {
		t.Errorf("findings: %s", text)
	}
}

// TestRepairedFindingsKeepTheirSystem: what both systems show alike, and what a repair mends by files of one system, is listed for each system.
func TestRepairedFindingsKeepTheirSystem(t *testing.T) {
	driver := Finding{ID: "network-driver-blocked", Stage: Network, Severity: BlocksAccess, Confidence: 0.9, Title: "T.",
		Evidence: []Evidence{{Kind: FromDevice, Path: "enp1s0", Text: "x"}}, Repair: &Repair{Summary: "S.", Consent: ConsentFiles, Writes: []string{"/etc/x"}}}
	var r Report
	r.Add(&Examination{Version: ExaminationVersion, Systems: []ExaminedSystem{
		{Root: "/dev/sda1", Disks: []string{"/dev/sda"}, Findings: []Finding{driver}}, {Root: "/dev/sdb1", Disks: []string{"/dev/sdb"}, Findings: []Finding{driver}}}})
	r.Judge()
	var got []string
	for _, f := range r.Findings {
		if f.ID == driver.ID {
			got = append(got, f.System)
		}
	}
	if text := strings.Join(got, " "); text != "/dev/sda1 /dev/sdb1" {
		t.Errorf("want the finding of each of the two systems, got those of %q", text)
	}
}

// TestLadder: for each stage, a verdict says whether it was examined, in part, or not, and why.
func TestLadder(t *testing.T) {
	looked := func(gaps ...Gap) Report {
		return Report{ExaminedIn: 3, Systems: []SystemSummary{{Root: "/dev/sda1"}}, Observed: []Observation{{Name: "power", Text: "power off"}}, NotExamined: gaps}
	}
	for name, c := range map[string]struct {
		report Report
		want   map[Stage]Coverage // all other stages are examined
	}{
		"all":                   {looked(), nil},
		"sshd's configuration":  {looked(Gap{"/etc/ssh/sshd_config", "too large"}), map[Stage]Coverage{SSHD: Partly, Login: Partly}},
		"an initramfs":          {looked(Gap{"/boot/initrd.img-6.1", "it is compressed with xz"}), map[Stage]Coverage{Initramfs: Partly}},
		"the BMC's log":         {looked(Gap{"event log", "no answer"}), map[Stage]Coverage{Power: Partly, Firmware: Partly}},
		"nobody looked":         {Report{Observed: []Observation{{Name: "power", Text: "power on"}}}, map[Stage]Coverage{Loader: NotExamined, Kernel: NotExamined, Initramfs: NotExamined, Root: NotExamined, Init: NotExamined, Target: NotExamined, Network: NotExamined, SSHD: NotExamined, Login: NotExamined}},
		"no system on the disk": {Report{ExaminedIn: 1, Observed: []Observation{{Name: "power", Text: "power off"}}, NotExamined: []Gap{{"/dev/sda2", "no key"}}}, map[Stage]Coverage{Loader: NotExamined, Kernel: NotExamined, Initramfs: NotExamined, Root: NotExamined, Init: NotExamined, Target: NotExamined, Network: NotExamined, SSHD: NotExamined, Login: NotExamined}},
	} {
		c.report.Judge()
		if len(c.report.Verdict.Ladder) != len(Stages()) {
			t.Errorf("%s: %d rungs", name, len(c.report.Verdict.Ladder))
		}
		for _, rung := range c.report.Verdict.Ladder {
			want := c.want[rung.Stage]
			if want == "" {
				want = Examined
			}
			if rung.Coverage != want || (rung.Gap == "") != (want == Examined) || strings.Contains(rung.Gap, "too large") {
				t.Errorf("%s: %+v, want %s", name, rung, want)
			}
		}
	}
}

// TestWorksNeedsAProof: only a proof makes a machine work, and what may block is stronger than the proof.
func TestWorksNeedsAProof(t *testing.T) {
	proof := &Proof{Kind: ProofPerson, Text: "alice has logged in"}
	guess := Finding{ID: "guess", Stage: Loader, Severity: BlocksBoot, Confidence: 0.3}
	for name, c := range map[string]struct {
		report Report
		want   Outcome
	}{
		"nothing":                 {Report{ExaminedIn: 1}, NothingFound},
		"a proof":                 {Report{Proof: proof}, Works},
		"a proof against a guess": {Report{Proof: proof, Findings: []Finding{guess}}, NothingFound},
	} {
		c.report.Judge()
		if v := c.report.Verdict; v.Outcome != c.want || (v.Proof != nil) != (c.want == Works) {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
	}
}

// TestFormerOutcomes: reports that older releases stored say no more than was known.
func TestFormerOutcomes(t *testing.T) {
	for text, want := range map[string]Outcome{"healthy": NothingFound, "unknown": NothingFound, "cause-found": CauseFound, "works": Works, "": ""} {
		var r Report
		if err := json.Unmarshal([]byte(`{"verdict":{"outcome":"`+text+`"}}`), &r); err != nil || r.Verdict.Outcome != want {
			t.Errorf("%q: %q, %v", text, r.Verdict.Outcome, err)
		}
	}
}
