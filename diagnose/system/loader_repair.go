package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// packagedLoaders are where packages store the loaders that they copy to the EFI system partition: of Debian and Ubuntu, of SUSE, and of systemd.
var packagedLoaders = map[string]string{
	"shimx64.efi": "/usr/lib/shim/shimx64.efi.signed", "grubx64.efi": "/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "mmx64.efi": "/usr/lib/shim/mmx64.efi",
	"shimaa64.efi": "/usr/lib/shim/shimaa64.efi.signed", "grubaa64.efi": "/usr/lib/grub/arm64-efi-signed/grubaa64.efi.signed",
	"shim.efi": "/usr/share/efi/x86_64/shim.efi", "grub.efi": "/usr/share/efi/x86_64/grub.efi", "mokmanager.efi": "/usr/share/efi/x86_64/MokManager.efi",
	"systemd-bootx64.efi": "/usr/lib/systemd/boot/efi/systemd-bootx64.efi", "systemd-bootaa64.efi": "/usr/lib/systemd/boot/efi/systemd-bootaa64.efi",
}

// loaderFolder is the path of all loaders of an EFI system partition, as a boot entry writes paths.
const loaderFolder = `\EFI`

// plainLoaderPath is a path of a boot entry that may become a path of the system or an argument.
var plainLoaderPath = regexp.MustCompile(`^\\[A-Za-z0-9._ \\-]+$`)

// LoaderCopy is a file that comes back from where a package of the system stores it. Both are paths in the system.
type LoaderCopy struct{ From, To string }

// LoaderRepair is how a loader comes back: as copies, or by a program of the system, which writes below Folder. Both are empty where it cannot.
type LoaderRepair struct {
	Copies  []LoaderCopy
	Command []string
	Folder  string // where the EFI system partition is mounted in the system
}

// RepairOfLoader says how a loader comes back on a partition: the one of a path such as \EFI\debian\shimx64.efi, or for \EFI all that the system
// needs. A copy changes less.
func RepairOfLoader(s *diagnose.System, device, name string) LoaderRepair {
	d := config.DeviceAt(s, device)
	if s.Files == nil || d == nil || !plainLoaderPath.MatchString(name) || strings.Contains(name, "..") || !slices.Contains([]string{"/boot/efi", "/efi", "/boot"}, d.MountedAt) {
		return LoaderRepair{}
	}
	out := LoaderRepair{Folder: d.MountedAt}
	if name == loaderFolder {
		if out.Copies = copiesOfSystemdBoot(s, d); out.Copies == nil {
			out.Command = loaderInstaller(s, d, name)
		}
		return out
	}
	if out.Copies = copiesOfLoader(s, d, name); out.Copies == nil {
		out.Command = loaderInstaller(s, d, name)
	}
	return out
}

