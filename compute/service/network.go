package service

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

func newNetworks(c *serviceCore) *Networks {
	s := record.NewCollection("network", c.store.Networks(), c.jobs, c.now)
	s.Check = checkNetwork
	s.Admit = func(ctx context.Context, tx job.Tx, ch record.Change[compute.Network]) error {
		if ch.Old == nil || ch.New == nil || ch.Old.CIDR == ch.New.CIDR && ch.Old.Bridge == ch.New.Bridge {
			return nil
		}
		used, err := c.store.Addresses(ctx, tx, ch.Old.ID)
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return problem.Conflictf("network %s is in use by %d addresses: its subnet and its bridge stay", ch.Old.ID, len(used))
		}
		return nil
	}
	return s
}

// bridgeName is the name of an interface of Linux.
var bridgeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$`)

func checkNetwork(n *compute.Network) error {
	if n.Name = strings.TrimSpace(n.Name); n.Name == "" || len(n.Name) > 255 || record.IsUUID(n.Name) {
		return problem.Invalidf("a network's name has 1 to 255 characters and is no UUID")
	}
	if !bridgeName.MatchString(n.Bridge) {
		return problem.Invalidf("network %s: bridge %.50q is no name of a bridge", n.Name, n.Bridge)
	}
	if n.MTU != 0 && (n.MTU < 68 || n.MTU > 65535) {
		return problem.Invalidf("network %s: an MTU is 68 to 65535", n.Name)
	}
	for i, dns := range n.DNS {
		a, err := netip.ParseAddr(dns)
		if err != nil {
			return problem.Invalidf("network %s: DNS server %.50q is no address", n.Name, dns)
		}
		n.DNS[i] = a.String()
	}
	if n.CIDR == "" {
		if n.Gateway != "" || n.First != "" || n.Last != "" {
			return problem.Invalidf("network %s: a gateway or a pool needs a subnet", n.Name)
		}
		return nil
	}
	return checkSubnet(n)
}

// checkSubnet holds gateway and pool to the subnet; a pool that is not said is all of it but its ends.
func checkSubnet(n *compute.Network) error {
	p, err := netip.ParsePrefix(n.CIDR)
	if err != nil || p != p.Masked() {
		return problem.Invalidf("network %s: %.60q is no subnet; want ADDRESS/LENGTH with no bit set behind the length", n.Name, n.CIDR)
	}
	if p.Addr().Is4In6() || p.Addr().BitLen()-p.Bits() < 2 {
		return problem.Invalidf("network %s: subnet %s has no room for servers", n.Name, n.CIDR)
	}
	n.CIDR = p.String()
	last := lastOf(p)
	if n.First == "" {
		n.First = p.Addr().Next().String()
	}
	if n.Last == "" {
		n.Last = last.Prev().String()
	}
	for field, v := range map[string]*string{"gateway": &n.Gateway, "first": &n.First, "last": &n.Last} {
		if field == "gateway" && *v == "" {
			continue
		}
		a, err := netip.ParseAddr(*v)
		if err != nil || !p.Contains(a) || a == p.Addr() || p.Addr().Is4() && a == last {
			return problem.Invalidf("network %s: %s %.50q is no host's address in %s", n.Name, field, *v, n.CIDR)
		}
		*v = a.String()
	}
	first, _ := netip.ParseAddr(n.First) // both were read above
	if end, _ := netip.ParseAddr(n.Last); end.Less(first) {
		return problem.Invalidf("network %s: its pool ends before it begins", n.Name)
	}
	return nil
}

// lastOf is the last address of a subnet.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		b[i] |= byte(0xff >> min(8, max(0, p.Bits()-8*i)))
	}
	a, _ := netip.AddrFromSlice(b) // 4 or 16 bytes, as they came
	return a
}

func newVolumes(c *serviceCore) *Volumes {
	s := record.NewCollection("volume", c.store.Volumes(), c.jobs, c.now)
	s.Check = checkVolume
	s.Admit = func(ctx context.Context, tx job.Tx, ch record.Change[compute.Volume]) error {
		if ch.Old == nil {
			return nil
		}
		if ch.New != nil && ch.Old.ServerID != "" && ch.New.ServerID != ch.Old.ServerID {
			if err := c.refuseToFree(ctx, tx, ch.Old); err != nil {
				return err
			}
		}
		if ch.New != nil && ch.New.Status == compute.VolumeInUse && ch.Old.Status != compute.VolumeInUse && ch.New.ServerID == "" && ch.Old.ServerID == "" {
			if err := c.giveBack(ctx, tx, ch.New); err != nil {
				return err
			}
		}
		free := ch.Old.Status == compute.VolumeAvailable || ch.Old.Status == compute.VolumeError
		if ch.New == nil && !free {
			return problem.Invalidf("Invalid volume: Volume status must be available or error, but volume %s is %s.", ch.Old.ID, ch.Old.Status)
		}
		if ch.New != nil && !free && volumeTargetKey(ch.New) != volumeTargetKey(ch.Old) {
			return problem.Conflictf("volume %s is %s: where it is reached stays", ch.Old.ID, ch.Old.Status)
		}
		return nil
	}
	return s
}

// refuseToFree refuses to set a volume free that a server still has as a disk: a second server could attach it and write to it.
func (c *serviceCore) refuseToFree(ctx context.Context, tx job.Tx, v *compute.Volume) error {
	srv, err := c.store.Servers().Get(ctx, tx, v.ServerID)
	if err != nil || srv.State == compute.Deleted {
		return ignoreNotFound(err)
	}
	i := slices.IndexFunc(srv.Disks, func(d compute.Disk) bool { return d.VolumeID == v.ID })
	if i < 0 {
		return nil
	}
	way := srv.CommandToDetach(srv.Disks[i])
	switch {
	case way == "":
		way = "the server boots from it, and only its deletion frees the volume: openstack server delete " + srv.ID
	case v.Status != compute.VolumeInUse:
		way = "call it in use (openstack volume set --state in-use " + v.ID + "), then " + way
	}
	return problem.Conflictf("volume %s is a disk of server %s: %s", v.ID, srv.ID, way)
}

// giveBack attaches a volume again that is called in use and that no server has by its record, to the one server that has its disk.
func (c *serviceCore) giveBack(ctx context.Context, tx job.Tx, v *compute.Volume) error {
	all, err := c.store.Servers().List(ctx, tx, compute.ServerFilter{}, record.Page{})
	if err != nil {
		return err
	}
	for _, srv := range all {
		for _, d := range srv.Disks {
			switch {
			case d.VolumeID != v.ID:
			case v.ServerID != "":
				return problem.Conflictf("volume %s is a disk of servers %s and %s; take it off one of them first: openstack server remove volume SERVER %[1]s", v.ID, v.ServerID, srv.ID)
			default:
				v.ServerID, v.Device, v.AttachedAt = srv.ID, d.Name, c.now()
			}
		}
	}
	return nil
}

func volumeTargetKey(v *compute.Volume) [3]string {
	return [3]string{v.Portal, v.IQN, strconv.Itoa(v.LUN)}
}

var targetName = regexp.MustCompile(`^(iqn\.\d{4}-\d{2}\.[a-z0-9.:_-]+|eui\.[0-9a-fA-F]{16}|naa\.[0-9a-fA-F]{16,32})$`)

func checkVolume(v *compute.Volume) error {
	if v.Status == "" {
		v.Status = compute.VolumeAvailable
	}
	switch {
	case len(v.Name) > 255 || len(v.Description) > 255:
		return problem.Invalidf("volume: name and description have at most 255 characters")
	case v.SizeGiB < 1 || v.SizeGiB > most:
		return problem.Invalidf("volume: a size is at least 1 GiB")
	case v.LUN < 0 || v.LUN > 16383:
		return problem.Invalidf("volume: a LUN is 0 to 16383")
	case (v.CHAPUser == "") != v.CHAPPassword.Empty():
		return problem.Invalidf("volume: CHAP takes a user and a password")
	case strings.ContainsAny(v.CHAPUser+v.CHAPPassword.Reveal(), "\x00\n\r"):
		return problem.Invalidf("volume: CHAP's user and password are one line each")
	case v.Portal == "" && v.IQN == "":
		return nil // it is told later where it is; until then no server can have it
	case len(v.IQN) > 223 || !targetName.MatchString(v.IQN):
		return problem.Invalidf("volume: %.100q is no name of an iSCSI target", v.IQN)
	}
	if !isPortal(v.Portal) {
		return problem.Invalidf("volume: portal %.100q: want ADDRESS:PORT", v.Portal)
	}
	return nil
}

var hostPort = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]{0,252})?|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})$`)

func isPortal(s string) bool {
	m := hostPort.FindStringSubmatch(s)
	if m == nil {
		return false
	}
	port, err := strconv.Atoi(m[3])
	return err == nil && port > 0 && port < 1<<16
}
