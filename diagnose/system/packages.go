package system

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

const (
	dpkgStatusPath = "/var/lib/dpkg/status"
	maxDpkgStatus  = 64 << 20 // bytes
)

// bootPackages are those whose files a boot needs, so that a half of them keeps it from its end.
var bootPackages = []string{"libc6", "libc-bin", "systemd", "systemd-sysv", "init", "udev", "initramfs-tools", "initramfs-tools-core", "dracut", "dpkg", "coreutils", "bash",
	"dash", "util-linux", "mount", "libpam-modules", "libpam-runtime", "libpam0g", "base-files", "libsystemd0", "libsystemd-shared", "login", "passwd", "dbus", "kmod", "lvm2",
	"cryptsetup", "cryptsetup-initramfs", "mdadm", "grub-common", "grub-pc", "grub-efi-amd64", "shim-signed", "e2fsprogs", "zlib1g", "libcrypt1", "libselinux1"}

func packageRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"package-upgrade-interrupted"}, Files: true, Look: lookPackages}}
}

// lookPackages finds packages of dpkg that were unpacked and not configured.
func lookPackages(s *diagnose.System) []diagnose.Finding {
	var broken []string
	line, first, essential := 0, 0, false
	f, err := s.Files.Open(dpkgStatusPath)
	if err != nil {
		return nil
	}
	defer f.Close()
	in := bufio.NewScanner(io.LimitReader(f, maxDpkgStatus))
	in.Buffer(make([]byte, 64<<10), 1<<20)
	name := ""
	for in.Scan() {
		line++
		text := in.Text()
		if value, found := strings.CutPrefix(text, "Package: "); found {
			name = value
		}
		status, found := strings.CutPrefix(text, "Status: ")
		fields := strings.Fields(status)
		if !found || len(fields) != 3 || !slices.Contains([]string{"half-installed", "unpacked", "half-configured"}, fields[2]) {
			continue
		}
		if len(broken) == 0 {
			first = line
		}
		broken = append(broken, name+" ("+fields[2]+")")
		essential = essential || slices.Contains(bootPackages, name) || strings.HasPrefix(name, "linux-image-")
	}
	pending := s.Files.Match("/var/lib/dpkg/updates", "[0-9]*")
	if len(broken) == 0 && len(pending) == 0 {
		return nil
	}
	out := diagnose.Finding{
		ID: "package-upgrade-interrupted", Stage: diagnose.Init, Severity: diagnose.Degrades, Confidence: 0.8,
		// Scripts of packages ask questions, start services and need a network, so salvor runs none of them.
		ByHand: "Run dpkg --configure -a in the system, from a rescue with a network.",
	}
	if len(broken) > 0 {
		out.Title = fmt.Sprintf("An upgrade of packages was interrupted: dpkg has not configured %s.", firstOf(broken))
		out.Evidence = []diagnose.Evidence{config.FileEvidence(dpkgStatusPath, first, strings.Join(broken[:min(len(broken), 12)], ", "))}
	} else {
		out.Title = "An upgrade of packages was interrupted while dpkg wrote its status."
		out.Evidence = []diagnose.Evidence{config.FileEvidence(pending[0], 0, fmt.Sprintf("%d updates of the status are pending", len(pending)))}
	}
	if essential {
		out.Severity = diagnose.BlocksBoot
		out.Explains = []string{"initramfs-missing", "initramfs-damaged", "modules-missing", "init-library-missing", "init-missing", "grub-config-empty"}
	}
	return []diagnose.Finding{out}
}

// firstOf names the first of a list, and how many more there are.
func firstOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}
