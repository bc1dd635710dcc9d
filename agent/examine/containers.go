package examine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"salvor/diagnose"
)

// keysOf are the keys to try on the container of a UUID.
func (r Request) keysOf(uuid string) []Key {
	return slices.Concat(r.KeysByUUID[strings.ToLower(uuid)], r.Keys)
}

// openContainers opens LUKS containers that are not open yet, and says whether it opened one.
func (x *examinationRun) openContainers(ctx context.Context) bool {
	opened := false
	for i, d := range slices.Clone(x.devices) {
		if d.FS != "crypto_LUKS" || d.node == "" || d.NotExamined != "" || x.isParent(d.Path) {
			continue
		}
		if x.timeIsOver(ctx) {
			break
		}
		keys := x.keysOf(d.UUID)
		if len(keys) == 0 {
			d.NotExamined = "it is a LUKS container, and no key was given; to open it: salvor diagnose NODE --luks-key FILE"
			x.gap(d.Path, "%s", d.NotExamined)
			continue
		}
		name := fmt.Sprintf("%scrypt%d", overlayPrefix, i)
		why := "no key that was given opens it"
		for _, key := range keys {
			said, err := x.tools.run(ctx, key, "cryptsetup", "open", "--type", "luks", "--key-file", "-", "--disable-keyring", d.node, name)
			if err != nil {
				why = err.Error()
				break
			}
			if said.exit == 0 {
				why = ""
				break
			}
			if said.exit == 3 {
				why = "there is too little memory to derive its key"
			}
		}
		if why != "" {
			d.NotExamined = diagnose.Excerpt(why)
			x.gap(d.Path, "it is a LUKS container: %s", why)
			continue
		}
		node, err := mapperNode(name)
		if err != nil {
			x.gap(d.Path, "%v", err)
			continue
		}
		label := filepath.Base(d.Path)
		if uuidText.MatchString(d.UUID) {
			label = d.UUID
		}
		opened = x.add(ctx, &device{Device: diagnose.Device{Path: "/dev/mapper/luks-" + label, Kind: diagnose.CryptDevice, Parents: []string{d.Path}}, node: node, disk: d.disk}) || opened
	}
	return opened
}

func (x *examinationRun) isParent(path string) bool {
	return slices.ContainsFunc(x.devices, func(d *device) bool { return slices.Contains(d.Parents, path) && d.Kind != diagnose.PartitionDevice })
}
