package system

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

const (
	// maxLogTail is how many bytes are read of the end of a log, maxCrashFiles how many records of crashes.
	maxLogTail    = 1 << 20
	maxCrashFiles = 64
	// bootSeconds is the time since the start of the kernel in which a system is still booting.
	bootSeconds = 300
)

// textLogs are where syslog daemons write what the kernel says.
var textLogs = []string{"/var/log/kern.log", "/var/log/messages", "/var/log/syslog"}

// logLine is a line of a kernel's log.
type logLine struct {
	file string
	text string
	// seconds since the start of the kernel; -1 where the line does not say.
	seconds float64
}

// kernelTime is the time that the kernel writes before its messages: [   12.345678] .
var kernelTime = regexp.MustCompile(`\[ *(\d{1,9}\.\d{1,9})\](?:\[ *[TC]\d+\])? ?`)

func parseLogLine(file, text string) logLine {
	l := logLine{file, text, -1}
	if m := kernelTime.FindStringSubmatchIndex(text); m != nil {
		l.seconds, _ = strconv.ParseFloat(text[m[2]:m[3]], 64)
		l.text = text[m[1]:]
	}
	return l
}

// readTail reads the end of a file; the first line may be cut.
func readTail(t *diagnose.Tree, name string, most int64) string {
	f, err := config.OpenReadAt(t, name)
	if err != nil {
		return ""
	}
	defer f.Close()
	from := max(f.Size-most, 0)
	b := make([]byte, f.Size-from)
	n, _ := f.ReadAt(b, from)
	return string(b[:max(n, 0)])
}

// newestBoot are the lines of the kernel's newest start in the text log that has one; of another log than the first only where the first has none.
func newestBoot(t *diagnose.Tree) []logLine {
	for _, name := range textLogs {
		_, after, found := cutLast(readTail(t, name, maxLogTail), "Linux version ")
		if !found {
			continue
		}
		var out []logLine
		for line := range strings.Lines(after) {
			out = append(out, parseLogLine(name, strings.TrimRight(line, "\r\n")))
		}
		return out
	}
	return nil
}

// cutLast cuts a text at the last place of sep.
func cutLast(text, sep string) (before, after string, found bool) {
	if at := strings.LastIndex(text, sep); at >= 0 {
		return text[:at], text[at+len(sep):], true
	}
	return text, "", false
}

// kernelCrash is one crash of a kernel, as a record of it says.
type kernelCrash struct {
	// source is a file, or the variables of the firmware.
	source string
	kind   diagnose.EvidenceKind
	at     time.Time
	// panicLine is the reason that the kernel gives, code the function in which it happened.
	panicLine, code string
	seconds         float64
}

// Lines of a kernel that dies.
var (
	panicReason = regexp.MustCompile(`Kernel panic - not syncing: (.{1,300})`)
	crashedCode = regexp.MustCompile(`(?:RIP: [0-9a-f]{4}:|pc : |PC is at )([A-Za-z0-9_.]{1,100})`)
)

// parseCrash reads the record of a crash; false where it holds no panic.
func parseCrash(text string) (kernelCrash, bool) {
	c := kernelCrash{seconds: -1}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := crashedCode.FindStringSubmatch(line); m != nil && c.code == "" {
			c.code = m[1]
		}
		if m := panicReason.FindStringSubmatch(line); m != nil && !strings.Contains(line, "end Kernel panic") && c.panicLine == "" {
			c.panicLine, c.seconds = strings.TrimRight(m[1], " .!:;"), parseLogLine("", line).seconds
		}
	}
	return c, c.panicLine != ""
}

// isAtBoot: the kernel died while the system booted.
func (c *kernelCrash) isAtBoot() bool { return c.seconds >= 0 && c.seconds < bootSeconds }

// sameCause: both died at the same place.
func (c *kernelCrash) sameCause(other *kernelCrash) bool {
	return c.panicLine == other.panicLine && c.code == other.code
}

// kernelCrashes collects the records of crashes: in the firmware's variables, where systemd-pstore moves them, and those of kdump.
func kernelCrashes(s *diagnose.System) []kernelCrash {
	var out []kernelCrash
	for _, r := range s.Firmware.Crashes {
		if c, ok := parseCrash(r.Text); ok {
			c.source, c.kind, c.at = "/sys/firmware/efi/efivars", diagnose.FromDevice, r.At
			out = append(out, c)
		}
	}
	for _, name := range crashFiles(s.Files) {
		info, err := s.Files.Stat(name)
		if err != nil {
			continue
		}
		if c, ok := parseCrash(readTail(s.Files, name, maxLogTail/4)); ok {
			c.source, c.kind, c.at = name, diagnose.FromFile, info.ModTime()
			out = append(out, c)
		}
	}
	return out
}

// crashFiles lists the newest records by the order of their names, which begin with or hold the time. systemd-pstore writes dmesg.txt into a
// folder of each crash, or of each boot; kdump-tools and kexec-tools write below /var/crash.
func crashFiles(t *diagnose.Tree) []string {
	var out []string
	for _, place := range []struct{ folder, name string }{
		{"/var/lib/systemd/pstore", "dmesg.txt"}, {"/var/lib/systemd/pstore/*", "dmesg.txt"},
		{"/var/crash", "dmesg.*"}, {"/var/crash", "vmcore-dmesg.txt"},
	} {
		folders := []string{place.folder}
		if base, found := strings.CutSuffix(place.folder, "/*"); found {
			folders = newestNames(t.Match(base, "*"))
		}
		for _, folder := range folders {
			for _, below := range newestNames(t.Match(folder, "*")) {
				if config.IsFolder(t, below) {
					out = append(out, t.Match(below, place.name)...)
				}
			}
		}
	}
	return newestNames(out)
}

// newestNames keeps the last names of a list, which are of the newest records.
func newestNames(names []string) []string { return names[max(0, len(names)-maxCrashFiles):] }

// ranSince says whether the system wrote its logs long after a moment: then it has run since.
func ranSince(t *diagnose.Tree, at time.Time) bool {
	names := append([]string{"/var/log/wtmp", "/var/log/lastlog", "/var/log/auth.log", "/var/log/secure"}, textLogs...)
	for _, folder := range t.Match("/var/log/journal", "*") {
		names = append(names, path.Join(folder, "system.journal"))
	}
	for _, name := range names {
		if info, err := t.Stat(name); err == nil && info.ModTime().Sub(at) > 2*bootSeconds*time.Second {
			return true
		}
	}
	return false
}
