package repair

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

// MaxPlan bounds a plan as JSON, in bytes.
const MaxPlan = 8 << 20

// Request says what to repair.
type Request struct {
	examine.Request
	// ID is the repair's UUID.
	ID string
	// Findings lists the ids to mend; empty: all that the consents allow.
	Findings []string
	Consents []diagnose.Consent
	// Restore lists files to put back instead.
	Restore []RestoreFile
	// MaxChanged bounds the bytes of all changed chunks.
	MaxChanged int64
	// Mends is the table of repairs, in the order in which they are tried.
	Mends []repair.Mend
	// Refusals lists which of a system's findings its state keeps from being repaired, with the reason. RestoreRefusal is why no file of a system is
	// put back; empty where files may be.
	Refusals       func([]diagnose.Finding, *diagnose.System) []repair.NotMended
	RestoreRefusal func([]diagnose.Finding, *diagnose.System) string
	// Finish makes anew what is made from files that the mends of these findings changed, after all mends. It may be nil.
	Finish func(context.Context, repair.Editor, []diagnose.Finding) error
}

// RestoreFile is a file that an undo puts back, where it still is what the repair made of it.
type RestoreFile struct {
	Root, Path    string
	Before, After *repair.FileState
	Content       []byte
	// LeftOut is why the file cannot be put back; empty where it can.
	LeftOut string
}

// task is a finding of a system with its repair.
type task struct {
	root    string
	finding diagnose.Finding
	mend    repair.Mend
}

// planner makes one plan.
type planner struct {
	Request
	session *examine.OverlaySession
	sandbox *sandbox
	plan    *repair.Plan
	// done are the findings whose mends changed something, by root and id.
	done    map[[2]string]bool
	editors []*systemEditor
}

