package system

import (
	"cmp"
	"fmt"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// maxSignedGrub bounds a signed program of GRUB, in bytes. Debian's have 4 MiB.
const maxSignedGrub = 16 << 20

// grubFileSystems are GRUB's modules by the file systems that each one reads.
var grubFileSystems = map[string]string{"ext": "ext2", "fat": "fat", "ntfs": "ntfs", "xfs": "xfs", "btrfs": "btrfs", "f2fs": "f2fs", "jfs": "jfs", "reiserfs": "reiserfs", "zfs_member": "zfs", "nilfs2": "nilfs2"}

// lookUnsignedModules finds a module that GRUB needs and that its signed program does not hold. Behind a shim with Secure Boot, GRUB loads no module from
// the disk, because nobody signs single modules.
func lookUnsignedModules(s *diagnose.System, shim *espLoader) []diagnose.Finding {
	name := secondStage(shim.path)
	if name == "" || s.Firmware.ShimUnchecked || s.Files == nil {
		return nil
	}
	tree, at, found := espFolder(s, shim.device, name)
	file, hasConfig := grubConfigPath(s)
	if !found || !hasConfig || !strings.HasPrefix(file, "/boot/grub") {
		return nil
	}
	text, err := tree.ReadAtMost(at, maxSignedGrub)
	if err != nil {
		return nil
	}
	core := &grubImage{modules: embeddedModules(text)}
	if core.modules["normal"] == nil { // another program than GRUB, or one whose modules cannot be read
		return nil
	}
	program := config.FileEvidence(strings.ReplaceAll(name, `\`, "/")+" on "+shim.device.Path, 0, fmt.Sprintf("the signed program holds %d modules", len(core.modules)))
	finding := func(module, purpose string, evidence diagnose.Evidence) []diagnose.Finding {
		return []diagnose.Finding{{
			ID: "grub-module-unsigned", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.85,
			Title:    fmt.Sprintf("GRUB needs its module %s %s, and its signed program does not hold the module; with Secure Boot, GRUB loads no module from the disk.", module, purpose),
			Evidence: []diagnose.Evidence{secureBootEvidence(), program, evidence},
			ByHand:   "Put /boot on a file system that the signed GRUB reads, take the command out of the menu, or have the owner switch Secure Boot off.",
		}}
	}
	if d := deviceOfBoot(s); d != nil {
		module := grubFileSystems[cmp.Or(config.TypeGroup(d.FS), d.FS)]
		if module != "" && core.modules[module] == nil {
			return finding(module, "to read /boot on "+d.Path, config.DeviceEvidence(d.Path, "it holds a file system "+d.FS))
		}
	}
	needs, brings := grubLists(s, grubFolder(s, "x86_64-efi"))
	for _, module := range neededModules(s, core, needs, brings) {
		if module != "normal" {
			return finding(module, "for its menu or the default entry", config.FileEvidence(file, 0, "the menu of GRUB"))
		}
	}
	return nil
}
