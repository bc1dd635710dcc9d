package examine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"salvor/problem"
)

// toolBounds is what one program may take.
type toolBounds struct {
	limit time.Duration
	most  int // bytes of its output that are read; the rest is dropped
}

// tools are all programs that an examination runs. They are the ramdisk's own.
var tools = map[string]toolBounds{
	"modprobe":   {20 * time.Second, 4 << 10},
	"dmsetup":    {20 * time.Second, 64 << 10},
	"blkid":      {20 * time.Second, 64 << 10},
	"mdadm":      {30 * time.Second, 64 << 10},
	"cryptsetup": {60 * time.Second, 16 << 10},
	"lvm":        {60 * time.Second, 1 << 20},
	"btrfs":      {30 * time.Second, 1 << 20},
	"e2fsck":     {30 * time.Second, 16 << 10},
	"xfs_repair": {30 * time.Second, 16 << 10},
	"fsck.fat":   {20 * time.Second, 16 << 10},
	"smartctl":   {20 * time.Second, 1 << 20},
}

// nodePath is every device that a tool may be given: kernel names of overlays and of what lies on them, and of disks.
var nodePath = regexp.MustCompile(`^/dev/(loop\d+(p\d+)?|dm-\d+|md\d+(p\d+)?|mapper/salvor_\w+|(sd|vd|xvd|hd)[a-z]+|nvme\d+n\d+|mmcblk\d+)$`)

// toolRunner runs the tools.
type toolRunner struct{ log *slog.Logger }

// toolAnswer is what a tool said.
type toolAnswer struct {
	exit   int
	text   string // of standard output and error, as they came
	output string // of standard output alone: warnings may come amid a report
	cut    bool   // more was said than may be read
}

// run runs a tool to its end; an exit status other than 0 is no error. stdin may be nil.
func (t toolRunner) run(ctx context.Context, stdin []byte, name string, args ...string) (toolAnswer, error) {
	bounds, ok := tools[name]
	if !ok {
		return toolAnswer{}, fmt.Errorf("%s is not in the table of tools", name)
	}
	for _, a := range args {
		if strings.HasPrefix(a, "/dev/") && a != "/dev/null" && !nodePath.MatchString(a) {
			return toolAnswer{}, fmt.Errorf("%s: %.80q is no device of an overlay", name, a)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bounds.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/root", "DM_DISABLE_UDEV=1", "MDADM_NO_UDEV=1", "LVM_SUPPRESS_FD_WARNINGS=1"}
	cmd.Dir = "/"
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	text, output := &boundedOutput{most: bounds.most}, &boundedOutput{most: bounds.most}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(text, output), text
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return toolAnswer{}, problem.Unavailablef("this ramdisk has no %s: boot one of the profile diagnose or full", name)
		}
		return toolAnswer{}, fmt.Errorf("%s: %w", name, err)
	}
	// Where memory ends, the kernel is to end the tool and not the agent.
	_ = os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte("1000"), 0)
	err := cmd.Wait()
	t.log.Debug("tool", "name", name, "args", args, "exit", cmd.ProcessState.ExitCode(), "took", time.Since(began).Round(time.Millisecond))
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return toolAnswer{text: text.String()}, fmt.Errorf("%s: it took longer than %s: %w", name, bounds.limit, ctx.Err())
	case errors.As(err, &exit) && !exit.Exited():
		return toolAnswer{text: text.String()}, fmt.Errorf("%s: it was ended: %w", name, err)
	case err != nil && exit == nil:
		return toolAnswer{}, fmt.Errorf("%s: %w", name, err)
	}
	return toolAnswer{exit: cmd.ProcessState.ExitCode(), text: text.String(), output: output.String(), cut: text.cut}, nil
}

// must is run for tools whose exit status has to be 0.
func (t toolRunner) must(ctx context.Context, name string, args ...string) (string, error) {
	a, err := t.run(ctx, nil, name, args...)
	if err != nil {
		return "", err
	}
	if a.exit != 0 {
		return "", fmt.Errorf("%s %s: exit status %d: %s", name, args[0], a.exit, lastLine(a.text))
	}
	return a.text, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// boundedOutput keeps the beginning of what is written to it, by several writers. It is no bytes.Buffer, whose ReadFrom knows no bound.
type boundedOutput struct {
	mu   sync.Mutex
	kept bytes.Buffer
	most int
	cut  bool
}

func (b *boundedOutput) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := max(b.most-b.kept.Len(), 0)
	if len(p) > room {
		b.cut = true
		b.kept.Write(p[:room])
		return len(p), nil
	}
	return b.kept.Write(p)
}

func (b *boundedOutput) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept.String()
}
