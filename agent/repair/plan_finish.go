package repair

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

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
			if flag := refusedByFlag(err); flag != err {
				return problem.Conflictf("the repair is not offered, and nothing was written: what the boot needs cannot be made anew after the repair of %s on %s: %v", idsOf(findings), root, flag)
			}
			return fmt.Errorf("make anew what the repair of %s changes: %w", root, err)
		}
		if e.changesBoot() {
			p.addConsent(diagnose.ConsentBoot)
		}
	}
	return nil
}

// idsOf names findings, each id once.
func idsOf(findings []diagnose.Finding) string {
	var ids []string
	for _, f := range findings {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	return strings.Join(ids, ", ")
}

// addHostKeys adds the host keys of one system to the plan.
func (p *planner) addHostKeys(keys []string) {
	for _, k := range keys {
		if len(p.plan.HostKeys) < diagnose.MaxHostKeys && !slices.Contains(p.plan.HostKeys, k) {
			p.plan.HostKeys = append(p.plan.HostKeys, k)
		}
	}
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
		n.Diff = MaskedDiff(place, n.content, content)
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

// judge compares the two examinations, and sorts their findings into mended, unmended and new ones.
func (p *planner) judge() error {
	p.keepNames()
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

// keepNames lets the systems after the repair have the names that they had before, where a repaired crypttab gives the container of a root another one.
func (p *planner) keepNames() {
	for i := range p.plan.After.Systems {
		after := &p.plan.After.Systems[i]
		for _, before := range p.plan.Before.Systems {
			if after.RootDevice != "" && after.RootDevice == before.RootDevice {
				after.Root = before.Root
			}
		}
	}
}

// checkLost refuses a repair after which less of the machine can be examined: a system is gone, or a part is not examined that was.
func (p *planner) checkLost() error {
	tookLonger := func(g diagnose.Gap) bool {
		return g.Why == examine.OutOfTime || strings.Contains(g.Why, context.DeadlineExceeded.Error()) || g.IsOverrun()
	}
	if i := slices.IndexFunc(p.plan.After.NotExamined, tookLonger); i >= 0 && !slices.ContainsFunc(p.plan.Before.NotExamined, tookLonger) {
		g := p.plan.After.NotExamined[i]
		return problem.Conflictf("the repair is not offered, and nothing was written: the second look, at the repaired overlays, was too slow (%s: %s), so nobody knows whether all is found again; ask again when the machine is less busy", g.What, g.Why)
	}
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
	return p.collectFrom(ctx, covered)
}

// collectFrom lists the chunks that differ on disks and their overlays, and completes the plan. problem.Conflict: the plan does not show a chunk.
func (p *planner) collectFrom(ctx context.Context, covered []examine.CoveredDisk) ([]changedChunk, []examine.CoveredDisk, error) {
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
