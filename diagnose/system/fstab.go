package system

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func fstabRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"fstab-device-missing", "fstab-kernel-name"}, Files: true, Look: lookMountDevices},
		{IDs: []string{"fstab-line-invalid", "fstab-type-unknown", "fstab-type-wrong", "fstab-option-invalid"}, Files: true, Look: eachMount(lookMountLine)},
		{IDs: []string{"fstab-duplicate"}, Files: true, Look: lookMountDuplicates},
		{IDs: []string{"fstab-root-read-only"}, Files: true, Look: lookRootReadOnly},
		{IDs: []string{"fstab-subvolume-missing"}, Files: true, Look: eachMount(lookMountSubvolume)},
		{IDs: []string{"fstab-network-mount"}, Files: true, Look: eachMount(lookNetworkMount)},
		{IDs: []string{"fstab-bind-source-missing"}, Files: true, Look: lookBindSources},
		{IDs: []string{"fstab-hides-system"}, Files: true, Look: eachMount(lookHidingMount)},
		{IDs: []string{"fstab-driver-unavailable"}, Files: true, Look: lookMountDrivers},
		{IDs: []string{"fstab-missing"}, Files: true, Look: lookMissingFstab},
	}
}

// eachMount asks about each entry of /etc/fstab with the devices that it names.
func eachMount(look func(s *diagnose.System, e *config.FstabLine, found []*diagnose.Device) *diagnose.Finding) func(*diagnose.System) []diagnose.Finding {
	return func(s *diagnose.System) []diagnose.Finding {
		var out []diagnose.Finding
		table := readMountTable(s)
		for i := range table.entries {
			if f := look(s, &table.entries[i], table.devices[i]); f != nil {
				out = append(out, *f)
			}
		}
		return out
	}
}

// mountTable is /etc/fstab with what its entries name, found once for all of them.
type mountTable struct {
	system     *diagnose.System
	entries    []config.FstabLine
	devices    [][]*diagnose.Device     // of each entry
	mounts     map[*diagnose.Device]int // how many entries name the device
	cryptNames map[string]bool
	hidden     []string
}

func readMountTable(s *diagnose.System) *mountTable {
	t := &mountTable{system: s, entries: config.ParseFstab(config.TableLines(s, config.FstabPath)), mounts: map[*diagnose.Device]int{}, cryptNames: map[string]bool{}, hidden: config.HidesDevices(s)}
	for _, c := range config.ParseCrypttab(config.TableLines(s, config.CrypttabPath)) {
		t.cryptNames["/dev/mapper/"+c.Name] = true
	}
	paths := make([][]string, len(s.Devices))
	for i := range s.Devices {
		paths[i] = config.DevicePaths(s, &s.Devices[i])
	}
	for _, e := range t.entries {
		found := config.FindDevicesByPaths(s, config.ParseDeviceName(e.Source), func(i int) []string { return paths[i] })
		t.devices = append(t.devices, found)
		for _, d := range found {
			t.mounts[d]++
		}
	}
	return t
}

func lookMountDevices(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	table := readMountTable(s)
	for i := range table.entries {
		if f := table.lookDevice(i); f != nil {
			out = append(out, *f)
		}
	}
	return out
}

