package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/hypervisor"
	"salvor/problem"
)

// uefiFirmware is UEFI for guests: its code, and the variables that a new guest begins with.
type uefiFirmware struct{ Code, Vars string }

// firmwares are where distributions keep it, the best first.
var firmwares = []uefiFirmware{
	{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},
	{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},
	{"/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"},
	{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},
}

// findFirmware is nil where there is none.
func findFirmware() *uefiFirmware {
	for _, f := range firmwares {
		if _, err := os.Stat(f.Code); err != nil {
			continue
		}
		if _, err := os.Stat(f.Vars); err == nil {
			return &f
		}
	}
	return nil
}

func (h *Hypervisor) Define(ctx context.Context, d hypervisor.Domain) error {
	before, err := h.ours(ctx, d)
	if err != nil {
		return err
	}
	from := hostFacts{kvm: h.opts.KVM, initiator: h.opts.InitiatorIQN, nvram: h.opts.NVRAM, firmware: findFirmware()}
	switch {
	case before != nil:
		from.machine = before.OS.Type.Machine
	case d.State != nil:
		from.machine = d.State.Machine
		if d.AnyMachine && !h.offersMachine(ctx, d.State.Machine) {
			from.machine = ""
		}
		if err := h.placeVariables(d.ServerID, d.State.Variables); err != nil {
			return err
		}
	}
	next, err := buildDomain(d, from)
	if err != nil {
		return err
	}
	if err := h.keepSecrets(ctx, d); err != nil {
		return err
	}
	if err := h.write(ctx, before, next); err != nil || d.Rescue != nil {
		return err
	}
	return h.removeNVRAM(d.ServerID, true)
}

// ours is the definition that is there, nil if there is none. Conflict: its name or UUID belongs to somebody else.
func (h *Hypervisor) ours(ctx context.Context, d hypervisor.Domain) (*definition, error) {
	what := "define server " + d.ServerID
	named, err := callLibvirt(ctx, h, what, h.opts.Timeout, func(c *rpc.Libvirt) (rpc.Domain, error) { return c.DomainLookupByName(d.GuestName) })
	if err == nil && !strings.EqualFold(uuid.UUID(named.UUID).String(), d.ServerID) {
		return nil, problem.Conflictf("%s: another guest has the name %s", what, d.GuestName)
	}
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	dom, err := h.find(ctx, d.ServerID)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if dom.Name != d.GuestName {
		return nil, problem.Conflictf("%s: its guest was renamed to %s; switch it off and name it back: %s", what, dom.Name, renameCommand(dom.Name, d.GuestName))
	}
	def, err := h.describe(ctx, dom, rpc.DomainXMLInactive|rpc.DomainXMLSecure)
	if err != nil {
		return nil, err
	}
	if def.mark.ID != d.ServerID {
		return nil, problem.Conflictf("%s: the guest %s of this UUID is none of salvor's", what, dom.Name)
	}
	return def, nil
}

// definition is a guest's definition as libvirt gave it, with our mark in it.
type definition struct {
	libvirtxml.Domain
	mark domainMetadata
	text string
}

// persistent reads a guest's persistent definition, which its next start uses.
func (h *Hypervisor) persistent(ctx context.Context, dom rpc.Domain) (*definition, error) {
	return h.describe(ctx, dom, rpc.DomainXMLInactive)
}

// errDefinition is of a guest whose definition is not understood.
var errDefinition = errors.New("its definition is not understood")

// describe reads a definition of a guest: with flags 0 the running guest's, if it runs. DomainXMLSecure has passwords in it.
func (h *Hypervisor) describe(ctx context.Context, dom rpc.Domain, flags rpc.DomainXMLFlags) (*definition, error) {
	what := "read guest " + dom.Name
	text, err := callLibvirt(ctx, h, what, h.opts.Timeout, func(c *rpc.Libvirt) (string, error) { return c.DomainGetXMLDesc(dom, flags) })
	if err != nil {
		return nil, err
	}
	def := &definition{text: text}
	if err := def.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, errDefinition, err)
	}
	if def.Metadata != nil && def.OS != nil && def.OS.Type != nil {
		def.mark, _ = parseMark(def.Metadata.XML)
	}
	return def, nil
}

// keepSecrets gives libvirt the CHAP passwords of a server's volumes, and notes them for a daemon that forgets.
func (h *Hypervisor) keepSecrets(ctx context.Context, d hypervisor.Domain) error {
	for _, disk := range d.Disks {
		if disk.VolumeID == "" || disk.CHAPUser == "" {
			continue
		}
		id, password := secretID(d.ServerID, disk.VolumeID), d.CHAP[disk.VolumeID]
		if password.Empty() {
			continue // as it was
		}
		s := chapSecret{usage: "salvor/" + d.ServerID + "/" + disk.VolumeID, value: password}
		if err := h.setSecret(ctx, id, s); err != nil {
			return err
		}
		h.mu.Lock()
		h.chap[id] = s
		h.mu.Unlock()
	}
	return nil
}

