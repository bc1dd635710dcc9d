package system

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

const fstabPath = "/etc/fstab"

// fstabLine is one entry of /etc/fstab, in the fields of fstab(5). Octal escapes are decoded.
type fstabLine struct {
	Source, Target, Type string
	Options              []string
	Pass                 int
	Line                 int // from 1
	Text                 string
	Fields               int // how many the line has
}

// maxTableLines bounds the entries that are read of /etc/fstab and /etc/crypttab.
const maxTableLines = 1000

// tableLines returns the lines of a file such as /etc/fstab that end in its first maxSmallFile bytes. Rules read such a file once for each of its
// entries.
func tableLines(s *diagnose.System, name string) []string {
	b, _, err := s.Files.ReadHead(name, maxSmallFile)
	if err != nil || len(b) == 0 {
		return nil
	}
	return diagnose.SplitLines(string(b))
}

// parseFstab returns the entries, maxTableLines at most. One with fewer than three fields is returned with what it has.
func parseFstab(lines []string) []fstabLine {
	var out []fstabLine
	for i, text := range lines {
		fields := strings.Fields(text)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(out) >= maxTableLines {
			break
		}
		at := slices.IndexFunc(fields, func(f string) bool { return f[0] == '#' })
		if at >= 4 { // what follows the options may be a comment
			fields = fields[:at]
		}
		e := fstabLine{Line: i + 1, Text: text, Fields: len(fields)}
		get := func(n int) string {
			if n < len(fields) {
				return diagnose.UnescapeOctal(fields[n])
			}
			return ""
		}
		e.Source, e.Target, e.Type = get(0), get(1), get(2)
		e.Options = strings.Split(get(3), ",")
		e.Pass, _ = strconv.Atoi(get(5))
		out = append(out, e)
	}
	return out
}

// has says whether one of the options is set, with or without a value.
func (e *fstabLine) has(options ...string) bool {
	return slices.ContainsFunc(e.Options, func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return slices.Contains(options, name)
	})
}

// isBind says whether the entry shows or changes what is mounted elsewhere, and mounts no file system of its own: mount(8) ignores the type
// of such an entry, which is "none" by custom.
func (e *fstabLine) isBind() bool {
	return e.has("bind", "rbind") || e.Type == "bind" || e.Type == "rbind" ||
		e.Type == "none" && e.has("move", "remount", "shared", "rshared", "private", "rprivate", "slave", "rslave", "unbindable", "runbindable")
}

// option returns the value of an option.
func (e *fstabLine) option(name string) (string, bool) {
	for _, o := range e.Options {
		if value, found := strings.CutPrefix(o, name+"="); found {
			return value, true
		}
	}
	return "", false
}

// isWaitedFor: the boot waits for the mount and fails without it.
func (e *fstabLine) isWaitedFor() bool {
	return !e.has("noauto", "nofail", "x-systemd.automount", "x-initrd.attach")
}

func (e *fstabLine) isSwap() bool { return e.Type == "swap" }

// isNetwork: the file system or its device comes over a network.
func (e *fstabLine) isNetwork() bool {
	return e.has("_netdev") || slices.Contains(networkTypes, e.Type) || strings.HasPrefix(e.Source, "//") ||
		(strings.Contains(e.Source, ":/") && !strings.HasPrefix(e.Source, "/"))
}

var networkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "afs", "9p", "ncpfs", "gfs", "gfs2",
	"ocfs2", "lustre", "davfs", "fuse.ceph"}

func (e *fstabLine) evidence() diagnose.Evidence { return fileEvidence(fstabPath, e.Line, e.Text) }

// place says where the entry is mounted, for a title.
func (e *fstabLine) place() string {
	if e.isSwap() {
		return "swap space"
	}
	return e.Target
}

// stage of a failure of this mount: the initramfs mounts / and /usr, the init system the rest.
func (e *fstabLine) stage() diagnose.Stage {
	if e.Target == "/" || e.Target == "/usr" {
		return diagnose.Root
	}
	return diagnose.Target
}

// mountSeverity is what a failure of this mount does to the boot.
func (e *fstabLine) mountSeverity(s *diagnose.System) diagnose.Severity {
	switch {
	case e.has("noauto", "x-systemd.automount"):
		return diagnose.Info
	case !e.isWaitedFor():
		return diagnose.Info
	case e.isSwap() || e.isNetwork(): // neither is required by local-fs.target
		return diagnose.Degrades
	case e.Target == "/" || e.Target == "/usr" || usesSystemd(s.Files) || e.Pass != 0:
		return diagnose.BlocksBoot
	}
	return diagnose.Degrades
}

// isEssential: the system does not work without what is below the mount point, so it is never mounted with nofail.
func (e *fstabLine) isEssential() bool {
	return slices.Contains([]string{"/", "/usr", "/var", "/boot", "/etc"}, e.Target)
}

func fstabRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"fstab-device-missing", "fstab-kernel-name"}, Files: true, Look: lookMountDevices},
		{IDs: []string{"fstab-line-invalid", "fstab-type-unknown", "fstab-type-wrong", "fstab-option-invalid"}, Files: true, Look: eachMount(lookMountLine)},
		{IDs: []string{"fstab-duplicate"}, Files: true, Look: lookMountDuplicates},
		{IDs: []string{"fstab-root-read-only"}, Files: true, Look: lookRootReadOnly},
		{IDs: []string{"fstab-subvolume-missing"}, Files: true, Look: eachMount(lookMountSubvolume)},
		{IDs: []string{"fstab-network-mount"}, Files: true, Look: eachMount(lookNetworkMount)},
		{IDs: []string{"fstab-bind-source-missing"}, Files: true, Look: lookBindSources},
		{IDs: []string{"fstab-missing"}, Files: true, Look: lookMissingFstab},
	}
}

// eachMount asks about each entry of /etc/fstab with the devices that it names.
func eachMount(look func(s *diagnose.System, e *fstabLine, found []*diagnose.Device) *diagnose.Finding) func(*diagnose.System) []diagnose.Finding {
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
	entries    []fstabLine
	devices    [][]*diagnose.Device     // of each entry
	mounts     map[*diagnose.Device]int // how many entries name the device
	cryptNames map[string]bool
	hidden     []string
}

