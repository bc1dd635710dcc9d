package examine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
)

// virtualDisk are disks of virtual machines, which know nothing of the hardware.
var virtualDisk = regexp.MustCompile(`^/dev/x?vd`)

// diskHealth asks each disk about itself. A disk that cannot answer, such as one of a virtual machine, is left out.
func (x *examinationRun) diskHealth(ctx context.Context) []diagnose.DiskHealth {
	var out []diagnose.DiskHealth
	for _, d := range x.disks {
		if x.timeIsOver(ctx) {
			break
		}
		if !nodePath.MatchString(d.Path) || virtualDisk.MatchString(d.Path) {
			continue
		}
		args := []string{"--json=c", "--health", "--attributes", "--log=error", d.Path}
		said, err := x.tools.run(ctx, nil, "smartctl", args...)
		if err != nil {
			x.Log.Info("a disk's health is not known", "disk", d.Path, "error", err)
			continue
		}
		h, ok := readHealth(said.output, said.exit)
		if !ok {
			continue
		}
		h.Path, h.Model, h.Serial = d.Path, d.Model, d.Serial
		h.Command, h.Exit = append([]string{"smartctl"}, args...), said.exit
		out = append(out, h)
	}
	return out
}

// addReadErrors has the systems know which disks do not give a sector, of those that the kernel has logged since the machine booted. It says whether one
// is new. A disk on which nothing was recognised is left out: it may be a passive path to another one, or be locked.
func (x *examinationRun) addReadErrors(systems []*diagnose.System) bool {
	logged, added := x.errors.errorSectors(), false
	for _, d := range x.disks {
		sectors := logged[strings.TrimPrefix(d.Path, "/dev/")]
		if x.unread[d.Path] || !slices.ContainsFunc(x.devices, func(on *device) bool { return on.disk == d.Path && on.FS != "" }) {
			continue
		}
		i := slices.IndexFunc(sectors, func(sector int64) bool { return isLost(d.Path, sector) })
		if i < 0 {
			continue
		}
		x.unread[d.Path], added = true, true
		x.Log.Info("a disk does not give a sector", "disk", d.Path, "sector", sectors[i])
		for _, s := range systems {
			s.Disks = withLostSector(s.Disks, d.ExaminedDisk, sectors[i])
		}
	}
	return added
}

// withLostSector is the health of disks with a sector that one of them does not give.
func withLostSector(disks []diagnose.DiskHealth, d diagnose.ExaminedDisk, sector int64) []diagnose.DiskHealth {
	disks = slices.Clone(disks)
	i := slices.IndexFunc(disks, func(h diagnose.DiskHealth) bool { return h.Path == d.Path })
	if i < 0 {
		i = len(disks)
		disks = append(disks, diagnose.DiskHealth{Path: d.Path, Model: d.Model, Serial: d.Serial})
	}
	disks[i].Failing = true
	disks[i].Reasons = append(slices.Clone(disks[i].Reasons), fmt.Sprintf("its sector %d cannot be read", sector))
	return disks
}

// isLost reads a sector from the disk itself, past all caches. What the kernel logs may be past: it does not try again where it reads ahead of need,
// and a cable or a path to the disk may have been away for a moment.
func isLost(path string, sector int64) bool {
	const page = 4096
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	buffer, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Munmap(buffer) }()
	_, err = unix.Pread(fd, buffer, sector*512&^(page-1))
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EILSEQ)
}

// smartReport is what is read of smartctl's JSON.
type smartReport struct {
	Status *struct {
		Passed bool `json:"passed"`
	} `json:"smart_status"`
	Attributes struct {
		Table []struct {
			ID         int    `json:"id"`
			Name       string `json:"name"`
			WhenFailed string `json:"when_failed"`
			Raw        struct {
				Value int64 `json:"value"`
			} `json:"raw"`
		} `json:"table"`
	} `json:"ata_smart_attributes"`
	NVMe *struct {
		CriticalWarning int   `json:"critical_warning"`
		AvailableSpare  int   `json:"available_spare"`
		SpareThreshold  int   `json:"available_spare_threshold"`
		PercentageUsed  int   `json:"percentage_used"`
		MediaErrors     int64 `json:"media_errors"`
	} `json:"nvme_smart_health_information_log"`
	Defects *int64 `json:"scsi_grown_defect_list"`
}

// The bits of smartctl's exit status that say something of the disk.
const (
	smartNotOpened  = 1<<0 | 1<<1
	smartFailing    = 1 << 3
	smartPrefailNow = 1 << 4
)

// readHealth reads what smartctl prints; false where it could not ask the disk.
func readHealth(out string, exit int) (diagnose.DiskHealth, bool) {
	var s smartReport
	at := strings.Index(out, "{")
	if exit&smartNotOpened != 0 || at < 0 || json.NewDecoder(strings.NewReader(out[at:])).Decode(&s) != nil {
		return diagnose.DiskHealth{}, false
	}
	if s.Status == nil && s.NVMe == nil {
		return diagnose.DiskHealth{}, false
	}
	var h diagnose.DiskHealth
	say := func(failing bool, format string, args ...any) {
		h.Failing = h.Failing || failing
		h.Reasons = append(h.Reasons, diagnose.Excerpt(fmt.Sprintf(format, args...)))
	}
	if s.Status != nil && !s.Status.Passed || exit&smartFailing != 0 {
		say(true, "it predicts its own failure")
	}
	for _, a := range s.Attributes.Table {
		switch {
		case a.WhenFailed == "now":
			say(true, "its attribute %s is below the threshold of its maker", a.Name)
		case a.ID == 197 && a.Raw.Value > 0:
			say(true, "it has %d sectors that cannot be read", a.Raw.Value)
		case a.ID == 198 && a.Raw.Value > 0:
			say(true, "it found %d sectors that it could not correct", a.Raw.Value)
		case a.ID == 5 && a.Raw.Value > 0:
			say(false, "it has replaced %d sectors", a.Raw.Value)
		}
	}
	if exit&smartPrefailNow != 0 && len(h.Reasons) == 0 {
		say(true, "one of its attributes is below the threshold of its maker")
	}
	if n := s.NVMe; n != nil {
		for bit, why := range []string{"its spare blocks are used up", "it is too hot", "its reliability is degraded", "it has turned read-only", "its backup of volatile memory has failed"} {
			if n.CriticalWarning&(1<<bit) != 0 {
				say(bit != 1, "%s", why)
			}
		}
		if n.MediaErrors > 0 {
			say(false, "it could not correct %d errors of its media", n.MediaErrors)
		}
		if n.PercentageUsed > 100 {
			say(false, "it is worn out: %d %% of its life are used", n.PercentageUsed)
		}
	}
	if s.Defects != nil && *s.Defects > 0 {
		say(false, "it has replaced %d sectors", *s.Defects)
	}
	return h, true
}
