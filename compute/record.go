package compute

import (
	"crypto/md5"
	"encoding/hex"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// RecordUpdated begins the text of an event that tells which words of a server its user changed. Nova counts no such change as an instance action.
const RecordUpdated = "server updated: "

// Flavor is a size of servers.
type Flavor struct {
	record.Record
	Num   int64
	Ref   string // the id that users gave or were given; unique
	Name  string
	VCPUs int
	// RAM in MiB, Disk, Ephemeral in GiB, Swap in MiB.
	RAM, Disk, Ephemeral, Swap int
	Public                     bool
	Disabled                   bool
	Description                string
	ExtraSpecs                 map[string]string
}

// FlavorFilter narrows a list of flavors.
type FlavorFilter struct {
	Public          *bool
	MinRAM, MinDisk int
	Name            string
}

// ImageStatus is how far an image's bytes are.
type ImageStatus string

const (
	ImageQueued      ImageStatus = "queued"
	ImageSaving      ImageStatus = "saving"
	ImageActive      ImageStatus = "active"
	ImageKilled      ImageStatus = "killed"
	ImageDeactivated ImageStatus = "deactivated"
)

// Image is what servers are made from.
type Image struct {
	record.Record
	Num             int64
	Name            string
	Owner           string // project
	Visibility      string // public, private, shared, community
	Status          ImageStatus
	Protected       bool
	ContainerFormat string
	DiskFormat      string // raw, qcow2, iso, aki, ari
	// Size in bytes; VirtualSize of the disk in it. Digest is "sha256:" and digits, MD5 and SHA512 hexadecimal digits.
	Size, VirtualSize   int64
	Digest, MD5, SHA512 string
	// URL is where the bytes lie; empty: with us, under their digest.
	URL             string
	MinDisk, MinRAM int
	Tags            []string
	Properties      map[string]string
}

// ImageFilter narrows a list of images.
type ImageFilter struct {
	// Project sees its own and public ones; empty: all.
	Project                                             string
	Name, Owner, Visibility, Status, DiskFormat, OSHash string
	Tag                                                 string
	IDs                                                 []string
}

// Keypair is a public ssh key of a user.
type Keypair struct {
	record.Record
	User, Name, Type       string
	PublicKey, Fingerprint string
}

// KeypairFilter narrows a list of keypairs.
type KeypairFilter struct{ User, Name string }

// Network is a bridge of the hosts with a subnet.
type Network struct {
	record.Record
	Num     int64
	Name    string
	Project string
	// Bridge is its name on every host that has it.
	Bridge string
	// CIDR of the subnet; empty: no addresses are given. First and Last bound the pool.
	CIDR, Gateway, First, Last string
	DNS                        []string
	MTU                        int
	// Shared: every project may use it.
	Shared bool
}

// NetworkFilter narrows a list of networks.
type NetworkFilter struct{ Project, Name string }

// Address is an allocated address; unique in its network.
type Address struct {
	NetworkID, Address string
	MAC, ServerID      string
}

// VolumeStatus is as in the Block Storage API.
type VolumeStatus string

const (
	VolumeAvailable VolumeStatus = "available"
	VolumeReserved  VolumeStatus = "reserved"
	VolumeAttaching VolumeStatus = "attaching"
	VolumeInUse     VolumeStatus = "in-use"
	VolumeDetaching VolumeStatus = "detaching"
	VolumeError     VolumeStatus = "error"
)

// Volume is a disk of a storage system; salvor keeps where it is reached and does not make it.
type Volume struct {
	record.Record
	Num               int64
	Name, Description string
	Project, User     string
	SizeGiB           int
	Status            VolumeStatus
	Bootable          bool
	Metadata          map[string]string
	// Portal (ADDRESS:PORT), IQN and LUN reach it by iSCSI; CHAPUser and CHAPPassword open it, both empty: it is open.
	Portal, IQN  string
	LUN          int
	CHAPUser     string
	CHAPPassword secret.Value // sealed at rest
	// ServerID is who has it, Device the target there.
	ServerID, Device string
	AttachedAt       time.Time
	// ImageProperties of a bootable volume choose a rescue image and a firmware.
	ImageProperties map[string]string
}

// VolumeFilter narrows a list of volumes.
type VolumeFilter struct {
	Project, Name, ServerID, IQN string
	Status                       VolumeStatus
}

// ImageTransports is which status follows which.
var ImageTransports = map[ImageStatus][]ImageStatus{
	ImageQueued:      {ImageSaving, ImageActive, ImageKilled},
	ImageSaving:      {ImageActive, ImageQueued, ImageKilled},
	ImageActive:      {ImageDeactivated},
	ImageDeactivated: {ImageActive},
}

const MaxPublicKey = 16384

// KeyFingerprint is that of an ssh public key as Nova tells it: MD5, for it only names the key. What is no single ssh
// public key is Invalid.
func KeyFingerprint(public string) (string, error) {
	if len(public) > MaxPublicKey || strings.ContainsAny(public, "\n\r\x00") {
		return "", problem.Invalidf("Keypair data is invalid: want one ssh public key on one line")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(public))
	if err != nil || len(rest) > 0 || len(options) > 0 {
		return "", problem.Invalidf("Keypair data is invalid: failed to generate fingerprint")
	}
	sum := md5.Sum(key.Marshal())
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = hex.EncodeToString([]byte{b})
	}
	return strings.Join(parts, ":"), nil
}

// AccessProperty is the property of an image that says how a rescue system in it takes its credential; without it a disk
// image is trusted to have cloud-init, and an ISO image takes none.
const AccessProperty = "salvor_rescue_access"
