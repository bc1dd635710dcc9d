package libvirt

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"libvirt.org/go/libvirtxml"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// This file moves a running guest to another daemon by libvirt's own protocol of five steps, each called by whoever
// drives both sides: the daemons speak to each other only to send the memory, in clear, over TCP from the source to a port of the
// destination (49152 to 49215). libvirt ties what goes on to the connection that began it: one that breaks before the guest has
// left has the destination throw away what came.

var _ hypervisor.Migrator = (*Hypervisor)(nil)

// migrateFlags: its disks are where both sides see them, which the caller has proven; a guest that changes its memory faster than it
// can be sent is slowed down; an error of a disk meanwhile ends the attempt, not the guest.
const migrateFlags = rpc.MigrateLive | rpc.MigratePersistDest | rpc.MigrateUnsafe | rpc.MigrateAbortOnError | rpc.MigrateAutoConverge

const (
	// performBound ends a migration whose caller has set no end.
	performBound = 2 * time.Hour
	abortBound   = 30 * time.Second
	maxCookie    = 4 << 20
)

// migrationSourceInfo is what the source tells the destination of a guest.
type migrationSourceInfo struct {
	XML    string `json:"xml"`
	Cookie []byte `json:"cookie,omitempty"`
}

func newStringParam(field, value string) rpc.TypedParam {
	return rpc.TypedParam{Field: field, Value: *rpc.NewTypedParamValueString(value)}
}

