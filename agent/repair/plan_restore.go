package repair

import (
	"fmt"
	"path"
	"strings"

	"salvor/diagnose"
	"salvor/problem"
)

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
