package service

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// pendingCreation is a request on its way: what it names, as it is in the store.
type pendingCreation struct {
	*compute.Creation
	who      compute.Who
	flavor   *compute.Flavor
	image    *compute.Image // nil: from a volume
	key      *compute.Keypair
	networks []*compute.Network
	hash     secret.Value
}

// Create makes servers: all of them and their jobs in one transaction, or none.
func (s *Servers) Create(ctx context.Context, c compute.Creation, who compute.Who) ([]*compute.Server, error) {
	if err := c.Check(who); err != nil {
		return nil, err
	}
	cr := &pendingCreation{Creation: &c, who: who}
	if !c.Password.Empty() {
		var err error
		if cr.hash, err = rescue.HashPassword(c.Password, s.opts.HashAlgorithm); err != nil {
			return nil, err
		}
	}
	var out []*compute.Server
	err := s.change(ctx, func(tx job.Tx) error {
		out = nil
		if err := s.resolve(ctx, tx, cr); err != nil {
			return err
		}
		for i := range max(1, c.Count) {
			srv, err := s.createOne(ctx, tx, cr, i)
			if err != nil {
				return err
			}
			out = append(out, srv)
		}
		return nil
	})
	return out, err
}

// resolve reads what the request names.
func (s *Servers) resolve(ctx context.Context, tx job.Tx, c *pendingCreation) error {
	var err error
	if c.flavor, err = s.store.Flavors().Get(ctx, tx, c.Flavor); err != nil || c.flavor.Disabled {
		return invalidReferenceError(err, "flavor", c.Flavor)
	}
	if c.Image != "" {
		if c.image, err = s.image(ctx, tx, c.Image, c.who); err != nil {
			return err
		}
		if err := compute.CheckFlavorForImage(c.image, c.flavor); err != nil {
			return err
		}
	}
	if c.KeyName != "" {
		keys, err := s.store.Keypairs().List(ctx, tx, compute.KeypairFilter{User: c.User, Name: c.KeyName}, record.Page{})
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return problem.Invalidf("Invalid key_name provided.")
		}
		c.key = keys[0]
	}
	c.networks = nil
	for _, wish := range c.Networks {
		n, err := s.store.Networks().Get(ctx, tx, wish.Network)
		if err != nil || !n.Shared && !c.who.Sees(n.Project) {
			return invalidReferenceError(err, "network", wish.Network)
		}
		c.networks = append(c.networks, n)
	}
	return nil
}

// invalidReferenceError makes one sentence of what is not there and what may not be seen.
func invalidReferenceError(err error, what, ident string) error {
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	return problem.Invalidf("%s %s could not be found", what, compute.TruncateText(ident))
}

// image reads an image that who may use, in a state to be used.
func (s *Servers) image(ctx context.Context, tx job.Tx, id string, who compute.Who) (*compute.Image, error) {
	img, err := s.store.Images().Get(ctx, tx, id)
	if err != nil || !img.Visible(who) {
		return nil, invalidReferenceError(err, "image", id)
	}
	if img.Status != compute.ImageActive {
		return nil, problem.Invalidf("image %s is not active: it is %s", img.ID, img.Status)
	}
	return img, nil
}

// createOne writes one server with all that belongs to it.
func (s *Servers) createOne(ctx context.Context, tx job.Tx, c *pendingCreation, index int) (*compute.Server, error) {
	srv := &compute.Server{
		Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()},
		Name:   strings.TrimSpace(c.Name), Project: c.who.Project, User: c.User, Description: c.Description, Zone: c.Zone,
		Tags: c.Tags, Metadata: maps.Clone(c.Metadata), State: compute.Building, Task: compute.Scheduling, Wanted: compute.PowerOn,
		Flavor: *c.flavor, Firmware: compute.BIOS, UserData: c.UserData, ConfigDrive: c.ConfigDrive, SecurityGroups: c.SecurityGroups,
	}
	if c.Count > 1 {
		srv.Name = fmt.Sprintf("%s-%d", srv.Name, index+1)
	}
	srv.GuestName = "salvor-" + srv.ID
	if c.key != nil {
		srv.KeyName, srv.PublicKey = c.key.Name, c.key.PublicKey
	}
	if c.image != nil {
		srv.ApplyImage(c.image)
	}
	if err := checkWords(srv); err != nil {
		return nil, err
	}
	if err := s.disks(ctx, tx, c, srv); err != nil {
		return nil, err
	}
	if err := s.interfaces(tx, c, srv); err != nil {
		return nil, err
	}
	// Without a config drive nothing would tell the guest its addresses, keys or user data.
	srv.ConfigDrive = srv.ConfigDrive || len(srv.NICs) > 0 || srv.PublicKey != "" || !srv.UserData.Empty() || !c.hash.Empty()
	return srv, s.insertServer(tx, c, srv)
}

func (s *Servers) insertServer(tx job.Tx, c *pendingCreation, srv *compute.Server) error {
	var hash any
	if !c.hash.Empty() {
		hash = compute.JobSecret{Hash: c.hash.Reveal()}
	}
	j, err := compute.NewJob(srv.ID, srv.JobKind(compute.JobCreate), compute.CreateArgs{Host: c.Host}, hash, c.who.Asker)
	if err != nil {
		return err
	}
	if err := s.jobs.Insert(tx, j); err != nil {
		return err
	}
	if err := s.store.Servers().Insert(tx, srv); err != nil {
		return err
	}
	return s.note(tx, srv.ID, c.who.Asker, "request", "asked to create")
}

