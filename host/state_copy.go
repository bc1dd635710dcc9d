package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"salvor/compute"
	"salvor/durable"
	"salvor/hypervisor"
	"salvor/problem"
)

// This file keeps a copy of each guest's state (UEFI variables, machine type) beside a disk in a shared store. An evacuation defines the guest
// elsewhere with that copy, because the state itself lies on the dead host.

// stateSuffix ends the name of the copy: DISK.state.
const stateSuffix = ".state"

// maxStateCopy bounds a copy in bytes. The variables of a guest are its largest part, and JSON needs 4 bytes for 3 of them.
const maxStateCopy = 2*compute.MaxVariables + 4096

// stateCopy is what the file holds.
type stateCopy struct {
	Server string `json:"server"`
	// Epoch is that of the guest whose state was copied.
	Epoch int64               `json:"epoch"`
	State *compute.GuestState `json:"state"`
}

// stateCopies remembers the copies that this agent wrote, so that a look at a guest whose state has not changed reads no file.
type stateCopies struct {
	mu      sync.Mutex
	written map[string]writtenState // by server
}

type writtenState struct {
	file, stamp string
	epoch       int64
}

// copyState writes the copy of a guest's state where it changed since the last copy, and tells in g.StateCopied whether a copy lies in a shared
// store.
func (a *Agent) copyState(ctx context.Context, g *compute.Guest) {
	e, able := a.Hypervisor.(hypervisor.Exporter)
	if !able || g.StateStamp == "" {
		return
	}
	a.states.mu.Lock()
	last := a.states.written[g.ID]
	a.states.mu.Unlock()
	uses := slices.ContainsFunc(g.Disks, func(d compute.GuestDisk) bool { return d.File == last.file })
	if uses && last.stamp == g.StateStamp && last.epoch == g.Epoch && a.hasStateCopy(ctx, last.file) {
		g.StateCopied = true
		return
	}
	file, s := a.sharedDiskOf(ctx, g)
	if s == nil {
		return
	}
	state, err := e.Export(ctx, g.ID, true)
	if err == nil {
		err = a.writeState(ctx, s, file, stateCopy{Server: g.ID, Epoch: g.Epoch, State: state})
	}
	if err != nil {
		g.StateCopied = last.file == file && last.epoch == g.Epoch && problem.Is(err, problem.Unavailable) // the former copy is there; the next look tries again
		a.Log.Debug("copy the UEFI variables of a guest beside its disk", "server", g.ID, "file", file+stateSuffix, "error", err)
		return
	}
	g.StateCopied = true
	a.states.mu.Lock()
	a.states.written[g.ID] = writtenState{file: file, stamp: g.StateStamp, epoch: g.Epoch}
	a.states.mu.Unlock()
}

// hasStateCopy tells whether a copy that this agent wrote is there still. A store that does not answer has it.
func (a *Agent) hasStateCopy(ctx context.Context, file string) bool {
	s := a.sharedStoreWith(file)
	if s == nil {
		return false
	}
	there, err := withStoreTimeout(ctx, s, func() (bool, error) {
		_, err := os.Lstat(file + stateSuffix)
		return err == nil, nil
	})
	return there || err != nil
}

// sharedDiskOf is the first disk of a guest in a shared store, if the guest uses the file that salvor made; nil: there is none.
func (a *Agent) sharedDiskOf(ctx context.Context, g *compute.Guest) (string, *diskStore) {
	for _, disk := range g.Disks {
		s := a.sharedStoreWith(disk.File)
		if s == nil {
			continue
		}
		if own, err := a.isOwnFile(ctx, g.ID, disk.Name, disk.File); err == nil && own {
			return disk.File, s
		}
	}
	return "", nil
}

// writeState replaces a copy, unless a later epoch of the server has written it: that guest lives on another host. An agent that ends waits for the write, so that
// nothing is written to the store afterwards; a store that hangs is left after its bound.
func (a *Agent) writeState(ctx context.Context, s *diskStore, file string, c stateCopy) error {
	_, err := withStoreTimeout(context.WithoutCancel(ctx), s, func() (bool, error) {
		former, err := readStateCopy(file)
		if err == nil && former.Server == c.Server && former.Epoch > c.Epoch {
			return false, problem.Conflictf("%s is of epoch %d, and the guest here is of epoch %d", file+stateSuffix, former.Epoch, c.Epoch)
		}
		return true, durable.Replace(file+stateSuffix, mustEncodeJSON(c), 0o600)
	})
	return err
}

// readStateCopy reads the copy beside a disk. fs.ErrNotExist: there is none.
func readStateCopy(file string) (*stateCopy, error) {
	path := file + stateSuffix
	f, err := openLease(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxStateCopy))
	if err != nil {
		return nil, err
	}
	c := &stateCopy{}
	if err := json.Unmarshal(raw, c); err != nil || c.State == nil {
		return nil, problem.Invalidf("%s holds no copy of UEFI variables", path)
	}
	return c, nil
}

// copiedState reads the copy of a server's state beside its disks in shared stores. nil without an error: there is none.
func (w *orderExecution) copiedState(ctx context.Context, spec *compute.Spec) (*compute.GuestState, error) {
	for _, d := range spec.Disks {
		path, err := w.stores.place(spec.ServerID, d)
		if err != nil || d.VolumeID != "" || w.sharedStoreWith(path) == nil {
			continue
		}
		c, err := withStoreTimeout(ctx, w.sharedStoreWith(path), func() (*stateCopy, error) { return readStateCopy(path) })
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case c.Server != spec.ServerID:
			return nil, problem.Invalidf("%s is of server %.40q", path+stateSuffix, c.Server)
		default:
			return c.State, nil
		}
	}
	return nil, nil
}

// requireState is Conflict where no copy of a server's state can be read beside its disks.
func (w *orderExecution) requireState(ctx context.Context, spec *compute.Spec) error {
	state, err := w.copiedState(ctx, spec)
	if err == nil && state == nil {
		err = problem.NotFoundf("no copy lies beside its disk")
	}
	if err == nil || problem.Is(err, problem.Unavailable) {
		return err
	}
	return problem.Conflictf("prepare server %s: its UEFI variables cannot be had: %s; evacuate it with --discard-variables to give them up", w.order.ServerID, quoteError(err))
}

// takeState gives the domain the state that was copied beside its disks, where this host does not have the guest yet. It tells whether the guest has
// its state.
func (w *orderExecution) takeState(ctx context.Context, d *hypervisor.Domain) (bool, error) {
	g, err := w.guest(ctx, w.order.ServerID)
	if err != nil || g != nil {
		return g != nil, err // a former try of this order has defined it
	}
	d.AnyMachine = true
	if d.State, err = w.copiedState(ctx, &d.Spec); problem.Is(err, problem.Unavailable) {
		return false, err
	}
	return d.State != nil, nil
}

// quoteError quotes an error that names files of the host, so that tenants are not shown them.
func quoteError(err error) string {
	return problem.Quote(strings.ToValidUTF8(fmt.Sprintf("%.300v", err), ""))
}
