package compute

import (
	"cmp"
	"slices"
	"time"

	"salvor/job"
)

// Reasons why a disk is in quarantine.
const (
	QuarantineRebuild  = "rebuild"        // its owner had the server rebuilt
	QuarantineReimage  = "re-image"       // an evacuation made the server anew on the host that has an old disk of it
	QuarantineReturned = "host returned"  // its host was evacuated, and came back
	QuarantineOrphan   = "host lost"      // its server was deleted, and its host did not come back; another host of the store put it there
	QuarantineRestored = "restore failed" // it was to be restored to a server, and that came to nothing
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

// JobRestoreDisk moves a disk out of quarantine to a server.
const JobRestoreDisk job.Kind = "server restore disk"

// RestoreDiskArgs are the arguments of JobRestoreDisk. The server's row names the disk already.
type RestoreDiskArgs struct {
	Quarantine string `json:"quarantine"`
	Disk       string `json:"disk"` // its name in the guest
}

// QuarantinePage cuts the page out of a host's answer, because an agent of the former release ignores the page and answers with all disks.
func (a *Args) QuarantinePage(all []QuarantinedDisk) []QuarantinedDisk {
	all = slices.DeleteFunc(all, func(d QuarantinedDisk) bool { return d.ID <= a.After || a.Quarantine != "" && d.ID != a.Quarantine })
	slices.SortFunc(all, func(x, y QuarantinedDisk) int { return cmp.Compare(x.ID, y.ID) })
	if a.Limit > 0 && len(all) > a.Limit {
		all = all[:a.Limit]
	}
	return all
}

// CommandToStop says which command brings the server nearer to being stopped, and is accepted now.
func (s *Server) CommandToStop() string {
	_, err := Allow(s, Stop, NovaSemantics, true)
	switch {
	case s.Task == NoTask && s.InSession():
		return "end its rescue first: salvor server unrescue " + s.ID
	case err == nil:
		return "stop it first: salvor server stop " + s.ID
	}
	return "to see what it waits for, run: salvor why server:" + s.ID
}

// RestoreFirst is the first action of JobRestoreDisk: while it goes on, the disk may still be in quarantine.
const RestoreFirst = "move the disk out of quarantine"
