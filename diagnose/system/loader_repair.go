package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
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

// LoaderCopy is a file that comes back from where a package of the system stores it. Both are paths in the system.
type LoaderCopy struct{ From, To string }

// LoaderRepair is how a loader comes back: as copies, or by a program of the system, which writes below Folder. Both are empty where it cannot.
type LoaderRepair struct {
	Copies  []LoaderCopy
	Command []string
	Folder  string // where the EFI system partition is mounted in the system
}

// RepairOfLoader says how a loader comes back on a partition: the one of a path such as \EFI\debian\shimx64.efi, or for \EFI all that the system
// needs. A copy changes less, and has the signature of the distribution.
func RepairOfLoader(s *diagnose.System, device, name string) LoaderRepair {
	d := deviceAt(s, device)
	if s.Files == nil || d == nil || !slices.Contains([]string{"/boot/efi", "/efi", "/boot"}, d.MountedAt) {
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

// copiesOfLoader are those of a loader and of what it starts beside it, where these are missing or damaged; nil where a package does not hold all.
func copiesOfLoader(s *diagnose.System, d *diagnose.Device, name string) []LoaderCopy {
	var out []LoaderCopy
	for _, part := range []string{name, secondStage(name)} {
		if part == "" {
			continue
		}
		if damage, found := loaderDamage(s, d, part); found && damage == "" {
			continue
		}
		source := packagedLoaders[baseOfLoader(part)]
		if source == "" || !s.Files.Exists(source) {
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

// copiesOfSystemdBoot are those of systemd-boot by its own name and by the one that firmware starts without an entry; nil where the partition
// holds nothing to start by it.
func copiesOfSystemdBoot(s *diagnose.System, d *diagnose.Device) []LoaderCopy {
	name := map[string]string{"amd64": "systemd-bootx64.efi", "arm64": "systemd-bootaa64.efi"}[s.KernelArch]
	source := packagedLoaders[name]
	if source == "" || !s.Files.Exists(source) || len(systemdBootEntries(s)) == 0 {
		return nil
	}
	return []LoaderCopy{{source, loaderPath(s, d, `\EFI\systemd\`+name)}, {source, loaderPath(s, d, `\EFI\BOOT\`+fallbackName(s.KernelArch))}}
}

// loaderInstaller is the grub-install of the system with its arguments; nil where it would not write the loader, or one that Secure Boot refuses.
func loaderInstaller(s *diagnose.System, d *diagnose.Device, name string) []string {
	program := firstExisting(s.Files, "/usr/sbin/grub-install", "/sbin/grub-install", "/usr/bin/grub-install")
	target := map[string]string{"amd64": "x86_64-efi", "arm64": "arm64-efi"}[s.KernelArch]
	if program == "" || target == "" || firstExisting(s.Files, "/usr/lib/grub/"+target+"/modinfo.sh", "/usr/share/grub/"+target+"/modinfo.sh") == "" {
		return nil
	}
	shim := map[string]string{"amd64": "shimx64.efi", "arm64": "shimaa64.efi"}[s.KernelArch]
	isDebian := s.Release.ID == "debian" || slices.Contains(s.Release.Like, "debian")
	hasShim := isDebian && s.Files.Exists(packagedLoaders[shim]) && s.Files.Exists(packagedLoaders[secondStage(shim)])
	isShim := strings.HasPrefix(baseOfLoader(name), "shim")
	if (s.Firmware.SecureBoot || isShim) && !hasShim {
		return nil
	}
	command := []string{program, "--target=" + target, "--efi-directory=" + d.MountedAt, "--no-nvram"}
	folder := path.Base(path.Dir(strings.ReplaceAll(name, `\`, "/")))
	switch {
	case name == loaderFolder && isDebian: // also by the name that firmware starts without an entry
		return append(command, "--force-extra-removable")
	case name == loaderFolder, strings.EqualFold(folder, "BOOT"):
		return append(command, "--removable")
	case isShim, strings.HasPrefix(baseOfLoader(name), "grub"):
		return append(command, "--bootloader-id="+folder)
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
		what = fmt.Sprintf("Install GRUB on %s anew with the system's own grub-install.", d.Path)
	default:
		f.ByHand = "Install the packages of the boot loader again, from the system in a rescue."
		return
	}
	f.Repair = &diagnose.Repair{Summary: what, Consent: diagnose.ConsentBoot, Writes: []string{name + " on " + d.Path}}
}