// copiesOfLoader lists the files to copy for a loader and for what it starts beside it, where these are missing or damaged; nil where a package lacks one.
func copiesOfLoader(s *diagnose.System, d *diagnose.Device, name string) []LoaderCopy {
	var out []LoaderCopy
	for _, part := range []string{name, secondStage(name)} {
		if part == "" {
			continue
		}
		if damage, found := loaderDamage(s, d, part); found && damage == "" {
			continue
		}
		source := packagedLoader(s, baseOfLoader(part))
		if source == "" {
			return nil
		}
		out = append(out, LoaderCopy{source, loaderPath(s, d, part)})
	}
	// A signed GRUB reads the place of its menu from a file beside it.
	if strings.HasPrefix(baseOfLoader(name), "systemd-boot") {
		return out
	}
	if _, _, found := espFolder(s, d, name[:strings.LastIndex(name, `\`)+1]+"grub.cfg"); !found {
		return nil
	}
	return out
}

// packagedLoader is where a package of the system stores a loader that the firmware takes; empty where none does.
func packagedLoader(s *diagnose.System, name string) string {
	source := packagedLoaders[name]
	if source == "" {
		return ""
	}
	for _, at := range []string{source + ".signed", source} {
		if s.Files.Exists(at) && (!s.Firmware.SecureBoot || refusedProgram(s, s.Files, at, at) == nil) {
			return at
		}
	}
	return ""
}

// copiesOfSystemdBoot are those of systemd-boot by its own name and by the one that firmware starts without an entry; nil where another loader starts
// the system, or the partition holds nothing to start.
func copiesOfSystemdBoot(s *diagnose.System, d *diagnose.Device) []LoaderCopy {
	name := map[string]string{"amd64": "systemd-bootx64.efi", "arm64": "systemd-bootaa64.efi"}[s.KernelArch]
	source := packagedLoader(s, name)
	tree, folder := treeOf(s, d)
	if _, hasGRUB := grubConfigPath(s); hasGRUB || source == "" || tree == nil ||
		len(tree.Match(path.Join(folder, "loader/entries"), "*.conf"))+len(tree.Match(path.Join(folder, "EFI/Linux"), "*.efi")) == 0 {
		return nil
	}
	return []LoaderCopy{{source, loaderPath(s, d, `\EFI\systemd\`+name)}, {source, loaderPath(s, d, `\EFI\BOOT\`+fallbackName(s.KernelArch))}}
}

// loaderInstaller is the grub-install of the system with its arguments; nil where it would not write the loader, or one that Secure Boot refuses.
func loaderInstaller(s *diagnose.System, d *diagnose.Device, name string) []string {
	program := config.FirstExisting(s.Files, "/usr/sbin/grub-install", "/sbin/grub-install", "/usr/bin/grub-install")
	target := map[string]string{"amd64": "x86_64-efi", "arm64": "arm64-efi"}[s.KernelArch]
	_, hasMenu := grubConfigPath(s)
	if !hasMenu && len(systemdBootEntries(s))+len(extlinuxEntries(s)) > 0 { // another loader starts the system
		return nil
	}
	if program == "" || target == "" || config.FirstExisting(s.Files, "/usr/lib/grub/"+target+"/modinfo.sh", "/usr/share/grub/"+target+"/modinfo.sh") == "" {
		return nil
	}
	shim := map[string]string{"amd64": "shimx64.efi", "arm64": "shimaa64.efi"}[s.KernelArch]
	isDebian := s.Release.ID == "debian" || slices.Contains(s.Release.Like, "debian")
	hasShim := isDebian && packagedLoader(s, shim) != "" && packagedLoader(s, secondStage(shim)) != ""
	if s.Firmware.SecureBoot && !hasShim {
		return nil
	}
	command := []string{program, "--target=" + target, "--efi-directory=" + d.MountedAt, "--no-nvram"}
	folder, base := path.Split(strings.ReplaceAll(name, `\`, "/"))
	vendor, isLoader := strings.CutPrefix(strings.ToLower(path.Clean(folder)), "/efi/")
	switch {
	case name == loaderFolder && isDebian: // also by the name that firmware starts without an entry
		return append(command, "--force-extra-removable")
	case name == loaderFolder, strings.EqualFold(base, fallbackName(s.KernelArch)) && vendor == "boot":
		return append(command, "--removable")
	case !isLoader || strings.Contains(vendor, "/") || vendor == "boot":
		return nil
	case strings.EqualFold(base, shim) && hasShim, strings.EqualFold(base, secondStage(shim)):
		return append(command, "--bootloader-id="+path.Base(folder))
	}
	return nil
}

func hasWholeLoader(s *diagnose.System) bool {
	return slices.ContainsFunc(installedLoaders(s), func(l espLoader) bool {
		damage, _ := loaderDamage(s, l.device, l.path)
		return damage == ""
	})
}

func baseOfLoader(name string) string {
	return strings.ToLower(name[strings.LastIndex(name, `\`)+1:])
}

// loaderPath is the path in the system of a loader on a partition that is mounted there, whatever the case of the letters that exist.
func loaderPath(s *diagnose.System, d *diagnose.Device, name string) string {
	at := path.Join(d.MountedAt, strings.ReplaceAll(name, `\`, "/"))
	if found, ok := foldPath(s.Files, at); ok {
		return found
	}
	folder, _ := foldPath(s.Files, path.Dir(at))
	return path.Join(folder, path.Base(at))
}

// proposeLoader proposes to bring a loader back.
func proposeLoader(s *diagnose.System, d *diagnose.Device, name string, f *diagnose.Finding) {
	r, what := RepairOfLoader(s, d.Path, name), ""
	if len(r.Copies) == 0 && r.Command == nil && !hasWholeLoader(s) { // one that firmware starts without an entry helps too
		name = loaderFolder
		r = RepairOfLoader(s, d.Path, name)
	}
	switch {
	case len(r.Copies) > 0:
		for i, c := range r.Copies {
			if i > 0 {
				what += ", and "
			}
			what += c.From + " to " + c.To
		}
		what = "Copy " + what + "."
	case r.Command != nil:
		what = fmt.Sprintf("Run the system's own grub-install for the EFI system partition %s.", d.Path)
		if slices.Contains(r.Command, "--force-extra-removable") || slices.Contains(r.Command, "--removable") {
			what = fmt.Sprintf("Run the system's own grub-install for the EFI system partition %s. It writes EFI/BOOT/%s, which firmware starts without an entry.", d.Path, fallbackName(s.KernelArch))
		}
	default:
		f.ByHand = "Install the packages of the boot loader again, from the system in a rescue."
		return
	}
	f.Repair, f.ByHand = &diagnose.Repair{Summary: what, Consent: diagnose.ConsentBoot, Writes: []string{name + " on " + d.Path}}, ""
}