// lookDevice finds entries whose device is not there, and those that name a disk by the order of discovery.
func (t *mountTable) lookDevice(at int) *diagnose.Finding {
	s, e := t.system, &t.entries[at]
	name := config.ParseDeviceName(e.Source)
	if e.Fields < 3 || e.Has("noauto") || name.Tag == "" || config.IsRemovableName(name.Value) || e.IsBind() || e.Has("loop") {
		return nil
	}
	found := t.devices[at]
	if len(found) == 0 && (config.IsUncertainName(s, name) || name.Tag == "path" && t.cryptNames[name.Value]) {
		return nil // the rule about crypttab looks at the container
	}
	if name.Kernel {
		return t.lookKernelName(at)
	}
	if len(found) > 0 {
		return nil
	}
	f := &diagnose.Finding{
		ID: "fstab-device-missing", Stage: e.Stage(), Severity: e.MountSeverity(s), Confidence: 0.85,
		Title:    fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, which no device of the machine has.", e.Line, e.Place(), e.Source),
		Evidence: []diagnose.Evidence{e.Evidence()},
	}
	if e.IsNetwork() {
		f.Severity, f.Confidence = diagnose.Info, 0.4
		f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, which may be a device of the network.", e.Line, e.Place(), e.Source)
		return f
	}
	if hidden := t.hidden; len(hidden) > 0 {
		f.Confidence = 0.4
		f.Evidence = append(f.Evidence, config.DeviceEvidence("", "it may lie in what was not examined: "+strings.Join(hidden[:min(len(hidden), 3)], "; ")))
	}
	t.proposeRepair(at, f)
	return f
}

// isCryptName: the path is one that /etc/crypttab gives to an opened container.
func isCryptName(s *diagnose.System, name string) bool {
	return slices.ContainsFunc(config.ParseCrypttab(config.TableLines(s, config.CrypttabPath)), func(c config.CryptLine) bool { return name == "/dev/mapper/"+c.Name })
}

// lookKernelName judges an entry such as /dev/sdb1.
func (t *mountTable) lookKernelName(at int) *diagnose.Finding {
	s, e, found := t.system, &t.entries[at], t.devices[at]
	disks := 0
	for i := range s.Devices {
		if s.Devices[i].Kind == diagnose.DiskDevice {
			disks++
		}
	}
	f := &diagnose.Finding{ID: "fstab-kernel-name", Stage: e.Stage(), Evidence: []diagnose.Evidence{e.Evidence()}}
	switch {
	case len(found) == 0:
		f.Severity, f.Confidence = e.MountSeverity(s), 0.7
		f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, and the kernel gives this name to no device.", e.Line, e.Place(), e.Source)
	case !typeFits(e.Type, found[0].FS) && t.otherFits(at, found[0]) != nil:
		f.Severity, f.Confidence, f.Explains = e.MountSeverity(s), 0.75, []string{"fstab-type-wrong"}
		f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, but the order of the disks has changed and another device has this name.", e.Line, e.Place(), e.Source)
		f.Evidence = append(f.Evidence, config.DeviceEvidence(found[0].Path, "its content is "+found[0].FS+", not "+e.Type))
	case disks > 1:
		f.Severity, f.Confidence = diagnose.Info, 0.9
		f.Title = fmt.Sprintf("Line %d of /etc/fstab names %s, and such a name changes when disks are added.", e.Line, e.Source)
		return f
	default:
		return nil
	}
	t.proposeRepair(at, f)
	return f
}

// otherFits returns the one device that no entry of fstab mounts and that has the type which an entry asks for; nil where there is none or more.
func (t *mountTable) otherFits(at int, not *diagnose.Device) *diagnose.Device {
	s, e := t.system, &t.entries[at]
	root := config.RootDevice(s)
	var out *diagnose.Device
	for i := range s.Devices {
		d := &s.Devices[i]
		others := t.mounts[d]
		if slices.Contains(t.devices[at], d) {
			others--
		}
		if others > 0 || d == not || (d == root && e.Target != "/") || d.UUID == "" || d.FS == "" || e.Type == "auto" || !typeFits(e.Type, d.FS) || (d.MountedAt != "" && d.MountedAt != e.Target) {
			continue
		}
		if e.Target == "/" && d.Path != s.Root || mustFit(e) && !fitsPlace(e, d) {
			continue
		}
		if out != nil {
			return nil
		}
		out = d
	}
	return out
}

