package system

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func storageRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"volume-group-incomplete"}, Look: lookGroups},
		{IDs: []string{"lvm-devices-file", "lvm-filter"}, Files: true, Look: lookLVMFiles},
		{IDs: []string{"array-not-started", "array-degraded"}, Look: lookArrays},
		{IDs: []string{diagnose.DiskFailing}, Look: lookDisks},
		{IDs: []string{"identity-duplicate"}, Look: lookTwins},
		{IDs: []string{"memory-uncorrected", "memory-corrected"}, Look: lookMemory},
		{IDs: []string{"clock-wrong"}, Look: lookClock},
	}
}

// needsGroup says whether the boot waits for a volume of a group that is not there.
func needsGroup(s *diagnose.System, group string) bool {
	if s.Files == nil {
		return true
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		named := strings.HasPrefix(e.Source, "/dev/mapper/"+diagnose.MapperName(group, "")) || strings.HasPrefix(e.Source, "/dev/"+group+"/")
		tag := config.ParseDeviceName(e.Source)
		if (named || tag.Tag == "UUID" || tag.Tag == "LABEL") && e.MountSeverity(s) == diagnose.BlocksBoot && len(config.FindDevices(s, tag)) == 0 {
			return true
		}
	}
	return false
}

func lookGroups(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for _, g := range s.Groups {
		if len(g.Missing) == 0 {
			continue
		}
		f := diagnose.Finding{
			ID: "volume-group-incomplete", Stage: diagnose.Root, Severity: diagnose.Degrades, Confidence: 0.9,
			Title:    fmt.Sprintf("The volume group %s lacks %d of its physical volumes.", g.Name, len(g.Missing)),
			Evidence: []diagnose.Evidence{config.DeviceEvidence("/dev/"+g.Name, "missing physical volumes: "+strings.Join(g.Missing[:min(len(g.Missing), 8)], ", "))},
			Explains: []string{"fstab-device-missing", "root-argument-missing", "dracut-argument-missing"},
			ByHand:   "Connect the missing disk again. Do not remove it from the group, because that deletes the volumes that lie on it.",
		}
		if needsGroup(s, g.Name) {
			f.Severity = diagnose.BlocksBoot
		}
		out = append(out, f)
	}
	return out
}

const (
	lvmDevicesPath = "/etc/lvm/devices/system.devices"
	lvmConfigPath  = "/etc/lvm/lvm.conf"
)

// lvmFilterPattern finds a filter of lvm.conf that stands on one line.
var lvmFilterPattern = regexp.MustCompile(`^\s*(?:global_)?filter\s*=\s*\[([^\]]*)\]`)

// lookLVMFiles finds settings by which LVM leaves out physical volumes that are there.
func lookLVMFiles(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	var members []*diagnose.Device
	for i := range s.Devices {
		if s.Devices[i].FS == "LVM2_member" && s.Devices[i].UUID != "" {
			members = append(members, &s.Devices[i])
		}
	}
	if lines := s.Files.Lines(lvmDevicesPath); len(lines) > 0 {
		text := strings.ReplaceAll(strings.Join(lines, "\n"), "-", "")
		for _, d := range members {
			if strings.Contains(text, "PVID="+strings.ReplaceAll(d.UUID, "-", "")) {
				continue
			}
			f := diagnose.Finding{
				ID: "lvm-devices-file", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.75,
				Title:    fmt.Sprintf("The file %s does not list the physical volume on %s, so that LVM does not use it.", lvmDevicesPath, d.Path),
				Evidence: []diagnose.Evidence{config.FileEvidence(lvmDevicesPath, 0, "it has no line with the PVID of "+d.Path), config.DeviceEvidence(d.Path, "a physical volume with UUID "+d.UUID)},
				ByHand:   "Run `lvmdevices --adddev` for the device, or delete the file so that LVM looks at all devices.",
			}
			switch holdsRoot := slices.Contains(config.Ancestors(s, s.Root), d); {
			case mountsBelow(s, d.Path):
				f.Severity = diagnose.BlocksBoot
			case !holdsRoot: // a disk of another system
				f.Severity = diagnose.Info
			}
			out = append(out, f)
		}
	}
	for i, line := range s.Files.Lines(lvmConfigPath) {
		found := lvmFilterPattern.FindStringSubmatch(line)
		if found == nil || !usesVolumes(s) { // such a filter keeps a host of VMs from the volumes of its guests
			continue
		}
		var rejectsAll, accepts bool
		for pattern := range strings.SplitSeq(found[1], ",") {
			pattern = strings.Trim(strings.TrimSpace(pattern), `"'`)
			accepts = accepts || strings.HasPrefix(pattern, "a")
			rejectsAll = rejectsAll || (strings.HasPrefix(pattern, "r") && len(pattern) > 2 && strings.Trim(pattern[1:], "|/") == ".*")
		}
		if rejectsAll && !accepts {
			out = append(out, diagnose.Finding{
				ID: "lvm-filter", Stage: diagnose.Root, Severity: diagnose.BlocksBoot, Confidence: 0.9,
				Title:    fmt.Sprintf("Line %d of %s makes LVM leave out every device.", i+1, lvmConfigPath),
				Evidence: []diagnose.Evidence{config.FileEvidence(lvmConfigPath, i+1, line)},
				Repair: &diagnose.Repair{Summary: fmt.Sprintf("Make line %d of %s a comment, and build the initramfs anew.", i+1, lvmConfigPath),
					Consent: diagnose.ConsentBoot, Writes: []string{lvmConfigPath}},
			})
		}
	}
	return out
}

