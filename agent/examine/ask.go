package examine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/sandbox"
	"salvor/diagnose"
)

const (
	// askTime bounds one program of a system, and askSystemTime all programs of one system.
	askTime       = 10 * time.Second
	askSystemTime = 60 * time.Second
	// askMemory is what one program may write to memory at most, in bytes; askMemoryShare is the part of the free memory that it gets of that.
	askMemory      = 256 << 20
	askMemoryShare = 4
	// checkers names the gap where programs of a system were not asked.
	checkers = "the checkers of the system"
)

// programAsker runs programs of one system in a sandbox. It implements diagnose.Asker.
type programAsker struct {
	run func(sandbox.Order) (output string, exit int, err error)
	// place is a second mount of the system, read-only as the first one, where programs can run.
	place string
	until time.Time
}

// Ask implements diagnose.Asker.
func (p *programAsker) Ask(q diagnose.Question) diagnose.Answer {
	began := time.Now()
	a := diagnose.Answer{Command: q.Command, Exit: -1}
	left := min(askTime, time.Until(p.until))
	if left <= 0 {
		a.Trouble = fmt.Sprintf("the programs of this system have taken %s together", askSystemTime)
		return a
	}
	output, exit, err := p.run(sandbox.Order{Place: p.place, Command: q.Command, Folders: q.Folders, Limit: left})
	a.Exit, a.Output, a.Seconds = exit, output, float64(time.Since(began).Milliseconds())/1000
	if err != nil {
		a.Exit, a.Trouble = -1, err.Error()
	}
	return a
}

// openAsker mounts a system a second time so that its programs can run, and returns what asks them. close unmounts it.
func (x *examinationRun) openAsker(ctx context.Context, place string) (asker *programAsker, closeMount func() error, err error) {
	if x.runner == nil {
		x.runner = sandbox.New(x.Log, min(AvailableMemory()/askMemoryShare, askMemory))
	}
	x.places++
	second := filepath.Join(workDir, "mount-"+strconv.Itoa(x.places))
	if err := os.Mkdir(second, 0o700); err != nil {
		return nil, nil, err
	}
	if err := mountRunnable(place, second); err != nil {
		return nil, nil, err
	}
	until := time.Now().Add(askSystemTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	run := func(o sandbox.Order) (string, int, error) { return x.runner.Run(ctx, o) }
	return &programAsker{run, second, until}, func() error { return unix.Unmount(second, unix.MNT_DETACH) }, nil
}

// mountRunnable mounts what is mounted at and below a place a second time, read-only and without devices, but with programs that can run.
func mountRunnable(place, second string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, place, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("copy the mount %s: %w", place, err)
	}
	defer unix.Close(tree)
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Attr_clr: unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE,
	})
	if err != nil {
		return fmt.Errorf("let programs of %s run: %w", place, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, second, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", second, err)
	}
	return nil
}

// withAsker has the rules ask the programs of a system where they may.
func (x *examinationRun) withAsker(ctx context.Context, s *diagnose.System, look func()) {
	switch place := x.roots[s.Root]; {
	case s.Files == nil || place == "" || x.mending:
	case x.OnlyRead:
		x.gap(checkers, "they were not asked, because the diagnosis was to read only")
	default:
		asker, closeMount, err := x.openAsker(ctx, place)
		if err != nil {
			x.gap(checkers, "they cannot run in this ramdisk: %s", err.Error())
			break
		}
		s.Asker = asker
		defer func() {
			s.Asker = nil
			if err := closeMount(); err != nil {
				x.Log.Warn("the mount for the programs of a system stays until the examination ends", "error", err)
			}
		}()
	}
	look()
}
