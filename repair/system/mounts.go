package system

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
	rules "salvor/diagnose/system"
)

const fstabPath = "/etc/fstab"

// mountRows repair /etc/fstab, /etc/crypttab and the configuration of LVM.
func mountRows() []tableRow {
	files, boot := diagnose.ConsentFiles, diagnose.ConsentBoot
	opensRoot := func(f diagnose.Finding) bool { return f.Stage == diagnose.Root }
	return []tableRow{
		{finding: "lvm-filter", consent: boot, change: commentEvidence, initramfs: always, does: "makes the line a comment, and builds the initramfs anew"},
		{finding: "crypttab-device-missing", consent: boot, change: correctContainer, initramfs: opensRoot,
			does: "writes the UUID of the only container that no line names, and builds the initramfs anew where it opens the root, or adds `nofail`; a line that writes over its device names no container"},
		{finding: "fstab-line-invalid", consent: files, change: commentEvidence, does: "makes the line a comment"},
		{finding: "fstab-type-unknown", consent: files, change: commentEvidence, does: "makes the line a comment"},
		{finding: "fstab-device-missing", consent: files, change: correctDevice,
			does: "writes the UUID of the only device that fits, or adds `nofail,x-systemd.device-timeout=10s`"},
		{finding: "fstab-kernel-name", consent: files, change: correctDevice,
			does: "writes the UUID of the only device that fits, or adds `nofail,x-systemd.device-timeout=10s`"},
		{finding: "fstab-type-wrong", consent: files, change: correctType, does: "writes the type that the device has, or makes the line a comment"},
		{finding: "fstab-option-invalid", consent: files, change: correctOption, does: "writes the option that was probably meant, or makes the line a comment"},
		{finding: "fstab-subvolume-missing", consent: files, change: correctSubvolume,
			does: "names the subvolume that holds the system, or the one that is named after the place, or adds `nofail,x-systemd.device-timeout=10s`"},
		{finding: "fstab-root-read-only", consent: files, change: removeReadOnly, does: "removes the option `ro` of the root"},
		{finding: "fstab-bind-source-missing", consent: files, change: addNofail, does: "adds `nofail`"},
		{finding: "fstab-driver-unavailable", consent: files, change: addNofail, does: "adds `nofail`"},
		{finding: "fstab-hides-system", consent: files, change: commentEvidence, does: "makes the line a comment"},
		{finding: "fstab-missing", consent: files, change: writeRootLine, does: "adds a line with the UUID of the root; what else the lost file named is not restored"},
		{finding: "fstab-network-mount", consent: files, change: addNetworkOptions, does: "adds `nofail,_netdev`"},
	}
}

// addOptions adds options to a list such as those of fstab, each once.
func addOptions(list string, options ...string) string {
	have := strings.Split(list, ",")
	for _, o := range options {
		if !slices.Contains(have, o) {
			have = append(have, o)
		}
	}
	return strings.TrimPrefix(strings.Join(have, ","), ",")
}

// correctDevice lets a line name the device that the rule found for it, or lets the boot go on without one.
func correctDevice(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	if d := c.evidenceDevice(); d != nil && d.UUID != "" {
		return c.editLine(fstabPath, at.Line, func(line string) string {
			return editField(line, 0, func(string) string { return "UUID=" + d.UUID })
		})
	}
	return c.editLine(fstabPath, at.Line, func(line string) string {
		return editField(line, 3, func(list string) string { return addOptions(list, config.WaitOptions(c.system.Files)...) })
	})
}

// addNofail lets the boot go on without what a line of /etc/fstab mounts.
func addNofail(_ context.Context, c *repairCase) error {
	return c.editLine(fstabPath, c.firstEvidence().Line, func(line string) string {
		return editField(line, 3, func(list string) string { return addOptions(list, "nofail") })
	})
}

