package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

var _ hypervisor.Examiner = (*Hypervisor)(nil)

const (
	// helperPrefix begins the names of helper guests.
	helperPrefix = "salvor-diagnose-"
	// helperRAM is the memory of a helper in MiB, helperLimit what its QEMU may take in all.
	helperRAM   = 1024
	helperLimit = 2048
	// helperPeriod and helperQuota bound the CPU time of a helper, in microseconds: one CPU and a half.
	helperPeriod = 100_000
	helperQuota  = 150_000
	// helperEnd bounds the end of a helper.
	helperEnd = 30 * time.Second
)

// helperID is the UUID of the helper of a guest.
func helperID(id string) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:salvor:diagnose:"+id))
}

// isHelper tells whether a guest is the helper of another one.
func isHelper(dom rpc.Domain) bool {
	id, named := strings.CutPrefix(dom.Name, helperPrefix)
	return named && helperID(id) == uuid.UUID(dom.UUID)
}

// buildHelper makes the definition of a helper: that of the guest in a rescue, with disks that cannot be written to, and without all that it
// does not need. UEFI variables are copies of the guest's own.
func buildHelper(d hypervisor.Domain, from hostFacts, limited bool) (*libvirtxml.Domain, error) {
	if d.Rescue == nil || d.RescueImage == "" || d.ChannelPath == "" {
		return nil, problem.Invalidf("examine server %s: no kernel, or no channel", d.ServerID)
	}
	server := d.ServerID
	d.RAM, d.VCPUs, d.NICs, d.Drive, d.DrivePath, d.ConsolePath, d.CHAP = helperRAM, 1, nil, false, "", "", nil
	d.Disks = slices.DeleteFunc(slices.Clone(d.Disks), func(s compute.SpecDisk) bool { return s.VolumeID != "" })
	d.Machine = map[string]string{propDiskBus: d.Machine[propDiskBus]}
	if bus := buses[d.Machine[propDiskBus]]; bus != busVirtio {
		d.Machine[propDiskBus] = string(busSCSI) // SATA has no disks that are read only; both are called sda in the guest
	}
	from.machine = ""
	out, err := buildDomain(d, from)
	if err != nil {
		return nil, err
	}
	out.Name, out.UUID, out.Metadata = helperPrefix+server, helperID(server).String(), nil
	out.OnPoweroff, out.OnReboot, out.OnCrash = "destroy", "destroy", "destroy"
	if nvram := out.OS.NVRam; nvram != nil {
		if own := nvramPath(from.nvram, server, false); isFile(own) {
			nvram.Template = own
		}
		nvram.NVRam = nvramPath(from.nvram, out.UUID, false)
	}
	for i := range out.Devices.Disks {
		disk := &out.Devices.Disks[i]
		disk.ReadOnly, disk.Driver.Discard, disk.Boot = &libvirtxml.DomainDiskReadOnly{}, "", nil
	}
	if limited {
		out.MemoryTune = &libvirtxml.DomainMemoryTune{HardLimit: &libvirtxml.DomainMemoryTuneLimit{Value: helperLimit, Unit: "MiB"}}
		out.CPUTune = &libvirtxml.DomainCPUTune{GlobalPeriod: &libvirtxml.DomainCPUTunePeriod{Value: helperPeriod}, GlobalQuota: &libvirtxml.DomainCPUTuneQuota{Value: helperQuota}}
	}
	return out, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (h *Hypervisor) RunHelper(ctx context.Context, d hypervisor.Domain, use func(ctx context.Context, limited bool) error) error {
	if err := h.endHelper(ctx, d.ServerID); err != nil {
		return err
	}
	owners, err := readOwners(d)
	if err != nil {
		return err
	}
	defer owners.restore()
	// Its own connection: the helper ends with it, and a call that hangs elsewhere does not end it.
	line, err := h.connect(ctx)
	if err != nil {
		return err
	}
	defer line.close()
	limited, err := h.startHelper(ctx, line, d)
	// What was asked for may begin after its caller went away.
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), helperEnd)
		defer cancel()
		_ = h.endHelper(ended, d.ServerID) // the end of the connection does it too
	}()
	if err != nil {
		return err
	}
	return use(ctx, limited)
}

