package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
	"salvor/problem"
)

const (
	// programLimit bounds a program that asks for no other time, longestProgram every one.
	programLimit   = 5 * time.Minute
	longestProgram = 30 * time.Minute
	// maxOutput is how much of the end of an output is kept, in bytes; maxEnvironment bounds the variables of a program.
	maxOutput      = 4 << 10
	maxEnvironment = 64
	// sourceDate is the time, 2020-01-01, that programs write into their files, so that two runs write the same bytes.
	sourceDate = "1577836800"
)

// Command is the command of salvor-agent that runs a program of a system. No person calls it.
const Command = "run-in-system"

// Order is a program to run, and what of the ramdisk it is shown.
type Order struct {
	// Place is the folder where the root of the system is mounted.
	Place string
	// Command begins with the absolute path of a program in the system.
	Command     []string
	Environment []string
	Nodes       map[string]string // device nodes of overlays, by their other names
	// Writable lists the places of the system that are not read-only, WritableNodes the device nodes that may be written where the kernel has Landlock.
	Writable, WritableNodes []string
	// Folders are made below /run, whose content a system makes anew at each boot.
	Folders []string
	// Limit bounds the time of the program; 0: 5 minutes.
	Limit time.Duration
}

// processOrder is what the first process in the namespaces is to do. The process reads it from its descriptor 3.
type processOrder struct {
	Order
	Memory int64
	Files  int64 // bytes of /tmp and of /run
}

// Runner runs programs of systems.
type Runner struct {
	log *slog.Logger
	// memory is what one process of a program may write, in bytes, and what may lie in its /tmp. Where there are control groups, all
	// processes and files together have at most 1.5 times as much.
	memory int64
	// groups is where control groups are mounted; empty without any.
	groups string
}

// New returns a runner whose programs may write so many bytes of memory each.
func New(log *slog.Logger, memory int64) *Runner {
	return &Runner{log: log, memory: memory, groups: prepareGroups(log)}
}

// Run runs a program in namespaces of its own: its root is the mounted root of the order, which can be written at the named places only. It has no
// network, and it knows no device but those of the order. It ends with all that it started.
func (s *Runner) Run(ctx context.Context, p Order) (output string, exit int, err error) {
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
	order := processOrder{Order: p, Memory: s.memory, Files: s.memory}
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
	cmd := exec.CommandContext(ctx, "/proc/self/exe", Command)
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
	case cmd.ProcessState.ExitCode() == tooManyStatus:
		return out.text(), -1, problem.Unavailablef("%s: %s", p.Command[0], tooManyProcesses)
	case cmd.ProcessState.ExitCode() == failedStatus:
		return out.text(), -1, problem.Unavailablef("%s: it cannot be started: %s", p.Command[0], diagnose.Excerpt(out.text()))
	}
	return out.text(), cmd.ProcessState.ExitCode(), nil
}

// groupMemory bounds the memory of a program with all its children and files, in bytes.
func (s *Runner) groupMemory() int64 { return s.memory + s.memory/2 }

// confine has a command begin in a control group of its own; nil without control groups.
func (s *Runner) confine(cmd *exec.Cmd) (*programGroup, error) {
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
