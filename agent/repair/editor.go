package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/agent/examine"
	"salvor/agent/sandbox"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

const (
	// maxContent bounds what a mend writes to one file, maxChanges how many files and ranges of blocks one repair changes.
	maxContent = 64 << 20
	maxChanges = 4096
	// maxContents bounds the former contents of all files of a system that are kept, in bytes.
	maxContents = 64 << 20
	// temporaryName begins the names of files that are about to be renamed into their places.
	temporaryName = ".salvor-repair-"
)

// recordedFile is a file that a repair touches.
type recordedFile struct {
	repair.FileChange
	content []byte // before; nil for what is no file, or a large one
}

// systemEditor changes a mounted system and notes what was there before. It implements repair.Editor.
type systemEditor struct {
	mounted *examine.MountedSystem
	root    *filesRoot // nil without a root
	// node is the node of a device that no file system is mounted on, nodes are those of all devices.
	node  func(device string) (string, error)
	nodes map[string]string
	// run runs a program of the system.
	run      func(ctx context.Context, p repair.Program, scope *programScope) (output string, exit int, err error)
	files    map[string]*recordedFile
	blocks   []repair.BlockChange
	settings []repair.Setting
	commands []repair.CommandRun
	// finding and consent are those of the mend that works now.
	finding   string
	consent   diagnose.Consent
	temporary int
	room      int64        // bytes of contents that may still be kept
	log       *rollbackLog // of the mend that works now; nil without one
}

// newEditor opens the root of a mounted system. It reads no more files once ctx ends.
func newEditor(ctx context.Context, m *examine.MountedSystem, run *sandbox.Runner) (*systemEditor, error) {
	e := &systemEditor{mounted: m, node: m.Node, nodes: m.Nodes(), files: map[string]*recordedFile{}, room: maxContents}
	if m.Place == "" {
		return e, nil
	}
	root, err := openRoot(m.Place)
	if err != nil {
		return nil, err
	}
	root.stopped = ctx.Err
	e.root = root
	e.run = func(ctx context.Context, p repair.Program, scope *programScope) (string, int, error) {
		return run.Run(ctx, sandbox.Order{
			Place: m.Place, Command: p.Command, Environment: p.Environment, Limit: p.Limit, Nodes: scope.nodes, Writable: scope.places, WritableNodes: scope.writableNodes,
		})
	}
	return e, nil
}

func (e *systemEditor) close() error {
	if e.root == nil {
		return nil
	}
	return e.root.Close()
}

// System implements repair.Editor.
func (e *systemEditor) System() *diagnose.System { return e.mounted.System }

// resolve follows the links of a path and notes what lies there. With itself a link at the end of the path is not followed.
func (e *systemEditor) resolve(name string, itself bool) (string, error) {
	if e.root == nil || e.mounted.Files == nil {
		return "", problem.Unsupportedf("%s: no root of a system is mounted", name)
	}
	if !strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", problem.Invalidf("%q is no absolute path", name)
	}
	place := path.Clean(name)
	var err error
	if itself {
		var folder string
		folder, err = e.mounted.Files.Resolve(path.Dir(place))
		place = path.Join(folder, path.Base(place))
	} else if place, err = e.mounted.Files.Resolve(place); errors.Is(err, fs.ErrNotExist) {
		err = nil // the last element may be made; a missing folder shows when it is opened
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if place == "/" {
		return "", problem.Unsupportedf("%s: the root of a system is not changed", name)
	}
	return place, e.note(place)
}

// note keeps what lies at a place before its first change.
func (e *systemEditor) note(place string) error {
	isLogged := e.log == nil
	if e.log != nil {
		_, isLogged = e.log.files[place]
	}
	if e.files[place] != nil && isLogged {
		e.noteAgain(place)
		return nil
	}
	before, content, err := e.root.state(place, e.room)
	if err != nil {
		return err
	}
	return e.noteAs(place, "", before, content)
}

// noteAgain adds the mend that works now to what is noted of a place. A file that one mend changes for boot needs the consent to that.
func (e *systemEditor) noteAgain(place string) {
	n := e.files[place]
	if e.finding != "" && !slices.Contains(n.Findings, e.finding) {
		n.Findings = append(n.Findings, e.finding)
	}
	if e.consent == diagnose.ConsentBoot {
		n.Consent = e.consent
	}
}

// noteAs notes a place that the mend changes for the first time, and what lay there before.
func (e *systemEditor) noteAs(place, madeBy string, before *repair.FileState, content []byte) error {
	e.room -= int64(len(content))
	e.logFile(place, before, content)
	if n := e.files[place]; n != nil {
		e.noteAgain(place)
		if madeBy != "" {
			n.MadeBy = madeBy
		}
		return nil
	}
	if len(e.files) >= maxChanges {
		return problem.Unsupportedf("the repair changes more than %d files", maxChanges)
	}
	n := &recordedFile{FileChange: repair.FileChange{Root: e.mounted.Root, Path: place, Consent: e.consent, Findings: []string{}, Before: before, MadeBy: madeBy}, content: content}
	if e.finding != "" {
		n.Findings = append(n.Findings, e.finding)
	}
	e.files[place] = n
	return nil
}

