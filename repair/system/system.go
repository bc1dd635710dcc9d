// Package system holds the mends of an installed operating system: what salvor does about the findings of diagnose/system. It is pure: a mend
// reads the system and changes it through a repair.Editor only.
//
// A mend changes what a rule named, and as little as possible. Lines of a file stay in their places. A line that is switched off becomes a comment,
// and such a file gets the ending .salvor-disabled. A mend does nothing where its finding is gone.
package system

import (
	"context"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/problem"
	"salvor/repair"
)

// DisabledEnding is what the name of a file ends in that a mend switched off.
const DisabledEnding = ".salvor-disabled"

// tableRow is a mend with what has to be made anew after it.
type tableRow struct {
	finding string
	consent diagnose.Consent
	does    string // what the mend does, as docs/repair.md lists it
	change  func(ctx context.Context, c *repairCase) error
	// initramfs and menu say whether the initramfs of the default entry, and GRUB's menu, have to be made anew for a finding. nil: never.
	initramfs, menu func(f diagnose.Finding) bool
}

func always(diagnose.Finding) bool { return true }

// Mends lists all mends in the order in which findings are repaired: the lowest layer first, what reads configuration after the configuration.
func Mends() []repair.Mend {
	var out []repair.Mend
	for _, row := range allRows() {
		out = append(out, repair.Mend{Finding: row.finding, Consent: row.consent, Do: row.do})
	}
	return out
}

func allRows() []tableRow {
	return slices.Concat(tableRows(), mountRows(), systemRows(), kernelRows(), menuRows(), loaderRows(), firmwareRows(), networkRows(), sshdRows(), accountRows(), labelRows())
}

// do repairs a finding that is still there.
func (row *tableRow) do(ctx context.Context, e repair.Editor, f diagnose.Finding) error {
	e = storeGuard{e}
	s := e.System()
	current, found := findAgain(s, f)
	if !found {
		return nil
	}
	c := &repairCase{editor: e, system: s, finding: current}
	if current.Repair == nil {
		if current.Severity == diagnose.Info { // such as a mount with nofail: its device is still not there, and that harms nothing
			return nil
		}
		return c.unsupported("salvor has no repair for it: %s", current.ByHand)
	}
	if err := row.change(ctx, c); err != nil || row.initramfs == nil || !row.initramfs(current) {
		return err
	}
	_, err := c.initramfsCommand() // of a finding whose initramfs cannot be built, nothing is changed
	return err
}

// findAgain asks the rule of a finding about the system as it is now.
func findAgain(s *diagnose.System, f diagnose.Finding) (diagnose.Finding, bool) {
	found := findingsWith(s, f.ID)
	for _, same := range []func(diagnose.Finding) bool{
		func(g diagnose.Finding) bool { return g.Title == f.Title },
		func(g diagnose.Finding) bool { // another mend may have changed what the title says beside
			return len(f.Evidence) > 0 && len(g.Evidence) > 0 && g.Evidence[0].Path == f.Evidence[0].Path && g.Evidence[0].Line == f.Evidence[0].Line
		},
	} {
		if i := slices.IndexFunc(found, same); i >= 0 {
			return found[i], true
		}
	}
	return diagnose.Finding{}, false
}

