package system

import (
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func initRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"usr-link-missing"}, Files: true, Look: lookUsrLinks},
		{IDs: []string{"root-folder-missing"}, Files: true, Look: lookRootFolders},
		{IDs: []string{"preload-library-broken"}, Files: true, Look: lookPreload},
		{IDs: []string{"init-missing", "init-not-executable", "init-foreign", "init-interpreter-missing", "init-library-missing"}, Files: true, Look: lookInit},
	}
}

// lookUsrLinks finds links such as /lib64 to usr/lib64 that are lost. Programs name their interpreter by them.
func lookUsrLinks(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		target, isLink := "", false
		if link, err := s.Files.ReadLink("/" + name); err == nil {
			_, err := s.Files.Stat("/" + name)
			target, isLink = link, config.IsNotExist(err)
		}
		if _, err := s.Files.Lstat("/" + name); !isLink && !config.IsNotExist(err) || !config.IsFolder(s.Files, "/usr/"+name) {
			continue
		}
		needed := map[string]bool{"bin": s.Files.Exists("/usr/bin/sh"), "sbin": s.Files.Exists("/usr/sbin/init"), "lib": s.Files.Exists("/usr/lib/systemd"),
			"lib64": len(s.Files.Match("/usr/lib64", "ld-*")) > 0}[name]
		if !needed {
			continue
		}
		f := diagnose.Finding{
			ID: "usr-link-missing", Stage: diagnose.Init, Severity: diagnose.BlocksBoot, Confidence: 0.97,
			Title:    fmt.Sprintf("The path /%s does not exist, which is a link to usr/%s on systems such as this one.", name, name),
			Evidence: []diagnose.Evidence{config.FileEvidence("/"+name, 0, "it does not exist, but /usr/"+name+" does")},
			Explains: []string{"init-missing", "init-interpreter-missing", "init-library-missing"},
			Repair:   &diagnose.Repair{Summary: fmt.Sprintf("Make the link /%s to usr/%s.", name, name), Consent: diagnose.ConsentFiles, Writes: []string{"/" + name}},
		}
		if isLink {
			f.Title = fmt.Sprintf("The path /%s is a link to %s, which does not exist; on systems such as this one it leads to usr/%s.", name, target, name)
			f.Evidence[0].Text = "it leads to " + target
		}
		out = append(out, f)
	}
	return out
}

