package system

import (
	"context"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
	rules "salvor/diagnose/system"
)

func isArgument(f diagnose.Finding) bool { return strings.HasPrefix(f.Evidence[0].Text, "resume=") }

func forgetResume(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	if isArgument(c.finding) {
		return c.editArgument(at.Text, "")
	}
	return c.editLine(at.Path, at.Line, func(string) string { return "RESUME=none" })
}

// replaceArgument replaces an argument of a kernel command line where it stands by itself. An empty one removes it.
func replaceArgument(text, from, to string) string {
	if from == "" {
		return text
	}
	const blanks = " \t\"'"
	lines := splitText(text)
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for at := 0; ; {
			next := strings.Index(line[at:], from)
			if next < 0 {
				break
			}
			start := at + next
			end := start + len(from)
			before := start > 0 && strings.IndexByte(blanks, line[start-1]) >= 0
			after := end == len(line) || strings.IndexByte(blanks+"\r\n", line[end]) >= 0
			if at = end; !before || !after {
				continue
			}
			if to == "" && line[start-1] != '"' && line[start-1] != '\'' { // with the blank before it
				start--
			}
			line = line[:start] + to + line[end:]
			at = start + len(to)
		}
		lines[i] = line
	}
	return strings.Join(lines, "")
}

// commandLineFiles are the files that hold kernel command lines, those from which a loader's configuration is made among them.
func (c *repairCase) commandLineFiles(file string) []string {
	out := []string{file, grubDefaultsPath, config.KernelCommandLinePath}
	if strings.HasSuffix(file, ".conf") && path.Base(path.Dir(file)) == "entries" {
		out = append(out, c.system.Files.Match(path.Dir(file), "*.conf")...)
		for _, block := range []string{"/boot/grub/grubenv", "/boot/grub2/grubenv"} {
			if c.system.Files.Exists(block) {
				out = append(out, block)
			}
		}
	}
	out = append(out, c.system.Files.Match("/etc/default/grub.d", "*.cfg")...)
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool {
		info, err := c.system.Files.Stat(name)
		return err != nil || !info.Mode().IsRegular() || info.Size() > diagnose.MaxFile
	})
}

// replaceInEnvironment is replaceArgument for the values of an environment block.
func replaceInEnvironment(text, from, to string) string {
	return editLines(text, func(line string) string {
		if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
			return name + "=" + strings.TrimPrefix(replaceArgument(" "+value, from, to), " ")
		}
		return line
	})
}

// editArgument changes an argument in all files that hold command lines.
func (c *repairCase) editArgument(from, to string) error {
	e, found := rules.DefaultEntry(c.system)
	if !found || !e.Mounted {
		return c.unsupported("the file system that holds the entry of the kernel is not mounted in the system")
	}
	edited := false
	for _, file := range c.commandLineFiles(e.File) {
		text, err := c.readText(file)
		if err != nil {
			return err
		}
		after := replaceArgument(text, from, to)
		switch {
		case file == config.KernelCommandLinePath: // its lines are arguments from their beginning
			after = editLines(text, func(line string) string { return strings.TrimPrefix(replaceArgument(" "+line, from, to), " ") })
		case path.Base(file) == "grubenv":
			after = environmentBlock(replaceInEnvironment(text, from, to), "", "")
			if after == "" {
				return c.unsupported("the settings of %s do not fit into an environment block", file)
			}
		}
		if after == text {
			continue
		}
		edited = true
		if err := c.write(file, after); err != nil {
			return err
		}
	}
	if !edited {
		return c.unsupported("the argument %s was not found where it can be changed", from)
	}
	return nil
}

func correctRoot(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	from, d := c.firstEvidence().Text, c.evidenceDevice()
	if !strings.HasPrefix(from, "root=") || d == nil || d.UUID == "" {
		return c.unsupported("the root cannot be told")
	}
	return c.editArgument(from, "root=UUID="+d.UUID)
}

// correctRootSubvolume lets the command line name the subvolume that holds the system.
func correctRootSubvolume(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	from := c.firstEvidence().Text
	name, list, _ := strings.Cut(from, "=")
	return c.editArgument(from, name+"="+nameSubvolume(list, c.system.RootSubvolume))
}

func removeKernelArgument(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	return c.editArgument(c.firstEvidence().Text, "")
}