// usesVolumes says whether the root, or what /etc/fstab names, lies on LVM.
func usesVolumes(s *diagnose.System) bool {
	isVolume := func(name string) bool {
		return slices.ContainsFunc(config.Ancestors(s, name), func(a *diagnose.Device) bool { return a.FS == "LVM2_member" || a.Kind == diagnose.VolumeDevice })
	}
	if isVolume(s.Root) {
		return true
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if slices.ContainsFunc(config.FindDevices(s, config.ParseDeviceName(e.Source)), func(d *diagnose.Device) bool { return isVolume(d.Path) }) {
			return true
		}
	}
	return false
}

// mountsBelow says whether the boot waits for a file system that lies on a device and is not the root, which the initramfs activates by itself.
func mountsBelow(s *diagnose.System, name string) bool {
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if e.Target == "/" || e.MountSeverity(s) != diagnose.BlocksBoot {
			continue
		}
		for _, d := range config.FindDevices(s, config.ParseDeviceName(e.Source)) {
			if slices.ContainsFunc(config.Ancestors(s, d.Path), func(a *diagnose.Device) bool { return a.Path == name }) {
				return true
			}
		}
	}
	return false
}

func lookArrays(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for _, a := range s.Arrays {
		var members []string
		for _, m := range a.Members[:min(len(a.Members), 16)] {
			members = append(members, fmt.Sprintf("%s (%s, %d events)", m.Path, m.Role, m.Events))
		}
		evidence := []diagnose.Evidence{config.DeviceEvidence(a.Path, fmt.Sprintf("%s with %d of %d members: %s", a.Level, a.Present, a.Wanted, strings.Join(members, ", ")))}
		switch {
		case !a.Started:
			f := diagnose.Finding{
				ID: "array-not-started", Stage: diagnose.Root, Severity: diagnose.Degrades, Confidence: 0.9, Evidence: evidence,
				Title:    fmt.Sprintf("The array %s cannot start, because %d of its %d members are there.", a.Path, a.Present, a.Wanted),
				Explains: []string{"fstab-device-missing", "root-argument-missing", "dracut-argument-missing", "volume-group-incomplete", "crypttab-device-missing"},
				ByHand:   "Connect the missing disks again. Never create the array anew, because that may destroy its content.",
			}
			if needsArray(s, a.Path) {
				f.Severity = diagnose.BlocksBoot
			}
			out = append(out, f)
		case a.Present < a.Wanted:
			out = append(out, diagnose.Finding{
				ID: "array-degraded", Stage: diagnose.Root, Severity: diagnose.Degrades, Confidence: 0.95, Evidence: evidence,
				Title:  fmt.Sprintf("The array %s runs with %d of its %d members.", a.Path, a.Present, a.Wanted),
				ByHand: "Replace the missing disk and add it with `mdadm --add`.",
			})
		}
	}
	return out
}

// needsArray says whether the boot waits for something that may lie on an array which did not start.
func needsArray(s *diagnose.System, array string) bool {
	if s.Files == nil {
		return true
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if tag := config.ParseDeviceName(e.Source); tag.Tag != "" && e.MountSeverity(s) == diagnose.BlocksBoot && !config.IsRemovableName(tag.Value) &&
			(e.Source == array || len(config.FindDevices(s, tag)) == 0) {
			return true
		}
	}
	return false
}