// make makes the plan, and returns the chunks that it changes.
func (p *planner) make(ctx context.Context) ([]changedChunk, []examine.CoveredDisk, error) {
	before, err := p.session.Examine(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.plan = &repair.Plan{
		Version: repair.PlanVersion, Before: *before, After: *before, Mended: []string{}, NotMended: []repair.NotMended{}, Consents: []diagnose.Consent{},
		Files: []repair.FileChange{}, Blocks: []repair.BlockChange{}, Settings: []repair.Setting{}, Disks: []repair.DiskChange{}, Commands: []repair.CommandRun{}, HostKeys: []string{},
	}
	p.done = map[[2]string]bool{}
	tasks := p.tasks(before)
	roots := p.roots(tasks)
	if len(roots) == 0 {
		p.plan.Seal()
		return nil, nil, nil
	}
	if err := p.mendAll(ctx, roots, tasks); err != nil {
		return nil, nil, err
	}
	if err := p.session.Unmount(ctx); err != nil {
		return nil, nil, fmt.Errorf("unmount the repaired systems: %w", err)
	}
	changes := p.changesAnything()
	if changes {
		after, err := p.session.Examine(ctx, p.hostKeyRules()...)
		if err != nil {
			return nil, nil, fmt.Errorf("examine the repaired overlays: %w", err)
		}
		p.plan.After = *after
	}
	if err := p.judge(); err != nil {
		return nil, nil, err
	}
	if !changes {
		p.plan.Seal()
		return nil, nil, nil
	}
	return p.collect(ctx)
}

// changesAnything says whether the plan has any effect.
func (p *planner) changesAnything() bool {
	return len(p.plan.Files)+len(p.plan.Blocks)+len(p.plan.Settings) > 0
}

// tasks lists what is to be mended, in the order of the table.
func (p *planner) tasks(before *diagnose.Examination) []task {
	if len(p.Restore) > 0 {
		return nil
	}
	var out []task
	known := map[string]bool{}
	for _, m := range p.Mends {
		for _, s := range before.Systems {
			for _, f := range s.Findings {
				if f.ID != m.Finding || len(p.Findings) > 0 && !slices.Contains(p.Findings, f.ID) {
					continue
				}
				known[f.ID] = true
				switch {
				case slices.Contains(p.Consents, m.Consent) && m.Consent != diagnose.ConsentData:
					out = append(out, task{s.Root, f, m})
				case len(p.Findings) > 0:
					p.addNotMended(f.ID, fmt.Sprintf("its repair needs the consent %s", m.Consent))
				}
			}
		}
	}
	for _, id := range p.Findings {
		if known[id] {
			continue
		}
		why := "salvor has no repair for it"
		if !hasFinding(before, id) {
			why = "this machine has no such finding"
		}
		p.addNotMended(id, why)
	}
	return out
}

func hasFinding(x *diagnose.Examination, id string) bool {
	return slices.ContainsFunc(x.Systems, func(s diagnose.ExaminedSystem) bool {
		return slices.ContainsFunc(s.Findings, func(f diagnose.Finding) bool { return f.ID == id })
	})
}

// addNotMended notes that a finding is not mended, once for each reason.
func (p *planner) addNotMended(id, why string) {
	n := repair.NotMended{Finding: diagnose.Excerpt(id), Why: diagnose.Sentence(why)}
	if !slices.Contains(p.plan.NotMended, n) {
		p.plan.NotMended = append(p.plan.NotMended, n)
	}
}

// roots lists the roots that are changed.
func (p *planner) roots(tasks []task) []string {
	var out []string
	add := func(root string) {
		if !slices.Contains(out, root) {
			out = append(out, root)
		}
	}
	for _, t := range tasks {
		add(t.root)
	}
	for _, f := range p.Restore {
		add(f.Root)
	}
	return out
}

// mendAll mounts the systems on the overlays, mends them and notes what has changed.
func (p *planner) mendAll(ctx context.Context, roots []string, tasks []task) (err error) {
	defer func() {
		for _, e := range p.editors {
			err = errors.Join(err, e.close())
		}
	}()
	mounted, err := p.session.Mount(ctx, roots)
	if err != nil {
		return fmt.Errorf("mount the systems on overlays: %w", err)
	}
	editors := map[string]*systemEditor{}
	for _, m := range mounted {
		e, err := newEditor(ctx, m, p.sandbox)
		if err != nil {
			return err
		}
		p.editors = append(p.editors, e)
		editors[m.Root] = e
	}
	tasks = p.allowedTasks(tasks, editors)
	for _, t := range tasks {
		if err := p.mend(ctx, editors[t.root], t); err != nil {
			return err
		}
	}
	if err := p.finishAll(ctx, editors, tasks); err != nil {
		return err
	}
	if err := p.restoreAll(editors); err != nil {
		return err
	}
	for _, e := range p.editors {
		if err := e.finish(p.plan); err != nil {
			return err
		}
		p.addHostKeys(hostKeys(e.System().Files))
	}
	slices.SortFunc(p.plan.Files, func(a, b repair.FileChange) int {
		return strings.Compare(a.Root+"\x00"+a.Path, b.Root+"\x00"+b.Path)
	})
	return nil
}

// findingsOf are the findings of the system on a root before the repair.
func (p *planner) findingsOf(root string) []diagnose.Finding {
	var out []diagnose.Finding
	for _, s := range p.plan.Before.Systems {
		if s.Root == root {
			out = append(out, s.Findings...)
		}
	}
	return out
}

// allowedTasks leaves out what the state of a system keeps from being repaired, and says why.
func (p *planner) allowedTasks(tasks []task, editors map[string]*systemEditor) []task {
	refused := map[[2]string]string{}
	for root, e := range editors {
		for _, n := range p.Refusals(p.findingsOf(root), e.System()) {
			refused[[2]string{root, n.Finding}] = n.Why
		}
	}
	var out []task
	for _, t := range tasks {
		if why, found := refused[[2]string{t.root, t.finding.ID}]; found {
			p.addNotMended(t.finding.ID, why)
			continue
		}
		out = append(out, t)
	}
	return out
}

// allowedRestores leaves out the files of systems whose state keeps them from being written, and says why.
func (p *planner) allowedRestores(editors map[string]*systemEditor) []RestoreFile {
	var out []RestoreFile
	for _, f := range p.Restore {
		why := f.LeftOut
		if e := editors[f.Root]; e != nil && why == "" {
			why = p.RestoreRefusal(p.findingsOf(f.Root), e.System())
		}
		if why != "" {
			p.addNotMended(f.Path, why)
			continue
		}
		out = append(out, f)
	}
	return out
}

// finishAll has each system make anew what is made from the files that were changed.
func (p *planner) finishAll(ctx context.Context, editors map[string]*systemEditor, tasks []task) error {
	mended := map[string][]diagnose.Finding{}
	for _, t := range tasks {
		if p.done[[2]string{t.root, t.finding.ID}] {
			mended[t.root] = append(mended[t.root], t.finding)
		}
	}
	for root, findings := range mended {
		if p.Finish == nil {
			return nil
		}
		e := editors[root]
		// It makes the initramfs and the menu of the loader, which belong to the boot.
		e.finding, e.consent = "", diagnose.ConsentBoot
		if err := p.Finish(ctx, e, findings); err != nil {
			return fmt.Errorf("make anew what the repair of %s changes: %w", root, err)
		}
		if e.changesBoot() {
			p.addConsent(diagnose.ConsentBoot)
		}
	}
	return nil
}

// mend has one finding repaired.
func (p *planner) mend(ctx context.Context, e *systemEditor, t task) error {
	if e == nil {
		p.addNotMended(t.finding.ID, fmt.Sprintf("the system on %s cannot be mounted writable", t.root))
		return nil
	}
	e.finding, e.consent = t.finding.ID, t.mend.Consent
	defer func() { e.finding = "" }()
	began := time.Now()
	err := e.attempt(ctx, func(ctx context.Context) error { return t.mend.Do(ctx, e, t.finding) })
	p.Log.Info("a finding is repaired on the overlays", "finding", t.finding.ID, "root", t.root, "error", err, "took", time.Since(began).Round(time.Millisecond))
	switch {
	case problem.Is(err, problem.Unsupported):
		p.addNotMended(t.finding.ID, err.Error())
	case err != nil:
		return fmt.Errorf("repair %s on %s: %w", t.finding.ID, t.root, err)
	default:
		p.done[[2]string{t.root, t.finding.ID}] = true
		p.addConsent(t.mend.Consent)
	}
	return nil
}

// restoreAll puts the files of an undo back, in the order in which that works.
func (p *planner) restoreAll(editors map[string]*systemEditor) error {
	files := map[string][]RestoreFile{}
	for _, f := range p.allowedRestores(editors) {
		files[f.Root] = append(files[f.Root], f)
	}
	for root, list := range files {
		var steps []restoreStep
		byPlace := map[string]RestoreFile{}
		for _, f := range list {
			steps = append(steps, restoreStep{f.Path, f.Before})
			byPlace[f.Path] = f
		}
		sortSteps(steps)
		var done []restoreStep
		for _, s := range steps {
			isDone, err := p.restoreFile(editors[root], byPlace[s.place])
			if err != nil {
				return err
			}
			if isDone {
				done = append(done, s)
			}
		}
		if e := editors[root]; e != nil {
			if err := e.restoreFolderTimes(done); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostKeyRules read the host keys of all systems, where no mended one has any: a partition table that is whole again shows systems that were not there.
func (p *planner) hostKeyRules() []diagnose.Rule {
	if len(p.plan.HostKeys) > 0 {
		return nil
	}
	return []diagnose.Rule{{Files: true, Look: func(s *diagnose.System) []diagnose.Finding {
		p.addHostKeys(hostKeys(s.Files))
		return nil
	}}}
}

// addHostKeys adds the host keys of one system to the plan.
func (p *planner) addHostKeys(keys []string) {
	for _, k := range keys {
		if len(p.plan.HostKeys) < maxHostKeys && !slices.Contains(p.plan.HostKeys, k) {
			p.plan.HostKeys = append(p.plan.HostKeys, k)
		}
	}
}

// restoreFile restores a file that still is what the repair made of it.
func (p *planner) restoreFile(e *systemEditor, f RestoreFile) (done bool, err error) {
	if e == nil {
		p.addNotMended(f.Path, fmt.Sprintf("the system on %s cannot be mounted writable", f.Root))
		return false, nil
	}
	e.consent = diagnose.ConsentFiles
	if err := e.restore(f); err != nil {
		p.addNotMended(f.Path, err.Error())
		return false, nil
	}
	p.addConsent(diagnose.ConsentFiles)
	return true, nil
}

// addConsent adds what the owner has to agree to.
func (p *planner) addConsent(c diagnose.Consent) {
	if !slices.Contains(p.plan.Consents, c) {
		p.plan.Consents = append(p.plan.Consents, c)
	}
}

// restore puts one file back as it was before a repair.
func (e *systemEditor) restore(f RestoreFile) error {
	if !strings.HasPrefix(f.Path, "/") || path.Clean(f.Path) != f.Path || f.Path == "/" {
		return problem.Invalidf("%q is no absolute path", f.Path)
	}
	place, err := e.resolve(f.Path, true)
	if err != nil {
		return err
	}
	if place != f.Path {
		return problem.Conflictf("its folder has become a link")
	}
	present, _, err := e.root.state(place, 0)
	if err != nil {
		return err
	}
	switch {
	case sameState(present, f.Before):
		return nil
	case !sameState(present, f.After):
		return problem.Conflictf("it is not what the repair made of it any more")
	}
	return e.putState(place, present, f.Before, f.Content)
}

// finish puts what an editor has changed into the plan.
func (e *systemEditor) finish(plan *repair.Plan) error {
	for place, n := range e.files {
		after, content, err := e.root.state(place, maxKept)
		if err != nil {
			return err
		}
		if sameState(n.Before, after) {
			delete(e.files, place)
			continue
		}
		n.After = after
		n.Diff = maskedDiff(place, n.content, content)
		if isLarge(n.Before, n.content) || isLarge(after, content) {
			n.Diff = ""
		}
		slices.Sort(n.Findings)
		plan.Files = append(plan.Files, n.FileChange)
	}
	plan.Blocks = append(plan.Blocks, e.blocks...)
	plan.Settings = append(plan.Settings, e.settings...)
	plan.Commands = append(plan.Commands, e.commands...)
	return nil
}

// isLarge says whether the content of a file was not kept.
func isLarge(s *repair.FileState, content []byte) bool {
	return s != nil && s.Kind == "file" && content == nil
}

// judge compares the two examinations: what is mended, what is not, and what is new.
func (p *planner) judge() error {
	if err := p.checkLost(); err != nil {
		return err
	}
	former, present := map[[2]string]bool{}, map[[2]string]bool{} // which are above info
	isFormerRoot := map[string]bool{}
	for _, s := range p.plan.Before.Systems {
		isFormerRoot[s.Root] = true
		for _, f := range s.Findings {
			former[[2]string{s.Root, f.ID}] = former[[2]string{s.Root, f.ID}] || f.Severity != diagnose.Info
		}
	}
	for _, s := range p.plan.After.Systems {
		for _, f := range s.Findings {
			key := [2]string{s.Root, f.ID}
			isInfo := f.Severity == diagnose.Info
			// A mount with nofail is worth knowing, and was worse before.
			present[key] = present[key] || !isInfo || !former[key]
			// What is found outside of systems is found in each system that appears.
			outside := [2]string{"", f.ID}
			present[outside] = present[outside] || !isFormerRoot[s.Root] && !isInfo
			// Before the repair of a partition table, nobody saw the findings of the systems behind it.
			if isFormerRoot[s.Root] && !former[key] && !isInfo && len(p.Restore) == 0 {
				return problem.Conflictf("the repair is not offered: after it the system on %s has a new finding, %s: %s", s.Root, f.ID, f.Title)
			}
		}
	}
	for key := range p.done {
		switch {
		case present[key] && !p.hasSetting(key[1]):
			p.addNotMended(key[1], "it is still found after the repair")
		case !slices.Contains(p.plan.Mended, key[1]):
			p.plan.Mended = append(p.plan.Mended, key[1])
		}
	}
	// An id that is left on one of several systems is not mended.
	p.plan.Mended = slices.DeleteFunc(p.plan.Mended, func(id string) bool {
		return slices.ContainsFunc(p.plan.NotMended, func(n repair.NotMended) bool { return n.Finding == id })
	})
	slices.SortFunc(p.plan.NotMended, func(a, b repair.NotMended) int {
		return strings.Compare(a.Finding+"\x00"+a.Why, b.Finding+"\x00"+b.Why)
	})
	order := []diagnose.Consent{diagnose.ConsentSettings, diagnose.ConsentFiles, diagnose.ConsentBoot}
	slices.SortFunc(p.plan.Consents, func(a, b diagnose.Consent) int { return slices.Index(order, a) - slices.Index(order, b) })
	return nil
}

// checkLost refuses a repair after which less of the machine can be examined: a system is gone, or a part is not examined that was.
func (p *planner) checkLost() error {
	for _, s := range p.plan.Before.Systems {
		if s.Root != "" && !slices.ContainsFunc(p.plan.After.Systems, func(a diagnose.ExaminedSystem) bool { return a.Root == s.Root }) {
			return problem.Conflictf("the repair is not offered: after it the system on %s is not found any more", s.Root)
		}
	}
	if len(p.Restore) > 0 { // its owner wants the former state back
		return nil
	}
	former := map[string]int{}
	for _, g := range p.plan.Before.NotExamined {
		former[g.What]++
	}
	for _, g := range p.plan.After.NotExamined {
		// Reasons name nodes of overlays, which differ from one examination to the next; the part that they are about does not.
		if former[g.What]--; former[g.What] < 0 && !p.isBehindBlocks(g.What) {
			return problem.Conflictf("the repair is not offered: after it %s is not examined: %s", g.What, g.Why)
		}
	}
	return nil
}

// isBehindBlocks says whether a device lies on one whose blocks the repair writes, such as a partition that shows up with the table.
func (p *planner) isBehindBlocks(name string) bool {
	return slices.ContainsFunc(p.plan.Blocks, func(b repair.BlockChange) bool {
		return strings.HasPrefix(name, b.Device) && name != b.Device
	})
}

// hasSetting says whether a finding is repaired by a setting, which no overlay shows.
func (p *planner) hasSetting(id string) bool {
	for _, m := range p.Mends {
		if m.Finding == id && m.Consent == diagnose.ConsentSettings {
			return len(p.plan.Settings) > 0
		}
	}
	return false
}

// collect lists the changed chunks and completes the plan.
func (p *planner) collect(ctx context.Context) ([]changedChunk, []examine.CoveredDisk, error) {
	covered, err := p.session.Changes(ctx)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(covered, func(a, b examine.CoveredDisk) int {
		return strings.Compare(a.Serial+"\x00"+a.WWN+"\x00"+a.Path, b.Serial+"\x00"+b.WWN+"\x00"+b.Path)
	})
	var all []changedChunk
	var disks []examine.CoveredDisk
	ranges := accountedRanges(p.editors, p.plan.Blocks)
	for _, d := range covered {
		chunks, err := compareDisk(ctx, len(disks), d, p.MaxChanged/repair.ChunkSize-int64(len(all)))
		if err != nil {
			return nil, nil, err
		}
		if len(chunks) == 0 {
			continue
		}
		if err := checkAccounted(d, chunks, ranges); err != nil {
			return nil, nil, err
		}
		all = append(all, chunks...)
		disks = append(disks, d)
		p.plan.Disks = append(p.plan.Disks, repair.DiskChange{Path: d.Path, Serial: d.Serial, WWN: d.WWN, Size: d.Size, Chunks: int64(len(chunks))})
	}
	p.plan.Seal()
	return all, disks, nil
}
