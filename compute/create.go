package compute

import (
	"encoding/base64"
	"maps"
	"slices"

	"salvor/problem"
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

// Check holds a request to what can be told without the store.
func (c *Creation) Check(who Who) error {
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

// Visible tells whether who may see the image.
func (i *Image) Visible(who Who) bool {
	return i.Visibility != "private" && i.Visibility != "shared" || who.Sees(i.Owner)
}

const GiB = 1 << 30

// CheckFlavorForImage holds a flavor to what an image needs.
func CheckFlavorForImage(i *Image, f *Flavor) error {
	switch {
	case i.DiskFormat == "aki" || i.DiskFormat == "ari":
		return problem.Invalidf("image %s is a %s: no server can be made from it alone", i.ID, i.DiskFormat)
	case i.MinRAM > f.RAM:
		return problem.Invalidf("Flavor's memory is too small for requested image: %d MiB of RAM are needed.", i.MinRAM)
	case f.Disk > 0 && i.MinDisk > f.Disk:
		return problem.Invalidf("Flavor's disk is smaller than the minimum size specified in image metadata: %d GiB are needed.", i.MinDisk)
	case f.Disk > 0 && i.SizeGiB() > f.Disk:
		return problem.Invalidf("Flavor's disk is too small for requested image: it has %d GiB, %d are needed.", f.Disk, i.SizeGiB())
	}
	return nil
}

// SizeGiB is the size of the disk in an image, in whole GiB.
func (i *Image) SizeGiB() int { return int((max(i.Size, i.VirtualSize) + GiB - 1) / GiB) }

// ApplyImage copies what an image says of the system in it.
func (s *Server) ApplyImage(i *Image) {
	s.ImageID = i.ID
	s.ApplyProperties(i.Properties)
}

// ApplyProperties copies an image's properties, and reads the operating system, its family and the firmware from them.
func (s *Server) ApplyProperties(p map[string]string) {
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

// MaxImpliedDisk is the largest disk, in GiB, that an image gives to a server whose flavor names no size: a project chooses the image.
const MaxImpliedDisk = 64

func BootRank(w DiskRequest) int {
	if w.BootIndex < 0 {
		return 1 << 20
	}
	return min(w.BootIndex, 1<<20)
}