func readMountTable(s *diagnose.System) *mountTable {
	t := &mountTable{system: s, entries: parseFstab(tableLines(s, fstabPath)), mounts: map[*diagnose.Device]int{}, cryptNames: map[string]bool{}, hidden: hidesDevices(s)}
	for _, c := range parseCrypttab(tableLines(s, crypttabPath)) {
		t.cryptNames["/dev/mapper/"+c.Name] = true
	}
	paths := make([][]string, len(s.Devices))
	for i := range s.Devices {
		paths[i] = devicePaths(s, &s.Devices[i])
	}
	for _, e := range t.entries {
		found := findDevicesByPaths(s, parseDeviceName(e.Source), func(i int) []string { return paths[i] })
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
	name := parseDeviceName(e.Source)
	if e.Fields < 3 || e.has("noauto") || name.Tag == "" || isRemovableName(name.Value) || e.isBind() || e.has("loop") {
		return nil
	}
	found := t.devices[at]
	if len(found) == 0 && (isUncertainName(s, name) || name.Tag == "path" && t.cryptNames[name.Value]) {
		return nil // the rule about crypttab looks at the container
	}
	if name.Kernel {
		return t.lookKernelName(at)
	}
	if len(found) > 0 {
		return nil
	}
	f := &diagnose.Finding{
		ID: "fstab-device-missing", Stage: e.stage(), Severity: e.mountSeverity(s), Confidence: 0.85,
		Title:    fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, which no device of the machine has.", e.Line, e.place(), e.Source),
		Evidence: []diagnose.Evidence{e.evidence()},
	}
	if e.isNetwork() {
		f.Severity, f.Confidence = diagnose.Info, 0.4
		f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, which may be a device of the network.", e.Line, e.place(), e.Source)
		return f
	}
	if hidden := t.hidden; len(hidden) > 0 {
		f.Confidence = 0.4
		f.Evidence = append(f.Evidence, deviceEvidence("", "it may lie in what was not examined: "+strings.Join(hidden[:min(len(hidden), 3)], "; ")))
	}
	t.proposeRepair(at, f)
	return f
}

// isCryptName: the path is one that /etc/crypttab gives to an opened container.
func isCryptName(s *diagnose.System, name string) bool {
	return slices.ContainsFunc(parseCrypttab(tableLines(s, crypttabPath)), func(c cryptLine) bool { return name == "/dev/mapper/"+c.Name })
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
	f := &diagnose.Finding{ID: "fstab-kernel-name", Stage: e.stage(), Evidence: []diagnose.Evidence{e.evidence()}}
	switch {
	case len(found) == 0:
		f.Severity, f.Confidence = e.mountSeverity(s), 0.7
		f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, and the kernel gives this name to no device.", e.Line, e.place(), e.Source)
	case !typeFits(e.Type, found[0].FS) && t.otherFits(at, found[0]) != nil:
		f.Severity, f.Confidence, f.Explains = e.mountSeverity(s), 0.75, []string{"fstab-type-wrong"}
		f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s from %s, but the order of the disks has changed and another device has this name.", e.Line, e.place(), e.Source)
		f.Evidence = append(f.Evidence, deviceEvidence(found[0].Path, "its content is "+found[0].FS+", not "+e.Type))
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
	root := rootDevice(s)
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
		if e.Target == "/" && d.Path != s.Root {
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
	if d := t.otherFits(at, nil); d != nil && (e.isEssential() || strings.HasPrefix(e.Target, "/boot") || e.isSwap() || parseDeviceName(e.Source).Kernel) {
		f.Evidence = append(f.Evidence, deviceEvidence(d.Path, fmt.Sprintf("%s with UUID %s, which no line of /etc/fstab mounts", d.FS, d.UUID)))
		f.Repair = &diagnose.Repair{
			Summary: fmt.Sprintf("Let line %d of /etc/fstab name UUID=%s, the only device of type %s that no line names.", e.Line, d.UUID, d.FS),
			Consent: diagnose.ConsentFiles, Writes: []string{fstabPath},
		}
		return
	}
	if e.isEssential() {
		f.ByHand = fmt.Sprintf("Find the device that belongs at %s and write its UUID into line %d of /etc/fstab.", e.Target, e.Line)
		return
	}
	f.Repair = goOnWithout(t.system, e)
	if !e.isSwap() {
		f.ByHand = fmt.Sprintf("Attach the device again, or give the units of services that store data below %s RequiresMountsFor=%s.", e.Target, e.Target)
	}
}

// goOnWithout is the repair of a line that the boot need not wait for.
func goOnWithout(s *diagnose.System, e *fstabLine) *diagnose.Repair {
	r := &diagnose.Repair{
		Summary: fmt.Sprintf("Add %s to the options of line %d of /etc/fstab, so that the boot goes on without it.", strings.Join(WaitOptions(s.Files), ","), e.Line),
		Consent: diagnose.ConsentFiles, Writes: []string{fstabPath},
	}
	if !e.isSwap() {
		r.Loses = losesMount(e.Target)
	}
	return r
}

// lookMountSubvolume finds btrfs entries whose subvolume is not there.
func lookMountSubvolume(s *diagnose.System, e *fstabLine, devices []*diagnose.Device) *diagnose.Finding {
	want, found := e.option("subvol")
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
		ID: "fstab-subvolume-missing", Stage: e.stage(), Severity: e.mountSeverity(s), Confidence: 0.95,
		Title: fmt.Sprintf("Line %d of /etc/fstab mounts %s from the subvolume %s, which %s does not have.", e.Line, e.Target, want, devices[0].Path),
		Evidence: []diagnose.Evidence{e.evidence(),
			deviceEvidence(devices[0].Path, "its subvolumes: "+strings.Join(devices[0].Subvolumes[:min(len(devices[0].Subvolumes), 12)], ", "))},
	}
	replacement := SubvolumeFor(s, e.Line)
	switch {
	case f.Severity != diagnose.Info && replacement != "":
		f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Let line %d of /etc/fstab name the subvolume %s.", e.Line, replacement), Consent: diagnose.ConsentFiles, Writes: []string{fstabPath}}
	case e.isEssential() || f.Severity == diagnose.Info:
		f.ByHand = fmt.Sprintf("Name an existing subvolume in line %d of /etc/fstab; `btrfs subvolume list` shows them.", e.Line)
	default:
		f.Repair = goOnWithout(s, e)
	}
	return f
}

// SubvolumeFor is the subvolume that a line of /etc/fstab means, which names one that is gone: for the root the one that holds the system, otherwise
// the only one that is named after the place, such as home or @home, and that no line mounts. It is empty where none can be told.
func SubvolumeFor(s *diagnose.System, line int) string {
	entries := parseFstab(tableLines(s, fstabPath))
	at := slices.IndexFunc(entries, func(e fstabLine) bool { return e.Line == line })
	if at < 0 {
		return ""
	}
	devices := findDevices(s, parseDeviceName(entries[at].Source))
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
		if name, found := e.option("subvol"); found {
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
func lookNetworkMount(s *diagnose.System, e *fstabLine, _ []*diagnose.Device) *diagnose.Finding {
	if e.Fields < 3 || !e.isNetwork() || !e.isWaitedFor() || e.has("_netdev", "bg") {
		return nil
	}
	severity, evidence, byHand := diagnose.Info, []diagnose.Evidence{e.evidence()}, ""
	helper, ok := mountHelpers[e.Type]
	// NixOS has its programs elsewhere, and a /usr that is not mounted has none: neither has this mount.
	if ok && firstExisting(s.Files, "/usr/bin/mount", "/bin/mount") != "" && firstExisting(s.Files, "/sbin/"+helper, "/usr/sbin/"+helper) == "" {
		severity, byHand = diagnose.Degrades, "Install the package that brings "+helper+"."
		evidence = append(evidence, fileEvidence("/sbin/"+helper, 0, "it does not exist, so that mount does not mount "+e.Type))
	}
	return &diagnose.Finding{
		ID: "fstab-network-mount", Stage: diagnose.Target, Severity: severity, Confidence: 0.8,
		Title:    fmt.Sprintf("Line %d of /etc/fstab mounts %s over the network, and the boot waits for it.", e.Line, e.Target),
		Evidence: evidence, ByHand: byHand,
		Repair: &diagnose.Repair{
			Summary: fmt.Sprintf("Add nofail,_netdev to the options of line %d of /etc/fstab.", e.Line),
			Consent: diagnose.ConsentFiles, Writes: []string{fstabPath},
		},
	}
}
