package config

import (
	"strings"
)

// ParseEntryFile reads a file of the Boot Loader Specification.
func ParseEntryFile(lines []string) map[string][]SettingLine {
	out := map[string][]SettingLine{}
	for i, line := range lines {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
		if key == "" || key[0] == '#' {
			continue
		}
		out[key] = append(out[key], SettingLine{Name: key, Value: strings.TrimSpace(value), Line: i + 1})
	}
	return out
}

// KernelCommandLinePath holds the arguments that kernel-install writes into boot entries.
const KernelCommandLinePath = "/etc/kernel/cmdline"
