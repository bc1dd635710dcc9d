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

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

var _ hypervisor.Exporter = (*Hypervisor)(nil)

// Export gives a guest's machine type and UEFI variables. Those of a rescue system stay: it has its own.
func (h *Hypervisor) Export(ctx context.Context, id string) (*compute.GuestState, error) {
	dom, err := h.find(ctx, id)
	if err != nil {
		return nil, err
	}
	power, err := h.power(ctx, dom)
	if err != nil {
		return nil, err
	}
	if !power.ProvenOff() {
		return nil, problem.Conflictf("export guest %s: it is %s, and its firmware may still write its variables", dom.Name, power)
	}
	def, err := h.persistent(ctx, dom)
	if err != nil {
		return nil, err
	}
	state := &compute.GuestState{Machine: def.OS.Type.Machine}
	if def.OS.NVRam == nil {
		return state, nil
	}
	path := def.OS.NVRam.NVRam
	if def.mark.Rescue != "" || path == "" {
		path = nvramPath(h.opts.NVRAM, id, false)
	}
	if state.Variables, err = readVariables(path); err != nil {
		return nil, fmt.Errorf("read the UEFI variables of guest %s: %w", dom.Name, err)
	}
	return state, nil
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
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	n, err := io.Copy(w, io.LimitReader(f, compute.MaxVariables+1))
	if err == nil {
		err = w.Close()
	}
	if err == nil && n > compute.MaxVariables {
		err = problem.Invalidf("%s has more than %d bytes, which no firmware needs", path, compute.MaxVariables)
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
