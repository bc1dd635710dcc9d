package system

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// maxCheckedEntries bounds how many entries of a menu are checked, because an initramfs takes a second.
const maxCheckedEntries = 8

// maxReadImages bounds how many images are decompressed, each of which may take maxInitramfs bytes.
const maxReadImages = 8

func entryRules() []diagnose.Rule {
	return []diagnose.Rule{{
		IDs: []string{"kernel-missing", "kernel-damaged", "kernel-changed", "initramfs-missing", "initramfs-damaged", "initramfs-lacks-driver", "initramfs-lacks-tool",
			"initramfs-not-examined", "modules-missing", "boot-entry-broken"},
		Files: true, Look: lookEntries,
	}, {IDs: []string{"extlinux-default-missing"}, Files: true, Look: lookExtlinuxDefault}}
}

// entryChecker checks the files of entries, each file once.
type entryChecker struct {
	s       *diagnose.System
	kernels map[string]config.KernelImage
	images  map[string]*config.InitramfsContent
	// shallow: the content of initramfs images is not read, which takes seconds on slow machines.
	shallow bool
}

// lookEntries checks what the default entry loads, and the others as far as one of them is needed instead.
func lookEntries(s *diagnose.System) []diagnose.Finding {
	entries := loadEntries(s)
	first := defaultEntry(entries)
	if first == nil {
		return nil
	}
	c := newEntryChecker(s)
	out := c.check(first)
	broken := slices.ContainsFunc(out, func(f diagnose.Finding) bool { return f.Severity == diagnose.BlocksBoot })
	done := map[string]bool{first.Kernel.Shown: true}
	for i := range entries {
		e := &entries[i]
		if e.Kernel.Path == "" || e.Kernel.Unknown || done[e.Kernel.Shown] || len(done) > maxCheckedEntries {
			continue
		}
		done[e.Kernel.Shown] = true
		c.shallow = !broken
		found := slices.DeleteFunc(c.check(e), func(f diagnose.Finding) bool { return f.Severity != diagnose.BlocksBoot })
		switch {
		case len(found) > 0:
			out = append(out, diagnose.Finding{ID: "boot-entry-broken", Stage: diagnose.Loader, Severity: diagnose.Info, Confidence: found[0].Confidence,
				Title: fmt.Sprintf("The entry %q, which is not the default one, does not boot: %s", entryName(e), lowerFirst(found[0].Title)), Evidence: found[0].Evidence})
		case broken && len(argumentFindings(s, e)) == 0:
			proposeEntry(out, e)
			broken = false
		}
	}
	return out
}

// appendToSentence writes a text before the full stop of a sentence.
func appendToSentence(sentence, text string) string {
	return strings.TrimSuffix(sentence, ".") + text + "."
}

// lowerFirst is a sentence as it follows a colon.
func lowerFirst(sentence string) string {
	return strings.ToLower(sentence[:1]) + sentence[1:]
}

func entryName(e *loadEntry) string {
	if e.Title != "" {
		return e.Title
	}
	return e.ID
}

// entrySummary begins the summary of a repair that makes another entry the default one.
const entrySummary = "Make the entry"

// wholeEntry is the first entry with another kernel that boots as far as can be seen; nil without one.
func (c *entryChecker) wholeEntry(entries []loadEntry, first *loadEntry) *loadEntry {
	done := map[string]bool{first.Kernel.Shown: true}
	for i := range entries {
		e := &entries[i]
		if e.Kernel.Path == "" || e.Kernel.Unknown || done[e.Kernel.Shown] || len(done) > maxCheckedEntries {
			continue
		}
		done[e.Kernel.Shown] = true
		if c.s.Firmware.SecureBoot && e.Kernel.Found && refusedKernel(c.s, e) != nil {
			continue
		}
		if !slices.ContainsFunc(c.check(e), func(f diagnose.Finding) bool { return f.Severity == diagnose.BlocksBoot }) && len(argumentFindings(c.s, e)) == 0 {
			return e
		}
	}
	return nil
}

// newEntryChecker is a checker that reads images too.
func newEntryChecker(s *diagnose.System) *entryChecker {
	return &entryChecker{s: s, kernels: map[string]config.KernelImage{}, images: map[string]*config.InitramfsContent{}}
}

// proposeEntry lets the findings about the default entry propose a whole one.
func proposeEntry(findings []diagnose.Finding, e *loadEntry) {
	for i := range findings {
		f := &findings[i]
		if f.Severity != diagnose.BlocksBoot {
			continue
		}
		f.Title = appendToSentence(f.Title, fmt.Sprintf("; the entry %q is whole", entryName(e)))
		writes := []string{e.File}
		switch e.Loader {
		case byGRUB:
			writes = []string{"/etc/default/grub", "/boot/grub/grub.cfg", "/boot/grub/grubenv"}
			if strings.Contains(e.File, "loader/entries") || strings.Contains(e.File, "grub2") {
				writes = []string{"/boot/grub2/grubenv"}
			}
		case bySystemdBoot:
			writes = []string{path.Join(path.Dir(path.Dir(e.File)), "loader.conf")}
		}
		r := &diagnose.Repair{Summary: fmt.Sprintf(entrySummary+" %q the default one of %s, by its id %s.", entryName(e), e.Loader, e.ID), Consent: diagnose.ConsentBoot, Writes: writes}
		if f.ID == "kernel-argument-rescue" || f.ID == "kernel-argument-memory" { // without the argument, as with the repair in whose place the entry comes
			r.Loses = losesOf(f.Repair)
		}
		f.Repair = r
	}
}

// losesOf is what a repair may lose; empty without one.
func losesOf(r *diagnose.Repair) string {
	if r == nil {
		return ""
	}
	return r.Loses
}