// lookRootFolders finds a root without the folders at which the boot mounts the file systems of the kernel. systemd makes a missing folder itself, but
// the root is read-only then, unless the kernel was told to mount the root for writing.
func lookRootFolders(s *diagnose.System) []diagnose.Finding {
	e := defaultEntry(loadEntries(s))
	if !config.UsesSystemd(s.Files) || e == nil || e.Loader == bySystemdBoot || slices.Contains(e.Options, "rw") {
		return nil
	}
	f := diagnose.Finding{ID: "root-folder-missing", Stage: diagnose.Init, Severity: diagnose.BlocksBoot, Confidence: 0.9}
	var missing []string
	for _, name := range []string{"/proc", "/sys", "/dev", "/run"} {
		if _, err := s.Files.Stat(name); config.IsNotExist(err) {
			missing = append(missing, name)
			f.Evidence = append(f.Evidence, config.FileEvidence(name, 0, "it does not exist"))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	f.Title = fmt.Sprintf("The root lacks %s, where systemd mounts the file systems of the kernel, so that systemd stops.", strings.Join(missing, " and "))
	f.ByHand = "Make the folders in the root, owned by root and with the mode 0755: mkdir " + strings.Join(missing, " ") + ". A copy of a system has to hold them as empty folders."
	f.Repair = repairFiles("Make the folders "+strings.Join(missing, " and ")+".", missing...)
	return []diagnose.Finding{f}
}

// initPath is the program that the kernel or the initramfs starts: the argument init=, or the first of the usual ones that is there. The initramfs of
// initramfs-tools leaves an argument out that names no program; the kernel and other initramfs images stop there.
func initPath(s *diagnose.System) string {
	if e := defaultEntry(loadEntries(s)); e != nil {
		if name, found := argument(e.Options, "init"); found && !(usesInitramfsTools(s, e) && !isProgram(s.Files, name)) {
			return name
		}
	}
	for _, name := range []string{"/sbin/init", "/etc/init", "/bin/init"} {
		if s.Files.Exists(name) {
			return name
		}
	}
	return "/sbin/init"
}

// isProgram says whether a path leads to a file that may be executed, or to a file that could not be read.
func isProgram(t *diagnose.Tree, name string) bool {
	info, err := t.Stat(name)
	return err != nil && !config.IsNotExist(err) || err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// lookInit follows the first program of the system to all that it needs.
func lookInit(s *diagnose.System) []diagnose.Finding {
	name := initPath(s)
	f := diagnose.Finding{Stage: diagnose.Init, Severity: diagnose.BlocksBoot, Confidence: 0.97, Evidence: []diagnose.Evidence{config.FileEvidence(name, 0, "the first program of the system")}}
	place, err := s.Files.Resolve(name)
	info, statErr := s.Files.Stat(name)
	switch {
	case config.IsNotExist(err) || config.IsNotExist(statErr):
		return initMissing(s, f, name, place)
	case err != nil || statErr != nil:
		return nil
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		f.ID, f.Title = "init-not-executable", fmt.Sprintf("The program %s is not executable, so that the kernel cannot start it.", place)
		f.Evidence = append(f.Evidence, config.FileEvidence(place, 0, "its mode is "+info.Mode().String()))
		f.Repair = &diagnose.Repair{Summary: "Give " + place + " the mode 0755.", Consent: diagnose.ConsentFiles, Writes: []string{place}}
		if !info.Mode().IsRegular() {
			f.Repair, f.ByHand = nil, "Install the package of the init system again."
		}
		return []diagnose.Finding{f}
	}
	file, err := config.OpenReadAt(s.Files, name)
	if err != nil {
		return nil
	}
	defer file.Close()
	program, err := config.ReadProgram(file)
	if err != nil {
		switch _, damage := loadedProgram(s.Files, place); {
		case info.Size() == 0:
			return initMissing(s, f, name, place)
		case damage != "":
			f.ID, f.Title = "init-not-executable", fmt.Sprintf("The first program of the system does not start, because the file %s is damaged: %s.", place, damage)
			f.Evidence, f.ByHand = append(f.Evidence, config.FileEvidence(place, 0, damage)), "Install the package of the init system again."
			return []diagnose.Finding{f}
		}
		return nil // a script is executable too
	}
	return judgeProgram(s, f, place, program)
}

// initMissing proposes the link to the init system that is installed.
func initMissing(s *diagnose.System, f diagnose.Finding, name, place string) []diagnose.Finding {
	f.ID, f.Title = "init-missing", fmt.Sprintf("The path %s leads to no program, so that the kernel stops.", name)
	f.Evidence = append(f.Evidence, config.FileEvidence(place, 0, "it does not exist or is empty"))
	f.ByHand = "Install the package of the init system again."
	for _, target := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if info, err := s.Files.Stat(target); err == nil && info.Size() > 0 && path.Base(name) == "init" {
			f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Make the link %s to %s.", name, target), Consent: diagnose.ConsentFiles, Writes: []string{name}}
			f.ByHand = ""
			break
		}
	}
	// A live or container image without any kernel is started by something else.
	if !s.Files.Exists("/boot") && f.Repair == nil {
		f.Confidence = 0.6
	}
	return []diagnose.Finding{f}
}

// architectures that a kernel runs programs of.
var runnableMachines = map[string][]elf.Machine{
	"amd64": {elf.EM_X86_64, elf.EM_386}, "arm64": {elf.EM_AARCH64, elf.EM_ARM}, "ppc64le": {elf.EM_PPC64}, "s390x": {elf.EM_S390}, "riscv64": {elf.EM_RISCV},
}

// judgeProgram looks for the interpreter and the libraries of a program.
func judgeProgram(s *diagnose.System, f diagnose.Finding, place string, program *config.ELFProgram) []diagnose.Finding {
	f.ByHand = "Install the packages that bring the missing files again, from a rescue with the same release."
	if machines := runnableMachines[s.KernelArch]; len(machines) > 0 && !slices.Contains(machines, program.Machine) {
		f.ID, f.Confidence = "init-foreign", 0.95
		f.Title = fmt.Sprintf("The program %s is for %s, and the machine is %s.", place, program.Machine, s.KernelArch)
		f.ByHand = "Install a system for the machine's architecture."
		return []diagnose.Finding{f}
	}
	if interpreter := program.Interpreter; interpreter != "" {
		if _, err := s.Files.Stat(interpreter); config.IsNotExist(err) {
			f.ID, f.Title = "init-interpreter-missing", fmt.Sprintf("The program %s needs %s, which does not exist, so that no program starts.", place, interpreter)
			f.Evidence = append(f.Evidence, config.FileEvidence(interpreter, 0, "it does not exist"))
			return []diagnose.Finding{f}
		}
	}
	if lost := findLostLibrary(s.Files, place); lost != nil {
		f.ID, f.Confidence = "init-library-missing", 0.9
		switch lost.place {
		case place:
			f.ID = "init-not-executable"
		case program.Interpreter:
			f.ID = "init-interpreter-missing"
		}
		f.Title = fmt.Sprintf("The first program of the system does not start, because %s.", lost)
		f.Evidence = append(f.Evidence, lost.evidence()...)
		return []diagnose.Finding{f}
	}
	return nil
}

// linkedFile is the first file of this name in the folders of the dynamic loader; empty where there is none.
func linkedFile(tree *diagnose.Tree, folders []string, library string) string {
	for _, folder := range folders {
		if name := path.Join(folder, library); tree.Exists(name) {
			return name
		}
	}
	return ""
}

// maxStartFiles bounds what is read of the files that each start needs.
const maxStartFiles = 64 << 20

// unreadStartFile reads the first program, its dynamic loader and its libraries. It returns the first of them that the disk does not give; empty
// where there is none.
func unreadStartFile(s *diagnose.System) string {
	if s.Files == nil {
		return ""
	}
	files := startFiles(s)
	if i := slices.IndexFunc(files, s.Files.IsUnread); i >= 0 {
		return files[i] // it is not asked again, because a disk may try for a minute
	}
	left := int64(maxStartFiles)
	for _, file := range files {
		read, err := s.Files.ReadThrough(file, left)
		if errors.Is(err, diagnose.ErrUnread) {
			return file
		}
		if left -= read; left <= 0 {
			break
		}
	}
	return ""
}

// startFiles are the first program, its dynamic loader and its libraries, as far as they are there.
func startFiles(s *diagnose.System) []string {
	place, err := s.Files.Resolve(initPath(s))
	if err != nil {
		return nil
	}
	out := []string{place}
	file, err := config.OpenReadAt(s.Files, place)
	if err != nil {
		return out
	}
	defer file.Close()
	program, err := config.ReadProgram(file)
	if err != nil {
		return out
	}
	if program.Interpreter != "" {
		out = append(out, program.Interpreter)
	}
	folders := linkerFolders(s.Files, place, program)
	for _, library := range program.Libraries {
		if name := linkedFile(s.Files, folders, library); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// linkerFolders are where the dynamic loader looks: the program's own folders, those of ld.so.conf, and the usual ones.
func linkerFolders(tree *diagnose.Tree, place string, program *config.ELFProgram) []string {
	var out []string
	for _, folder := range program.Paths {
		out = append(out, strings.NewReplacer("$ORIGIN", path.Dir(place), "${ORIGIN}", path.Dir(place)).Replace(folder))
	}
	for _, file := range append(tree.Match("/etc/ld.so.conf.d", "*.conf"), "/etc/ld.so.conf") {
		for _, line := range tree.Lines(file) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				out = append(out, line)
			}
		}
	}
	for _, base := range []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"} {
		out = append(out, base)
		entries, err := tree.ReadDir(base)
		if err != nil {
			continue
		}
		for _, e := range entries { // of Debian's multiarch
			if e.IsDir() && strings.Contains(e.Name(), "-linux-") {
				out = append(out, path.Join(base, e.Name()))
			}
		}
	}
	return out
}
