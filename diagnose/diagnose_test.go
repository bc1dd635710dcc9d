package diagnose

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestJudge(t *testing.T) {
	full := Finding{ID: "disk-full", Stage: Target, Severity: BlocksBoot, Confidence: 0.9, Explains: []string{"initramfs-damaged"}}
	initramfs := Finding{ID: "initramfs-damaged", Stage: Initramfs, Severity: BlocksBoot, Confidence: 0.95}
	sshd := Finding{ID: "sshd-config-invalid", Stage: SSHD, Severity: BlocksAccess, Confidence: 0.97}
	guess := Finding{ID: "guess", Stage: Loader, Severity: BlocksBoot, Confidence: 0.3}
	degraded := Finding{ID: "array-degraded", Stage: Root, Severity: Degrades, Confidence: 0.95}
	for _, tc := range []struct {
		name     string
		findings []Finding
		outcome  Outcome
		cause    string
	}{
		{"nothing", nil, NothingFound, ""},
		{"what degrades is no cause", []Finding{degraded}, NothingFound, ""},
		{"the lower stage", []Finding{sshd, initramfs}, CauseFound, "initramfs-damaged"},
		{"what explains another", []Finding{initramfs, full}, CauseFound, "disk-full"},
		{"a guess is no cause", []Finding{guess, sshd}, CauseFound, "sshd-config-invalid"},
		{"nor is a machine with a guess healthy", []Finding{guess}, NothingFound, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sorted, verdict := Judge(tc.findings)
			if verdict.Outcome != tc.outcome || verdict.Finding != tc.cause {
				t.Errorf("verdict %+v, want %s %s", verdict, tc.outcome, tc.cause)
			}
			if len(sorted) != len(tc.findings) {
				t.Errorf("%d findings of %d", len(sorted), len(tc.findings))
			}
		})
	}
}

