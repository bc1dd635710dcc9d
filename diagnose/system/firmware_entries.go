package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func firmwareRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"esp-missing", "esp-damaged", "efi-boot-entry-missing", "efi-boot-order", "efi-loader-missing", "efi-loader-damaged", "efi-entry-stale", "efi-netboot-first"}, Look: lookFirmware},
		{IDs: []string{"firmware-mode-differs"}, Files: true, Look: lookFirmwareMode},
	}
}

// espLoader is a boot loader on an EFI system partition.
type espLoader struct {
	device *diagnose.Device
	// path as a boot entry writes it, with backslashes.
	path string
}

// fallbackName is the loader that firmware starts without an entry.
func fallbackName(arch string) string {
	return map[string]string{"amd64": "BOOTX64.EFI", "arm64": "BOOTAA64.EFI", "riscv64": "BOOTRISCV64.EFI"}[arch]
}

// loaderNames are the first programs that distributions install for a system, the signed ones first.
var loaderNames = []string{"shimx64.efi", "shimaa64.efi", "shim.efi", "grubx64.efi", "grubaa64.efi", "grub.efi", "systemd-bootx64.efi", "systemd-bootaa64.efi", "elilo.efi", "refind_x64.efi"}

// espFolder finds a folder or file of an EFI system partition whatever the case of its letters.
func espFolder(s *diagnose.System, d *diagnose.Device, name string) (*diagnose.Tree, string, bool) {
	tree, folder := treeOf(s, d)
	if tree == nil {
		return nil, "", false
	}
	at, found := foldPath(tree, path.Join(folder, strings.ReplaceAll(name, `\`, "/")))
	return tree, at, found
}

// installedLoaders are the loaders of Linux on the EFI system partitions, outside of EFI/BOOT.
func installedLoaders(s *diagnose.System) []espLoader {
	var out []espLoader
	for _, d := range espDevices(s) {
		tree, top, found := espFolder(s, d, `\EFI`)
		if !found {
			continue
		}
		for _, vendor := range tree.Match(top, "*") {
			if strings.EqualFold(path.Base(vendor), "BOOT") || strings.EqualFold(path.Base(vendor), "Microsoft") {
				continue
			}
			for _, name := range loaderNames {
				if at, found := foldPath(tree, path.Join(vendor, name)); found {
					out = append(out, espLoader{d, `\EFI\` + path.Base(vendor) + `\` + path.Base(at)})
					break
				}
			}
		}
	}
	return ownFirst(s, out, func(l espLoader) string { return l.path })
}

// ownFirst puts what starts the system itself first: what lies in a folder of an EFI system partition that its distribution uses.
func ownFirst[T any](s *diagnose.System, all []T, pathOf func(T) string) []T {
	own := func(one T) int {
		if isOwnFolder(s, vendorOf(pathOf(one))) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b T) int { return own(a) - own(b) })
	return all
}

// vendorOf is the folder below EFI in the path of a boot entry, in lower case; empty for other paths.
func vendorOf(name string) string {
	parts := strings.Split(strings.ToLower(name), `\`)
	if len(parts) < 4 || parts[1] != "efi" {
		return ""
	}
	return parts[2]
}

// isOwnFolder says whether the distribution of the system keeps its loader in a folder below EFI.
func isOwnFolder(s *diagnose.System, vendor string) bool {
	return vendor != "" && (slices.Contains(vendorNames(s), vendor) || vendor == "systemd" && len(systemdBootEntries(s)) > 0)
}

// isOthers says whether the loaders are those of several other systems, so that nobody can tell which is meant.
func isOthers(s *diagnose.System, loaders []espLoader) bool {
	first := vendorOf(loaders[0].path)
	return !isOwnFolder(s, first) && slices.ContainsFunc(loaders, func(l espLoader) bool { return vendorOf(l.path) != first })
}

// hasFallback says whether an EFI system partition has a whole loader that firmware starts without an entry.
func hasFallback(s *diagnose.System) bool {
	for _, d := range espDevices(s) {
		if damage, found := loaderDamage(s, d, `\EFI\BOOT\`+fallbackName(s.KernelArch)); found && damage == "" {
			return true
		}
	}
	return false
}

// loaderDamage checks a program on an EFI system partition; of a shim also the GRUB beside it.
func loaderDamage(s *diagnose.System, d *diagnose.Device, name string) (damage string, found bool) {
	tree, at, found := espFolder(s, d, name)
	if !found {
		return "", false
	}
	f, err := config.OpenReadAt(tree, at)
	if err != nil {
		return err.Error(), true
	}
	defer f.Close()
	if f.Size == 0 {
		return "it is empty", true
	}
	pe, err := config.ReadPE(f)
	if err != nil {
		return err.Error(), true
	}
	return pe.Damage, true
}

// secondStage is the program that a shim starts: the GRUB in its folder; empty for other loaders.
func secondStage(name string) string {
	base := strings.ToLower(name[strings.LastIndex(name, `\`)+1:])
	grub := map[string]string{"shimx64.efi": "grubx64.efi", "shimaa64.efi": "grubaa64.efi", "shim.efi": "grub.efi"}[base]
	if grub == "" {
		return ""
	}
	return name[:strings.LastIndex(name, `\`)+1] + grub
}

// entryState is what became of a boot entry.
type entryState struct {
	entry diagnose.BootEntry
	// device is nil where no partition has the GUID of the entry.
	device *diagnose.Device
	// missing or damaged is the program that keeps it from booting; damage says how.
	missing, damaged, damage string
	unknown                  bool
}

// works: firmware boots it as far as can be seen.
func (e *entryState) works() bool {
	return e.entry.Active && e.device != nil && e.missing == "" && e.damaged == ""
}

// diskEntries examines those boot entries that name a partition.
func diskEntries(s *diagnose.System) []entryState {
	var out []entryState
	for _, entry := range s.Firmware.Entries {
		if entry.PartUUID == "" {
			continue
		}
		e := entryState{entry: entry}
		if found := config.FindDevices(s, config.DeviceName{Tag: "PARTUUID", Value: entry.PartUUID}); len(found) > 0 {
			e.device = found[0]
			if tree, _ := treeOf(s, e.device); tree == nil {
				e.unknown = true
			} else if entry.Path != "" {
				e.examine(s)
			}
		}
		out = append(out, e)
	}
	return ownFirst(s, out, func(e entryState) string { return e.entry.Path })
}

// startsAnother says whether an entry starts another system than the one that is examined: Windows, or a Linux from a folder of another distribution where
// the distribution of the system has a folder of its own. No repair puts such an entry first or writes to its folder.
func (e *entryState) startsAnother(s *diagnose.System) bool {
	switch vendor := vendorOf(e.entry.Path); {
	case s.Files == nil || vendor == "" || vendor == "boot" || isOwnFolder(s, vendor):
		return false
	case vendor == "microsoft":
		return true
	}
	return slices.ContainsFunc(espDevices(s), func(d *diagnose.Device) bool {
		tree, top, found := espFolder(s, d, loaderFolder)
		return found && slices.ContainsFunc(tree.Match(top, "*"), func(folder string) bool { return isOwnFolder(s, strings.ToLower(path.Base(folder))) })
	})
}

func (e *entryState) examine(s *diagnose.System) {
	for _, name := range []string{e.entry.Path, secondStage(e.entry.Path)} {
		if name == "" || e.missing != "" || e.damaged != "" {
			continue
		}
		switch damage, found := loaderDamage(s, e.device, name); {
		case !found && name == e.entry.Path:
			e.missing = name
		case !found: // shims of some distributions start grub.efi or a unified image
			if !strings.Contains(strings.ToLower(name), "grubx64") && !strings.Contains(strings.ToLower(name), "grubaa64") {
				continue
			}
			e.missing = name
		case damage != "":
			e.damaged, e.damage = name, damage
		}
	}
}

// lookFirmware follows the boot entries of a machine with UEFI to their loaders.
func lookFirmware(s *diagnose.System) []diagnose.Finding {
	if !s.Firmware.UEFI {
		return nil
	}
	if f := lookESP(s); f != nil {
		return []diagnose.Finding{*f}
	}
	entries, loaders := diskEntries(s), installedLoaders(s)
	var out []diagnose.Finding
	if at := slices.IndexFunc(entries, func(e entryState) bool {
		return (e.works() || e.unknown) && slices.Contains(s.Firmware.Order, e.entry.Number)
	}); at < 0 && !hasFallback(s) && len(espDevices(s)) > 0 {
		if f := noWorkingEntry(s, entries, loaders); f != nil {
			out = append(out, *f)
		}
	}
	for _, e := range entries {
		if e.device == nil && len(config.HidesDevices(s)) == 0 {
			out = append(out, diagnose.Finding{
				ID: "efi-entry-stale", Stage: diagnose.Firmware, Severity: diagnose.Info, Confidence: 0.9,
				Title:    fmt.Sprintf("The EFI boot entry Boot%04X (%s) names a partition that no disk of the machine has.", e.entry.Number, e.entry.Name),
				Evidence: []diagnose.Evidence{entryEvidence(e.entry)},
			})
		}
	}
	return append(out, lookNetbootFirst(s, entries)...)
}

func entryEvidence(e diagnose.BootEntry) diagnose.Evidence {
	return config.DeviceEvidence(fmt.Sprintf("/sys/firmware/efi/efivars/Boot%04X", e.Number), strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Name, e.PartUUID, e.Path)))
}

// installedForUEFI says whether the system expects an EFI system partition.
func installedForUEFI(s *diagnose.System) bool {
	if s.Files == nil {
		return false
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if config.TypeGroup(e.Type) == "fat" && slices.Contains([]string{"/boot/efi", "/efi", "/boot"}, e.Target) && !e.Has("noauto") {
			return true
		}
	}
	return len(s.Files.Match("/boot/grub", "*-efi")) > 0 || len(s.Files.Match("/boot/grub2", "*-efi")) > 0
}

// lookESP finds an EFI system partition that is gone or holds no file system.
func lookESP(s *diagnose.System) *diagnose.Finding {
	partitions := espDevices(s)
	consequences := []string{"fstab-device-missing", "fstab-type-wrong", "efi-boot-entry-missing", "efi-loader-missing", "grub-stub-search-missing"}
	if len(partitions) == 0 {
		if !installedForUEFI(s) || len(config.HidesDevices(s)) > 0 || usesPlainFAT(s) {
			return nil
		}
		return &diagnose.Finding{
			ID: "esp-missing", Stage: diagnose.Firmware, Severity: diagnose.BlocksBoot, Confidence: 0.9, Explains: consequences,
			Title:    "The system is installed for UEFI, and no disk of the machine has an EFI system partition.",
			Evidence: []diagnose.Evidence{config.DeviceEvidence("", "no partition has the type "+espTypeGUID)},
			ByHand:   "Look whether the disk is missing, or whether the type of the partition was changed.",
		}
	}
	for _, d := range partitions {
		if !holdsNothing(d) {
			continue
		}
		if slices.ContainsFunc(partitions, func(other *diagnose.Device) bool { tree, _ := treeOf(s, other); return tree != nil }) {
			continue // another one is whole
		}
		return &diagnose.Finding{
			ID: "esp-damaged", Stage: diagnose.Firmware, Severity: diagnose.BlocksBoot, Confidence: 0.9, Explains: consequences,
			Title:    fmt.Sprintf("The EFI system partition %s holds no file system.", d.Path),
			Evidence: []diagnose.Evidence{config.DeviceEvidence(d.Path, "a probe found no file system in it")},
			Repair: &diagnose.Repair{Summary: fmt.Sprintf("Make a FAT file system in %s and install the boot loader in it.", d.Path), Consent: diagnose.ConsentData,
				Writes: []string{d.Path}, Loses: "Everything in the partition that could still be restored."},
		}
	}
	return nil
}

// holdsNothing says whether a probe found no file system in a partition. Of one whose first sector cannot be read, nothing is known.
func holdsNothing(d *diagnose.Device) bool {
	if d.FS != "" || d.NotExamined != "" {
		return false
	}
	if d.Content != nil {
		_, err := d.Content.ReadAt(make([]byte, 512), 0)
		return err == nil
	}
	return d.Tree != nil || d.MountedAt != "" || d.UUID == ""
}

// usesPlainFAT: firmware also reads a FAT partition whose type says something else.
func usesPlainFAT(s *diagnose.System) bool {
	return slices.ContainsFunc(s.Devices, func(d diagnose.Device) bool {
		return d.FS == "vfat" && (d.MountedAt == "/boot/efi" || d.MountedAt == "/efi" || d.MountedAt == "/boot")
	})
}

// noWorkingEntry names the reason for which firmware finds no loader.
func noWorkingEntry(s *diagnose.System, entries []entryState, loaders []espLoader) *diagnose.Finding {
	f := &diagnose.Finding{Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.95}
	for _, e := range entries {
		f.Evidence = append(f.Evidence, entryEvidence(e.entry))
		switch {
		case e.startsAnother(s):
		case e.damaged != "" && e.entry.Active:
			nameDamagedLoader(s, espLoader{e.device, e.damaged}, e.damage, f)
			return f
		case e.missing != "" && e.entry.Active && sameVendor(loaders, e.missing):
			f.ID, f.Title = "efi-loader-missing", fmt.Sprintf("The EFI boot entry %s starts %s on %s, which does not exist.", e.entry.Name, e.missing, e.device.Path)
			proposeLoader(s, e.device, e.missing, f)
			return f
		case e.works(): // but not in the order
			f.ID, f.Stage, f.Confidence = "efi-boot-order", diagnose.Firmware, 0.9
			f.Title = fmt.Sprintf("The boot order of the firmware leaves out the entry Boot%04X (%s), the only one that works.", e.entry.Number, e.entry.Name)
			f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Put Boot%04X first in the boot order.", e.entry.Number), Consent: diagnose.ConsentSettings, Writes: []string{"the EFI variable BootOrder"}}
			return f
		case e.device != nil && e.missing == "" && e.damaged == "" && !e.entry.Active:
			f.ID, f.Stage, f.Confidence = "efi-boot-order", diagnose.Firmware, 0.9
			f.Title = fmt.Sprintf("The EFI boot entry Boot%04X (%s) is switched off.", e.entry.Number, e.entry.Name)
			f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Add an EFI boot entry like Boot%04X that is switched on, and put it first.", e.entry.Number), Consent: diagnose.ConsentSettings,
				Writes: []string{"an EFI variable Boot####", "the EFI variable BootOrder"}}
			return f
		}
	}
	if len(loaders) == 0 {
		f.ID, f.Title = "efi-loader-missing", "No EFI system partition of the machine holds a boot loader."
		f.Confidence = 0.9
		for _, d := range espDevices(s) {
			tree, _ := treeOf(s, d)
			switch {
			case tree != nil:
				f.Evidence = append(f.Evidence, config.DeviceEvidence(d.Path, "no loader below EFI"))
				if f.Repair == nil {
					proposeLoader(s, d, loaderFolder, f)
				}
			case holdsNothing(d):
				f.Evidence = append(f.Evidence, config.DeviceEvidence(d.Path, "no file system in it"))
			default: // it was not read
				return nil
			}
		}
		return f
	}
	l, firstDamage := loaders[0], ""
	for i, other := range loaders {
		damage, _ := loaderDamage(s, other.device, other.path)
		if damage == "" {
			l, firstDamage = other, ""
			break
		}
		if i == 0 {
			firstDamage = damage
		}
	}
	if firstDamage != "" {
		nameDamagedLoader(s, l, firstDamage, f)
		// The loader alone would still lack its entry. Firmware starts all that the system needs without one.
		if all := RepairOfLoader(s, l.device.Path, loaderFolder); len(all.Copies) > 0 || all.Command != nil {
			proposeLoader(s, l.device, loaderFolder, f)
		}
		return f
	}
	f.ID, f.Stage = "efi-boot-entry-missing", diagnose.Firmware
	f.Title = fmt.Sprintf("No EFI boot entry of the firmware starts the loader %s on %s.", l.path, l.device.Path)
	f.Evidence = append(f.Evidence, config.DeviceEvidence(l.device.Path, "it holds "+l.path))
	if isOthers(s, loaders) {
		f.ByHand = "Add an EFI boot entry for the loader of this system; the EFI system partitions hold those of several."
		return f
	}
	f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Add an EFI boot entry for %s on %s and put it first.", l.path, l.device.Path), Consent: diagnose.ConsentSettings,
		Writes: []string{"an EFI variable Boot####", "the EFI variable BootOrder"}}
	return f
}

// nameDamagedLoader makes a finding the one of a damaged loader.
func nameDamagedLoader(s *diagnose.System, l espLoader, damage string, f *diagnose.Finding) {
	f.ID, f.Title = "efi-loader-damaged", fmt.Sprintf("The loader %s on %s is damaged: %s.", l.path, l.device.Path, damage)
	f.Evidence = append(f.Evidence, config.DeviceEvidence(l.device.Path, l.path+": "+damage))
	proposeLoader(s, l.device, l.path, f)
}

// sameVendor: no other loader lies in another folder, so the entry is the one that the system was installed with.
func sameVendor(loaders []espLoader, missing string) bool {
	folder := strings.ToLower(missing[:strings.LastIndex(missing, `\`)+1])
	return !slices.ContainsFunc(loaders, func(l espLoader) bool { return !strings.HasPrefix(strings.ToLower(l.path), folder) })
}

// lookNetbootFirst tells of a machine that boots from the network before its disk.
func lookNetbootFirst(s *diagnose.System, entries []entryState) []diagnose.Finding {
	if len(s.Firmware.Order) == 0 || len(entries) == 0 {
		return nil
	}
	for _, entry := range s.Firmware.Entries {
		name := strings.ToUpper(entry.Name)
		isNetwork := entry.PartUUID == "" && (strings.Contains(name, "PXE") || strings.Contains(name, "HTTP") || strings.Contains(name, "NETWORK"))
		if entry.Number != s.Firmware.Order[0] || !isNetwork {
			continue
		}
		return []diagnose.Finding{{
			ID: "efi-netboot-first", Stage: diagnose.Firmware, Severity: diagnose.Info, Confidence: 0.7,
			Title:    fmt.Sprintf("The firmware boots from the network first (Boot%04X, %s), and from the disk after that.", entry.Number, entry.Name),
			Evidence: []diagnose.Evidence{entryEvidence(entry)},
			ByHand:   "Put the entry of the disk first if the network answers the machine with a boot loader that it should not have.",
		}}
	}
	return nil
}

// lookFirmwareMode compares how the firmware boots with how the system was installed.
func lookFirmwareMode(s *diagnose.System) []diagnose.Finding {
	isBIOS := installedForBIOS(s)
	isUEFI := installedForUEFI(s) || len(installedLoaders(s)) > 0 || hasFallback(s)
	f := diagnose.Finding{ID: "firmware-mode-differs", Stage: diagnose.Firmware, Severity: diagnose.BlocksBoot, Confidence: 0.75}
	switch {
	case s.Firmware.UEFI && isBIOS && !isUEFI && len(espDevices(s)) == 0:
		f.Title = "The machine boots by UEFI, and the system is installed for BIOS."
		f.Evidence = []diagnose.Evidence{config.DeviceEvidence("/sys/firmware/efi", "it exists in the ramdisk"), config.FileEvidence("/boot", 0, "it holds a boot loader for BIOS, and there is no EFI system partition")}
		f.Explains = []string{"esp-missing"}
	case !s.Firmware.UEFI && isUEFI && !isBIOS && !hasBootCode(s) && len(espDevices(s)) > 0:
		f.Title = "The machine boots by BIOS, and the system is installed for UEFI."
		f.Evidence = []diagnose.Evidence{config.DeviceEvidence("/sys/firmware/efi", "it does not exist in the ramdisk"), config.DeviceEvidence(espDevices(s)[0].Path, "an EFI system partition, and no disk has boot code")}
		f.Explains = []string{"mbr-boot-code-missing"}
	default:
		return nil
	}
	// Another mode may change the order of disks and of network interfaces, so salvor does not change it.
	f.ByHand = "Change the boot mode in the setup of the firmware or by the BMC."
	return []diagnose.Finding{f}
}