// writeRootLine writes a line for the root into an /etc/fstab that has none.
func writeRootLine(_ context.Context, c *repairCase) error {
	line := rules.RootLine(c.system)
	if line == "" {
		return c.unsupported("the root needs more than a UUID in /etc/fstab, such as a subvolume; restore the file from a backup")
	}
	text, err := c.readOptional(fstabPath)
	if err != nil {
		return err
	}
	return c.write(fstabPath, appendLine(text, line))
}

// correctContainer lets a line of /etc/crypttab name the only container that no line names, or lets the boot go on without one.
func correctContainer(_ context.Context, c *repairCase) error {
	at, d := c.firstEvidence(), c.evidenceDevice()
	if d == nil || d.UUID == "" {
		for _, e := range c.finding.Evidence {
			err := c.editText(e.Path, func(text string) string { // one of the lines may have the option already
				return replaceLine(text, e.Line, func(line string) string {
					options := config.WaitOptions(c.system.Files)
					if e.Path == at.Path {
						options = []string{"nofail"}
						line = editField(line, 2, func(key string) string { return cmp.Or(key, "none") })
					}
					return editField(line, 3, func(list string) string { return addOptions(list, options...) })
				})
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return c.editLine(at.Path, at.Line, func(line string) string {
		return editField(line, 1, func(string) string { return "UUID=" + d.UUID })
	})
}

// correctSubvolume lets a line name the subvolume that is meant, or lets the boot go on without it.
func correctSubvolume(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	replacement := rules.SubvolumeFor(c.system, at.Line)
	return c.editLine(fstabPath, at.Line, func(line string) string {
		return editField(line, 3, func(list string) string {
			if replacement == "" {
				return addOptions(list, config.WaitOptions(c.system.Files)...)
			}
			return nameSubvolume(list, replacement)
		})
	})
}

// nameSubvolume lets a list of mount options name a subvolume in the place of another. The id of that one would keep the mount from the name.
func nameSubvolume(list, name string) string {
	options := slices.DeleteFunc(strings.Split(list, ","), func(o string) bool { return strings.HasPrefix(o, "subvolid=") })
	for i, o := range options {
		if strings.HasPrefix(o, "subvol=") {
			options[i] = "subvol=" + name
		}
	}
	return strings.Join(options, ",")
}

func correctType(ctx context.Context, c *repairCase) error {
	if d := c.evidenceDevice(); d != nil && rules.WritesType(c.finding) {
		return c.editLine(fstabPath, c.firstEvidence().Line, func(line string) string {
			return editField(line, 2, func(string) string { return d.FS })
		})
	}
	return commentEvidence(ctx, c)
}

func correctOption(ctx context.Context, c *repairCase) error {
	at := c.firstEvidence()
	corrected := false
	err := c.editText(fstabPath, func(text string) string {
		return replaceLine(text, at.Line, func(line string) string {
			for range 8 { // options of one line
				bad, like := config.CorrectOption(line)
				if like == "" {
					break
				}
				corrected = true
				line = editField(line, 3, func(list string) string { return replaceOption(list, bad, like) })
			}
			return line
		})
	})
	if err != nil || corrected {
		return err
	}
	return commentEvidence(ctx, c)
}

// replaceOption replaces the name of an option in a list and leaves its value.
func replaceOption(list, from, to string) string {
	options := strings.Split(list, ",")
	for i, o := range options {
		if name, value, found := strings.Cut(o, "="); name == from {
			options[i] = to
			if found {
				options[i] += "=" + value
			}
		}
	}
	return strings.Join(options, ",")
}

func removeReadOnly(_ context.Context, c *repairCase) error {
	return c.editLine(fstabPath, c.firstEvidence().Line, func(line string) string {
		return editField(line, 3, func(list string) string {
			rest := slices.DeleteFunc(strings.Split(list, ","), func(o string) bool { return o == "ro" })
			if len(rest) == 0 {
				return "defaults"
			}
			return strings.Join(rest, ",")
		})
	})
}

func addNetworkOptions(_ context.Context, c *repairCase) error {
	return c.editLine(fstabPath, c.firstEvidence().Line, func(line string) string {
		return editField(line, 3, func(list string) string { return addOptions(list, "nofail", "_netdev") })
	})
}
