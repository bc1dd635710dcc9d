package rescue

import (
	"time"

	"salvor/record"
	"salvor/secret"
)

// Location types of rescue images.
const (
	LocationFile = "file" // a path under the rescue image directory of every VM host
	LocationHTTP = "http" // a URL
)

// Kind is how an image is booted.
type Kind string

const (
	ISO    Kind = "iso"
	Disk   Kind = "disk"
	Kernel Kind = "kernel" // a kernel with a ramdisk
)

// Access is how a rescue system gets its credential.
type Access string

const (
	// ByChannel: our agent in it takes the credential over a virtio-serial channel and tells its fingerprint.
	ByChannel Access = "channel"
	// ByConfigDrive: cloud-init in it reads the hash and the keys from a config drive.
	ByConfigDrive Access = "config-drive"
	// ByNode: the machine's own endpoint hands the password on.
	ByNode Access = "node"
	// NoAccess: it takes no password; none is returned.
	NoAccess Access = "none"
)

// Source says where the bytes of a rescue system lie and how they are booted.
type Source struct {
	// ImageID is the rescue image's number, 0 where an image of the image API is booted as it is.
	ImageID int64 `json:"rescue_image,omitempty"`
	// ImageUUID is the image of the image API that holds the bytes, if one does.
	ImageUUID    string `json:"image,omitempty"`
	Name         string `json:"name"`
	Kind         Kind   `json:"kind"`
	Access       Access `json:"access"`
	LocationType string `json:"location_type,omitempty"`
	// Location of an ISO or disk, or of the kernel; Ramdisk that of its ramdisk.
	Location string `json:"location,omitempty"`
	Ramdisk  string `json:"ramdisk,omitempty"`
	// Digest ("sha256:" and hexadecimal digits) and RamdiskDigest prove the bytes; empty: not known.
	Digest        string `json:"digest,omitempty"`
	RamdiskDigest string `json:"ramdisk_digest,omitempty"`
	// Append goes to the command line of a kernel.
	Append string `json:"append,omitempty"`
	// Bus and Device say how it is attached ("hw_rescue_bus", "hw_rescue_device"); empty: the hypervisor's choice.
	Bus    string `json:"bus,omitempty"`
	Device string `json:"device,omitempty"`
}

// Image is a rescue image's record.
type Image struct {
	record.Record
	// Num is the number that users name it by; the store gives it.
	Num     int64
	Name    string
	Default bool
	// DeletedAt is zero while it is there.
	DeletedAt time.Time
	// OS and OSFamily describe the rescue system; TargetOS and TargetOSFamily the servers that it suits.
	OS, OSFamily, TargetOS, TargetOSFamily string
	// Source is copied into each session; its ImageID and Name are filled in then.
	Source Source
}

// ImageFilter narrows a list of rescue images; zero fields do not narrow.
type ImageFilter struct {
	// Deleted lists removed ones too.
	Deleted bool
	Num     int64
	Name    string
	Default bool
}

// Deleted tells whether the image was removed.
func (i *Image) Deleted() bool { return !i.DeletedAt.IsZero() }

// Request is what somebody asks for with a rescue.
type Request struct {
	// Image is a rescue image's number, 0 for none named; ImageUUID an image of the image API, empty for none named.
	Image     int64
	ImageUUID string
	// Password for the rescue system; empty: none asked for.
	Password secret.Value
	Keys     []string
	// Expires is how long the session lasts; 0: as configured.
	Expires time.Duration
}
