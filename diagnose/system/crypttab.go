package system

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// maxCryptFindings bounds the findings of crypttab, and maxCryptMounts the mounts of one container that a repair changes.
const (
	maxCryptFindings = 20
	maxCryptMounts   = 10
)

// cryptSeverity is what happens when the container is not opened.
func cryptSeverity(s *diagnose.System, mounts []config.FstabLine, c *config.CryptLine) diagnose.Severity {
	if c.Has("noauto") {
		return diagnose.Info
	}
	for _, severity := range []diagnose.Severity{diagnose.BlocksBoot, diagnose.Degrades} {
		if slices.ContainsFunc(mounts, func(e config.FstabLine) bool { return e.MountSeverity(s) == severity }) {
			return severity
		}
	}
	if len(mounts) > 0 || c.Has("nofail", "swap", "tmp") {
		return diagnose.Info
	}
	return diagnose.Degrades
}

func cryptRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"crypttab-device-missing", "crypttab-device-not-luks", "crypttab-keyfile-missing", "crypttab-overwrites"}, Files: true, Look: lookCrypttab}}
}

// lookCrypttab finds containers that will not open by themselves.
func lookCrypttab(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	entries, mounts := config.ParseCrypttab(config.TableLines(s, config.CrypttabPath)), map[string][]config.FstabLine{}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		mounts[e.Source] = append(mounts[e.Source], e)
	}
	named := map[*diagnose.Device]bool{} // by any entry
	for _, c := range entries {
		for _, d := range config.FindSource(s, c) {
			named[d] = true
		}
	}
	for _, c := range entries {
		if len(out) == maxCryptFindings {
			break
		}
		mounts := mounts["/dev/mapper/"+c.Name]
		f := diagnose.Finding{Stage: diagnose.Target, Severity: cryptSeverity(s, mounts, &c), Evidence: []diagnose.Evidence{config.FileEvidence(config.CrypttabPath, c.Line, c.Text)}}
		name, found := config.ParseDeviceName(c.Source), config.FindSource(s, c)
		switch {
		case name.Tag == "":
			continue
		case len(found) == 0:
			f.ID, f.Confidence, f.Explains = "crypttab-device-missing", 0.9, []string{"fstab-device-missing", "root-argument-missing"}
			f.Title = fmt.Sprintf("Line %d of /etc/crypttab opens %s from %s, which no device of the machine has.", c.Line, c.Name, c.Source)
			if name.Kernel {
				f.Confidence = 0.7
			}
			if hidden := config.HidesDevices(s); len(hidden) > 0 && !onlyLocked(s) {
				f.Confidence = 0.4
			}
			switch {
			case slices.ContainsFunc(mounts, func(e config.FstabLine) bool { return e.Target == "/" || e.Target == "/usr" }): // the initramfs opens it
				f.Stage = diagnose.Root
			case f.Severity == diagnose.Degrades && opensRoot(s, named, &c):
				f.Severity, f.Stage, f.Confidence = diagnose.BlocksBoot, diagnose.Root, min(f.Confidence, 0.75)
			}
			proposeCryptRepair(s, named, mounts, &c, &f)
		case overwrites(&c, found[0]) != "":
			f.ID, f.Confidence, f.Severity = "crypttab-overwrites", 0.8, diagnose.Degrades
			f.Title = fmt.Sprintf("Line %d of /etc/crypttab makes %s anew in %s at each boot, and this device holds %s.", c.Line, c.Name, found[0].Path, found[0].FS)
			f.Evidence = append(f.Evidence, config.DeviceEvidence(found[0].Path, "its content is "+found[0].FS))
			f.ByHand = "Write the device that is meant into the line before the machine boots, or remove the line; the boot writes over the content."
		case found[0].FS != "crypto_LUKS" && found[0].NotExamined == "" && opensLUKS(&c):
			f.ID, f.Confidence = "crypttab-device-not-luks", 0.85
			f.Title = fmt.Sprintf("Line %d of /etc/crypttab opens %s, which holds no LUKS header.", c.Line, found[0].Path)
			f.Evidence = append(f.Evidence, config.DeviceEvidence(found[0].Path, "its content is "+orNothing(found[0].FS)))
			f.ByHand = "Write the device of the container into the line; if its header was overwritten, restore it with `cryptsetup luksHeaderRestore` or `cryptsetup repair`."
		case keyIsMissing(s, &c):
			f.ID, f.Confidence = "crypttab-keyfile-missing", 0.8
			f.Title = fmt.Sprintf("Line %d of /etc/crypttab opens %s with the key file %s, which does not exist.", c.Line, c.Name, c.Key)
			f.ByHand = "Restore the key file, or write none in its place and type the passphrase at boot."
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}

// onlyLocked: what was not examined are containers that crypttab itself would open, so none of them hides another container of crypttab.
func onlyLocked(s *diagnose.System) bool {
	for i := range s.Devices {
		if d := &s.Devices[i]; d.NotExamined != "" && d.FS != "crypto_LUKS" && !config.IsKnownFileSystem(d.FS) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Gaps, func(g diagnose.Gap) bool {
		return strings.HasPrefix(g.What, "/dev/") && config.DeviceAt(s, g.What) == nil
	}) && !slices.ContainsFunc(s.Arrays, func(a diagnose.Array) bool { return !a.Started }) &&
		!slices.ContainsFunc(s.Groups, func(g diagnose.VolumeGroup) bool { return len(g.Missing) > 0 })
}

// proposeCryptRepair names the one container that no entry opens.
func proposeCryptRepair(s *diagnose.System, named map[*diagnose.Device]bool, mounts []config.FstabLine, c *config.CryptLine, f *diagnose.Finding) {
	if f.Severity == diagnose.Info { // as its owner wants it
		f.ByHand = fmt.Sprintf("Remove line %d of /etc/crypttab if the container does not come back.", c.Line)
		return
	}
	var free []*diagnose.Device
	for i := range s.Devices { // a line that opens no LUKS writes over the header of a container
		if d := &s.Devices[i]; d.FS == "crypto_LUKS" && d.UUID != "" && !named[d] && opensLUKS(c) {
			free = append(free, d)
		}
	}
	if len(free) == 0 && f.Stage != diagnose.Root && f.Confidence >= 0.5 && proposeWithoutContainer(mounts, c, f) {
		return
	}
	if len(free) != 1 {
		f.ByHand = fmt.Sprintf("Write the UUID of the container into line %d of /etc/crypttab, and rebuild the initramfs if it opens the root.", c.Line)
		return
	}
	f.Evidence = append(f.Evidence, config.DeviceEvidence(free[0].Path, "a LUKS container with UUID "+free[0].UUID+", which no line of /etc/crypttab opens"))
	f.Repair = &diagnose.Repair{
		Summary: fmt.Sprintf("Let line %d of /etc/crypttab name UUID=%s, the only container that no line names; build the initramfs anew where it opens the root.", c.Line, free[0].UUID),
		Consent: diagnose.ConsentBoot, Writes: []string{config.CrypttabPath},
	}
	if slices.Contains(config.Ancestors(s, s.Root), free[0]) { // the container holds the root, so it is the one that is meant
		return
	}
	f.Repair.Loses = fmt.Sprintf("If %s is another container than the lost one, such as that of a backup, the boot opens it in its place.", free[0].Path)
}

// opensLUKS says whether a line opens a container of LUKS, and does not use its device without a header or write swap space or a file system to it.
func opensLUKS(c *config.CryptLine) bool {
	return !c.Has("plain", "tcrypt", "bitlk", "swap", "tmp", "header", "fvault2", "tcrypt-veracrypt")
}

// overwrites returns the content that each boot writes over, because a line makes swap space or a file system in its device anew; empty where the boot
// writes over nothing. With an offset, the beginning of the device is kept for a label.
func overwrites(c *config.CryptLine, d *diagnose.Device) string {
	if !c.Has("swap", "tmp") || c.Has("noauto", "offset") {
		return ""
	}
	isContainer := d.FS == "crypto_LUKS" && d.Content != nil && string(readPiece(d.Content, 0, 6)) == "LUKS\xba\xbe"
	if isContainer || slices.Contains(markedAtStart, d.FS) {
		return d.FS
	}
	return ""
}

// markedAtStart are contents whose mark lies in the first 4 KiB of a device. Swap space that a former boot made has written over such a mark, and not
// over one further behind, such as that of a btrfs.
var markedAtStart = strings.Fields("ext2 ext3 ext4 xfs vfat ntfs exfat LVM2_member")

// proposeWithoutContainer proposes nofail for an entry and for each line of fstab that waits for it, and returns false where the system needs one of them.
func proposeWithoutContainer(mounts []config.FstabLine, c *config.CryptLine, f *diagnose.Finding) bool {
	if len(mounts) > maxCryptMounts || slices.ContainsFunc(mounts, func(e config.FstabLine) bool { return e.IsEssential() }) {
		return false
	}
	var places, files, lost []string
	if !c.Has("nofail") {
		places, files = append(places, fmt.Sprintf("line %d of /etc/crypttab", c.Line)), append(files, config.CrypttabPath)
	}
	for _, e := range mounts {
		if e.IsWaitedFor() {
			f.Evidence = append(f.Evidence, e.Evidence())
			places, files = append(places, fmt.Sprintf("line %d of /etc/fstab", e.Line)), append(files, config.FstabPath)
			if !e.IsSwap() {
				lost = append(lost, e.Target)
			}
		}
	}
	f.Repair = &diagnose.Repair{Summary: "Add nofail to " + strings.Join(places, " and ") + ", so that the boot goes on without it.", Consent: diagnose.ConsentBoot, Writes: slices.Compact(files)}
	if len(lost) > 0 {
		f.Repair.Loses = losesMount(strings.Join(lost, " and "))
	}
	return true
}

// keyIsMissing says whether a key file that crypttab names is not there. Keys on other devices, sockets and tokens are not looked for.
func keyIsMissing(s *diagnose.System, c *config.CryptLine) bool {
	key := c.Key
	if !strings.HasPrefix(key, "/") || strings.Contains(key, ":") || c.Has("keyscript", "tpm2-device", "fido2-device", "pkcs11-uri", "keyfile-timeout") {
		return false
	}
	for _, elsewhere := range []string{"/dev/", "/run/", "/proc/", "/sys/", "/tmp/"} {
		if strings.HasPrefix(key, elsewhere) {
			return false
		}
	}
	_, err := s.Files.Stat(key)
	return config.IsNotExist(err)
}

func orNothing(text string) string {
	if text == "" {
		return "nothing that is known"
	}
	return text
}

// opensRoot: the root lies in a container that no line of crypttab names, so the line with a dead name is the one that is meant to open it.
func opensRoot(s *diagnose.System, named map[*diagnose.Device]bool, c *config.CryptLine) bool {
	if c.Has("nofail", "noauto", "swap", "tmp") || s.Files.Exists("/usr/lib/dracut") { // dracut opens by rd.luks.uuid
		return false
	}
	for _, d := range config.Ancestors(s, s.Root) {
		if d.FS != "crypto_LUKS" {
			continue
		}
		return !named[d]
	}
	return false
}
