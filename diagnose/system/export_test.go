package system

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
)

// DamagedSystem is a case of the rules for tests outside of this package.
type DamagedSystem struct {
	Name, ID string
	// Make returns the damaged system with all of its files.
	Make func(*testing.T) (diagnose.System, fstest.MapFS)
}

// DamagedSystems are all cases in which a rule makes a finding.
func DamagedSystems() []DamagedSystem {
	var out []DamagedSystem
	for _, tc := range ruleCases {
		if tc.change == nil || tc.severity == nearMiss {
			continue
		}
		out = append(out, DamagedSystem{tc.layout + "/" + tc.id + "/" + tc.name, tc.id, func(t *testing.T) (diagnose.System, fstest.MapFS) {
			in := separateLayout(tc.layout)
			tc.change(t, in)
			return in.allFiles()
		}})
	}
	byLayout := maps.Clone(accessCases)
	byLayout["debian-bios"] = append(slices.Clone(byLayout["debian-bios"]), sysvCases...)
	for _, layout := range slices.Sorted(maps.Keys(byLayout)) {
		for _, tc := range byLayout[layout] {
			if tc.want == nearMiss {
				continue
			}
			out = append(out, DamagedSystem{layout + "/" + tc.id + "/" + tc.name, tc.id, func(*testing.T) (diagnose.System, fstest.MapFS) {
				m := machine{separateLayout(layout)}
				tc.change(m)
				return m.allFiles()
			}})
		}
	}
	return out
}

// HealthySystem is a layout without damage.
func HealthySystem(layout string) (diagnose.System, fstest.MapFS) {
	return separateLayout(layout).allFiles()
}

// HealthyLayouts are the names of all layouts.
func HealthyLayouts() []string { return slices.Sorted(maps.Keys(layouts)) }

// allFiles are the system and the table of its files, those of its EFI system partition among them.
func (in *installed) allFiles() (diagnose.System, fstest.MapFS) {
	files := maps.Clone(in.files)
	for name, f := range in.esp {
		if in.espAt != "" {
			files[strings.Trim(in.espAt, "/")+"/"+name] = f
		}
	}
	return *in.system(), files
}

// Contents that programs of a system write.
var (
	DebianInitramfs = debianInitramfs
	DracutInitramfs = dracutInitramfs
	HostKey         = hostKey
	FedoraKernel    = fedoraKernel
	GrubConfig      = grubConfig
	GrubMBR         = grubMBR
	EFIProgram      = func() string { return peFile(peAMD64) }
	GrubCore        = grubCore
)

// separateLayout is freshLayout for changes of devices, disks and firmware too.
func separateLayout(name string) *installed {
	in := freshLayout(name)
	in.Arrays, in.Groups = slices.Clone(in.Arrays), slices.Clone(in.Groups)
	in.Firmware.Entries, in.Firmware.Order = slices.Clone(in.Firmware.Entries), slices.Clone(in.Firmware.Order)
	for i := range in.Devices {
		d := &in.Devices[i]
		d.Subvolumes = slices.Clone(d.Subvolumes)
		if d.Space != nil {
			space := *d.Space
			d.Space = &space
		}
		if disk, ok := d.Content.(*sparseDisk); ok {
			copied := newDisk(disk.size)
			for at, piece := range disk.pieces {
				copied.pieces[at] = bytes.Clone(piece)
			}
			d.Content = copied
		}
	}
	return in
}

// GrubFolderFiles are the files that grub-install writes beside the boot code.
func GrubFolderFiles() map[string]string {
	in := &installed{files: fstest.MapFS{}}
	in.grubFolderFiles("/boot/grub/i386-pc")
	out := map[string]string{}
	for name, f := range in.files {
		out["/"+name] = string(f.Data)
	}
	return out
}