func lookDisks(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	unread := unreadStartFile(s)
	for _, d := range s.Disks {
		if !d.Failing {
			continue
		}
		exit := d.Exit
		f := diagnose.Finding{
			ID: diagnose.DiskFailing, Stage: diagnose.Root, Severity: diagnose.Degrades, Confidence: 0.95,
			Title:    strings.TrimSuffix(fmt.Sprintf("The disk %s is failing (%s)", d.Path, strings.TrimSpace(d.Model+" "+d.Serial)), " ()") + ".",
			Evidence: []diagnose.Evidence{{Kind: diagnose.FromTool, Path: d.Path, Command: d.Command, Exit: &exit, Text: strings.Join(d.Reasons, "; ")}},
			Explains: []string{"file-system-damaged", "file-system-not-mounted", "superblock-missing", "kernel-damaged", "initramfs-damaged"},
			ByHand:   "Copy the disk to another one before anything else, for example with ddrescue, and replace it.",
		}
		if d.Command == nil {
			f.Evidence = []diagnose.Evidence{{Kind: diagnose.FromDevice, Path: d.Path, Text: strings.Join(d.Reasons, "; ")}}
		}
		if isDamagedOn(s, d.Path) {
			f.Severity = diagnose.BlocksBoot
		}
		if unread != "" && holdsRoot(s, d.Path) {
			f.Severity = diagnose.BlocksBoot
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromDevice, Path: d.Path, Text: unread + " could not be read, and each start needs it"})
		}
		out = append(out, f)
	}
	return out
}

// holdsRoot says whether a file system of the examined system lies on a disk.
func holdsRoot(s *diagnose.System, disk string) bool {
	return slices.ContainsFunc(s.Devices, func(d diagnose.Device) bool {
		return d.MountedAt != "" && slices.ContainsFunc(config.Ancestors(s, d.Path), func(a *diagnose.Device) bool { return a.Path == disk })
	})
}

// isDamagedOn says whether a file system on a disk is damaged or was not mounted.
func isDamagedOn(s *diagnose.System, disk string) bool {
	for i := range s.Devices {
		d := &s.Devices[i]
		damaged := d.MountError != "" || slices.ContainsFunc(s.Checks, func(c diagnose.Check) bool { return c.Device == d.Path && c.Damaged })
		if damaged && slices.ContainsFunc(config.Ancestors(s, d.Path), func(a *diagnose.Device) bool { return a.Path == disk }) {
			return true
		}
	}
	return false
}

func lookMemory(s *diagnose.System) []diagnose.Finding {
	evidence := []diagnose.Evidence{{Kind: diagnose.FromDevice, Path: "/sys/devices/system/edac", Text: fmt.Sprintf("%d corrected and %d uncorrected errors", s.Corrected, s.Uncorrected)}}
	switch {
	case s.Uncorrected > 0:
		return []diagnose.Finding{{ID: "memory-uncorrected", Stage: diagnose.Kernel, Severity: diagnose.Degrades, Confidence: 0.95, Evidence: evidence,
			Title: fmt.Sprintf("The memory had %d errors that could not be corrected since the ramdisk booted.", s.Uncorrected), ByHand: "Replace the memory module that the event log of the BMC names."}}
	case s.Corrected > 0:
		return []diagnose.Finding{{ID: "memory-corrected", Stage: diagnose.Kernel, Severity: diagnose.Info, Confidence: 0.9, Evidence: evidence,
			Title: fmt.Sprintf("The memory had %d errors that were corrected since the ramdisk booted.", s.Corrected)}}
	}
	return nil
}

// lookClock finds a clock that is off by more than a day: less may be a time zone.
func lookClock(s *diagnose.System) []diagnose.Finding {
	if s.Now.IsZero() || s.Clock.IsZero() {
		return nil
	}
	off := s.Clock.Sub(s.Now)
	if off.Abs().Hours() <= 24 {
		return nil
	}
	way := "ahead"
	if off < 0 {
		way = "behind"
	}
	r := &diagnose.Repair{Summary: "Set the hardware clock to the time of the control plane.", Consent: diagnose.ConsentSettings, Writes: []string{"the hardware clock"}}
	if s.Files != nil && slices.Contains(s.Files.Lines("/etc/adjtime"), "LOCAL") {
		r.Loses = "The hardware clock gets UTC. As /etc/adjtime says, the system takes it for local time, and another system on the machine may do so too."
	}
	return []diagnose.Finding{{
		ID: "clock-wrong", Stage: diagnose.Firmware, Severity: diagnose.Degrades, Confidence: 0.9,
		Title:    fmt.Sprintf("The clock of the machine is %d days %s, so that certificates and logins with tickets are refused.", int(off.Abs().Hours()/24), way),
		Evidence: []diagnose.Evidence{{Kind: diagnose.FromRecord, Text: fmt.Sprintf("the machine's clock was %s when it was %s", s.Clock.UTC().Format("2006-01-02 15:04:05 UTC"), s.Now.UTC().Format("2006-01-02 15:04:05 UTC"))}},
		Repair:   r,
		ByHand:   "Replace the battery of the clock if it is wrong again after the machine was without power.",
	}}
}
