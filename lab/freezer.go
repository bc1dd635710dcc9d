package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"salvor/problem"
)

// cgroupFreezer is a control group that holds all processes of one VM host and can stop them all at once, as a hang of the
// whole machine would: its agent and its guests do not even see that time passes.
type cgroupFreezer struct {
	dir string
	v2  bool
}

// freezeLimit bounds the wait for the last process of a group to stop or to be gone.
const freezeLimit = 10 * time.Second

// groupName is the same inside and outside of the lab, and no other lab's.
func groupName(labDir, host string) string {
	sum := sha256.Sum256([]byte(labDir))
	return "salvor-lab-" + hex.EncodeToString(sum[:6]) + "-" + host
}

// newFreezer makes the group. Unsupported: this system lets us make none.
func newFreezer(labDir, host string) (*cgroupFreezer, error) {
	var last error
	for _, f := range freezerPlaces(groupName(labDir, host)) {
		last = os.Mkdir(f.dir, 0o755)
		if last != nil && !errors.Is(last, os.ErrExist) {
			continue
		}
		if _, last = os.Stat(f.file()); last == nil {
			return f, nil
		}
		os.Remove(f.dir)
	}
	if last == nil {
		last = errors.New("neither cgroup2 nor the freezer of version 1 is mounted")
	}
	return nil, problem.Unsupportedf("freezer of host %s: %w", host, last)
}

// freezerPlaces are the places that a group may have, the better first: processes that version 2 froze can still be killed.
func freezerPlaces(group string) []*cgroupFreezer {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	own, _ := os.ReadFile("/proc/self/cgroup")
	var second, first []*cgroupFreezer
	for line := range strings.Lines(string(mounts)) {
		left, right, found := strings.Cut(line, " - ")
		at, kind := strings.Fields(left), strings.Fields(right)
		if !found || len(at) < 5 || len(kind) < 3 {
			continue
		}
		switch {
		case kind[0] == "cgroup2":
			second = append(second, &cgroupFreezer{dir: filepath.Join(at[4], ownGroup(string(own), ""), group), v2: true})
		case kind[0] == "cgroup" && strings.Contains(","+kind[2]+",", ",freezer,"):
			first = append(first, &cgroupFreezer{dir: filepath.Join(at[4], ownGroup(string(own), "freezer"), group)})
		}
	}
	return append(second, first...)
}

// ownGroup is the group that we are in, of a version 1 controller or (empty) of version 2.
func ownGroup(text, controller string) string {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (controller == "" && parts[0] == "0" || controller != "" && strings.Contains(","+parts[1]+",", ","+controller+",")) {
			return parts[2]
		}
	}
	return "/"
}

func (f *cgroupFreezer) file() string {
	if f.v2 {
		return filepath.Join(f.dir, "cgroup.freeze")
	}
	return filepath.Join(f.dir, "freezer.state")
}

func (f *cgroupFreezer) write(name, text string) error {
	return os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644)
}

// add puts a process into the group; what it starts from then on is in it too.
func (f *cgroupFreezer) add(pid int) error { return f.write("cgroup.procs", strconv.Itoa(pid)) }

// freeze returns when every process has stopped.
func (f *cgroupFreezer) freeze() error {
	name, text, state, want := "freezer.state", "FROZEN", "freezer.state", "FROZEN"
	if f.v2 {
		name, text, state, want = "cgroup.freeze", "1", "cgroup.events", "frozen 1"
	}
	if err := f.write(name, text); err != nil {
		return err
	}
	for end := time.Now().Add(freezeLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		now, err := os.ReadFile(filepath.Join(f.dir, state))
		if err != nil {
			return err
		}
		if strings.Contains(string(now), want) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("its processes did not all stop within %s", freezeLimit), f.thaw())
}

func (f *cgroupFreezer) thaw() error {
	if f.v2 {
		return f.write("cgroup.freeze", "0")
	}
	return f.write("freezer.state", "THAWED")
}

// kill ends every process of the group; none of them runs an instruction more, even if it was frozen.
func (f *cgroupFreezer) kill() error {
	if f.v2 {
		if err := f.write("cgroup.kill", "1"); !errors.Is(err, os.ErrNotExist) {
			return err // a kernel before 5.14 has no such file
		}
	}
	for end := time.Now().Add(freezeLimit); time.Now().Before(end); {
		text, err := os.ReadFile(filepath.Join(f.dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		pids := strings.Fields(string(text))
		if len(pids) == 0 {
			return nil
		}
		for _, word := range pids {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		// Version 1 holds the signal back until it thaws, and then it comes before anything else.
		if err := f.thaw(); err != nil {
			return err
		}
	}
	return fmt.Errorf("its processes did not all end within %s", freezeLimit)
}

// remove takes the empty group away.
func (f *cgroupFreezer) remove() error {
	err := os.Remove(f.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// removeFreezers takes away what a lab that was killed left of its groups, its frozen processes first.
func removeFreezers(labDir string) {
	for _, any := range freezerPlaces(groupName(labDir, "*")) {
		dirs, _ := filepath.Glob(any.dir)
		for _, dir := range dirs {
			f := &cgroupFreezer{dir: dir, v2: any.v2}
			_ = f.kill()
			_ = f.remove()
		}
	}
}