// changesBoot says whether anything that is noted needs the consent to changes of the boot.
func (e *systemEditor) changesBoot() bool {
	for _, n := range e.files {
		if n.Consent == diagnose.ConsentBoot {
			return true
		}
	}
	return len(e.blocks) > 0
}

// Chmod implements repair.Editor.
func (e *systemEditor) Chmod(name string, mode fs.FileMode) error {
	return e.change(name, func(s *repair.FileState) {
		s.Mode = uint32(mode.Perm())
		for bit, flag := range map[fs.FileMode]uint32{fs.ModeSetuid: unix.S_ISUID, fs.ModeSetgid: unix.S_ISGID, fs.ModeSticky: unix.S_ISVTX} {
			if mode&bit != 0 {
				s.Mode |= flag
			}
		}
	})
}

// Chown implements repair.Editor.
func (e *systemEditor) Chown(name string, uid, gid uint32) error {
	return e.change(name, func(s *repair.FileState) { s.UID, s.GID = uid, gid })
}

// change gives what a path leads to another owner or mode.
func (e *systemEditor) change(name string, change func(*repair.FileState)) error {
	place, err := e.resolve(name, false)
	if err != nil {
		return err
	}
	wanted, err := e.present("change", name, place)
	if err != nil {
		return err
	}
	change(wanted)
	if err := e.applyMetadata(place, wanted); err != nil {
		return fmt.Errorf("change %s: %w", name, err)
	}
	return nil
}

// WriteBlocks implements repair.Editor.
func (e *systemEditor) WriteBlocks(device string, offset int64, content []byte) error {
	if len(content) == 0 || len(content) > maxContent || offset < 0 {
		return problem.Invalidf("%s: %d bytes at %d are not written", device, len(content), offset)
	}
	if len(e.blocks) >= maxChanges {
		return problem.Unsupportedf("the repair changes more than %d ranges of blocks", maxChanges)
	}
	node, err := e.node(device)
	if err != nil {
		return err
	}
	if err := e.checkRange(device, offset, int64(len(content))); err != nil {
		return err
	}
	f, err := os.OpenFile(node, os.O_RDWR|unix.O_SYNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	before := make([]byte, len(content))
	if _, err := f.ReadAt(before, offset); err != nil {
		return fmt.Errorf("%s: read %d bytes at %d: %w", device, len(before), offset, err)
	}
	if e.log != nil {
		e.log.blocks = append(e.log.blocks, rollbackBlocks{node, offset, before})
	}
	if _, err := f.WriteAt(content, offset); err != nil {
		return fmt.Errorf("%s: write %d bytes at %d: %w", device, len(content), offset, err)
	}
	c := repair.BlockChange{Device: device, Offset: offset, Length: int64(len(content)), Before: hashText(before), After: hashText(content), Findings: []string{}}
	if e.finding != "" {
		c.Findings = append(c.Findings, e.finding)
	}
	e.blocks = append(e.blocks, c)
	return f.Close()
}

// checkRange refuses a range of a device in which a file system is mounted.
func (e *systemEditor) checkRange(device string, offset, length int64) error {
	for _, d := range e.mounted.Devices {
		if !slices.Contains(d.Parents, device) || d.Kind == diagnose.PartitionDevice && (offset+length <= d.PartStart || offset >= d.PartStart+d.Size) {
			continue
		}
		if e.holdsMounted(d.Path, 0) {
			return problem.Conflictf("%s: %d bytes at %d lie in %s, on which a file system is mounted", device, length, offset, d.Path)
		}
	}
	return nil
}

// holdsMounted says whether a file system is mounted on a device or on what lies on it.
func (e *systemEditor) holdsMounted(device string, depth int) bool {
	if _, err := e.node(device); problem.Is(err, problem.Conflict) || depth > maxDepth {
		return true
	}
	return slices.ContainsFunc(e.mounted.Devices, func(d diagnose.Device) bool {
		return slices.Contains(d.Parents, device) && e.holdsMounted(d.Path, depth+1)
	})
}

// Setting implements repair.Editor.
func (e *systemEditor) Setting(s repair.Setting) error {
	switch s.Kind {
	case repair.BootOrder, repair.BootEntry, repair.Clock, repair.BootDevice:
	default:
		return problem.Invalidf("%q is no kind of setting", s.Kind)
	}
	if !slices.Contains(e.settings, s) {
		e.settings = append(e.settings, s)
	}
	return nil
}
