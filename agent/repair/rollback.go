package repair

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/problem"
	"salvor/repair"
)

// rollbackLog holds what one mend has changed so far, so that a mend that gives up leaves nothing.
type rollbackLog struct {
	files  map[string]rollbackFile // by place
	blocks []rollbackBlocks
	// settings is how many settings there were before, blockCount how many ranges of blocks.
	settings, blockCount int
	// lasting is what cannot be put back; empty where everything can.
	lasting string
}

// rollbackFile is what lay at a place before the mend, and what the plan had noted of it: nil without a note.
type rollbackFile struct {
	state    *repair.FileState
	content  []byte
	recorded *recordedFile
}

// rollbackBlocks is a range of a device before the mend.
type rollbackBlocks struct {
	node    string
	offset  int64
	content []byte
}

// begin opens the log of a mend.
func (e *systemEditor) begin() {
	e.log = &rollbackLog{files: map[string]rollbackFile{}, settings: len(e.settings), blockCount: len(e.blocks)}
}

// logFile notes what lies at a place before the mend changes it for the first time.
func (e *systemEditor) logFile(place string, state *repair.FileState, content []byte) {
	if e.log == nil {
		return
	}
	if _, found := e.log.files[place]; found {
		return
	}
	f := rollbackFile{state: state, content: content}
	if n := e.files[place]; n != nil {
		c := *n
		c.Findings = slices.Clone(n.Findings)
		f.recorded = &c
	}
	e.log.files[place] = f
}

// rollBack puts back all that the mend changed since begin, and takes it out of the plan.
func (e *systemEditor) rollBack() error {
	log := e.log
	e.log = nil
	if log == nil {
		return nil
	}
	if log.lasting != "" {
		return problem.Conflictf("%s", log.lasting)
	}
	e.settings = e.settings[:log.settings]
	for _, b := range slices.Backward(log.blocks) {
		if err := writeRange(b.node, b.offset, b.content); err != nil {
			return err
		}
	}
	e.blocks = e.blocks[:log.blockCount]
	var steps []restoreStep
	for place, f := range log.files {
		steps = append(steps, restoreStep{place: place, before: f.state})
	}
	sortSteps(steps)
	for _, s := range steps {
		present, _, err := e.root.state(s.place, 0)
		if err != nil {
			return err
		}
		if sameState(present, s.before) {
			continue
		}
		if err := e.putState(s.place, present, s.before, log.files[s.place].content); err != nil {
			return fmt.Errorf("put %s back: %w", s.place, err)
		}
	}
	if err := e.restoreFolderTimes(steps); err != nil {
		return err
	}
	for place, f := range log.files {
		if f.recorded == nil {
			delete(e.files, place)
		} else {
			e.files[place] = f.recorded
		}
	}
	return nil
}

// writeRange writes to a block device past the cache.
func writeRange(node string, offset int64, content []byte) error {
	f, err := os.OpenFile(node, os.O_RDWR|unix.O_SYNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, offset)
	return errors.Join(err, f.Close())
}

// restoreStep is a place that is put back; before is what it shall be, nil: nothing.
type restoreStep struct {
	place  string
	before *repair.FileState
}

// sortSteps brings steps into the order in which they work: what did not exist goes first, the content of a folder before the folder. Then comes the
// rest, a folder before its content.
func sortSteps(steps []restoreStep) {
	slices.SortFunc(steps, func(a, b restoreStep) int {
		switch {
		case a.before == nil && b.before == nil:
			return strings.Compare(b.place, a.place)
		case a.before == nil:
			return -1
		case b.before == nil:
			return 1
		}
		return strings.Compare(a.place, b.place)
	})
}

// restoreFolderTimes sets the times of folders that were put back, which the changes of their content have moved: the content of a folder first.
func (e *systemEditor) restoreFolderTimes(steps []restoreStep) error {
	for _, s := range slices.Backward(steps) {
		if s.before == nil || s.before.Kind != "folder" {
			continue
		}
		if err := e.setTime(s.place, s.before); err != nil {
			return err
		}
	}
	return nil
}

// setTime gives what lies at a place the time of a state.
func (e *systemEditor) setTime(place string, wanted *repair.FileState) error {
	name, closer, err := e.root.linkPath(place)
	if err != nil {
		return err
	}
	defer closer()
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(wanted.ModTime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set the time of %s: %w", place, err)
	}
	return nil
}

// putState makes what lies at a place as a state describes it, its time included. present is what lies there; content is that of a file.
func (e *systemEditor) putState(place string, present, wanted *repair.FileState, content []byte) error {
	var err error
	switch {
	case wanted == nil:
		return e.remove(place)
	case wanted.Kind == "file" && hashText(content) != wanted.SHA256:
		if present == nil || present.SHA256 != wanted.SHA256 {
			return problem.Unsupportedf("its former content was not kept")
		}
		err = e.applyMetadata(place, wanted) // only its owner or mode changed
	case wanted.Kind == "file":
		err = e.put(place, wanted, content)
	case wanted.Kind == "link":
		err = e.putLink(place, wanted.Target, wanted)
	case present == nil:
		err = e.makeFolder(place, wanted)
	case present.Kind != wanted.Kind:
		return problem.Conflictf("it is a %s and was a %s", present.Kind, wanted.Kind)
	default:
		err = e.applyMetadata(place, wanted)
	}
	if err != nil {
		return err
	}
	return e.setTime(place, wanted)
}

// attempt runs a mend. One that gives up with problem.Unsupported leaves nothing of what it changed.
func (e *systemEditor) attempt(ctx context.Context, do func(context.Context) error) error {
	e.begin()
	err := do(ctx)
	if problem.Is(err, problem.Unsupported) {
		if back := e.rollBack(); back != nil {
			return fmt.Errorf("it gave up (%s), and its changes cannot be put back: %s", err.Error(), back.Error())
		}
	}
	e.log = nil
	return err
}
