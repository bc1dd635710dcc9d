package machine

import (
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

// Bounds of a console's text.
const (
	// maxConsoleLine cuts a line, in bytes.
	maxConsoleLine = 4 << 10
	// maxConsoleEvidence bounds the lines that one finding quotes.
	maxConsoleEvidence = 3
)

// consoleRule is what a line of a serial console says of a boot. A console shows symptoms: what lies on the disks says why.
type consoleRule struct {
	id         string
	stage      diagnose.Stage
	severity   diagnose.Severity
	confidence float64
	match      *regexp.Regexp
	title      string
	hand       string
}

const examineHint = "Have the disks examined, those of a server while it is off: salvor diagnose NODE --reboot."

// consoleRules are asked about each line in this order, and the first that matches takes it.
var consoleRules = []consoleRule{
	{"console-secure-boot-refused", diagnose.Loader, diagnose.BlocksBoot, 0.8,
		regexp.MustCompile(`Security Violation|Access Denied\b.*\.efi|bad shim signature|SBAT self-check failed|Verification failed: \(0x1A\)`),
		"The console shows that Secure Boot refuses a program.", "Install signed packages of the boot loader and the kernel."},
	{"console-no-boot-device", diagnose.Firmware, diagnose.BlocksBoot, 0.75,
		regexp.MustCompile(`(?i)^(BdsDxe: (No bootable option|failed to (load|start) Boot)|No bootable (device|disk|medium)|Operating System not found|Missing operating system|Non-System disk|No boot device)`),
		"The console shows that the firmware finds nothing to boot.", examineHint},
	{"console-loader-prompt", diagnose.Loader, diagnose.BlocksBoot, 0.75,
		regexp.MustCompile(`^(grub rescue>|grub>|error: (no such (device|partition)|unknown filesystem|symbol .{1,100} not found|file .{1,200} not found|invalid magic number|you need to load the kernel first|disk .{1,100} not found))|Minimal BASH-like line editing is supported`),
		"The console shows that GRUB does not find what it loads.", examineHint},
	{"console-initramfs-damaged", diagnose.Initramfs, diagnose.BlocksBoot, 0.8,
		regexp.MustCompile(`Initramfs unpacking failed`), "The console shows that the kernel cannot unpack the initramfs.", "Build the initramfs anew, or boot an older kernel."},
	{"console-root-missing", diagnose.Root, diagnose.BlocksBoot, 0.75,
		regexp.MustCompile(`Unable to mount root fs|^ALERT! .{1,200} does not exist|Gave up waiting for root|dracut-initqueue.{0,80}timeout|Warning: /dev/.{1,200} does not exist|Volume group "?.{1,100}"? not found`),
		"The console shows that the initramfs does not find the root file system.", examineHint},
	{"console-initramfs-prompt", diagnose.Root, diagnose.BlocksBoot, 0.7,
		regexp.MustCompile(`^\(initramfs\)|^dracut:/#|Dropping to a shell!`), "The console shows the prompt of the initramfs.", examineHint},
	{"console-init-missing", diagnose.Init, diagnose.BlocksBoot, 0.8,
		regexp.MustCompile(`No working init found|Failed to execute /init|run-init: .{1,200}: No such file|Attempted to kill init`), "The console shows that the kernel cannot start init.", examineHint},
	{"console-out-of-memory", diagnose.Target, diagnose.Degrades, 0.7,
		regexp.MustCompile(`Out of memory: Kill|System is deadlocked on memory|Out of memory and no killable processes`), "The console shows that memory ran out.", "Give the machine more memory or swap; look whether a memory module is lost."},
	{"console-kernel-panic", diagnose.Kernel, diagnose.BlocksBoot, 0.75,
		regexp.MustCompile(`Kernel panic - not syncing:|-- System halted`), "The console shows that the kernel died.", "Boot an older kernel; look at memory and at the newest card of the machine."},
	{"console-hardware-error", diagnose.Kernel, diagnose.Degrades, 0.8,
		regexp.MustCompile(`mce: .{0,20}\[Hardware Error\]|EDAC .{1,100} UE |Hardware Error.{0,40}(fatal|uncorrect)`), "The console shows an error of the hardware.", "Look at the BMC's event log."},
	{"console-file-system-damaged", diagnose.Root, diagnose.BlocksBoot, 0.8,
		regexp.MustCompile(`RUN fsck MANUALLY|fsck exited with status code [4-9]|Corruption of in-memory data|XFS .{1,100}Metadata (corruption|CRC error)|open_ctree failed`),
		"The console shows that a file system is damaged.", examineHint},
	{"console-disk-errors", diagnose.Root, diagnose.Degrades, 0.8,
		regexp.MustCompile(`((I/O|critical medium) error, dev (sd|hd|vd|xvd|nvme|mmcblk|dm-|md)|Medium Error|controller is down; will reset)`), "The console shows that a disk cannot be read.", "Copy the disk before anything else, then replace it."},
	{"console-emergency-mode", diagnose.Target, diagnose.BlocksBoot, 0.75,
		regexp.MustCompile(`You are in (emergency|rescue) mode|Give root password for maintenance|the root account is locked|Reached target .{0,20}(Emergency|Rescue) Mode`),
		"The console shows that systemd stopped in its emergency mode.", examineHint},
	{"console-mount-failed", diagnose.Target, diagnose.BlocksBoot, 0.6,
		regexp.MustCompile(`Timed out waiting for device|Dependency failed for (/|Local File Systems|File System Check)`), "The console shows that systemd waited in vain for a device.", examineHint},
	{"console-disk-full", diagnose.Target, diagnose.Degrades, 0.7,
		regexp.MustCompile(`No space left on device`), "The console shows that a file system is full.", "Delete what is not needed."},
	{"console-sshd-failed", diagnose.SSHD, diagnose.BlocksAccess, 0.75,
		regexp.MustCompile(`Failed to start .{0,40}(OpenSSH|OpenBSD Secure Shell|ssh\.service)`), "The console shows that sshd does not start.", "Look at /etc/ssh/sshd_config and the host keys: sshd -t."},
}

var (
	// terminalSequence are escape sequences of terminals: CSI, OSC and the short ones.
	terminalSequence = regexp.MustCompile("\x1b\\[[0-9;?<=>!]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]")
	// bootBegin is what firmware, boot loaders and kernels write first.
	bootBegin = regexp.MustCompile(`^SeaBIOS \(version|^UEFI firmware \(version|^BdsDxe: loading Boot|GNU GRUB  version|\bLinux version \d`)
	// loginReached is what a system writes that has booted.
	loginReached = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64} login:( |$)|Reached target .{0,20}(Multi-User System|Graphical Interface)`)
	// endsOrHangs is what a system writes that goes down, or whose kernel hangs.
	endsOrHangs = regexp.MustCompile(`(?i)soft lockup|hard lockup|self-detected stall|detected (expedited )?stalls|blocked for more than \d+ seconds|kernel BUG at|\bOops\b|^reboot: |Rebooting in \d+ seconds|System halted|Power down\b|Reached target .{0,30}(Reboot|Power[- ]Off|Shutdown|Halt)`)
)

// consoleLines makes lines of a console's text that hold no escape sequence, cut to maxConsoleLine bytes.
func consoleLines(text string) []string {
	text = strings.ToValidUTF8(text[max(0, len(text)-diagnose.MaxConsole):], "?")
	text = terminalSequence.ReplaceAllString(text, "")
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		line = line[strings.LastIndexByte(line, '\r')+1:] // what was written over
		if len(line) > maxConsoleLine {
			line = strings.ToValidUTF8(line[:maxConsoleLine], "")
		}
		out = append(out, line)
	}
	return out
}

// consoleStamp is what stands before the text of a line: the kernel's time, the time of a logger, and the marks of systemd.
var consoleStamp = regexp.MustCompile(`^(?:\[ *\d{1,9}\.\d{1,9}\] ?|\[[ A-Z*]{4,8}\] ?|\d{4}-\d\d-\d\d[T ][0-9:.,+Z-]{8,24} ?)+`)

// consoleBoot is the newest boot in a console's text.
type consoleBoot struct {
	// before are the lines up to the last sign that the system has booted, and after are those behind it. Without a sign, all lines are in after.
	before, after []string
	booted        bool
}

// newestConsoleBoot finds the lines from the last begin of a boot on.
func newestConsoleBoot(lines []string) consoleBoot {
	begin, login := 0, 0
	for i, line := range lines {
		switch plain := consoleStamp.ReplaceAllString(line, ""); {
		case bootBegin.MatchString(plain):
			begin, login = i, i
		case loginReached.MatchString(plain):
			login = i + 1
		}
	}
	return consoleBoot{before: lines[begin:login], after: lines[login:], booted: login > begin}
}

// ReachesLogin tells whether the newest boot in a console's text came to a login prompt.
func ReachesLogin(text string) bool { return newestConsoleBoot(consoleLines(text)).booted }

// StaysAtLogin tells whether the newest boot in a console's text came to a login prompt, and nothing contradicts that people can log in. A failure of sshd
// contradicts wherever the boot shows it. Behind the prompt, each finding and each sign of a system that hangs or goes down contradicts.
func StaysAtLogin(text string) bool {
	boot := newestConsoleBoot(consoleLines(text))
	ended := slices.ContainsFunc(boot.after, func(line string) bool { return endsOrHangs.MatchString(consoleStamp.ReplaceAllString(line, "")) })
	refuses := slices.ContainsFunc(findingsOf(boot.before), func(f diagnose.Finding) bool { return f.Severity == diagnose.BlocksAccess })
	return boot.booted && !ended && !refuses && len(findingsOf(boot.after)) == 0
}

// ConsoleFindings reads the text of a serial console. Its source may lie, so each finding is a symptom. Of the text, lines as evidence stay, as
// Excerpt leaves them.
func ConsoleFindings(text string) []diagnose.Finding {
	boot := newestConsoleBoot(consoleLines(text))
	out := findingsOf(boot.after)
	for i := range out {
		// What comes behind the login of a boot did not hinder it, such as a device with nofail that is waited for until then. A panic ends it.
		if boot.booted && out[i].Severity == diagnose.BlocksBoot && out[i].Stage != diagnose.Kernel {
			out[i].Severity = diagnose.Degrades
		}
	}
	return out
}

// findingsOf asks the rules about each line.
func findingsOf(lines []string) []diagnose.Finding {
	evidence := map[string][]diagnose.Evidence{}
	for _, line := range lines {
		plain := strings.TrimSpace(consoleStamp.ReplaceAllString(line, ""))
		for i := range consoleRules {
			r := &consoleRules[i]
			if !r.match.MatchString(plain) {
				continue
			}
			if len(evidence[r.id]) < maxConsoleEvidence {
				evidence[r.id] = append(evidence[r.id], diagnose.Evidence{Kind: diagnose.FromConsole, Text: diagnose.Excerpt(line)})
			}
			break
		}
	}
	var out []diagnose.Finding
	for i := range consoleRules {
		r := &consoleRules[i]
		if len(evidence[r.id]) == 0 {
			continue
		}
		out = append(out, diagnose.Finding{ID: r.id, Stage: r.stage, Severity: r.severity, Confidence: r.confidence, Title: r.title, ByHand: r.hand, Evidence: evidence[r.id]})
	}
	return out
}