// proposeRepair says what to do about an entry whose device is not there.
func (t *mountTable) proposeRepair(at int, f *diagnose.Finding) {
	e := &t.entries[at]
	if f.Severity == diagnose.Info {
		f.ByHand = "Remove the line if the device does not come back."
		return
	}
	isKernel := config.ParseDeviceName(e.Source).Kernel
	if d := t.otherFits(at, nil); d != nil && (mustFit(e) || e.Target == "/" || e.IsSwap() || isKernel) {
		f.Evidence = append(f.Evidence, config.DeviceEvidence(d.Path, fmt.Sprintf("%s with UUID %s, which no line of /etc/fstab mounts", d.FS, d.UUID)))
		f.Repair = &diagnose.Repair{
			Summary: fmt.Sprintf("Let line %d of /etc/fstab name UUID=%s, the only device of type %s that no line names.", e.Line, d.UUID, d.FS),
			Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath},
		}
		if !mustFit(e) && e.Target != "/" && !e.IsSwap() { // a name of the kernel says nothing about what is meant
			f.Repair.Loses = fmt.Sprintf("If %s is another file system than the lost one, such as a backup, programs find it at %s and change what it holds.", d.Path, e.Target)
		}
		return
	}
	if e.IsEssential() {
		f.ByHand = fmt.Sprintf("Find the device that belongs at %s and write its UUID into line %d of /etc/fstab.", e.Target, e.Line)
		return
	}
	f.Repair = goOnWithout(t.system, e)
	if !e.IsSwap() {
		f.ByHand = fmt.Sprintf("Attach the device again, or give the units of services that store data below %s RequiresMountsFor=%s.", e.Target, e.Target)
	}
}

// mustFit says whether only a file system whose content fits is proposed for the place of an entry. A wrong one would take what belongs to the
// system, such as new kernels, to a disk of data.
func mustFit(e *config.FstabLine) bool {
	return e.IsEssential() && e.Target != "/" || strings.HasPrefix(e.Target, "/boot/") || e.Target == "/efi"
}

// fitsPlace says whether a device holds what belongs at the place of an entry: an EFI system partition by its type, others by their files.
func fitsPlace(e *config.FstabLine, d *diagnose.Device) bool {
	if e.Target == "/boot/efi" || e.Target == "/efi" {
		return isESP(d)
	}
	return slices.Contains(d.Places, e.Target)
}

// goOnWithout is the repair of a line that the boot need not wait for.
func goOnWithout(s *diagnose.System, e *config.FstabLine) *diagnose.Repair {
	r := &diagnose.Repair{
		Summary: fmt.Sprintf("Add %s to the options of line %d of /etc/fstab, so that the boot goes on without it.", strings.Join(config.WaitOptions(s.Files), ","), e.Line),
		Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath},
	}
	if !e.IsSwap() {
		r.Loses = losesMount(e.Target)
	}
	return r
}

// lookMountSubvolume finds btrfs entries whose subvolume is not there.
func lookMountSubvolume(s *diagnose.System, e *config.FstabLine, devices []*diagnose.Device) *diagnose.Finding {
	want, found := e.Option("subvol")
	if !found || e.Type != "btrfs" {
		return nil
	}
	if len(devices) == 0 || len(devices[0].Subvolumes) == 0 {
		return nil
	}
	want = strings.Trim(want, "/")
	if want == "" || slices.ContainsFunc(devices[0].Subvolumes, func(v string) bool { return strings.Trim(v, "/") == want }) {
		return nil
	}
	f := &diagnose.Finding{
		ID: "fstab-subvolume-missing", Stage: e.Stage(), Severity: e.MountSeverity(s), Confidence: 0.95,
		Title: fmt.Sprintf("Line %d of /etc/fstab mounts %s from the subvolume %s, which %s does not have.", e.Line, e.Target, want, devices[0].Path),
		Evidence: []diagnose.Evidence{e.Evidence(),
			config.DeviceEvidence(devices[0].Path, "its subvolumes: "+strings.Join(devices[0].Subvolumes[:min(len(devices[0].Subvolumes), 12)], ", "))},
	}
	replacement := SubvolumeFor(s, e.Line)
	switch {
	case f.Severity != diagnose.Info && replacement != "":
		f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Let line %d of /etc/fstab name the subvolume %s.", e.Line, replacement), Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath}}
		if e.Target != "/" {
			f.Repair.Loses = fmt.Sprintf("If the subvolume %s belongs to another system on %s, both systems use it.", replacement, devices[0].Path)
		}
	case e.IsEssential() || f.Severity == diagnose.Info:
		f.ByHand = fmt.Sprintf("Name an existing subvolume in line %d of /etc/fstab; `btrfs subvolume list` shows them.", e.Line)
	default:
		f.Repair = goOnWithout(s, e)
	}
	return f
}