// check says what keeps an entry from booting.
func (c *entryChecker) check(e *loadEntry) []diagnose.Finding {
	if e.Kernel.Path == "" || e.Kernel.Unknown {
		return nil
	}
	at := config.FileEvidence(e.File, e.Line, entryName(e))
	finding := func(id string, stage diagnose.Stage, confidence float64, title string, evidence ...diagnose.Evidence) diagnose.Finding {
		return diagnose.Finding{ID: id, Stage: stage, Severity: diagnose.BlocksBoot, Confidence: confidence, Title: title, Evidence: append(evidence, at)}
	}
	if !e.Kernel.Found {
		f := finding("kernel-missing", diagnose.Loader, 0.95, fmt.Sprintf("Line %d of %s loads the kernel %s, which does not exist.", e.Line, e.File, e.Kernel.Shown))
		f.ByHand = "Choose another entry of the menu, or install the package of the kernel again."
		if kernel := c.kernelOf(e); kernel != "" {
			f.Repair, f.ByHand = &diagnose.Repair{Summary: fmt.Sprintf("Name the kernel %s in %s.", kernel, e.File), Consent: diagnose.ConsentBoot, Writes: []string{e.File}}, ""
		}
		return []diagnose.Finding{f}
	}
	var out []diagnose.Finding
	k := c.kernel(e)
	if want := c.s.KernelArch; k.Damage == "" && k.Arch != "" && want != "" && k.Arch != want && !(want == "amd64" && k.Arch == "386") {
		k.Damage = "it is for processors of the kind " + k.Arch + ", and the machine has one of the kind " + want
	}
	if k.Damage != "" {
		f := finding("kernel-damaged", diagnose.Kernel, 0.95, fmt.Sprintf("The kernel %s is damaged: %s.", e.Kernel.Shown, k.Damage), config.FileEvidence(e.Kernel.Shown, 0, k.Damage))
		f.ByHand = "Choose another entry of the menu, or install the package of the kernel again."
		out = append(out, f)
	} else if sum := wantedSum(c.s.Files, e.Kernel.Shown); sum != "" && k.Certificates <= 1 {
		if got := fileSum(e.Kernel); got != "" && got != sum {
			f := finding("kernel-changed", diagnose.Kernel, 0.6, fmt.Sprintf("The kernel %s is not the one that its package brought.", e.Kernel.Shown),
				config.FileEvidence(e.Kernel.Shown, 0, "its MD5 sum is "+got+", not "+sum))
			f.ByHand = "Install the package of the kernel again, unless someone changed the kernel on purpose."
			out = append(out, f)
		}
	}
	release := k.Release
	if release == "" {
		release = config.ReleaseOfName(e.Kernel.Shown)
	}
	return append(out, c.checkInitramfs(e, release, finding)...)
}

// kernelOf is the kernel that belongs to an entry file whose kernel does not exist, as the entry would name it; empty where that alone mends nothing.
func (c *entryChecker) kernelOf(e *loadEntry) string {
	for _, f := range entryFiles(c.s) {
		if f.Path != e.File {
			continue
		}
		fixed := *e
		fixed.Kernel = f.entry.Kernel
		if !slices.ContainsFunc(c.check(&fixed), func(g diagnose.Finding) bool { return g.Severity == diagnose.BlocksBoot }) {
			return f.Kernel
		}
	}
	return ""
}

type findingMaker func(id string, stage diagnose.Stage, confidence float64, title string, evidence ...diagnose.Evidence) diagnose.Finding

// kernel reads the head of an entry's kernel.
func (c *entryChecker) kernel(e *loadEntry) config.KernelImage {
	if k, done := c.kernels[e.Kernel.Shown]; done {
		return k
	}
	var k config.KernelImage
	if f, err := config.OpenReadAt(e.Kernel.Tree, e.Kernel.Path); err == nil {
		k = config.ReadKernelImage(f)
		_ = f.Close()
	}
	c.kernels[e.Kernel.Shown] = k
	return k
}

// unifiedInitramfs walks through the initramfs in a unified kernel image; nil for other kernels.
func (c *entryChecker) unifiedInitramfs(e *loadEntry) *config.InitramfsContent {
	f, err := config.OpenReadAt(e.Kernel.Tree, e.Kernel.Path)
	if err != nil {
		return nil
	}
	defer f.Close()
	pe, err := config.ReadPE(f)
	if err != nil || pe.Damage != "" {
		return nil
	}
	for _, s := range pe.Sections {
		if s.Name == ".initrd" {
			content := config.WalkInitramfs(&config.ReadAtFile{ReaderAt: io.NewSectionReader(f, s.Offset, s.Size), Size: s.Size})
			if content.Damage != "" { // the section is not as long as its content where the image was signed
				content.NotExamined = content.Damage
			}
			return content
		}
	}
	return nil
}

// wantedSum is the MD5 sum that dpkg stored for a kernel; empty without one.
func wantedSum(t *diagnose.Tree, name string) string {
	release := config.ReleaseOfName(name)
	if release == "" || strings.Contains(release, "/") {
		return ""
	}
	for _, pkg := range []string{"linux-image-" + release, "linux-image-unsigned-" + release} {
		for _, line := range t.Lines("/var/lib/dpkg/info/" + pkg + ".md5sums") {
			if sum, file, found := strings.Cut(line, "  "); found && "/"+file == name {
				return sum
			}
		}
	}
	return ""
}

// fileSum is the MD5 sum of a kernel; empty for one that is larger than any.
func fileSum(file bootFile) string {
	f, err := config.OpenReadAt(file.Tree, file.Path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if f.Size > 256<<20 {
		return ""
	}
	h := md5.New() // compared with what dpkg stored
	if n, err := io.Copy(h, io.NewSectionReader(f, 0, f.Size)); err != nil || n != f.Size {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}
