package ramdisk

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"salvor/problem"
)

// libraryDirs is where Debian keeps shared libraries.
func (a architecture) libraryDirs() []string {
	return []string{"lib/" + a.triplet, "usr/lib/" + a.triplet, "lib", "usr/lib"}
}

// program adds an executable of a package to the tree, with every shared library it
// needs. Libraries come from packages too, never from the building machine: packages
// that the executable's package depends on are fetched until nothing is missing.
func (t *Tree) program(ctx context.Context, a *debArchive, pkg, file string) error {
	dir, err := a.get(ctx, pkg)
	if err != nil {
		return err
	}
	source := filepath.Join(dir, file)
	if err := t.Copy(mergedUsrPath(file), source, 0o755); err != nil {
		return err
	}
	return t.libraries(ctx, a, source)
}

// libraries adds the closure of DT_NEEDED and the program interpreter of file.
func (t *Tree) libraries(ctx context.Context, a *debArchive, file string) error {
	queue := []string{file}
	done := map[string]bool{}
	for len(queue) > 0 {
		needed, interp, err := elfNeeds(queue[0], a.arch)
		if err != nil {
			return err
		}
		queue = queue[1:]
		if interp != "" {
			// The interpreter is a library of libc6 under another path.
			t.Symlink(mergedUsrPath(strings.TrimPrefix(interp, "/")), "/usr/lib/"+architectures[a.arch].triplet+"/"+path.Base(interp))
			needed = append(needed, path.Base(interp))
		}
		for _, name := range needed {
			if done[name] {
				continue
			}
			done[name] = true
			source, err := a.library(ctx, name)
			if err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(file), err)
			}
			if err := t.Copy("usr/lib/"+architectures[a.arch].triplet+"/"+name, source, 0o755); err != nil {
				return err
			}
			queue = append(queue, source)
		}
	}
	return nil
}

// library finds a shared library in the packages at hand, widening them by what they
// depend on as long as that brings something new.
func (a *debArchive) library(ctx context.Context, name string) (string, error) {
	for {
		for _, p := range a.packages {
			for _, dir := range architectures[a.arch].libraryDirs() {
				// Sonames are relative links to the versioned file beside them.
				file := filepath.Join(p.dir, dir, name)
				if _, err := os.Stat(file); err == nil {
					return file, nil
				}
			}
		}
		grown, err := a.widen(ctx)
		if err != nil {
			return "", err
		}
		if !grown {
			return "", problem.Unavailablef("no package brings the library %s", name)
		}
	}
}

func (a *debArchive) widen(ctx context.Context) (bool, error) {
	names, err := a.dependencies(ctx)
	if err != nil {
		return false, err
	}
	more := map[string]bool{}
	for _, name := range names {
		library := strings.HasPrefix(name, "lib") || strings.HasPrefix(name, "zlib")
		if library && a.packages[name] == nil {
			more[name] = true
		}
	}
	if len(more) == 0 {
		return false, nil
	}
	return true, a.fetch(ctx, slices.Sorted(maps.Keys(more))...)
}

// elfNeeds reads what the dynamic linker would look for; nothing is executed.
func elfNeeds(file string, arch Arch) (needed []string, interp string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, "", problem.Invalidf("%s: %w", file, err)
	}
	defer f.Close()
	if f.Machine != architectures[arch].machine {
		return nil, "", problem.Unsupportedf("%s is built for %v; the ramdisk is for %s", file, f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, "", fmt.Errorf("%s: %w", file, err)
			}
			interp = strings.TrimRight(string(b), "\x00")
		}
	}
	if interp == "" && f.Section(".dynamic") == nil {
		return nil, "", nil
	}
	needed, err = f.ImportedLibraries()
	return needed, interp, err
}

// mergedUsrPath moves a path of an unmerged Debian package under /usr, where all ramdisks
// keep it: /bin, /sbin, /lib and /lib64 are links.
func mergedUsrPath(file string) string {
	for _, top := range mergedDirs {
		if strings.HasPrefix(file, top+"/") {
			return "usr/" + file
		}
	}
	return file
}

var mergedDirs = []string{"bin", "sbin", "lib", "lib64"}
