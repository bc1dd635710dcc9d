package system

import (
	"fmt"
	"regexp"
	"slices"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func crashRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"kernel-panic-at-boot", "kernel-crash-recorded"}, Files: true, Look: lookCrashes},
		{IDs: []string{"out-of-memory-at-boot"}, Files: true, Look: lookOutOfMemory},
	}
}

// lookCrashes reads what kernels stored when they died. One crash may be chance. Two at the same place of the boot, after which the system did
// not run, are why it does not boot.
func lookCrashes(s *diagnose.System) []diagnose.Finding {
	crashes := kernelCrashes(s)
	if len(crashes) == 0 {
		return nil
	}
	slices.SortStableFunc(crashes, func(a, b kernelCrash) int { return b.at.Compare(a.at) })
	newest := &crashes[0]
	alike := slices.DeleteFunc(slices.Clone(crashes), func(c kernelCrash) bool { return !newest.sameCause(&c) })
	f := diagnose.Finding{ID: "kernel-crash-recorded", Stage: panicStage(newest.panicLine), Severity: diagnose.Degrades, Confidence: 0.8}
	for _, c := range alike[:min(len(alike), 3)] {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: c.kind, Path: c.source, At: c.at, Text: crashText(&c)})
	}
	f.ByHand = "Boot an older kernel; if it dies too, look at memory, processor and the newest card of the machine."
	if hardwarePanic.MatchString(newest.panicLine) {
		f.ByHand = "The processor reported an error of the hardware: look at the BMC's event log, and have memory and processor checked."
	}
	f.Title = fmt.Sprintf("The kernel died and stored why: %s.", newest.panicLine)
	switch {
	case ranSince(s.Files, newest.at):
		f.Severity = diagnose.Info
	case newest.isAtBoot() && len(slices.DeleteFunc(slices.Clone(alike), func(c kernelCrash) bool { return !c.isAtBoot() })) > 1:
		f.ID, f.Severity = "kernel-panic-at-boot", diagnose.BlocksBoot
		f.Title = fmt.Sprintf("The kernel died at least twice %.0f seconds after its start: %s.", newest.seconds, newest.panicLine)
	}
	return []diagnose.Finding{f}
}

func crashText(c *kernelCrash) string {
	text := "Kernel panic - not syncing: " + c.panicLine
	if c.code != "" {
		text += ", in " + c.code
	}
	if c.seconds >= 0 {
		text += fmt.Sprintf(", %.0f seconds after its start", c.seconds)
	}
	return text
}

// hardwarePanic are reasons that the processor gives, and not the kernel.
var hardwarePanic = regexp.MustCompile(`(?i)machine check|hardware error|NMI|memory failure`)

// panicStage is where a boot ends with a panic: some panics are what a kernel does when it finds no root or no init.
func panicStage(reason string) diagnose.Stage {
	switch {
	case rootPanic.MatchString(reason):
		return diagnose.Root
	case initPanic.MatchString(reason):
		return diagnose.Init
	}
	return diagnose.Kernel
}

var (
	rootPanic = regexp.MustCompile(`VFS: Unable to mount root|unable to mount root`)
	initPanic = regexp.MustCompile(`Attempted to kill init|No (?:working )?init found|Requested init`)
)

// Lines about memory that has run out in the whole machine, and not in one control group.
var (
	memoryKill  = regexp.MustCompile(`^Out of memory: Kill(?:ed)? process \d+ \(([^)]{1,64})\)`)
	memoryPanic = regexp.MustCompile(`Out of memory and no killable processes|System is deadlocked on memory|Out of memory: .*panic_on_oom`)
)

// littleMemory is what a server of today does not boot with in comfort.
const littleMemory = 1 << 30 // bytes

// lookOutOfMemory finds a boot in which memory ran out: by the newest one in a text log, and by what the kernel stored as it died.
func lookOutOfMemory(s *diagnose.System) []diagnose.Finding {
	f := diagnose.Finding{ID: "out-of-memory-at-boot", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.7,
		ByHand: "Give the machine more memory or swap, or stop the service that takes it; look whether a memory module is lost.",
		Title:  "Memory ran out while the system booted, so that the kernel ended programs."}
	for _, l := range newestBoot(s.Files) {
		if l.seconds < 0 || l.seconds >= bootSeconds || !memoryKill.MatchString(l.text) && !memoryPanic.MatchString(l.text) {
			continue
		}
		if memoryPanic.MatchString(l.text) {
			f.Severity, f.Confidence = diagnose.BlocksBoot, 0.8
		}
		f.Evidence = append(f.Evidence, config.FileEvidence(l.file, 0, fmt.Sprintf("[%.0f] %s", l.seconds, l.text)))
	}
	for _, c := range kernelCrashes(s) {
		if c.isAtBoot() && memoryPanic.MatchString(c.panicLine) && !ranSince(s.Files, c.at) {
			f.Severity, f.Confidence = diagnose.BlocksBoot, 0.8
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: c.kind, Path: c.source, At: c.at, Text: crashText(&c)})
		}
	}
	if len(f.Evidence) == 0 {
		return nil
	}
	f.Evidence = f.Evidence[:min(len(f.Evidence), 5)]
	if missing := missingSwap(s); missing != nil {
		f.Evidence = append(f.Evidence, missing.Evidence())
		f.Title = "Memory ran out while the system booted, and the swap that fstab names does not exist."
		f.Severity = diagnose.BlocksBoot
	}
	if s.Memory > 0 && s.Memory < littleMemory {
		f.Evidence = append(f.Evidence, config.DeviceEvidence("/proc/meminfo", fmt.Sprintf("the machine has %d MiB", s.Memory>>20)))
		f.Severity = diagnose.BlocksBoot
	}
	return []diagnose.Finding{f}
}

// missingSwap is a line of fstab with a swap device that the machine does not have; nil where there is none, or where it may be hidden.
func missingSwap(s *diagnose.System) *config.FstabLine {
	if len(config.HidesDevices(s)) > 0 {
		return nil
	}
	lines := config.ParseFstab(config.TableLines(s, config.FstabPath))
	for i := range lines {
		e := &lines[i]
		n := config.ParseDeviceName(e.Source)
		if e.IsSwap() && !e.Has("noauto") && n.Tag != "" && n.Tag != "path" && len(config.FindDevices(s, n)) == 0 {
			return e
		}
	}
	return nil
}