// Begin tells what the guest is. Conflict: it does not run.
func (h *Hypervisor) Begin(ctx context.Context, id string) ([]byte, error) {
	dom, err := h.find(ctx, id)
	if err != nil {
		return nil, err
	}
	power, err := h.power(ctx, dom)
	if err != nil {
		return nil, err
	}
	if power != compute.PowerOn {
		return nil, problem.Conflictf("migrate guest %s: it is %s, and only a running guest is moved live", dom.Name, power)
	}
	d, err := callLibvirt(ctx, h, "begin to migrate guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) (migrationSourceInfo, error) {
		cookie, xml, err := c.DomainMigrateBegin3Params(dom, nil, uint32(migrateFlags))
		return migrationSourceInfo{XML: xml, Cookie: cookie}, err
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// Prepare listens for the guest. Conflict: it runs here already.
func (h *Hypervisor) Prepare(ctx context.Context, d hypervisor.Domain, listen string, cookie []byte) (answer []byte, peer string, err error) {
	what := "take in guest " + d.GuestName
	var from migrationSourceInfo
	if len(cookie) > maxCookie || json.Unmarshal(cookie, &from) != nil {
		return nil, "", problem.Invalidf("%s: what the source tells of it is not understood", what)
	}
	if net.ParseIP(listen) == nil {
		return nil, "", problem.Invalidf("%s: %.60q is no address to listen at", what, listen)
	}
	if _, err := h.ours(ctx, d); err != nil {
		return nil, "", err
	}
	if err := h.clear(ctx, d); err != nil {
		return nil, "", err
	}
	xml, err := h.arrival(from.XML, d)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", what, err)
	}
	if err := h.keepSecrets(ctx, d); err != nil {
		return nil, "", err
	}
	params := []rpc.TypedParam{
		newStringParam(rpc.MigrateParamDestXML, xml), newStringParam(rpc.MigrateParamDestName, d.GuestName),
		newStringParam(rpc.MigrateParamURI, "tcp://"+bracketIPv6Address(listen)), newStringParam(rpc.MigrateParamListenAddress, listen),
	}
	answer, err = callLibvirt(ctx, h, what, h.opts.LongTimeout, func(c *rpc.Libvirt) ([]byte, error) {
		out, uri, err := c.DomainMigratePrepare3Params(params, from.Cookie, uint32(migrateFlags))
		if len(uri) > 0 {
			peer = uri[0]
		}
		return out, err
	})
	if err == nil && peer == "" {
		err = problem.Unavailablef("%s: libvirt does not say where it listens", what)
	}
	return answer, peer, err
}

func bracketIPv6Address(address string) string {
	if ip := net.ParseIP(address); ip != nil && ip.To4() == nil {
		return "[" + address + "]"
	}
	return address
}

// clear removes what an attempt before this one left. Conflict: the guest runs here.
func (h *Hypervisor) clear(ctx context.Context, d hypervisor.Domain) error {
	dom, err := h.find(ctx, d.ServerID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	power, err := h.power(ctx, dom)
	switch {
	case err != nil:
		return err
	case power == compute.PowerOn:
		return problem.Conflictf("take in guest %s: it runs here already", d.GuestName)
	}
	return h.Remove(ctx, d.ServerID)
}

// arrival is the definition by which the guest comes: as it is at the source, all devices in their places, with everything that lies
// elsewhere on this host put in.
func (h *Hypervisor) arrival(source string, d hypervisor.Domain) (string, error) {
	var now libvirtxml.Domain
	if err := now.Unmarshal(source); err != nil || now.Devices == nil || now.OS == nil || now.OS.Type == nil {
		return "", problem.Invalidf("%w", errDefinition)
	}
	here, err := buildDomain(d, hostFacts{kvm: h.opts.KVM, initiator: h.opts.InitiatorIQN, nvram: h.opts.NVRAM, firmware: findFirmware(), machine: now.OS.Type.Machine})
	if err != nil {
		return "", err
	}
	if now.UUID != here.UUID || now.Name != here.Name {
		return "", problem.Conflictf("the incoming guest is %.60s with UUID %.40s", now.Name, now.UUID)
	}
	now.Metadata = here.Metadata
	now.OS.Kernel, now.OS.Initrd, now.OS.NVRam = here.OS.Kernel, here.OS.Initrd, here.OS.NVRam
	if err := relocateDisks(now.Devices.Disks, here.Devices.Disks); err != nil {
		return "", err
	}
	for i := range now.Devices.Serials {
		if i < len(here.Devices.Serials) {
			now.Devices.Serials[i].Source, now.Devices.Serials[i].Log = here.Devices.Serials[i].Source, here.Devices.Serials[i].Log
		}
	}
	now.Devices.Consoles = nil // libvirt makes them of the serial devices
	for i, c := range now.Devices.Channels {
		for _, o := range here.Devices.Channels {
			if channelName(c) == channelName(o) {
				now.Devices.Channels[i].Source = o.Source
			}
		}
	}
	for i := range now.Devices.Interfaces {
		now.Devices.Interfaces[i].Target = nil // the name of its tap
	}
	return now.Marshal()
}

func channelName(c libvirtxml.DomainChannel) string {
	if c.Target == nil || c.Target.VirtIO == nil {
		return ""
	}
	return c.Target.VirtIO.Name
}

// relocateDisks gives each disk its place on this host. Conflict: the guest has another disk than its server.
func relocateDisks(now, here []libvirtxml.DomainDisk) error {
	places := map[string]libvirtxml.DomainDisk{}
	for _, disk := range here {
		places[disk.Target.Dev] = disk
	}
	for i := range now {
		target := now[i].Target
		if target == nil {
			return problem.Invalidf("a disk without a place")
		}
		place, known := places[target.Dev]
		if !known {
			return problem.Conflictf("it has a disk %.20s that its server has not", target.Dev)
		}
		now[i].Source, now[i].BackingStore, now[i].Mirror = place.Source, nil, nil
	}
	return nil
}

// Perform sends the guest's memory to peer; the guest is held when all of it is there. A guest that is held so already, or gone, is no error.
func (h *Hypervisor) Perform(ctx context.Context, id, peer string, cookie []byte) ([]byte, error) {
	dom, err := h.find(ctx, id)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if sent, err := h.sent(ctx, dom); err != nil || sent {
		return nil, err
	}
	params := []rpc.TypedParam{newStringParam(rpc.MigrateParamURI, peer)}
	what := "migrate guest " + dom.Name + " to " + peer
	type answer struct {
		cookie []byte
		err    error
	}
	done := make(chan answer, 1)
	// Its own end may not be the caller's: what goes on is stopped by a call, or goes on unseen.
	free := context.WithoutCancel(ctx)
	go func() {
		out, err := callLibvirt(free, h, what, performBound, func(c *rpc.Libvirt) ([]byte, error) {
			return c.DomainMigratePerform3Params(dom, nil, params, cookie, migrateFlags)
		})
		done <- answer{out, err}
	}()
	select {
	case a := <-done:
		return a.cookie, a.err
	case <-ctx.Done():
	}
	if err := callOnly(free, h, "stop to "+what, abortBound, func(c *rpc.Libvirt) error { return c.DomainAbortJob(dom) }); err != nil && !problem.Is(err, problem.Conflict) {
		return nil, err
	}
	select {
	case a := <-done: // it may have been done just before
		return a.cookie, a.err
	case <-time.After(abortBound):
		return nil, problem.Unavailablef("%s: %w", what, ctx.Err())
	}
}

// sent tells whether all of the guest has been sent: it is held, or ended, because it migrated.
func (h *Hypervisor) sent(ctx context.Context, dom rpc.Domain) (bool, error) {
	return callLibvirt(ctx, h, "read the power of guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) (bool, error) {
		state, reason, err := c.DomainGetState(dom, 0)
		return rpc.DomainState(state) == rpc.DomainPaused && rpc.DomainPausedReason(reason) == rpc.DomainPausedMigration ||
			rpc.DomainState(state) == rpc.DomainShutoff && rpc.DomainShutoffReason(reason) == rpc.DomainShutoffMigrated, err
	})
}

// Finish lets the guest run here. One that runs already is no error.
func (h *Hypervisor) Finish(ctx context.Context, d hypervisor.Domain, cookie []byte, cancelled bool) ([]byte, error) {
	dom, err := h.find(ctx, d.ServerID)
	if cancelled && problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	power, err := h.power(ctx, dom)
	if err != nil {
		return nil, err
	}
	var answer []byte
	if power != compute.PowerOn {
		if answer, err = h.finish(ctx, d, cookie, cancelled); err != nil {
			return nil, err
		}
	}
	switch {
	case cancelled && power == compute.PowerOn:
		return nil, problem.Conflictf("throw away guest %s: it runs here", d.GuestName)
	case cancelled:
		return nil, h.Remove(ctx, d.ServerID)
	}
	if power, err = h.power(ctx, dom); err != nil {
		return nil, err
	}
	if power != compute.PowerOn {
		return nil, problem.Conflictf("take in guest %s: it came, and is %s", d.GuestName, power)
	}
	return answer, h.Define(ctx, d)
}

func (h *Hypervisor) finish(ctx context.Context, d hypervisor.Domain, cookie []byte, cancelled bool) ([]byte, error) {
	no := int32(0)
	if cancelled {
		no = 1
	}
	params := []rpc.TypedParam{newStringParam(rpc.MigrateParamDestName, d.GuestName)}
	answer, err := callLibvirt(ctx, h, "take in guest "+d.GuestName, h.opts.LongTimeout, func(c *rpc.Libvirt) ([]byte, error) {
		_, out, err := c.DomainMigrateFinish3Params(params, cookie, uint32(migrateFlags), no)
		return out, err
	})
	// What is thrown away answers by being no domain any more.
	if cancelled && err != nil && !problem.Is(err, problem.Unavailable) {
		return nil, nil
	}
	return answer, err
}

// Confirm ends what is left of a guest that has left; with cancelled it runs on here.
func (h *Hypervisor) Confirm(ctx context.Context, id string, cookie []byte, cancelled bool) error {
	dom, err := h.find(ctx, id)
	if problem.Is(err, problem.NotFound) && !cancelled {
		return nil
	}
	if err != nil {
		return err
	}
	no := int32(0)
	if cancelled {
		no = 1
	}
	err = callOnly(ctx, h, "end the migration of guest "+dom.Name, h.opts.LongTimeout, func(c *rpc.Libvirt) error {
		return c.DomainMigrateConfirm3Params(dom, nil, cookie, uint32(migrateFlags), no)
	})
	// A daemon that was asked before, or that lost the connection in between, knows of no migration: the guest itself tells how it is.
	if problem.Is(err, problem.Unavailable) {
		return err
	}
	if !cancelled {
		return h.Remove(ctx, id)
	}
	return h.reach(ctx, dom, compute.PowerOn, false)
}