func TestExcerpt(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"  plain text ", "plain text"},
		{"red\x1b[31m\nand more\x00", "red?[31m and more?"},
		{"UUID=0dd1e5c4-0001-4000-8000-00000000beef /data ext4 defaults 0 2", "UUID=0dd1e5c4-0001-4000-8000-00000000beef /data ext4 defaults 0 2"},
		{"root:$y$j9T$abcdefgh$ijklmnopqrstuvwxyz:19000:0", "root:" + Masked + ":19000:0"},
		{"password=hunter2 user=x", "password=" + Masked + " user=x"},
		{`"client_secret": "abc def"`, `"client_secret": ` + Masked},
		{"PrivateKey = aGVsbG8=", "PrivateKey = " + Masked},
		{"PresharedKey=aGVsbG8=", "PresharedKey=" + Masked},
		{"PASSWORD hunter2", "PASSWORD " + Masked},
		{"proxy http://me:hunter2@proxy:3128/", "proxy http://me:" + Masked + "@proxy:3128/"},
		{"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz", Masked},
		{strings.Repeat("A", 70), Masked},
		{"PasswordAuthentication no", "PasswordAuthentication no"},
	} {
		if got := Excerpt(tc.in); got != tc.want {
			t.Errorf("Excerpt(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
	for _, tc := range []struct{ in, want string }{
		{"The password expired in /etc/passwd today.", "The password expired in /etc/passwd today."},
		{"The line says password=hunter2.", "The line says password=" + Masked},
		{"It holds $y$j9T$abcdefgh$ijklmnopqrstuvwxyz and ends.", "It holds " + Masked + " and ends."},
	} {
		if got := Sentence(tc.in); got != tc.want {
			t.Errorf("Sentence(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
	if got := Excerpt(strings.Repeat("ä ", 1000)); len(got) > maxExcerpt {
		t.Errorf("%d bytes", len(got))
	}
}

// TestReason: a long reason keeps its end, which says what to do, and hides secrets.
func TestReason(t *testing.T) {
	t.Parallel()
	long := "the kernel /srv/kernel cannot be opened: " + strings.Repeat("and so on ", 200) + "password=hunter2; run salvor ramdisk build"
	got := Reason(long)
	if len(got) > maxReason || !strings.HasPrefix(got, "the kernel /srv/kernel") || !strings.HasSuffix(got, "password="+Masked+" run salvor ramdisk build") {
		t.Errorf("a reason of %d bytes: want at most %d with both ends and no secret, got %d: %s", len(long), maxReason, len(got), got)
	}
	if short := "no \x1b[31mramdisk"; Reason(short) != "no ?[31mramdisk" {
		t.Errorf("Reason(%q): got %q", short, Reason(short))
	}
}

// Links of a stranger's disk lead nowhere but into the disk itself.
func TestTreeStaysInside(t *testing.T) {
	files := NewTree(fstest.MapFS{
		"usr/lib/systemd/systemd": {Data: []byte("init"), Mode: 0o755},
		"usr/sbin/init":           {Data: []byte("/lib/systemd/systemd"), Mode: 0o777 | 1<<27},
		"lib":                     {Data: []byte("usr/lib"), Mode: 0o777 | 1<<27},
		"sbin":                    {Data: []byte("usr/sbin"), Mode: 0o777 | 1<<27},
		"etc/up":                  {Data: []byte("../../../../etc/real"), Mode: 0o777 | 1<<27},
		"etc/real":                {Data: []byte("inside")},
		"etc/loop":                {Data: []byte("loop"), Mode: 0o777 | 1<<27},
		"dev/disk":                {Mode: 0o600 | 1<<26},
	})
	for _, tc := range []struct{ path, want string }{
		{"/sbin/init", "/usr/lib/systemd/systemd"},
		{"/../../etc/up", "/etc/real"},
		{"/etc/missing/below", "/etc/missing/below"},
	} {
		if got, _ := files.Resolve(tc.path); got != tc.want {
			t.Errorf("Resolve(%s) = %s, want %s", tc.path, got, tc.want)
		}
	}
	if b, err := files.Read("/sbin/init"); err != nil || string(b) != "init" {
		t.Errorf("Read = %q, %v", b, err)
	}
	if _, err := files.Read("/etc/loop"); err == nil {
		t.Error("a loop of links was read")
	}
	if _, err := files.Read("/dev/disk"); err == nil {
		t.Error("a device was opened")
	}
	if target, err := files.ReadLink("/sbin/init"); err != nil || target != "/lib/systemd/systemd" {
		t.Errorf("ReadLink = %q, %v", target, err)
	}
}

func TestARuleThatPanicsIsAGap(t *testing.T) {
	rules := []Rule{
		{IDs: []string{"bad"}, Look: func(*System) []Finding { panic("index out of range") }},
		{IDs: []string{"files"}, Files: true, Look: func(*System) []Finding { t.Error("asked without files"); return nil }},
		{IDs: []string{"good"}, Look: func(*System) []Finding {
			return []Finding{{ID: "good", Evidence: []Evidence{{Text: "te\x1bxt=a"}}}}
		}},
	}
	findings, gaps := Run(rules, &System{})
	if len(findings) != 1 || findings[0].Evidence[0].Text != "te?xt=a" || len(gaps) != 1 || !strings.Contains(gaps[0].Why, "index out of range") {
		t.Errorf("%+v %+v", findings, gaps)
	}
}

// A client that reads a report finds lists, whatever was found.
func TestAReportHasLists(t *testing.T) {
	var r Report
	r.Judge()
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestARuleThatTakesTooLongIsAGap: a rule that never stops to read files ends at its time, and the rules behind it are asked.
func TestARuleThatTakesTooLongIsAGap(t *testing.T) {
	files := NewTree(fstest.MapFS{"a": {Data: []byte("a")}})
	now := time.Unix(0, 0)
	files.watch.clock = func() time.Time { now = now.Add(time.Second); return now }
	rules := []Rule{
		{IDs: []string{"slow"}, Files: true, Look: func(s *System) []Finding {
			for {
				s.Files.Exists("/a")
			}
		}},
		{IDs: []string{"good"}, Files: true, Look: func(s *System) []Finding {
			return []Finding{{ID: "good", Title: strconv.FormatBool(s.Files.Exists("/a"))}}
		}},
	}
	findings, gaps := Run(rules, &System{Files: files, RuleTime: time.Minute})
	if len(findings) != 1 || findings[0].Title != "true" || len(gaps) != 1 || gaps[0].What != "the rule for slow" || !strings.Contains(gaps[0].Why, "more than 1m0s") {
		t.Errorf("want the finding of the second rule and one gap of the first, got %+v and %+v", findings, gaps)
	}
	if other := (Gap{What: "the rule for slow", Why: "it failed: index out of range"}); len(gaps) != 1 || !gaps[0].IsOverrun() || other.IsOverrun() {
		t.Errorf("want an overrun in %+v and none in %+v", gaps, other)
	}
}
