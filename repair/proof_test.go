package repair

import (
	"encoding/json"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// TestLoginProves: a login prompt proves a repair only where the mended system alone can have written the prompt, and where nothing that was mended
// lies behind the prompt.
func TestLoginProves(t *testing.T) {
	t.Parallel()
	found := func(id string, stage diagnose.Stage) diagnose.Finding { return diagnose.Finding{ID: id, Stage: stage} }
	for name, c := range map[string]struct {
		systems [][]diagnose.Finding
		mended  []string
		want    bool
	}{
		"a file system":                 {[][]diagnose.Finding{{found("fstab", diagnose.Target)}}, []string{"fstab"}, true},
		"sshd":                          {[][]diagnose.Finding{{found("fstab", diagnose.Target), found("sshd", diagnose.SSHD)}}, []string{"fstab", "sshd"}, false},
		"the network":                   {[][]diagnose.Finding{{found("network", diagnose.Network)}}, []string{"network"}, false},
		"sshd is broken and not mended": {[][]diagnose.Finding{{found("fstab", diagnose.Target), found("sshd", diagnose.SSHD)}}, []string{"fstab"}, true},
		"two systems":                   {[][]diagnose.Finding{{found("fstab", diagnose.Target)}, {}}, []string{"fstab"}, false},
		"no system":                     {nil, []string{"table"}, true},
	} {
		p := &Plan{Mended: c.mended}
		for _, findings := range c.systems {
			p.Before.Systems = append(p.Before.Systems, diagnose.ExaminedSystem{Findings: findings})
		}
		if got := p.LoginProves(); got != c.want {
			t.Errorf("%s: a login proves the repair: %v, want %v", name, got, c.want)
		}
	}
}

// TestDigestCoversTheConsents: who agreed to changes of files has not agreed to the same changes and a loader.
func TestDigestCoversTheConsents(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	for name, p := range map[string]*Plan{
		"files": {Version: PlanVersion, Consents: []diagnose.Consent{diagnose.ConsentFiles}}, "files and boot": {Version: PlanVersion, Consents: []diagnose.Consent{diagnose.ConsentFiles, diagnose.ConsentBoot}},
		"another version": {Version: PlanVersion + 1, Consents: []diagnose.Consent{diagnose.ConsentFiles}},
		"a file less":     {Version: PlanVersion, Consents: []diagnose.Consent{diagnose.ConsentFiles}, Files: []FileChange{{Path: "/a", Before: &FileState{Kind: "file"}}}},
		"its owner":       {Version: PlanVersion, Consents: []diagnose.Consent{diagnose.ConsentFiles}, Files: []FileChange{{Path: "/a", Before: &FileState{Kind: "file"}, After: &FileState{Kind: "file", UID: 1}}}},
		"another size":    {Version: PlanVersion, Consents: []diagnose.Consent{diagnose.ConsentFiles}, Disks: []DiskChange{{Size: 1}}},
	} {
		p.Seal()
		if other, found := digests[p.Digest]; found || len(p.Digest) != 64 {
			t.Errorf("%s and %s have the digest %q", name, other, p.Digest)
		}
		digests[p.Digest] = name
	}
}

// TestHostilePlans: no text of an agent brings a control character or a secret into a plan that people are shown, and no list is without an end.
func TestHostilePlans(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b[2Jpassword=hunter2"
	many := make([]string, maxShown+1)
	for i := range many {
		many[i] = "x"
	}
	many[0] = hostile
	diff := "+" + hostile + "\n  -\tkeeps its blanks\n" + strings.Repeat("x\n", maxDiff)
	state := &FileState{Kind: hostile, SHA256: hostile, Target: hostile, Attributes: map[string][]byte{"user.secret": []byte("hunter2")}}
	p := &Plan{Digest: hostile, Mended: many, HostKeys: many}
	for _, text := range many {
		p.NotMended = append(p.NotMended, NotMended{text, text})
		p.Consents = append(p.Consents, diagnose.Consent(text))
		p.Files = append(p.Files, FileChange{Root: text, Path: text, Consent: diagnose.Consent(text), Findings: many[:1], Before: state, MadeBy: text})
		p.Blocks = append(p.Blocks, BlockChange{Device: text, Before: text, After: text, MadeBy: text, Findings: many[:1]})
		p.Settings = append(p.Settings, Setting{SettingKind(text), text, text})
		p.Disks = append(p.Disks, DiskChange{Path: text, Serial: text, WWN: text})
		p.Commands = append(p.Commands, CommandRun{Command: many[:1], Output: text})
	}
	p.Files[0].Diff, p.Files[0].After = diff, state
	clean := p.Sanitize()
	text := string(must.Get(json.Marshal(clean))(t))
	if strings.Contains(text, "hunter2") || strings.Contains(text, `\u001b`) || strings.Contains(text, "user.secret") {
		t.Errorf("it is shown: %.400s", text)
	}
	for name, n := range map[string]int{"findings": len(clean.Mended), "reasons": len(clean.NotMended), "consents": len(clean.Consents), "files": len(clean.Files), "blocks": len(clean.Blocks),
		"settings": len(clean.Settings), "disks": len(clean.Disks), "commands": len(clean.Commands), "host keys": len(clean.HostKeys)} {
		if n != maxShown {
			t.Errorf("%d %s are shown, want %d", n, name, maxShown)
		}
	}
	if got := clean.Files[0].Diff; len(got) > maxDiff+1 || !strings.Contains(got, "\n  - keeps its blanks\n") {
		t.Errorf("a diff of %d bytes, %.80q", len(got), got)
	}
	if state.Attributes == nil || p.Files[0].Before.Target != hostile {
		t.Error("the plan itself was changed, and an undo needs it")
	}
}
