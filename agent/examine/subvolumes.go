package examine

import (
	"context"
	"regexp"
	"strconv"
	"strings"
)

var subvolumeLine = regexp.MustCompile(`(?m)^ID (\d+) gen \d+ (?:cgen \d+ )?top level \d+ (?:parent_uuid \S+ +)?(?:received_uuid \S+ +)?(?:uuid \S+ +)?path (.+)$`)

// btrfsVolume of a btrfs.
type btrfsVolume struct {
	id   int
	path string
}

// readSubvolumes reads what btrfs subvolume list and get-default print.
func readSubvolumes(out string) []btrfsVolume {
	var found []btrfsVolume
	for _, groups := range subvolumeLine.FindAllStringSubmatch(out, maxVolumes) {
		id, err := strconv.Atoi(groups[1])
		if err != nil {
			continue
		}
		found = append(found, btrfsVolume{id, strings.ToValidUTF8(groups[2], "?")})
	}
	return found
}

// subvolumes lists those of a btrfs whose top is mounted.
func (x *examinationRun) subvolumes(ctx context.Context, d *device) []btrfsVolume {
	out, err := x.tools.must(ctx, "btrfs", "subvolume", "list", d.at)
	if err != nil {
		x.gap(d.Path, "its subvolumes are not listed: %v", err)
		return nil
	}
	found := readSubvolumes(out)
	d.Subvolumes = nil
	for _, s := range found {
		d.Subvolumes = append(d.Subvolumes, s.path)
	}
	if out, err := x.tools.must(ctx, "btrfs", "subvolume", "get-default", d.at); err == nil {
		if of := readSubvolumes(out); len(of) > 0 {
			d.Default = of[0].path
		}
	}
	return found
}