// findingsWith are the findings of an id that a system has now.
func findingsWith(s *diagnose.System, id string) []diagnose.Finding {
	var out []diagnose.Finding
	for _, rule := range rules.Rules() {
		if slices.Contains(rule.IDs, id) {
			found, _ := diagnose.Run([]diagnose.Rule{rule}, s)
			for _, f := range found {
				if f.ID == id {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// repairCase is one finding that is being repaired.
type repairCase struct {
	editor  repair.Editor
	system  *diagnose.System
	finding diagnose.Finding
}

// firstEvidence is what the finding was made from.
func (c *repairCase) firstEvidence() diagnose.Evidence { return c.finding.Evidence[0] }

// unsupported is why the finding is not repaired. Nothing was changed.
func (c *repairCase) unsupported(format string, args ...any) error {
	return problem.Unsupportedf("%s is not repaired: "+format, append([]any{c.finding.ID}, args...)...)
}

// reload is the system with the changes made so far.
func (c *repairCase) reload() { c.system = c.editor.System() }

// readText reads a file that is to be edited.
func (c *repairCase) readText(path string) (string, error) {
	b, err := c.system.Files.Read(path)
	if err != nil {
		return "", c.unsupported("%s cannot be read: %v; repair it by hand", path, err)
	}
	return string(b), nil
}

// readOptional is readText for a file that need not exist; then it is empty.
func (c *repairCase) readOptional(path string) (string, error) {
	if !c.system.Files.Exists(path) {
		return "", nil
	}
	return c.readText(path)
}

// editText changes a file, and does not write one that stays as it is.
func (c *repairCase) editText(path string, change func(text string) string) error {
	text, err := c.readText(path)
	if err != nil {
		return err
	}
	if after := change(text); after != text {
		return c.write(path, after)
	}
	return nil
}

// editLine changes one line of a file, and fails where that changes nothing.
func (c *repairCase) editLine(path string, line int, change func(line string) string) error {
	text, err := c.readText(path)
	if err != nil {
		return err
	}
	after := replaceLine(text, line, change)
	if after == text {
		return c.unsupported("line %d of %s does not hold what was to be changed; correct it by hand", line, path)
	}
	return c.write(path, after)
}

func (c *repairCase) write(path, text string) error {
	if err := c.editor.Write(path, []byte(text)); err != nil {
		return err
	}
	c.reload()
	return nil
}

// writeWithFolder is write for a file whose folder may not exist.
func (c *repairCase) writeWithFolder(file, text string) error {
	if err := c.makeFolderOf(file); err != nil {
		return err
	}
	return c.write(file, text)
}

// makeFolderOf makes the folder of a file, with its parents, if it does not exist.
func (c *repairCase) makeFolderOf(file string) error {
	folder := path.Dir(file)
	if c.system.Files.Exists(folder) {
		return nil
	}
	return c.editor.Mkdir(folder)
}

// writePrivate writes a file with a mode and an owner of its own.
func (c *repairCase) writePrivate(path, text string, mode uint32) error {
	if err := c.write(path, text); err != nil {
		return err
	}
	if err := c.setOwner(path, 0, 0); err != nil {
		return err
	}
	return c.setMode(path, mode)
}

// evidenceLines are the lines that the evidence names, by file.
func (c *repairCase) evidenceLines() map[string][]int {
	out := map[string][]int{}
	for _, e := range c.finding.Evidence {
		if e.Kind == diagnose.FromFile && e.Line > 0 {
			out[e.Path] = append(out[e.Path], e.Line)
		}
	}
	return out
}

// evidenceDevice is the last device that the evidence names; nil without one.
func (c *repairCase) evidenceDevice() *diagnose.Device {
	for _, e := range slices.Backward(c.finding.Evidence) {
		if e.Kind != diagnose.FromDevice || e.Path == "" {
			continue
		}
		for i := range c.system.Devices {
			if c.system.Devices[i].Path == e.Path {
				return &c.system.Devices[i]
			}
		}
	}
	return nil
}

// firstProgram returns the first program of the system that exists.
func (c *repairCase) firstProgram(names ...string) string {
	for _, name := range names {
		if info, err := c.system.Files.Stat(name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// run runs a program of the system.
func (c *repairCase) run(ctx context.Context, p repair.Program) error {
	if _, err := c.editor.Run(ctx, p); err != nil {
		return problem.Conflictf("%s is not repaired: %s: %v", c.finding.ID, strings.Join(p.Command, " "), err)
	}
	c.reload()
	return nil
}

// bootDevices are the devices that hold the root, /boot and the EFI system partition, and all that those lie on. Programs that set up a boot read them.
func (c *repairCase) bootDevices() []string {
	var out []string
	var add func(d *diagnose.Device)
	add = func(d *diagnose.Device) {
		if slices.Contains(out, d.Path) {
			return
		}
		out = append(out, d.Path)
		for i := range c.system.Devices {
			if slices.Contains(d.Parents, c.system.Devices[i].Path) {
				add(&c.system.Devices[i])
			}
		}
	}
	for i := range c.system.Devices {
		if d := &c.system.Devices[i]; d.Path == c.system.Root || slices.Contains([]string{"/", "/boot", "/boot/efi", "/efi"}, d.MountedAt) {
			add(d)
		}
	}
	return out
}

// commentEvidence turns the lines that the evidence names into comments.
func commentEvidence(_ context.Context, c *repairCase) error {
	for path, lines := range c.evidenceLines() {
		if err := c.editText(path, func(text string) string { return commentLines(text, lines...) }); err != nil {
			return err
		}
	}
	return nil
}