// disks lists the server's disks in the order in which its guest sees them, and reserves the volumes among them.
func (s *Servers) disks(ctx context.Context, tx job.Tx, c *pendingCreation, srv *compute.Server) error {
	if err := c.checkMetalDisks(); err != nil {
		return err
	}
	prefix := compute.DiskPrefix(srv.ImageProperties)
	if c.image != nil {
		size := c.flavor.Disk
		if size == 0 {
			size = max(1, c.image.SizeGiB(), c.image.MinDisk)
			if size > compute.MaxImpliedDisk {
				return problem.Invalidf("flavor %s gives no disk size, and image %s is a disk of %d GiB; without a size at most %d are given: choose a flavor with a disk", c.flavor.Name, c.image.ID, size, compute.MaxImpliedDisk)
			}
		}
		srv.Disks = []compute.Disk{{Name: prefix + "a", BootIndex: 0, Store: s.opts.DefaultStore, SizeGiB: size, ImageID: c.image.ID, DeleteOnTermination: true}}
	}
	wishes := slices.Clone(c.Disks)
	// The disk that is booted from is the first that the guest sees.
	slices.SortStableFunc(wishes, func(a, b compute.DiskRequest) int { return compute.BootRank(a) - compute.BootRank(b) })
	for _, w := range wishes {
		if err := s.disk(ctx, tx, c, srv, w, prefix); err != nil {
			return err
		}
	}
	if len(srv.Disks) == 0 || srv.Disks[0].BootIndex != 0 {
		return problem.Invalidf("Block Device Mapping is Invalid: the server has nothing to boot from; name an image, or a volume with boot index 0")
	}
	for _, extra := range []int{c.flavor.Ephemeral, (c.flavor.Swap + 1023) / 1024} {
		if extra == 0 || srv.Metal() { // a machine has the disks it has
			continue
		}
		if len(srv.Disks) >= compute.MaxDisks {
			return problem.Invalidf("a server has at most %d disks", compute.MaxDisks)
		}
		srv.Disks = append(srv.Disks, compute.Disk{Name: compute.FreeName(srv.Disks, prefix), BootIndex: -1, Store: s.opts.DefaultStore, SizeGiB: extra, DeleteOnTermination: true})
	}
	return nil
}

// disk adds a disk that was asked for.
func (s *Servers) disk(ctx context.Context, tx job.Tx, c *pendingCreation, srv *compute.Server, w compute.DiskRequest, prefix string) error {
	boots := w.BootIndex == 0
	if boots && slices.ContainsFunc(srv.Disks, func(d compute.Disk) bool { return d.BootIndex == 0 }) {
		return problem.Invalidf("Block Device Mapping is Invalid: two disks have boot index 0")
	}
	if boots && w.VolumeID == "" {
		return problem.Invalidf("Block Device Mapping is Invalid: a blank disk cannot be booted from")
	}
	name, err := compute.PlaceDisk(srv.Disks, w.Device, prefix)
	if err != nil {
		return err
	}
	d := compute.Disk{Name: name, BootIndex: max(-1, w.BootIndex), DeleteOnTermination: w.DeleteOnTermination}
	if w.VolumeID == "" {
		if w.SizeGiB < 1 {
			return problem.Invalidf("Block Device Mapping is Invalid: a blank disk needs a size in GiB")
		}
		d.Store, d.SizeGiB, d.DeleteOnTermination = s.opts.DefaultStore, w.SizeGiB, true
		srv.Disks = append(srv.Disks, d)
		return nil
	}
	v, err := s.volume(ctx, tx, w.VolumeID, c.who)
	if err != nil {
		return invalidReferenceError(err, "volume", w.VolumeID)
	}
	if err := s.reserve(tx, v, compute.VolumeReserved, srv.ID, name); err != nil {
		return problem.Invalidf("Block Device Mapping is Invalid: %w", err)
	}
	if boots {
		srv.ApplyProperties(v.ImageProperties)
	}
	d.VolumeID, d.SizeGiB = v.ID, v.SizeGiB
	srv.Disks = append(srv.Disks, d)
	return nil
}

// interfaces gives the server its interfaces, with addresses for life.
func (s *Servers) interfaces(tx job.Tx, c *pendingCreation, srv *compute.Server) error {
	for i, n := range c.networks {
		mac, err := newMAC()
		if err != nil {
			return err
		}
		nic := compute.NIC{ID: uuid.NewString(), NetworkID: n.ID, Bridge: n.Bridge, MAC: mac}
		wish := c.Networks[i].Address
		switch {
		case n.CIDR != "":
			a, err := s.store.AllocateAddress(tx, n, compute.Address{NetworkID: n.ID, MAC: mac, ServerID: srv.ID}, wish)
			if err != nil {
				return err
			}
			nic.Addresses = []string{a}
		case wish != "":
			return problem.Invalidf("network %s has no subnet: no address of it can be asked for", n.ID)
		}
		srv.NICs = append(srv.NICs, nic)
	}
	return nil
}

// newMAC draws an address of the range that virtual machines of OpenStack have.
func newMAC() (string, error) {
	b := make([]byte, 3)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", b[0], b[1], b[2]), nil
}
