// Package fake is a hypervisor in memory, for tests and for trying salvor out: it keeps the
// contract, boots nothing, and fails where it is told to. It must not know who drives it.
package fake

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// Settings of a guest that a rescue replaces, as on Ganeti.
const (
	BootOrder = "boot_order"
	CDROM     = "cdrom_image_path"
)

// Hypervisor keeps guests in memory. It is safe for use by several goroutines.
type Hypervisor struct {
	mu     sync.Mutex
	guests map[string]*State
	broken map[string]error
	// helpers are those that run, by the server whose disks they read; answer serves their channels.
	helpers map[string]bool
	answer  func(d hypervisor.Domain, host net.Conn)
}

// IgnoresSoftOff is the property of a machine whose system ignores that it is asked to power off.
const IgnoresSoftOff = "fake_deaf"

// State is a guest as the hypervisor knows it.
type State struct {
	// Defined is what the next start boots; Runs what runs now, nil if nothing does.
	Defined hypervisor.Domain
	Runs    *hypervisor.Domain
	Power   compute.Power
	// Pause is why it stands still, where that was not asked here.
	Pause compute.GuestPause
	// Settings are those that were set on this guest alone.
	Settings map[string]string
	// Moved are the files of disks that somebody else than salvor gave it, by disk name: each definition keeps them.
	Moved map[string]hypervisor.DiskFile
	// Variables stand for the UEFI variables of the guest, which lie on this host alone.
	Variables string
	// Ours tells that the guest was defined here, not found.
	Ours bool
	// Starts counts how often it was started.
	Starts int
}

var (
	_ hypervisor.Hypervisor = (*Hypervisor)(nil)
	_ hypervisor.Plugger    = (*Hypervisor)(nil)
	_ hypervisor.Exporter   = (*Hypervisor)(nil)
)

// New makes a hypervisor without guests.
func New() *Hypervisor {
	return &Hypervisor{guests: map[string]*State{}, broken: map[string]error{}, helpers: map[string]bool{}}
}

// Break has a method, by its name, fail with err until it is called with nil.
func (h *Hypervisor) Break(method string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken[method] = err
}

// Put adds a guest as it is, beside all rules.
func (h *Hypervisor) Put(id string, s State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guests[id] = &s
}

// Pause has a guest that runs stand still, as libvirt, an administrator or the guest itself does. power is PowerPaused or PowerSaved.
func (h *Hypervisor) Pause(id string, power compute.Power, p compute.GuestPause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.guests[id]; g != nil && g.Runs != nil {
		g.Power, g.Pause = power, p
	}
}

// State tells how a guest is; false: there is none.
func (h *Hypervisor) State(id string) (State, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.guests[id]
	if !ok {
		return State{}, false
	}
	out := *g
	out.Settings = maps.Clone(g.Settings)
	return out, true
}

// enter begins a call: it holds the lock unless it fails.
func (h *Hypervisor) enter(ctx context.Context, method string) error {
	if err := ctx.Err(); err != nil {
		return problem.Unavailablef("%s: %w", method, err)
	}
	h.mu.Lock()
	if err := h.broken[method]; err != nil {
		h.mu.Unlock()
		return err
	}
	return nil
}

// Inventory tells of a host that is large enough.
func (h *Hypervisor) Inventory(ctx context.Context) (compute.Inventory, error) {
	if err := h.enter(ctx, "Inventory"); err != nil {
		return compute.Inventory{}, err
	}
	defer h.mu.Unlock()
	return compute.Inventory{HypervisorType: "fake", HypervisorVersion: 1, VCPUs: 1024, RAM: 1 << 20, Disk: 1 << 16, Firmware: []compute.Firmware{compute.BIOS, compute.UEFI}}, nil
}

