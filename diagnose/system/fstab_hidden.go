package system

import (
	"fmt"
	"path"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// neededPaths are files without which a boot or a login fails, with what their loss does.
var neededPaths = []struct {
	path     string
	severity diagnose.Severity
}{
	{"/usr/bin/mount", diagnose.BlocksBoot}, {"/usr/lib/systemd/systemd", diagnose.BlocksBoot}, {"/lib/systemd/systemd", diagnose.BlocksBoot}, {"/etc/passwd", diagnose.BlocksBoot},
	{"/bin/sh", diagnose.BlocksBoot}, {"/usr/sbin/sshd", diagnose.BlocksAccess}, {"/etc/ssh/sshd_config", diagnose.BlocksAccess}, {"/etc/pam.d/sshd", diagnose.BlocksAccess},
}

// lookHidingMount finds entries that mount an empty file system in memory over files of the system that a boot or a login needs.
func lookHidingMount(s *diagnose.System, e *config.FstabLine, _ []*diagnose.Device) *diagnose.Finding {
	at := path.Clean(e.Target)
	if e.Type != "tmpfs" && e.Type != "ramfs" || e.Fields < 3 || e.Has("noauto") || !path.IsAbs(at) || at == "/" {
		return nil
	}
	for _, needed := range neededPaths {
		if !strings.HasPrefix(needed.path, at+"/") || !s.Files.Exists(needed.path) {
			continue
		}
		return &diagnose.Finding{
			ID: "fstab-hides-system", Stage: diagnose.Target, Severity: needed.severity, Confidence: 0.9,
			Title:    fmt.Sprintf("Line %d of /etc/fstab mounts an empty %s at %s, over %s and all else in that folder.", e.Line, e.Type, at, needed.path),
			Evidence: []diagnose.Evidence{e.Evidence(), config.FileEvidence(needed.path, 0, "the mount hides it")},
			ByHand:   "Remove the line, or mount at a folder that is empty.",
			Repair: mayLose(repairFiles(fmt.Sprintf("Make line %d of /etc/fstab a comment.", e.Line), config.FstabPath),
				fmt.Sprintf("What programs write below %s is kept on the disk again, and no longer in memory.", e.Target)),
		}
	}
	return nil
}
