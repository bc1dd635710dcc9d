package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

const (
	// maxWalked bounds the files below the folders that a program may change, maxWalkedBytes their contents with all holes, and maxWalkedKept the
	// contents that are kept in memory for the time of the program.
	maxWalked      = 20_000
	maxWalkedBytes = 2 << 30
	maxWalkedKept  = 32 << 20
)

// Run implements repair.Editor.
func (e *systemEditor) Run(ctx context.Context, p repair.Program) (string, error) {
	if e.root == nil {
		return "", problem.Unsupportedf("%q: no root of a system is mounted", p.Command)
	}
	scope, err := e.scopeOf(p)
	if err != nil {
		return "", err
	}
	before, err := e.walk(scope.places, min(e.room, maxWalkedKept))
	if err != nil {
		return "", err
	}
	output, exit, err := e.run(ctx, p, scope)
	run := repair.CommandRun{Command: p.Command, Exit: exit, Output: output}
	e.commands = append(e.commands, run)
	// What a program that failed has changed is noted too.
	madeBy := strings.Join(p.Command, " ")
	if noteErr := errors.Join(e.noteWalked(scope.places, madeBy, before), e.noteRanges(scope.ranges, madeBy)); noteErr != nil {
		if e.log != nil {
			e.log.lasting = "what the program " + madeBy + " changed is not known"
		}
		return output, errors.Join(err, noteErr)
	}
	if err == nil && exit != 0 {
		err = fmt.Errorf("%s: exit status %d: %s", p.Command[0], exit, diagnose.Sentence(lastLine(output)))
	}
	return output, err
}

// programScope is what a program may write, and the nodes of the devices that it is shown.
type programScope struct {
	places        []string
	ranges        []blockRange
	nodes         map[string]string // by the names that the machine gives the devices, and by their UUIDs
	writableNodes []string
}

// scopeOf finds what the changes and devices of a program lead to.
func (e *systemEditor) scopeOf(p repair.Program) (*programScope, error) {
	scope := &programScope{nodes: map[string]string{}}
	devices := slices.Clone(p.Devices)
	for _, name := range p.Changes {
		if strings.HasPrefix(name, "/dev/") {
			found, err := e.bootRanges(name)
			if err != nil {
				return nil, err
			}
			scope.ranges = append(scope.ranges, found...)
			scope.writableNodes = append(scope.writableNodes, e.nodes[name])
			devices = append(devices, name)
			continue
		}
		place, err := e.mounted.Files.Resolve(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case place == "/":
			return nil, problem.Invalidf("a program may not change the whole system")
		default:
			scope.places = append(scope.places, place)
		}
	}
	for _, name := range devices {
		node := e.nodes[name]
		if node == "" {
			return nil, problem.NotFoundf("%s is no device of this machine that has an overlay", name)
		}
		scope.nodes[name] = node
		e.addLinks(scope.nodes, name, node)
	}
	return scope, nil
}

// addLinks names a device by its UUIDs too, as udev does: grub-mkconfig takes a root for one with a UUID only where such a link is.
func (e *systemEditor) addLinks(nodes map[string]string, device, node string) {
	for _, d := range e.mounted.Devices {
		if d.Path != device {
			continue
		}
		for folder, id := range map[string]string{"/dev/disk/by-uuid/": d.UUID, "/dev/disk/by-partuuid/": d.PartUUID} {
			if plainID.MatchString(id) {
				nodes[folder+id] = node
			}
		}
	}
}

// plainID is a UUID of any kind; a disk may hold anything else.
var plainID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// walkedFile is a file below a folder that a program may change.
type walkedFile struct {
	state   *repair.FileState
	content []byte
}

// walk describes all that lies at and below places of the system, whose links are not followed. It keeps contents of at most room bytes.
func (e *systemEditor) walk(places []string, room int64) (map[string]walkedFile, error) {
	found := map[string]walkedFile{}
	var size int64
	var visit func(place string) error
	visit = func(place string) error {
		if _, ok := found[place]; ok {
			return nil
		}
		if len(found) >= maxWalked {
			return problem.Unsupportedf("a program may change more than %d files", maxWalked)
		}
		state, err := e.root.metadata(place)
		if errors.Is(err, errSpecialFile) {
			return nil
		}
		if err != nil || state == nil {
			return err
		}
		if size += state.Size; size > maxWalkedBytes {
			return problem.Unsupportedf("a program may change files of more than %d bytes", int64(maxWalkedBytes))
		}
		state, content, err := e.root.state(place, room)
		if err != nil || state == nil {
			return err
		}
		room -= int64(len(content))
		found[place] = walkedFile{state, content}
		if state.Kind != "folder" {
			return nil
		}
		folder, err := e.root.Open(place, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		children, err := folder.Readdirnames(maxWalked + 1)
		_ = folder.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		slices.Sort(children)
		for _, child := range children {
			if err := visit(path.Join(place, child)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, place := range places {
		if err := visit(place); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// noteWalked notes what a program has changed since a walk.
func (e *systemEditor) noteWalked(places []string, madeBy string, before map[string]walkedFile) error {
	after, err := e.walk(places, 0)
	if err != nil {
		return err
	}
	for place, b := range before {
		if !sameState(b.state, after[place].state) {
			if err := e.noteAs(place, madeBy, b.state, b.content); err != nil {
				return err
			}
		}
	}
	for place := range after {
		if _, ok := before[place]; !ok {
			if err := e.noteAs(place, madeBy, nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
