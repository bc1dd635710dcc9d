package system

import (
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/repair"
)

// Order returns the findings that have a mend, in the order in which they are repaired.
func Order(findings []diagnose.Finding) []diagnose.Finding {
	rows := allRows()
	rank := func(f diagnose.Finding) int {
		return slices.IndexFunc(rows, func(row tableRow) bool { return row.finding == f.ID })
	}
	out := slices.DeleteFunc(slices.Clone(findings), func(f diagnose.Finding) bool { return rank(f) < 0 })
	slices.SortStableFunc(out, func(a, b diagnose.Finding) int { return rank(a) - rank(b) })
	return out
}

// conflict keeps findings from being repaired while another one is there.
type conflict struct {
	with string // the id of the other finding
	why  string
	// stops says whether it concerns a repair.
	stops func(row *tableRow, f diagnose.Finding) bool
}

func writesDisk(row *tableRow, _ diagnose.Finding) bool {
	return row.consent != diagnose.ConsentSettings
}

func rebuildsBoot(row *tableRow, f diagnose.Finding) bool {
	return row.initramfs != nil && row.initramfs(f) || row.menu != nil && row.menu(f)
}

// allConflicts are asked in this order, and the first one gives the reason.
func allConflicts() []conflict {
	everything := func(*tableRow, diagnose.Finding) bool { return true }
	return []conflict{
		{"disk-failing", "a disk of the machine is failing; copy it to another one first, for example with ddrescue", everything},
		{"hibernation-image", "a swap space holds the image of a suspended system, which would write over the repair; resume the system or discard the image", writesDisk},
		{"file-system-damaged", "a file system is damaged, and writing to it may damage it further; let its checker repair it first", writesDisk},
		{"file-system-not-mounted", "a file system does not mount; let its checker repair it first", writesDisk},
		{"superblock-missing", "a file system has lost its superblock; restore it first", writesDisk},
		{"crypttab-overwrites", "the boot that proves a repair would write over a file system, as /etc/crypttab says; correct its line first", everything},
		{"disk-full", "a file system has no room; make room first", rebuildsBoot},
		{"inodes-full", "a file system has no inodes left; delete files first", rebuildsBoot},
		{"btrfs-metadata-full", "the btrfs has no room for metadata; make room first", rebuildsBoot},
		{"boot-partition-full", "/boot has no room for an initramfs or a menu; remove packages of old kernels first", rebuildsBoot},
		{"esp-full", "the EFI system partition has no room; delete what is not needed from it first", func(row *tableRow, f diagnose.Finding) bool {
			return rebuildsBoot(row, f) || strings.HasPrefix(row.finding, "efi-loader-")
		}},
		{"cloud-init-new-instance", "cloud-init takes the machine for a new one and writes its network again at the next boot; write the former instance-id into its seed first",
			func(row *tableRow, _ diagnose.Finding) bool { return strings.HasPrefix(row.finding, "network-") }},
	}
}

// presentIDs are the ids of findings, and disk-failing where a disk is failing though the findings leave it out.
func presentIDs(findings []diagnose.Finding, s *diagnose.System) map[string]bool {
	has := map[string]bool{}
	for _, f := range findings {
		has[f.ID] = true
	}
	for _, d := range s.Disks {
		has["disk-failing"] = has["disk-failing"] || d.Failing
	}
	return has
}

// refusal is why a finding is not repaired beside others; empty where it is.
func refusal(row *tableRow, f diagnose.Finding, has map[string]bool) string {
	for _, c := range allConflicts() {
		if has[c.with] && c.stops(row, f) {
			return c.why
		}
	}
	return ""
}

// Refusals lists the findings that are not repaired because of the state of the system, each id once, with the reason. s is the system that the
// findings are about.
func Refusals(findings []diagnose.Finding, s *diagnose.System) []repair.NotMended {
	has, rows := presentIDs(findings, s), allRows()
	var out []repair.NotMended
	for _, f := range findings {
		i := slices.IndexFunc(rows, func(row tableRow) bool { return row.finding == f.ID })
		if i < 0 || slices.ContainsFunc(out, func(n repair.NotMended) bool { return n.Finding == f.ID }) {
			continue
		}
		if why := refusal(&rows[i], f, has); why != "" {
			out = append(out, repair.NotMended{Finding: f.ID, Why: why})
		}
	}
	return out
}

// RestoreRefusal is why no file of a system is put back as it was before a repair; empty where files may be.
func RestoreRefusal(findings []diagnose.Finding, s *diagnose.System) string {
	return refusal(&tableRow{consent: diagnose.ConsentFiles}, diagnose.Finding{}, presentIDs(findings, s))
}
