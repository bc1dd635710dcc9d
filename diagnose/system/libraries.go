package system

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// lostLibrary is a file that keeps a program from its start: a library, the dynamic loader, or the program itself.
type lostLibrary struct {
	// name is what the program asks for, and by the file that asks; place is where the file lies, empty where no folder has it.
	name, by, place string
	// why says what is wrong with the file at place.
	why string
}

// String is a clause without an end, such as: /usr/sbin/sshd needs the library libz.so.1, which is in no folder of libraries.
func (l *lostLibrary) String() string {
	switch {
	case l.place == l.by:
		return fmt.Sprintf("the file %s is damaged: %s", l.place, l.why)
	case l.place != "":
		return fmt.Sprintf("%s needs the library %s, and the file %s is damaged: %s", l.by, l.name, l.place, l.why)
	}
	return fmt.Sprintf("%s needs the library %s, which is in no folder of libraries", l.by, l.name)
}

func (l *lostLibrary) evidence() []diagnose.Evidence {
	if l.place == "" {
		return []diagnose.Evidence{config.FileEvidence(l.by, 0, "it needs "+l.name+", which is in no folder of libraries")}
	}
	return []diagnose.Evidence{config.FileEvidence(l.place, 0, l.why), config.FileEvidence(l.by, 0, "it needs "+l.name)}
}

// loadedProgram reads a program or a library as the dynamic loader does. damage says why it cannot be loaded; both are empty where the file was not
// read, or is a script.
func loadedProgram(t *diagnose.Tree, name string) (program *config.ELFProgram, damage string) {
	file, err := config.OpenReadAt(t, name)
	if err != nil {
		return nil, ""
	}
	defer file.Close()
	program, err = config.ReadProgram(file)
	head := make([]byte, 2)
	n, _ := file.ReadAt(head, 0)
	switch {
	case file.Size == 0:
		return nil, "it is empty"
	case err != nil && string(head[:n]) == "#!":
		return nil, ""
	case err != nil:
		return nil, "it is no ELF file"
	case program.Size > uint64(file.Size):
		return nil, fmt.Sprintf("it was cut off and holds %d bytes of %d", file.Size, program.Size)
	}
	return program, ""
}

// wantedFile is a file that the dynamic loader looks at for a program: by asks for it under name.
type wantedFile struct{ name, place, by string }

// findLostLibrary follows a program to all files that the dynamic loader needs for its start; nil where none is lost, or where the program cannot be
// read.
func findLostLibrary(t *diagnose.Tree, place string) *lostLibrary {
	_, lost := startFilesOf(t, place)
	return lost
}

// startFilesOf are the files that the dynamic loader needs for a program, up to the first one that is lost. As the loader does, it loads what the
// program itself asks for first, and takes a library that is loaded already for every later one of its name.
func startFilesOf(t *diagnose.Tree, place string) ([]wantedFile, *lostLibrary) {
	return startFilesFrom(t, place, nil)
}

// startFilesFrom are startFilesOf where the loader looks into some folders first, as the variable LD_LIBRARY_PATH says.
func startFilesFrom(t *diagnose.Tree, place string, first []string) ([]wantedFile, *lostLibrary) {
	loaded := map[string]bool{}
	files := []wantedFile{{path.Base(place), place, place}}
	for i := 0; i < len(files); i++ {
		want := files[i]
		program, damage := loadedProgram(t, want.place)
		if damage != "" {
			return files, &lostLibrary{want.name, want.by, want.place, damage}
		}
		if program == nil {
			continue
		}
		if at := program.Interpreter; at != "" && !loaded[path.Base(at)] && t.Exists(at) {
			loaded[path.Base(at)] = true
			files = append(files, wantedFile{at, at, want.place})
		}
		var folders []string
		for _, library := range program.Libraries {
			if library == "" || strings.Contains(library, "/") || loaded[library] || len(loaded) > config.MaxLibraries {
				continue
			}
			if loaded[library] = true; folders == nil {
				folders = slices.Concat(first, linkerFolders(t, want.place, program))
			}
			at := linkedFile(t, folders, library)
			if at == "" {
				return files, &lostLibrary{name: library, by: want.place}
			}
			files = append(files, wantedFile{library, at, want.place})
		}
	}
	return files, nil
}

// closedFile is a file, or a folder above it, that others than root's may be kept from.
type closedFile struct {
	wantedFile
	at    string // the file or the folder
	owner uint32
	mode  fs.FileMode
	bit   fs.FileMode // that others lack
}

// closedFiles are those of the files that others than their owner cannot read. Groups are not looked at: what every program needs belongs to root's.
func closedFiles(t *diagnose.Tree, files []wantedFile) []closedFile {
	var out []closedFile
	entered := map[string]bool{}
	for _, f := range files {
		at, err := t.Resolve(f.place)
		if err != nil {
			continue
		}
		for bit := fs.FileMode(0o004); at != "/" && !entered[at]; at, bit = path.Dir(at), 0o001 {
			entered[at] = true
			if info, err := t.Stat(at); err == nil && info.Mode()&bit == 0 {
				out = append(out, closedFile{f, at, diagnose.OwnerOf(info).UID, info.Mode().Perm(), bit})
			}
		}
	}
	return out
}

// shellCheck is what is known of a shell for all accounts that have it.
type shellCheck struct {
	trouble string
	closed  []closedFile
}

// maxShells bounds how many shells are followed to their libraries.
const maxShells = 16

// shellTrouble says why the shell of an account does not start; empty where nothing is known against it.
func (l *logins) shellTrouble(t *diagnose.Tree, a *config.Account) string {
	if !shellRuns(t, a.Shell) {
		return "it does not exist as an executable file"
	}
	place, err := t.Resolve(config.FirstText(a.Shell, "/bin/sh"))
	if err != nil {
		return ""
	}
	check, known := l.shells[place]
	if !known && len(l.shells) < maxShells {
		files, lost := startFilesOf(t, place)
		if lost != nil {
			check.trouble = lost.String()
		} else {
			check.closed = closedFiles(t, files)
		}
		l.shells[place] = check
	}
	if check.trouble != "" || a.UID == 0 {
		return check.trouble
	}
	for _, f := range check.closed {
		if f.owner != a.UID || f.mode&(f.bit<<6) == 0 {
			return fmt.Sprintf("it needs %s, and %s with the mode 0%o keeps the account from that", f.place, f.at, f.mode)
		}
	}
	return ""
}
