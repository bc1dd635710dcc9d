package compute

import "time"

// Reasons why a disk is in quarantine.
const (
	QuarantineRebuild  = "rebuild"       // its owner had the server rebuilt
	QuarantineReimage  = "re-image"      // an evacuation made the server anew on the host that has an old disk of it
	QuarantineReturned = "host returned" // its host was evacuated, and came back
)

// QuarantinedDisk is a disk that its server gave up. It is kept for some days, and counts as used space.
type QuarantinedDisk struct {
	ID     string `json:"id"` // its time, server and disk
	Store  string `json:"store"`
	Marker string `json:"marker"`
	// ServerID and Disk are whose disk it was. Image is the digest of the image that it was made from.
	ServerID string    `json:"server_id"`
	Disk     string    `json:"disk"`
	Image    string    `json:"image,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Bytes    int64     `json:"bytes"`
	At       time.Time `json:"at"`
}

// SizeGiB is the size of the disk, rounded up.
func (d *QuarantinedDisk) SizeGiB() int { return int((d.Bytes + 1<<30 - 1) >> 30) }
