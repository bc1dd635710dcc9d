package compute

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// Creation is what somebody asks to be made.
type Creation struct {
	Name, Description, User string
	Metadata                map[string]string
	Tags                    []string
	Zone                    string
	// Host pins it, by UUID or name; administrators only.
	Host string
	// Flavor by UUID, ref or name; Image by UUID (empty: boots from a volume); KeyName of User.
	Flavor, Image, KeyName string
	UserData               secret.Value // base64
	ConfigDrive            bool
	SecurityGroups         []string
	// Password of the system, in clear; empty: none. Only its hash is kept, and only until it is used.
	Password secret.Value
	Networks []NetworkRequest
	Disks    []DiskRequest
	// Count of servers; 0 is 1. More than one are named NAME-1, NAME-2...
	Count int
}

// NetworkRequest asks for an interface.
type NetworkRequest struct {
	Network string // UUID or name
	Address string // empty: any
}

// DiskRequest asks for a disk beside the flavor's.
type DiskRequest struct {
	// VolumeID of a volume; empty: a blank local disk of SizeGiB.
	VolumeID            string
	SizeGiB             int
	BootIndex           int // 0 is booted from; -1 never
	Device              string
	DeleteOnTermination bool
}

// Bounds of what one request may ask for.
const (
	maxCount    = 100
	maxNICs     = 16
	maxUserData = 64 << 10 // of base64
)

// pendingCreation is a request on its way: what it names, as it is in the store.
type pendingCreation struct {
	*Creation
	who      Who
	flavor   *Flavor
	image    *Image // nil: from a volume
	key      *Keypair
	networks []*Network
	hash     secret.Value
}