// Guests lists all guests, by id.
func (h *Hypervisor) Guests(ctx context.Context) ([]compute.Guest, error) {
	if err := h.enter(ctx, "Guests"); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	out := make([]compute.Guest, 0, len(h.guests))
	for id, g := range h.guests {
		out = append(out, g.guest(id))
	}
	slices.SortFunc(out, func(a, b compute.Guest) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func (g *State) guest(id string) compute.Guest {
	now := &g.Defined
	if g.Runs != nil {
		now = g.Runs
	}
	out := compute.Guest{
		ID: id, Name: g.Defined.GuestName, Power: g.Power, Pause: g.Pause, Ours: g.Ours, Epoch: g.Defined.Epoch, Incarnation: g.Defined.Incarnation, VCPUs: now.VCPUs, RAM: now.RAM,
		Settings: maps.Clone(g.Settings), NICs: slices.Clone(now.NICs), StateStamp: "fake " + g.Variables,
	}
	if g.Defined.Rescue != nil {
		out.Rescue = cmp.Or(g.Defined.RescueImage, g.Defined.Rescue.Name)
	}
	for _, f := range now.Paths {
		out.Files = append(out.Files, f.Path)
	}
	out.Disks, out.NextDisks = disksOf(now), disksOf(&g.Defined)
	for _, d := range out.Disks {
		if _, moved := g.Moved[d.Name]; moved {
			out.Drift = append(out.Drift, compute.Drift{Part: "disk " + d.Name, Text: "lies in " + d.File, Disk: true, Remedy: "virsh blockcommit " + out.Name + " " + d.Name + " --active --pivot --wait"})
		}
	}
	out.InRescue = g.Runs != nil && g.Runs.Rescue != nil
	return out
}

// Define makes the definition what d says.
func (h *Hypervisor) Define(ctx context.Context, d hypervisor.Domain) error {
	if err := h.enter(ctx, "Define"); err != nil {
		return err
	}
	defer h.mu.Unlock()
	for id, g := range h.guests {
		if (id == d.ServerID) != (g.Defined.GuestName == d.GuestName) || id == d.ServerID && !g.Ours {
			return problem.Conflictf("define guest %s: there is a guest %s that is none of ours", d.GuestName, g.Defined.GuestName)
		}
	}
	g := h.guests[d.ServerID]
	if g == nil && d.Adopted {
		return problem.NotFoundf("define guest %s: there is no such guest, and none is made in its place", d.GuestName)
	}
	if g == nil {
		g = &State{Power: compute.PowerOff, Ours: true}
		if d.State != nil {
			g.Variables = string(d.State.Variables)
		}
		h.guests[d.ServerID] = g
	}
	g.Defined, g.Settings = d, g.settings(d)
	g.Defined.Paths = g.withMoved(d.Paths)
	return nil
}

// withMoved are the files of disks, with those that somebody else moved.
func (g *State) withMoved(paths map[string]hypervisor.DiskFile) map[string]hypervisor.DiskFile {
	out := maps.Clone(paths)
	for name, file := range g.Moved {
		if _, has := out[name]; has {
			out[name] = file
		}
	}
	return out
}

// MoveDisk has a disk of a guest lie in another file from now on, as a snapshot or a copy by another tool does.
func (h *Hypervisor) MoveDisk(id, disk string, file hypervisor.DiskFile) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.guests[id]
	if g == nil {
		return
	}
	g.Moved = maps.Clone(g.Moved)
	if g.Moved == nil {
		g.Moved = map[string]hypervisor.DiskFile{}
	}
	g.Moved[disk] = file
	g.Defined.Paths = g.withMoved(g.Defined.Paths)
	if g.Runs != nil {
		g.Runs.Paths = g.withMoved(g.Runs.Paths)
	}
}

// disksOf are the disks of a guest in files, by name.
func disksOf(d *hypervisor.Domain) []compute.GuestDisk {
	var out []compute.GuestDisk
	for _, name := range slices.Sorted(maps.Keys(d.Paths)) {
		out = append(out, compute.GuestDisk{Name: name, File: d.Paths[name].Path, Format: d.Paths[name].Format})
	}
	return out
}

// settings are those of the guest once it is defined by d: a rescue sets its own, whoever restores names all that are wanted.
func (g *State) settings(d hypervisor.Domain) map[string]string {
	out := maps.Clone(g.Settings)
	if out == nil {
		out = map[string]string{}
	}
	if d.Rescue != nil {
		out[BootOrder], out[CDROM] = "cdrom", cmp.Or(d.RescueImage, d.Rescue.Name)
		return out
	}
	if d.Restore != nil {
		delete(out, BootOrder)
		delete(out, CDROM)
		maps.Copy(out, d.Restore)
	}
	return out
}

// Export gives the variables of a guest that is off, or with running of any guest.
func (h *Hypervisor) Export(ctx context.Context, id string, running bool) (*compute.GuestState, error) {
	if err := h.enter(ctx, "Export"); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	g := h.guests[id]
	switch {
	case g == nil:
		return nil, problem.NotFoundf("there is no guest %s", id)
	case !running && !g.Power.ProvenOff():
		return nil, problem.Conflictf("export guest %s: it is %s", id, g.Power)
	}
	return &compute.GuestState{Machine: "fake", Variables: []byte(g.Variables)}, nil
}

// SetPower brings a guest to a power state.
func (h *Hypervisor) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	if err := h.enter(ctx, "SetPower"); err != nil {
		return false, err
	}
	defer h.mu.Unlock()
	g := h.guests[id]
	if g == nil {
		return false, problem.NotFoundf("there is no guest %s", id)
	}
	soft := false
	if (p.State == compute.PowerOff || p.Restart) && p.KeepSaved && g.Power == compute.PowerSaved {
		return false, hypervisor.RefusalOfSaved(id)
	}
	if p.State == compute.PowerOff || p.Restart {
		soft = h.turnOff(ctx, g, p)
	}
	switch {
	case p.State == compute.PowerOn && h.helpers[id]:
		return false, problem.Conflictf("guest %s: a disk is in use by another guest", id)
	case p.State == g.Power:
	case p.State == compute.PowerOn && g.Runs != nil:
		g.Power, g.Pause = compute.PowerOn, compute.GuestPause{}
	case p.State == compute.PowerOn:
		boots := g.Defined
		g.Power, g.Runs = compute.PowerOn, &boots
		g.Starts++
	case g.Power == compute.PowerOn && (p.State == compute.PowerPaused || p.State == compute.PowerSaved),
		g.Power == compute.PowerPaused && p.State == compute.PowerSaved:
		g.Power = p.State
	default:
		return false, problem.Conflictf("guest %s is %s and cannot become %s", id, g.Power, p.State)
	}
	return soft, nil
}