// startHelper starts a helper that ends with the connection, without control groups where libvirt is told to use none.
func (h *Hypervisor) startHelper(ctx context.Context, line *libvirtConnection, d hypervisor.Domain) (limited bool, err error) {
	from := hostFacts{kvm: h.opts.KVM, nvram: h.opts.NVRAM, firmware: findFirmware()}
	for _, limited = range []bool{true, false} {
		def, err := buildHelper(d, from, limited)
		if err != nil {
			return limited, err
		}
		text, err := def.Marshal()
		if err != nil {
			return limited, fmt.Errorf("examine server %s: %w", d.ServerID, err)
		}
		err = h.createHelper(ctx, line, d.ServerID, text)
		if !limited || !lacksLimits(err) {
			return limited, err
		}
	}
	return limited, nil
}

// lacksLimits tells whether a helper was refused because libvirt uses no control groups, or may not set the limit of locked memory that goes
// with one.
func lacksLimits(err error) bool {
	return isCode(err, rpc.ErrConfigUnsupported) || err != nil && strings.Contains(err.Error(), "cannot limit locked memory")
}

func (h *Hypervisor) createHelper(ctx context.Context, line *libvirtConnection, server, text string) error {
	done := make(chan error, 1)
	go func() {
		_, err := line.DomainCreateXML(text, rpc.DomainStartAutodestroy)
		done <- err
	}()
	ctx, cancel := context.WithTimeout(ctx, h.opts.LongTimeout)
	defer cancel()
	select {
	case err := <-done:
		if err != nil {
			err = classifyLibvirtError("start the helper that examines server "+server, err)
		}
		return err
	case <-ctx.Done():
		return problem.Unavailablef("start the helper that examines server %s: %w", server, ctx.Err())
	}
}

// endHelper ends the helper of a guest, if there is one, and removes its UEFI variables. A daemon that was killed forgets which guests end
// with a connection, so each start of the guest asks for this too.
func (h *Hypervisor) endHelper(ctx context.Context, id string) error {
	helper := helperID(id).String()
	dom, err := h.find(ctx, helper)
	if err == nil {
		err = callOnly(ctx, h, "end the helper that examines server "+id, h.opts.LongTimeout, func(c *rpc.Libvirt) error { return destroyDomain(c, dom) })
		if problem.Is(err, problem.Conflict) {
			err = nil // it has just ended
		}
	}
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	if err := os.Remove(nvramPath(h.opts.NVRAM, helper, false)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the UEFI variables of the helper of server %s: %w", id, err)
	}
	return nil
}

// fileOwners are the owners of disks before a helper. libvirt gives the disks to QEMU's user, and takes back only those that can be written to.
type fileOwners []fileOwner

type fileOwner struct {
	file     *os.File
	uid, gid int
}

func readOwners(d hypervisor.Domain) (owners fileOwners, err error) {
	for _, disk := range d.Paths {
		f, err := os.Open(disk.Path)
		if err != nil {
			owners.restore()
			return nil, fmt.Errorf("examine server %s: %w", d.ServerID, err)
		}
		one := fileOwner{file: f, uid: -1, gid: -1}
		if info, err := f.Stat(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				one.uid, one.gid = int(s.Uid), int(s.Gid)
			}
		}
		owners = append(owners, one)
	}
	return owners, nil
}

// restore gives the files back to their owners. A file whose owner cannot be set keeps its mode, which lets nobody else in.
func (all fileOwners) restore() {
	for _, o := range all {
		_ = o.file.Chown(o.uid, o.gid)
		_ = o.file.Close()
	}
}
