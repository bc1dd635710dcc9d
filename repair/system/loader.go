package system

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/repair"
)

// loaderRows repair what the firmware starts.
func loaderRows() []tableRow {
	boot := diagnose.ConsentBoot
	const loader = "copies the loader of the system's own package to the EFI system partition, or installs it with the system's own grub-install"
	const install = "installs the boot code and the core image with the system's own grub-install"
	return []tableRow{
		{finding: "mbr-boot-code-missing", consent: boot, change: installGRUB, does: install},
		{finding: "grub-core-damaged", consent: boot, change: installGRUB, does: install},
		{finding: "grub-module-missing", consent: boot, change: installGRUB, does: install},
		{finding: "grub-modules-foreign", consent: boot, change: installGRUB, does: install},
		{finding: "efi-loader-missing", consent: boot, change: restoreLoader, does: loader},
		{finding: "efi-loader-damaged", consent: boot, change: restoreLoader, does: loader},
	}
}

// firmwareRows change settings outside of the disks.
func firmwareRows() []tableRow {
	settings := diagnose.ConsentSettings
	return []tableRow{
		{finding: "efi-boot-entry-missing", consent: settings, change: orderEntry, does: "adds an EFI boot entry for the loader and puts it first; others stay"},
		{finding: "efi-boot-order", consent: settings, change: orderEntry, does: "puts the entry that works first, or adds one like that which is switched off"},
		{finding: "clock-wrong", consent: settings, change: setClock, does: "sets the hardware clock to the time of the control plane"},
	}
}

func installGRUB(ctx context.Context, c *repairCase) error {
	program, d := rules.GrubInstaller(c.system), c.evidenceDevice()
	if program == "" || d == nil || d.Kind != diagnose.DiskDevice {
		return c.unsupported("the system has no grub-install for BIOS, or the disk cannot be told")
	}
	folder := "/boot/grub"
	if !c.system.Files.Exists(folder) {
		folder = "/boot/grub2"
	}
	return c.run(ctx, repair.Program{Command: []string{program, "--target=i386-pc", d.Path}, Changes: []string{folder, d.Path}, Devices: c.bootDevices()})
}

// maxLoader bounds a loader that is copied, in bytes.
const maxLoader = 16 << 20

// restoreLoader copies a loader from where its package stores it, or has the system install it anew.
func restoreLoader(ctx context.Context, c *repairCase) error {
	target := c.finding.Repair.Writes[0]
	at := strings.LastIndex(target, " on ")
	if at < 0 {
		return c.unsupported("the loader cannot be told")
	}
	name, device := target[:at], target[at+len(" on "):]
	r := rules.RepairOfLoader(c.system, device, name)
	if r.Command != nil {
		return c.run(ctx, repair.Program{Command: r.Command, Changes: []string{r.Folder, "/boot/grub"}, Devices: c.bootDevices()})
	}
	if len(r.Copies) == 0 {
		return c.unsupported("no package of the system holds %s, or %s is not mounted in the system", name, device)
	}
	for _, l := range r.Copies {
		content, err := c.system.Files.ReadAtMost(l.From, maxLoader)
		if err != nil || len(content) < 512 || string(content[:2]) != "MZ" {
			return c.unsupported("%s is no program for UEFI", l.From)
		}
		if err := c.writeWithFolder(l.To, string(content)); err != nil {
			return err
		}
	}
	return nil
}

// orderText writes a boot order as a setting does.
func orderText(order []uint16) string {
	var out []string
	for _, n := range order {
		out = append(out, fmt.Sprintf("%04X", n))
	}
	return strings.Join(out, ",")
}

// orderEntry puts the entry first that the firmware has to start, and adds it where it is not there.
func orderEntry(_ context.Context, c *repairCase) error {
	entry, isNew, found := rules.FirmwareEntry(c.system)
	if !found {
		return c.unsupported("no loader for an entry was found")
	}
	firmware := &c.system.Firmware
	if isNew {
		number := -1
		for n := 0; n <= 0xffff && number < 0; n++ {
			used := slices.Contains(firmware.Order, uint16(n)) || slices.ContainsFunc(firmware.Entries, func(e diagnose.BootEntry) bool { return e.Number == uint16(n) })
			if !used {
				number = n
			}
		}
		name := strings.Map(func(r rune) rune {
			if r == ',' || r < ' ' || r > '~' {
				return -1
			}
			return r
		}, entry.Name)
		if name == "" {
			name = "Linux"
		}
		if number < 0 || strings.ContainsAny(entry.PartUUID, ", ") || strings.Contains(entry.Path, ",") {
			return c.unsupported("no EFI boot entry is free, or %s cannot be written into one", entry.Path)
		}
		entry.Number = uint16(number)
		if err := c.editor.Setting(repair.Setting{Kind: repair.BootEntry, After: fmt.Sprintf("%04X,%s,%s,%s", number, name, entry.PartUUID, entry.Path)}); err != nil {
			return err
		}
	}
	order := append([]uint16{entry.Number}, slices.DeleteFunc(slices.Clone(firmware.Order), func(n uint16) bool { return n == entry.Number })...)
	return c.editor.Setting(repair.Setting{Kind: repair.BootOrder, Before: orderText(firmware.Order), After: orderText(order)})
}

func setClock(_ context.Context, c *repairCase) error {
	return c.editor.Setting(repair.Setting{Kind: repair.Clock})
}