// turnOff ends a guest, and tells whether asking was enough. One that ignores it is waited for without the lock.
func (h *Hypervisor) turnOff(ctx context.Context, g *State, p hypervisor.Power) (soft bool) {
	soft = p.Soft
	if soft && g.Runs != nil && g.Runs.Machine[IgnoresSoftOff] != "" {
		h.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(p.Within):
		}
		h.mu.Lock()
		soft = false
	}
	g.Power, g.Pause, g.Runs = compute.PowerOff, compute.GuestPause{}, nil
	return soft
}

// Remove ends a guest and forgets it.
func (h *Hypervisor) Remove(ctx context.Context, id string) error {
	if err := h.enter(ctx, "Remove"); err != nil {
		return err
	}
	defer h.mu.Unlock()
	delete(h.guests, id)
	return nil
}

// Plug attaches or detaches one disk, in the guest that runs and in its definition.
func (h *Hypervisor) Plug(ctx context.Context, d hypervisor.Domain, disk string, on bool) error {
	if err := h.enter(ctx, "Plug"); err != nil {
		return err
	}
	defer h.mu.Unlock()
	g := h.guests[d.ServerID]
	if g == nil {
		return problem.NotFoundf("there is no guest %s", d.ServerID)
	}
	i := slices.IndexFunc(d.Disks, func(s compute.SpecDisk) bool { return s.Name == disk })
	if i < 0 {
		return problem.NotFoundf("guest %s: the domain names no disk %s", d.ServerID, disk)
	}
	plug(&g.Defined, d.Disks[i], on)
	if g.Runs != nil {
		plug(g.Runs, d.Disks[i], on)
	}
	return nil
}

func plug(d *hypervisor.Domain, disk compute.SpecDisk, on bool) {
	d.Disks = slices.DeleteFunc(slices.Clone(d.Disks), func(s compute.SpecDisk) bool { return s.Name == disk.Name })
	if on {
		d.Disks = append(d.Disks, disk)
	}
}