// setSecret makes a libvirt secret that is never written to disk and that no client may read.
func (h *Hypervisor) setSecret(ctx context.Context, id uuid.UUID, s chapSecret) error {
	def := libvirtxml.Secret{Ephemeral: "yes", Private: "yes", UUID: id.String(), Usage: &libvirtxml.SecretUsage{Type: "iscsi", Target: s.usage}}
	text, err := def.Marshal()
	if err != nil {
		return fmt.Errorf("keep the password of %s: %w", s.usage, err)
	}
	return callOnly(ctx, h, "keep the password of "+s.usage, h.opts.Timeout, func(c *rpc.Libvirt) error {
		made, err := c.SecretDefineXML(text, 0)
		if err != nil {
			return err
		}
		return c.SecretSetValue(made, []byte(s.value.Reveal()), 0)
	})
}

// restoreSecrets tells a restarted daemon what it forgot. Conflict: nobody here knows a password; define the guest again.
func (h *Hypervisor) restoreSecrets(ctx context.Context, def *libvirtxml.Domain) error {
	for _, id := range secretsOf(def) {
		_, err := callLibvirt(ctx, h, "find the password of a volume", h.opts.Timeout, func(c *rpc.Libvirt) (rpc.Secret, error) {
			return c.SecretLookupByUUID(rpc.UUID(id))
		})
		if err == nil || !isCode(err, rpc.ErrNoSecret) {
			if err != nil {
				return err
			}
			continue
		}
		h.mu.Lock()
		s, known := h.chap[id]
		h.mu.Unlock()
		if !known {
			return problem.Conflictf("start guest %s: libvirt has forgotten the CHAP password of a volume; define the guest again", def.Name)
		}
		if err := h.setSecret(ctx, id, s); err != nil {
			return err
		}
	}
	return nil
}

// secretsOf are the secrets that a definition of ours names.
func secretsOf(def *libvirtxml.Domain) []uuid.UUID {
	var ids []uuid.UUID
	if def.Devices == nil {
		return nil
	}
	for _, disk := range def.Devices.Disks {
		auth := disk.Auth
		if auth == nil && disk.Source != nil && disk.Source.Network != nil {
			auth = disk.Source.Network.Auth
		}
		if auth == nil || auth.Secret == nil {
			continue
		}
		if id, err := uuid.Parse(auth.Secret.UUID); err == nil && id == secretID(def.UUID, disk.Serial) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (h *Hypervisor) forgetSecret(ctx context.Context, id uuid.UUID) error {
	h.mu.Lock()
	delete(h.chap, id)
	h.mu.Unlock()
	err := callOnly(ctx, h, "forget the password of a volume", h.opts.Timeout, func(c *rpc.Libvirt) error {
		s, err := c.SecretLookupByUUID(rpc.UUID(id))
		if err != nil {
			return err
		}
		return c.SecretUndefine(s)
	})
	if isCode(err, rpc.ErrNoSecret) {
		return nil
	}
	return err
}

func (h *Hypervisor) Remove(ctx context.Context, id string) error {
	dom, err := h.find(ctx, id)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	def, err := h.persistent(ctx, dom)
	switch {
	case problem.Is(err, problem.NotFound):
		return nil
	case err != nil:
		return err
	case def.mark.ID != id:
		return problem.Conflictf("remove guest %s: it is none of salvor's", dom.Name)
	}
	if err := h.destroy(ctx, dom); err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	err = callOnly(ctx, h, "remove guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) error {
		return c.DomainUndefineFlags(dom, rpc.DomainUndefineManagedSave|rpc.DomainUndefineSnapshotsMetadata|
			rpc.DomainUndefineCheckpointsMetadata|rpc.DomainUndefineNvram)
	})
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	h.mu.Lock()
	delete(h.drift, def.UUID)
	h.mu.Unlock()
	for _, s := range secretsOf(&def.Domain) {
		if err := h.forgetSecret(ctx, s); err != nil {
			return err
		}
	}
	return errors.Join(h.removeNVRAM(id, false), h.removeNVRAM(id, true))
}

// removeNVRAM takes a file of variables away: libvirt knows of the one in the definition only. A guest that
// runs on it keeps it until it ends.
func (h *Hypervisor) removeNVRAM(id string, rescued bool) error {
	if err := os.Remove(nvramPath(h.opts.NVRAM, id, rescued)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the UEFI variables of guest %s: %w", id, err)
	}
	return nil
}
