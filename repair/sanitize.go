package repair

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"salvor/diagnose"
)

// Bounds of what a plan shows of a machine.
const (
	maxShown = 2000
	maxDiff  = 16 << 10 // bytes
)

// Sanitize gives the plan as people are shown it. Each text has passed diagnose.Excerpt, and lists and diffs have a bounded length. What an
// undo needs, such as extended attributes, is left out.
func (p *Plan) Sanitize() *Plan {
	clean := Plan{Version: p.Version, Digest: digest(p.Digest), Mended: excerpts(p.Mended), NotMended: []NotMended{}, Consents: []diagnose.Consent{},
		Files: []FileChange{}, Blocks: []BlockChange{}, Settings: []Setting{}, Disks: []DiskChange{}, Commands: []CommandRun{}, HostKeys: excerpts(p.HostKeys),
		Before: p.Before.Sanitize(), After: p.After.Sanitize()}
	for _, n := range firstOf(p.NotMended) {
		clean.NotMended = append(clean.NotMended, NotMended{diagnose.Excerpt(n.Finding), diagnose.Sentence(n.Why)})
	}
	for _, c := range firstOf(p.Consents) {
		clean.Consents = append(clean.Consents, diagnose.Consent(diagnose.Excerpt(string(c))))
	}
	for _, f := range firstOf(p.Files) {
		clean.Files = append(clean.Files, FileChange{Root: diagnose.Excerpt(f.Root), Path: diagnose.Excerpt(f.Path), Consent: diagnose.Consent(diagnose.Excerpt(string(f.Consent))),
			Findings: excerpts(f.Findings), Before: f.Before.sanitize(), After: f.After.sanitize(), MadeBy: diagnose.Excerpt(f.MadeBy), Diff: excerptLines(f.Path, f.Diff)})
	}
	for _, b := range firstOf(p.Blocks) {
		b.Device, b.Before, b.After, b.MadeBy, b.Findings = diagnose.Excerpt(b.Device), digest(b.Before), digest(b.After), diagnose.Excerpt(b.MadeBy), excerpts(b.Findings)
		b.Offset, b.Length = diagnose.Clamp(b.Offset, 0, diagnose.MaxBytes), diagnose.Clamp(b.Length, 0, diagnose.MaxBytes)
		clean.Blocks = append(clean.Blocks, b)
	}
	for _, s := range firstOf(p.Settings) {
		clean.Settings = append(clean.Settings, Setting{SettingKind(diagnose.Excerpt(string(s.Kind))), diagnose.Excerpt(s.Before), diagnose.Excerpt(s.After)})
	}
	for _, d := range firstOf(p.Disks) {
		d.Path, d.Serial, d.WWN = diagnose.Excerpt(d.Path), diagnose.Excerpt(d.Serial), diagnose.Excerpt(d.WWN)
		d.Size, d.Chunks = diagnose.Clamp(d.Size, 0, diagnose.MaxBytes), diagnose.Clamp(d.Chunks, 0, diagnose.MaxBytes/ChunkSize)
		clean.Disks = append(clean.Disks, d)
	}
	for _, c := range firstOf(p.Commands) {
		clean.Commands = append(clean.Commands, CommandRun{excerpts(c.Command), diagnose.ClampExit(c.Exit), excerptLines("", c.Output)})
	}
	return &clean
}

func (s *FileState) sanitize() *FileState {
	if s == nil {
		return nil
	}
	clean := *s
	clean.Size, clean.Mode = diagnose.Clamp(s.Size, 0, diagnose.MaxBytes), s.Mode&0o7777
	clean.Kind, clean.SHA256, clean.Target, clean.Attributes = diagnose.Excerpt(s.Kind), digest(s.SHA256), diagnose.Excerpt(s.Target), nil
	return &clean
}

// digest gives a SHA-256 in hexadecimal as it is, because Excerpt masks what looks like a key; anything else is none.
func digest(text string) string {
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != sha256.Size {
		return ""
	}
	return text
}

func firstOf[E any](list []E) []E { return list[:min(len(list), maxShown)] }

func excerpts(texts []string) []string {
	out := make([]string, 0, min(len(texts), maxShown))
	for _, t := range firstOf(texts) {
		out = append(out, diagnose.Excerpt(t))
	}
	return out
}

// excerptLines is diagnose.Line for each line of a text about a file. The blanks at the beginning of a line stay, because they are what a diff is about.
func excerptLines(place, text string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(text[:min(len(text), maxDiff)], "\n") {
		body := strings.TrimLeft(line, " \t+-")
		blanks := strings.Map(func(r rune) rune { return map[rune]rune{' ': ' ', '\t': ' ', '+': '+', '-': '-'}[r] }, line[:len(line)-len(body)])
		if out.Len()+len(blanks) > maxDiff {
			break
		}
		out.WriteString(blanks + diagnose.Line(place, body) + "\n")
	}
	return strings.TrimRight(out.String(), "\n")
}