// SubvolumeFor is the subvolume that a line of /etc/fstab means, which names one that is gone: for the root the one that holds the system, otherwise
// the only one that is named after the place, such as home or @home, and that no line mounts. It is empty where none can be told.
func SubvolumeFor(s *diagnose.System, line int) string {
	entries := config.ParseFstab(config.TableLines(s, config.FstabPath))
	at := slices.IndexFunc(entries, func(e config.FstabLine) bool { return e.Line == line })
	if at < 0 {
		return ""
	}
	devices := config.FindDevices(s, config.ParseDeviceName(entries[at].Source))
	if len(devices) != 1 {
		return ""
	}
	place := strings.Trim(entries[at].Target, "/")
	if place == "" {
		if devices[0].Path != s.Root {
			return ""
		}
		return plainSubvolume(s.RootSubvolume)
	}
	var mounted []string
	for _, e := range entries {
		if name, found := e.Option("subvol"); found {
			mounted = append(mounted, strings.Trim(name, "/"))
		}
	}
	var out []string
	for _, v := range devices[0].Subvolumes {
		if slices.Contains([]string{place, "@" + place, "@/" + place, "@" + strings.ReplaceAll(place, "/", "-")}, v) && !slices.Contains(mounted, v) {
			out = append(out, v)
		}
	}
	if len(out) != 1 {
		return ""
	}
	return plainSubvolume(out[0])
}

// plainSubvolume is a name that can be written into a line of options; empty for others.
func plainSubvolume(name string) string {
	if strings.ContainsAny(name, " \t\"'$\\,#") {
		return ""
	}
	return name
}

// mountHelpers are the programs that mount(8) leaves these types to. Without them, the kernel takes no name of a server.
var mountHelpers = map[string]string{"nfs": "mount.nfs", "nfs4": "mount.nfs4", "cifs": "mount.cifs", "glusterfs": "mount.glusterfs"}

// lookNetworkMount finds mounts over the network that the boot waits for.
func lookNetworkMount(s *diagnose.System, e *config.FstabLine, _ []*diagnose.Device) *diagnose.Finding {
	if e.Fields < 3 || !e.IsNetwork() || !e.IsWaitedFor() || e.Has("_netdev", "bg") {
		return nil
	}
	severity, evidence, byHand := diagnose.Info, []diagnose.Evidence{e.Evidence()}, ""
	helper, ok := mountHelpers[e.Type]
	// NixOS has its programs elsewhere, and a /usr that is not mounted has none: neither has this mount.
	if ok && config.FirstExisting(s.Files, "/usr/bin/mount", "/bin/mount") != "" && config.FirstExisting(s.Files, "/sbin/"+helper, "/usr/sbin/"+helper) == "" {
		severity, byHand = diagnose.Degrades, "Install the package that brings "+helper+"."
		evidence = append(evidence, config.FileEvidence("/sbin/"+helper, 0, "it does not exist, so that mount does not mount "+e.Type))
	}
	return &diagnose.Finding{
		ID: "fstab-network-mount", Stage: diagnose.Target, Severity: severity, Confidence: 0.8,
		Title:    fmt.Sprintf("Line %d of /etc/fstab mounts %s over the network, and the boot waits for it.", e.Line, e.Target),
		Evidence: evidence, ByHand: byHand,
		Repair: &diagnose.Repair{
			Summary: fmt.Sprintf("Add nofail,_netdev to the options of line %d of /etc/fstab.", e.Line),
			Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath}, Loses: losesMount(e.Target),
		},
	}
}
