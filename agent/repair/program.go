package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

const (
	// programLimit bounds a program that asks for no other time, longestProgram every one.
	programLimit   = 5 * time.Minute
	longestProgram = 30 * time.Minute
	// maxOutput is how much of the end of an output is kept, in bytes; maxEnvironment bounds the variables of a program.
	maxOutput      = 4 << 10
	maxEnvironment = 64
	// maxWalked bounds the files below the folders that a program may change, maxWalkedBytes their contents with all holes, and maxWalkedKept the
	// contents that are kept in memory for the time of the program.
	maxWalked      = 20_000
	maxWalkedBytes = 2 << 30
	maxWalkedKept  = 32 << 20
	// sourceDate is the time that programs put into what they make, so that it is the same each time: 2020-01-01.
	sourceDate = "1577836800"
)

// SandboxCommand is the command of salvor-agent that runs a program of a system. No person calls it.
const SandboxCommand = "run-in-system"

// sandboxOrder is what the first process in the namespaces is to do. It reads it from its descriptor 3.
type sandboxOrder struct {
	Place       string            `json:"place"`
	Command     []string          `json:"command"`
	Environment []string          `json:"environment"`
	Nodes       map[string]string `json:"nodes"` // device nodes of overlays, by their other names
	// Writable lists the places of the system that are not read-only, WritableNodes the device nodes that may be written where the kernel has Landlock.
	Writable      []string `json:"writable"`
	WritableNodes []string `json:"writable_nodes"`
	Memory        int64    `json:"memory"`
	Files         int64    `json:"files"` // bytes of /tmp and of /run
}

// sandbox runs programs of systems.
type sandbox struct {
	log *slog.Logger
	// memory is what one process of a program may write, in bytes, and what may lie in its /tmp. Where there are control groups, all
	// processes and files together have at most 1.5 times as much.
	memory int64
	// groups is where control groups are mounted; empty without any.
	groups string
}

// run runs a program in namespaces of its own: its root is the mounted root of the order, which can be written at the named places only. It has no
// network, and it knows no device but those of the order. It ends with all that it started.
func (s *sandbox) run(ctx context.Context, order sandboxOrder, p repair.Program) (output string, exit int, err error) {
	if len(p.Command) == 0 || !strings.HasPrefix(p.Command[0], "/") {
		return "", 0, problem.Invalidf("%q does not begin with the absolute path of a program", p.Command)
	}
	if len(p.Environment) > maxEnvironment || p.Limit < 0 || p.Limit > longestProgram {
		return "", 0, problem.Invalidf("%s: %d variables and a limit of %s are more than a program is given", p.Command[0], len(p.Environment), p.Limit)
	}
	limit := p.Limit
	if limit == 0 {
		limit = programLimit
	}
	order.Command, order.Memory, order.Files = p.Command, s.memory, s.memory
	order.Environment = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "SOURCE_DATE_EPOCH=" + sourceDate, "HOME=/root", "TMPDIR=/tmp"}, p.Environment...)
	text, err := json.Marshal(order)
	if err != nil {
		return "", 0, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", 0, err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", SandboxCommand)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{reader}
	out := &outputEnd{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	everyID := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: everyID, GidMappings: everyID, GidMappingsEnableSetgroups: true, Pdeathsig: syscall.SIGKILL, Setsid: true,
	}
	group, err := s.confine(cmd)
	if err != nil {
		_ = writer.Close()
		return "", 0, fmt.Errorf("%s: %w", p.Command[0], err)
	}
	if group != nil {
		defer func() {
			if err := group.remove(); err != nil {
				s.log.Warn("the control group of a program stays", "folder", group.folder, "error", err)
			}
		}()
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		_ = writer.Close()
		return "", 0, fmt.Errorf("%s: make namespaces for it: %w", p.Command[0], err)
	}
	// Where memory ends, the kernel is to end the program and not the agent.
	_ = os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte("1000"), 0)
	// A process that has ended takes no order; its exit status says why.
	_, _ = writer.Write(text)
	_ = writer.Close()
	err = cmd.Wait()
	s.log.Info("a program of the system ended", "command", p.Command, "exit", cmd.ProcessState.ExitCode(), "took", time.Since(began).Round(time.Millisecond))
	var failed *exec.ExitError
	var exceeded error
	if group != nil {
		exceeded = group.exceeded(s.groupMemory())
	}
	switch {
	case exceeded != nil && err != nil:
		return out.text(), -1, fmt.Errorf("%s: %w", p.Command[0], exceeded)
	case ctx.Err() != nil:
		return out.text(), -1, fmt.Errorf("%s: it took longer than %s: %w", p.Command[0], limit, ctx.Err())
	case err != nil && !errors.As(err, &failed):
		return out.text(), -1, fmt.Errorf("%s: %w", p.Command[0], err)
	case cmd.ProcessState.ExitCode() == sandboxTooMany:
		return out.text(), -1, problem.Unavailablef("%s: %s", p.Command[0], tooManyProcesses)
	case cmd.ProcessState.ExitCode() == sandboxFailed:
		return out.text(), -1, problem.Unavailablef("%s: it cannot be started: %s", p.Command[0], diagnose.Excerpt(out.text()))
	}
	return out.text(), cmd.ProcessState.ExitCode(), nil
}

// groupMemory bounds the memory of a program with all its children and files, in bytes.
func (s *sandbox) groupMemory() int64 { return s.memory + s.memory/2 }

// confine has a command begin in a control group of its own; nil without control groups.
func (s *sandbox) confine(cmd *exec.Cmd) (*programGroup, error) {
	if s.groups == "" {
		return nil, nil
	}
	group, err := makeGroup(s.groups, s.groupMemory())
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	return group, nil
}

// outputEnd keeps the end of what is written to it.
type outputEnd struct{ kept []byte }

func (o *outputEnd) Write(b []byte) (int, error) {
	n := len(b)
	if len(b) > maxOutput {
		b = b[len(b)-maxOutput:]
	}
	o.kept = append(o.kept, b...)
	if len(o.kept) > maxOutput {
		o.kept = slices.Clone(o.kept[len(o.kept)-maxOutput:])
	}
	return n, nil
}

// text is the output without control characters, with what looks like a secret masked.
func (o *outputEnd) text() string {
	var lines []string
	for line := range strings.Lines(string(o.kept)) {
		lines = append(lines, diagnose.Sentence(line))
	}
	return strings.Join(lines, "\n")
}

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
		folder, err := e.root.open(place, unix.O_RDONLY|unix.O_DIRECTORY)
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
