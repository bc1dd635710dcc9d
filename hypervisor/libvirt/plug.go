package libvirt

import (
	"context"
	"fmt"
	"time"

	"libvirt.org/go/libvirtxml"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/hypervisor"
	"salvor/problem"
)

// unplugWithin is how long a guest's system may take to let go of a disk.
const unplugWithin = 20 * time.Second

func (h *Hypervisor) Plug(ctx context.Context, d hypervisor.Domain, disk string, on bool) error {
	dom, err := h.find(ctx, d.ServerID)
	if err != nil {
		return err
	}
	p := &domainBuilder{Domain: d, hostFacts: hostFacts{initiator: h.opts.InitiatorIQN}}
	var device *libvirtxml.DomainDisk
	volume := ""
	for _, s := range d.Disks {
		if s.Name == disk {
			volume = s.VolumeID
			if device, err = p.disk(s); err != nil {
				return fmt.Errorf("disk %s of server %s: %w", disk, d.ServerID, err)
			}
		}
	}
	if device == nil {
		return problem.NotFoundf("server %s has no disk %s", d.ServerID, disk)
	}
	if on {
		if err := h.keepSecrets(ctx, d); err != nil {
			return err
		}
	}
	// The definition first when a disk comes, last when it goes: a host that dies between them leaves a guest
	// that has its disk at the next start.
	steps := []rpc.DomainDeviceModifyFlags{rpc.DomainDeviceModifyConfig, rpc.DomainDeviceModifyLive}
	if !on {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, where := range steps {
		step := func() error { return h.plug(ctx, dom, device, where, on) }
		if where == rpc.DomainDeviceModifyConfig {
			err = h.amend(ctx, dom, step)
		} else {
			err = step()
		}
		if err != nil {
			return err
		}
	}
	if !on && volume != "" {
		return h.forgetSecret(ctx, secretID(d.ServerID, volume))
	}
	return nil
}

// plug makes one of the two, the running guest or its definition, have the disk or not.
func (h *Hypervisor) plug(ctx context.Context, dom rpc.Domain, device *libvirtxml.DomainDisk, where rpc.DomainDeviceModifyFlags, on bool) error {
	flags := rpc.DomainXMLFlags(0)
	if where == rpc.DomainDeviceModifyConfig {
		flags = rpc.DomainXMLInactive
	}
	deadline := time.Now().Add(unplugWithin)
	what := fmt.Sprintf("disk %s of guest %s", device.Target.Dev, dom.Name)
	for asked := false; ; {
		def, err := h.describe(ctx, dom, flags)
		if err != nil {
			return err
		}
		if where == rpc.DomainDeviceModifyLive && def.ID == nil {
			return nil // it does not run
		}
		there, err := hasDisk(&def.Domain, device, what)
		if err != nil || there == on {
			return err
		}
		if asked && time.Now().After(deadline) {
			return problem.Unavailablef("%s: the guest's system does not let go of it", what)
		}
		if !asked || !on {
			if err := h.plugCall(ctx, dom, device, where, on, what); err != nil {
				return err
			}
		}
		asked = true
		select {
		case <-ctx.Done():
			return problem.Unavailablef("%s: %w", what, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

func (h *Hypervisor) plugCall(ctx context.Context, dom rpc.Domain, device *libvirtxml.DomainDisk, where rpc.DomainDeviceModifyFlags, on bool, what string) error {
	given := *device
	if where == rpc.DomainDeviceModifyLive {
		given.Address = nil // whatever port is free in it now
		given.Boot = nil
	}
	text, err := given.Marshal()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return callOnly(ctx, h, what, h.opts.Timeout, func(c *rpc.Libvirt) error {
		if on {
			return c.DomainAttachDeviceFlags(dom, text, uint32(where))
		}
		err := c.DomainDetachDeviceFlags(dom, text, uint32(where))
		// Asked already and not done yet, or done since the look: the next look tells.
		if isCode(err, rpc.ErrDeviceMissing) || isCode(err, rpc.ErrOperationFailed) || isCode(err, rpc.ErrOperationInvalid) {
			return nil
		}
		return err
	})
}

// hasDisk tells whether a definition has the disk. Conflict: another one is in its place.
func hasDisk(def *libvirtxml.Domain, device *libvirtxml.DomainDisk, what string) (bool, error) {
	if def.Devices == nil {
		return false, nil
	}
	for _, d := range def.Devices.Disks {
		if d.Target == nil || d.Target.Dev != device.Target.Dev {
			continue
		}
		if d.Serial != device.Serial {
			return false, problem.Conflictf("%s: another disk is in its place", what)
		}
		return true, nil
	}
	return false, nil
}
