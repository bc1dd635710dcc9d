package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/examine"
	"salvor/agent/sandbox"
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
	// Root is the device of the system to mend; empty where only one has something to mend.
	Root     string
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
	sandbox *sandbox.Runner
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
	if err := p.checkRoot(before); err != nil {
		return nil, nil, err
	}
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
		after, err := p.session.Examine(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("examine the repaired overlays: %w", err)
		}
		p.plan.After = *after
		if len(p.plan.HostKeys) == 0 { // a partition table that is whole again shows systems that were not there
			for _, s := range after.Systems {
				p.addHostKeys(s.HostKeys)
			}
		}
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
			if !p.mayMend(s.Root) {
				continue
			}
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
		why, others := "salvor has no repair for it", rootsWith(before, id)
		switch {
		case slices.ContainsFunc(others, p.mayMend):
		case len(others) > 0:
			why = fmt.Sprintf("the system on %s has no such finding; the system on %s has it", p.Root, strings.Join(others, " and "))
		default:
			why = "this machine has no such finding"
			if len(before.Disks) == 0 {
				why += "; none of its disks was found"
			}
			for _, gap := range before.NotExamined[:min(len(before.NotExamined), 3)] { // it may be there, where nobody could look
				why += "; not examined: " + gap.What + ": " + gap.Why
			}
		}
		p.addNotMended(id, why)
	}
	return p.ofOneRoot(out)
}

// ofOneRoot leaves out all tasks if they concern several systems and the request chose none, because one of the systems may be a copy or a backup.
func (p *planner) ofOneRoot(tasks []task) []task {
	var roots []string
	for _, t := range tasks {
		if t.root != "" && !slices.Contains(roots, t.root) {
			roots = append(roots, t.root)
		}
	}
	if len(roots) < 2 {
		return tasks
	}
	slices.Sort(roots)
	for _, t := range tasks {
		p.addNotMended(t.finding.ID, fmt.Sprintf("the systems on %s have something to mend; choose the one to repair: --root %s", strings.Join(roots, " and "), roots[0]))
	}
	return nil
}

// rootsWith lists the roots of the systems that have a finding; the root is empty for what lies outside of systems.
func rootsWith(x *diagnose.Examination, id string) []string {
	var out []string
	for _, s := range x.Systems {
		if !slices.Contains(out, s.Root) && slices.ContainsFunc(s.Findings, func(f diagnose.Finding) bool { return f.ID == id }) {
			out = append(out, s.Root)
		}
	}
	return out
}

// mayMend says whether the request allows to mend the system on a root. What lies outside of systems belongs to the machine, whichever root was chosen.
func (p *planner) mayMend(root string) bool { return p.Root == "" || root == p.Root || root == "" }

// checkRoot refuses a chosen root that no system has: without a word, the plan would mend nothing.
func (p *planner) checkRoot(before *diagnose.Examination) error {
	var roots []string
	for _, s := range before.Systems {
		if s.Root != "" && !slices.Contains(roots, s.Root) {
			roots = append(roots, s.Root)
		}
	}
	if p.Root == "" || len(p.Restore) > 0 || slices.Contains(roots, p.Root) {
		return nil
	}
	slices.Sort(roots)
	if len(roots) == 0 {
		return problem.Conflictf("the repair is not offered: no installed system was found, and so none on %s; ask again without --root for what lies outside of systems", p.Root)
	}
	return problem.Conflictf("the repair is not offered: no installed system has its root on %s; the systems are on %s; choose one of them: --root %s", p.Root, strings.Join(roots, " and "), roots[0])
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
		p.addHostKeys(diagnose.HostKeys(e.System().Files))
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

// mend has one finding repaired.
func (p *planner) mend(ctx context.Context, e *systemEditor, t task) error {
	if e == nil {
		p.addNotMended(t.finding.ID, fmt.Sprintf("the system on %s cannot be mounted writable", t.root))
		return nil
	}
	e.finding, e.consent = t.finding.ID, t.mend.Consent
	defer func() { e.finding = "" }()
	began := time.Now()
	err := e.attempt(ctx, func(ctx context.Context) error { return refusedByFlag(t.mend.Do(ctx, e, t.finding)) })
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

// refusedByFlag turns EPERM into the reason why one finding is not mended, so that other findings are mended all the same. The kernel answers root EPERM
// where a file, or its folder, has the flag immutable or append-only.
func refusedByFlag(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	return problem.Unsupportedf("%v: the file, or its folder, has the flag immutable or append-only, which lsattr shows; take the flag off with chattr -ia, and repair again", err)
}

// addConsent adds what the owner has to agree to.
func (p *planner) addConsent(c diagnose.Consent) {
	if !slices.Contains(p.plan.Consents, c) {
		p.plan.Consents = append(p.plan.Consents, c)
	}
}
