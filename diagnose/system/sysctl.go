package system

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// sysctlSetting is a line of sysctl.d.
type sysctlSetting struct {
	name, value, text, file string
	line                    int
}

// sysctlSettings are the settings that sysctl.d gives the kernel, by their names. Files are read in the order of their names; of two files with one
// name, the file of the stronger folder is read. The last line about a setting counts.
func sysctlSettings(tree *diagnose.Tree) map[string]sysctlSetting {
	files := map[string]string{}
	for _, folder := range []string{"/etc/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"} {
		for _, file := range tree.Match(folder, "*.conf") {
			if files[path.Base(file)] == "" {
				files[path.Base(file)] = file
			}
		}
	}
	out := map[string]sysctlSetting{}
	read := func(file string) {
		for i, text := range tree.Lines(file) {
			name, value, found := strings.Cut(text, "=")
			name = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(name), "-"), "/", ".")
			if found && name != "" && name[0] != '#' && name[0] != ';' {
				out[name] = sysctlSetting{name, strings.TrimSpace(value), text, file, i + 1}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		read(files[name])
	}
	read("/etc/sysctl.conf")
	return out
}

// lookHugepages looks at what sysctl.d takes for huge pages.
func lookHugepages(s *diagnose.System) []diagnose.Finding {
	set := sysctlSettings(s.Files)["vm.nr_hugepages"]
	if !tooManyHugepages(s, nil, set.value) {
		return nil
	}
	f := set.finding("hugepages-too-many", fmt.Sprintf("Line %d of %s takes more memory for huge pages than the %d MiB of the machine allow.", set.line, set.file, s.Memory>>20))
	f.Repair.Loses = losesHugepages
	return []diagnose.Finding{f}
}

// losesHugepages says what may be lost without a setting that takes huge pages.
const losesHugepages = "Programs that ask for huge pages, such as databases and virtual machines, may not start."

func (set *sysctlSetting) finding(id, title string) diagnose.Finding {
	return diagnose.Finding{
		ID: id, Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Confidence: 0.8, Title: title,
		Evidence: []diagnose.Evidence{config.FileEvidence(set.file, set.line, set.text)},
		Repair:   &diagnose.Repair{Summary: fmt.Sprintf("Make line %d of %s a comment.", set.line, set.file), Consent: diagnose.ConsentFiles, Writes: []string{set.file}},
	}
}

// lookKernelLimits finds limits of sysctl.d that leave the system no memory, processes or files to boot with.
func lookKernelLimits(s *diagnose.System) []diagnose.Finding {
	settings := sysctlSettings(s.Files)
	var out []diagnose.Finding
	for _, limit := range []struct {
		name   string
		effect string
		starve func(n int64) bool
		does   diagnose.Severity
	}{
		{"vm.min_free_kbytes", "keeps %d KiB of memory free, more than half of what the machine has", func(n int64) bool { return s.Memory > 0 && n<<10 > s.Memory/2 }, diagnose.BlocksBoot},
		{"kernel.threads-max", "allows %d threads, fewer than a boot needs", func(n int64) bool { return n > 0 && n < 100 }, diagnose.BlocksBoot},
		// The kernel does not hold root to this limit, so the system boots and lets root in.
		{"fs.file-max", "allows %d open files, and programs of other users than root open no more", func(n int64) bool { return n >= 0 && n < 500 }, diagnose.Degrades},
		{"fs.nr_open", "allows each program %d open files, fewer than systemd sets for services, so that no service starts", func(n int64) bool { return n >= 64 && n < serviceFiles(s) }, diagnose.BlocksBoot},
		{"vm.overcommit_memory", "sets the accounting of memory to %d, and what programs may ask for is too little for a boot", func(n int64) bool {
			return n == 2 && s.Memory > 0 && commitLimit(s, settings) < leastCommit
		}, diagnose.BlocksBoot},
	} {
		set, found := settings[limit.name]
		n, err := strconv.ParseInt(set.value, 10, 64)
		if !found || err != nil || n < 0 || n > 1<<40 || !limit.starve(n) {
			continue
		}
		f := set.finding("kernel-limit-starves", fmt.Sprintf("Line %d of %s "+limit.effect+".", set.line, set.file, n))
		f.Severity = limit.does
		if limit.name == "vm.overcommit_memory" {
			for _, name := range []string{"vm.overcommit_ratio", "vm.overcommit_kbytes"} {
				if set, found := settings[name]; found {
					f.Evidence = append(f.Evidence, config.FileEvidence(set.file, set.line, set.text))
				}
			}
		}
		out = append(out, f)
	}
	return out
}

// leastCommit is the memory in bytes that the programs of a small boot ask for together.
const leastCommit = 128 << 20

// commitLimit is what all programs together may ask for under vm.overcommit_memory=2, in bytes: a share of the memory, or a fixed size, and all swap.
// The limit has no end where swap may lie in a file or in memory.
func commitLimit(s *diagnose.System, settings map[string]sysctlSetting) int64 {
	limit := s.Memory / 2
	if n, err := strconv.ParseInt(settings["vm.overcommit_ratio"].value, 10, 64); err == nil && n >= 0 && n <= 1000 {
		limit = s.Memory / 100 * n
	}
	if n, err := strconv.ParseInt(settings["vm.overcommit_kbytes"].value, 10, 64); err == nil && n > 0 && n < 1<<40 {
		limit = n << 10
	}
	for i := range s.Devices {
		if s.Devices[i].FS == "swap" {
			limit += s.Devices[i].Size
		}
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if name := config.ParseDeviceName(e.Source); e.IsSwap() && name.Tag == "" {
			return math.MaxInt64
		}
	}
	if config.FirstExisting(s.Files, "/etc/systemd/zram-generator.conf", "/usr/lib/systemd/zram-generator.conf", "/etc/default/zramswap") != "" {
		return math.MaxInt64
	}
	return limit
}

// serviceFiles is the hard limit of open files that systemd sets for each service; 0 for systems without systemd. The kernel refuses a limit above
// fs.nr_open, even where it is lower than the former one.
func serviceFiles(s *diagnose.System) int64 {
	if !config.UsesSystemd(s.Files) {
		return 0
	}
	limit := int64(512 << 10)
	if release := systemdRelease(s.Files); release > 0 && release < 240 {
		limit = 4096
	}
	for _, l := range managerDefaults(s.Files) {
		if l.Key != "LimitNOFILE" {
			continue
		}
		soft, hard, both := strings.Cut(l.Value, ":")
		if !both {
			hard = soft
		}
		if n, err := strconv.ParseInt(hard, 10, 64); err == nil {
			limit = n
		}
	}
	return limit
}
