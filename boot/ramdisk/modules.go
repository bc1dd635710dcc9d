package ramdisk

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// kernelModule is a kernel module as its .modinfo section describes it.
type kernelModule struct {
	name    string
	path    string // below /lib/modules/VERSION, with forward slashes
	depends []string
	soft    []string // loaded before it where they are there
	aliases []string
}

// moduleSet is all modules of an unpacked kernel package.
type moduleSet struct {
	dir     string // .../lib/modules/VERSION
	version string
	byName  map[string]*kernelModule
}

// moduleName is the kernel's spelling: file names have dashes where names have underscores.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// readModules reads every module of the one kernel below dir. Reading the modules
// themselves saves the building machine kmod, and the ramdisk a depmod run.
func readModules(dir string) (*moduleSet, error) {
	versions, err := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if err != nil || len(versions) != 1 {
		return nil, fmt.Errorf("kernel package: %d folders of modules in %s, want 1", len(versions), dir)
	}
	s := &moduleSet{dir: versions[0], version: filepath.Base(versions[0]), byName: map[string]*kernelModule{}}
	err = filepath.WalkDir(s.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".ko") {
			return err
		}
		m, err := readModule(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.dir, file)
		if err != nil {
			return err
		}
		m.path = filepath.ToSlash(rel)
		s.byName[m.name] = m
		return nil
	})
	if err == nil && len(s.byName) == 0 {
		err = fmt.Errorf("kernel package: no uncompressed modules in %s", s.dir)
	}
	return s, err
}

func readModule(file string) (*kernelModule, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("kernel module %s: %w", file, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("kernel module %s: no .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("kernel module %s: %w", file, err)
	}
	m := &kernelModule{name: moduleName(strings.TrimSuffix(filepath.Base(file), ".ko"))}
	for _, item := range bytes.Split(info, []byte{0}) {
		key, value, _ := strings.Cut(string(item), "=")
		switch key {
		case "depends":
			for _, d := range strings.Split(value, ",") {
				if d != "" {
					m.depends = append(m.depends, moduleName(d))
				}
			}
		case "softdep":
			if pre, ok := strings.CutPrefix(value, "pre: "); ok {
				pre, _, _ = strings.Cut(pre, " post:")
				m.soft = append(m.soft, strings.Fields(pre)...)
			}
		case "alias":
			m.aliases = append(m.aliases, value)
		}
	}
	return m, nil
}

// closure gives the named modules and all they need, dependencies first. Names that
// this kernel does not have are left out: they are built in, or for other hardware.
func (s *moduleSet) closure(names []string) []*kernelModule {
	var order []*kernelModule
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		name = moduleName(name)
		m := s.byName[name]
		if m == nil || seen[name] {
			return
		}
		seen[name] = true
		for _, d := range m.soft {
			visit(d)
		}
		for _, d := range m.depends {
			visit(d)
		}
		order = append(order, m)
	}
	for _, n := range names {
		visit(n)
	}
	return order
}

// under names all modules below the given folders, as "kernel/drivers/net".
func (s *moduleSet) under(dirs, not []string) []string {
	var names []string
	for name, m := range s.byName {
		if isWithinDirs(m.path, dirs) && !isWithinDirs(m.path, not) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func isWithinDirs(file string, dirs []string) bool {
	for _, d := range dirs {
		if strings.HasPrefix(file, d+"/") || file == d+".ko" {
			return true
		}
	}
	return false
}

// install puts modules into the tree with the index files that modprobe reads.
func (s *moduleSet) install(t *Tree, modules []*kernelModule) error {
	var dep, alias bytes.Buffer
	for _, m := range modules {
		if err := t.Copy(path.Join("usr/lib/modules", s.version, m.path), filepath.Join(s.dir, filepath.FromSlash(m.path)), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&dep, "%s:", m.path)
		// modprobe loads from the end: nearest dependency first.
		needs := s.closure(m.depends)
		for i := len(needs) - 1; i >= 0; i-- {
			fmt.Fprintf(&dep, " %s", needs[i].path)
		}
		dep.WriteByte('\n')
		for _, a := range m.aliases {
			fmt.Fprintf(&alias, "alias %s %s\n", a, m.name)
		}
	}
	base := path.Join("usr/lib/modules", s.version)
	t.File(base+"/modules.dep", 0o644, dep.Bytes())
	t.File(base+"/modules.alias", 0o644, alias.Bytes())
	t.File(base+"/modules.symbols", 0o644, nil)
	return t.Copy(base+"/modules.builtin", filepath.Join(s.dir, "modules.builtin"), 0o644)
}
