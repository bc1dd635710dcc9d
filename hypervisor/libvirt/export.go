package libvirt

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

var _ hypervisor.Exporter = (*Hypervisor)(nil)

// Export gives a guest's machine type and UEFI variables, those of the moment while the guest runs. Those of a rescue system stay: it has its own.
func (h *Hypervisor) Export(ctx context.Context, id string, running bool) (*compute.GuestState, error) {
	dom, err := h.find(ctx, id)
	if err != nil {
		return nil, err
	}
	power, err := h.power(ctx, dom)
	if err != nil {
		return nil, err
	}
	if !running && !power.ProvenOff() {
		return nil, problem.Conflictf("export guest %s: it is %s, and its firmware may still write its variables", dom.Name, power)
	}
	def, err := h.persistent(ctx, dom)
	if err != nil {
		return nil, err
	}
	state := &compute.GuestState{Machine: def.OS.Type.Machine}
	path := h.variablesPath(def)
	if path == "" {
		return state, nil
	}
	if state.Variables, err = readVariables(path); err != nil {
		return nil, fmt.Errorf("read the UEFI variables of guest %s: %w", dom.Name, err)
	}
	return state, nil
}

// variablesPath is the file of a guest's own UEFI variables, also while the guest is in rescue; empty: a BIOS guest has none.
func (h *Hypervisor) variablesPath(def *definition) string {
	if def.OS == nil || def.OS.NVRam == nil {
		return ""
	}
	if path := def.OS.NVRam.NVRam; path != "" && def.mark.Rescue == "" {
		return path
	}
	return nvramPath(h.opts.NVRAM, def.mark.ID, false)
}

// stateStamp changes whenever the machine type or the UEFI variables of a guest do.
func (h *Hypervisor) stateStamp(def *definition) string {
	if def.OS == nil || def.OS.Type == nil {
		return ""
	}
	path := h.variablesPath(def)
	if path == "" {
		return def.OS.Type.Machine
	}
	info, err := os.Stat(path)
	if err != nil {
		return def.OS.Type.Machine + " " + path
	}
	return fmt.Sprintf("%s %s %d %d", def.OS.Type.Machine, path, info.Size(), info.ModTime().UnixNano())
}

// readVariables compresses a file of variables; nil: a guest that never ran has none.
func readVariables(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	n, err := io.Copy(w, io.LimitReader(f, compute.MaxVariables+1))
	if err == nil {
		err = w.Close()
	}
	if err == nil && n > compute.MaxVariables {
		err = problem.Invalidf("%s has more than %d bytes, which no firmware needs", path, compute.MaxVariables)
	}
	if after, statErr := f.Stat(); err == nil && (statErr != nil || !after.ModTime().Equal(before.ModTime())) {
		err = problem.Unavailablef("the firmware of the guest writes %s at the moment", path)
	}
	return out.Bytes(), err
}

// placeVariables writes the variables that came with a guest, before its definition names them. A file that is there stays: it is newer than
// what came, or the guest's own.
func (h *Hypervisor) placeVariables(id string, packed []byte) error {
	if len(packed) == 0 {
		return nil
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return problem.Invalidf("the UEFI variables that came with guest %s are not understood: %w", id, err)
	}
	path := nvramPath(h.opts.NVRAM, id, false)
	half := path + ".part"
	f, err := os.OpenFile(half, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(half)
	n, err := io.Copy(f, io.LimitReader(r, compute.MaxVariables+1))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if n > compute.MaxVariables {
		return problem.Invalidf("the UEFI variables that came with guest %s have more than %d bytes", id, compute.MaxVariables)
	}
	if err := os.Link(half, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the UEFI variables of guest %s: %w", id, err)
	}
	return nil
}

// offersMachine tells whether this host can run guests of a machine type. A libvirt that does not answer offers all: the definition shows it.
func (h *Hypervisor) offersMachine(ctx context.Context, machine string) bool {
	if machine == "" {
		return true
	}
	kind := "qemu"
	if h.opts.KVM {
		kind = "kvm"
	}
	err := callOnly(ctx, h, "ask for the machine type "+machine, h.opts.Timeout, func(c *rpc.Libvirt) error {
		_, err := c.ConnectGetDomainCapabilities(nil, rpc.OptString{"x86_64"}, rpc.OptString{machine}, rpc.OptString{kind}, 0)
		return err
	})
	return err == nil || problem.Is(err, problem.Unavailable)
}