// Create makes servers: all of them and their jobs in one transaction, or none.
func (s *Servers) Create(ctx context.Context, c Creation, who Who) ([]*Server, error) {
	if err := c.check(who); err != nil {
		return nil, err
	}
	cr := &pendingCreation{Creation: &c, who: who}
	if !c.Password.Empty() {
		var err error
		if cr.hash, err = rescue.HashPassword(c.Password, s.opts.HashAlgorithm); err != nil {
			return nil, err
		}
	}
	var out []*Server
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

// check holds a request to what can be told without the store.
func (c *Creation) check(who Who) error {
	switch {
	case c.Count < 0 || c.Count > maxCount:
		return problem.Invalidf("at most %d servers can be made at once, at least 1", maxCount)
	case c.Count > 1 && slices.ContainsFunc(c.Disks, func(d DiskRequest) bool { return d.VolumeID != "" }):
		return problem.Invalidf("several servers cannot have the same volume: ask for one at a time")
	case c.Count > 1 && slices.ContainsFunc(c.Networks, func(n NetworkRequest) bool { return n.Address != "" }):
		return problem.Invalidf("several servers cannot have the same address: ask for one at a time")
	case len(c.Networks) > maxNICs:
		return problem.Invalidf("a server has at most %d interfaces", maxNICs)
	case c.Host != "" && !who.Admin:
		return problem.Forbiddenf("only administrators choose the host of a server")
	case c.UserData.Empty():
		return nil
	case len(c.UserData.Reveal()) > maxUserData:
		return problem.Invalidf("user data is longer than %d bytes", maxUserData)
	}
	if _, err := base64.StdEncoding.DecodeString(c.UserData.Reveal()); err != nil {
		return problem.Invalidf("user data is not base64")
	}
	return nil
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
		if err := checkFlavorForImage(c.image, c.flavor); err != nil {
			return err
		}
	}
	if c.KeyName != "" {
		keys, err := s.store.Keypairs().List(ctx, tx, KeypairFilter{User: c.User, Name: c.KeyName}, record.Page{})
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
		if err != nil || !n.Shared && !c.who.sees(n.Project) {
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
	return problem.Invalidf("%s %s could not be found", what, truncateText(ident))
}

// image reads an image that who may use, in a state to be used.
func (s *Servers) image(ctx context.Context, tx job.Tx, id string, who Who) (*Image, error) {
	img, err := s.store.Images().Get(ctx, tx, id)
	if err != nil || !img.Visible(who) {
		return nil, invalidReferenceError(err, "image", id)
	}
	if img.Status != ImageActive {
		return nil, problem.Invalidf("image %s is not active: it is %s", img.ID, img.Status)
	}
	return img, nil
}

// Visible tells whether who may see the image.
func (i *Image) Visible(who Who) bool {
	return i.Visibility != "private" && i.Visibility != "shared" || who.sees(i.Owner)
}

const gib = 1 << 30

// checkFlavorForImage holds a flavor to what an image needs.
func checkFlavorForImage(i *Image, f *Flavor) error {
	switch {
	case i.DiskFormat == "aki" || i.DiskFormat == "ari":
		return problem.Invalidf("image %s is a %s: no server can be made from it alone", i.ID, i.DiskFormat)
	case i.MinRAM > f.RAM:
		return problem.Invalidf("Flavor's memory is too small for requested image: %d MiB of RAM are needed.", i.MinRAM)
	case f.Disk > 0 && i.MinDisk > f.Disk:
		return problem.Invalidf("Flavor's disk is smaller than the minimum size specified in image metadata: %d GiB are needed.", i.MinDisk)
	case f.Disk > 0 && i.gib() > f.Disk:
		return problem.Invalidf("Flavor's disk is too small for requested image: it has %d GiB, %d are needed.", f.Disk, i.gib())
	}
	return nil
}

// gib is the size of the disk in an image, in whole GiB.
func (i *Image) gib() int { return int((max(i.Size, i.VirtualSize) + gib - 1) / gib) }

// createOne writes one server with all that belongs to it.
func (s *Servers) createOne(ctx context.Context, tx job.Tx, c *pendingCreation, index int) (*Server, error) {
	srv := &Server{
		Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()},
		Name:   strings.TrimSpace(c.Name), Project: c.who.Project, User: c.User, Description: c.Description, Zone: c.Zone,
		Tags: c.Tags, Metadata: maps.Clone(c.Metadata), State: Building, Task: Scheduling, Wanted: PowerOn,
		Flavor: *c.flavor, Firmware: BIOS, UserData: c.UserData, ConfigDrive: c.ConfigDrive, SecurityGroups: c.SecurityGroups,
	}
	if c.Count > 1 {
		srv.Name = fmt.Sprintf("%s-%d", srv.Name, index+1)
	}
	srv.GuestName = "salvor-" + srv.ID
	if c.key != nil {
		srv.KeyName, srv.PublicKey = c.key.Name, c.key.PublicKey
	}
	if c.image != nil {
		srv.takeImage(c.image)
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

func (s *Servers) insertServer(tx job.Tx, c *pendingCreation, srv *Server) error {
	var hash any
	if !c.hash.Empty() {
		hash = JobSecret{Hash: c.hash.Reveal()}
	}
	j, err := newJob(srv.ID, srv.jobKind(JobCreate), CreateArgs{Host: c.Host}, hash, c.who.Asker)
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

// takeImage copies what an image says of the system in it.
func (s *Server) takeImage(i *Image) {
	s.ImageID = i.ID
	s.takeProperties(i.Properties)
}

// takeProperties copies an image's properties, and reads the operating system, its family and the firmware from them.
func (s *Server) takeProperties(p map[string]string) {
	s.ImageProperties = maps.Clone(p)
	s.OS, s.OSFamily = systemOf(p)
	s.Firmware = BIOS
	if p["hw_firmware_type"] == string(UEFI) {
		s.Firmware = UEFI
	}
}

// systemOf reads the operating system and its family: Cyclades' properties, else those of the Image API.
func systemOf(p map[string]string) (system, family string) {
	if system = p["OS"]; system == "" {
		system = p["os_distro"]
	}
	if family = p["OSFAMILY"]; family == "" {
		family = p["os_type"]
	}
	return system, family
}

// maxImpliedDisk is the largest disk, in GiB, that an image gives to a server whose flavor names no size: a project chooses the image.
const maxImpliedDisk = 64

// disks lists the server's disks in the order in which its guest sees them, and reserves the volumes among them.
func (s *Servers) disks(ctx context.Context, tx job.Tx, c *pendingCreation, srv *Server) error {
	if err := c.checkMetalDisks(); err != nil {
		return err
	}
	prefix := diskPrefix(srv.ImageProperties)
	if c.image != nil {
		size := c.flavor.Disk
		if size == 0 {
			size = max(1, c.image.gib(), c.image.MinDisk)
			if size > maxImpliedDisk {
				return problem.Invalidf("flavor %s gives no disk size, and image %s is a disk of %d GiB; without a size at most %d are given: choose a flavor with a disk", c.flavor.Name, c.image.ID, size, maxImpliedDisk)
			}
		}
		srv.Disks = []Disk{{Name: prefix + "a", BootIndex: 0, Store: s.opts.DefaultStore, SizeGiB: size, ImageID: c.image.ID, DeleteOnTermination: true}}
	}
	wishes := slices.Clone(c.Disks)
	// The disk that is booted from is the first that the guest sees.
	slices.SortStableFunc(wishes, func(a, b DiskRequest) int { return bootRank(a) - bootRank(b) })
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
		if len(srv.Disks) >= maxDisks {
			return problem.Invalidf("a server has at most %d disks", maxDisks)
		}
		srv.Disks = append(srv.Disks, Disk{Name: freeName(srv.Disks, prefix), BootIndex: -1, Store: s.opts.DefaultStore, SizeGiB: extra, DeleteOnTermination: true})
	}
	return nil
}

func bootRank(w DiskRequest) int {
	if w.BootIndex < 0 {
		return 1 << 20
	}
	return min(w.BootIndex, 1<<20)
}

// disk adds a disk that was asked for.
func (s *Servers) disk(ctx context.Context, tx job.Tx, c *pendingCreation, srv *Server, w DiskRequest, prefix string) error {
	boots := w.BootIndex == 0
	if boots && slices.ContainsFunc(srv.Disks, func(d Disk) bool { return d.BootIndex == 0 }) {
		return problem.Invalidf("Block Device Mapping is Invalid: two disks have boot index 0")
	}
	if boots && w.VolumeID == "" {
		return problem.Invalidf("Block Device Mapping is Invalid: a blank disk cannot be booted from")
	}
	name, err := placeDisk(srv.Disks, w.Device, prefix)
	if err != nil {
		return err
	}
	d := Disk{Name: name, BootIndex: max(-1, w.BootIndex), DeleteOnTermination: w.DeleteOnTermination}
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
	if err := s.reserve(tx, v, VolumeReserved, srv.ID, name); err != nil {
		return problem.Invalidf("Block Device Mapping is Invalid: %w", err)
	}
	if boots {
		srv.takeProperties(v.ImageProperties)
	}
	d.VolumeID, d.SizeGiB = v.ID, v.SizeGiB
	srv.Disks = append(srv.Disks, d)
	return nil
}

// interfaces gives the server its interfaces, with addresses for life.
func (s *Servers) interfaces(tx job.Tx, c *pendingCreation, srv *Server) error {
	for i, n := range c.networks {
		mac, err := newMAC()
		if err != nil {
			return err
		}
		nic := NIC{ID: uuid.NewString(), NetworkID: n.ID, Bridge: n.Bridge, MAC: mac}
		wish := c.Networks[i].Address
		switch {
		case n.CIDR != "":
			a, err := s.store.AllocateAddress(tx, n, Address{NetworkID: n.ID, MAC: mac, ServerID: srv.ID}, wish)
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
