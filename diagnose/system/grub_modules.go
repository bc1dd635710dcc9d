package system

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func grubModuleRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"grub-module-missing", "grub-modules-foreign"}, Files: true, Look: lookGrubModules},
		{IDs: []string{"grub-features-unread"}, Files: true, Look: lookGrubFeatures},
	}
}

// Bounds of GRUB's own files, in bytes.
const (
	maxGrubCore   = 2 << 20 // compressed
	maxGrubKernel = 8 << 20 // unpacked
	maxGrubModule = 1 << 20
)

// grubFolder is the folder of GRUB's modules for a platform; empty without one, or where /boot was not mounted.
func grubFolder(s *diagnose.System, platform string) string {
	if isBootHidden(s) {
		return ""
	}
	for _, folder := range []string{"/boot/grub", "/boot/grub2"} {
		if config.IsFolder(s.Files, path.Join(folder, platform)) {
			return path.Join(folder, platform)
		}
	}
	return ""
}

// grubImage is the core image that starts GRUB: where it lies, and the modules in it by their names.
type grubImage struct {
	device  *diagnose.Device
	modules map[string][]byte
	// kernel is the unpacked core image, with the names of its symbols and those of the modules in it; nil where it could not be unpacked.
	kernel []byte
	// other: the core image on the disk differs from the file core.img beside the modules.
	other bool
}

// readGrubCore follows the boot sector of a disk to its core image, and unpacks the modules in it. The places are those of boot.S, diskboot.S and
// startup_raw.S of GRUB. nil: the disk starts something else. modules is nil where the image could not be unpacked.
func readGrubCore(s *diagnose.System, d *diagnose.Device, folder string) *grubImage {
	le := binary.LittleEndian
	sector := readPiece(d.Content, 0, 512)
	if !bytes.Contains(sector[:bootCodeSize], []byte("GRUB ")) || grubCoreDamage(d.Content, sector) != "" {
		return nil
	}
	start := le.Uint64(sector[0x5c:])
	first := readPiece(d.Content, int64(start&(1<<40-1))*512, 512)
	next := int64(le.Uint64(first[0x1f4:]) & (1<<40 - 1))
	core := &grubImage{device: d}
	head := readPiece(d.Content, next*512, 32)
	packed, unpacked := int64(le.Uint32(head[8:])), int64(le.Uint32(head[12:]))
	file, err := s.Files.ReadAtMost(path.Join(folder, "core.img"), maxGrubCore)
	if err != nil || len(file) < 544 || packed <= 0 || packed > maxGrubCore || unpacked < packed/2 || unpacked > maxGrubKernel {
		return core
	}
	if !bytes.Equal(head[8:16], file[520:528]) {
		core.other = true
		return core
	}
	before := int64(len(file)) - 512 - packed // of the code that unpacks
	if before <= 0 {
		return core
	}
	kernel, err := config.UnpackLZMA(readPiece(d.Content, next*512+before, int(packed)), int(unpacked))
	if err == nil {
		core.modules, core.kernel = embeddedModules(kernel), kernel
	}
	return core
}

// embeddedModules are the modules in a core image or a signed program of GRUB, by their names.
func embeddedModules(kernel []byte) map[string][]byte {
	le := binary.LittleEndian
	out := map[string][]byte{}
	for at, heads := 0, 0; heads < 4; at += 4 {
		found := bytes.Index(kernel[at:], []byte("mimg"))
		if found < 0 {
			return out
		}
		at += found
		list := moduleList(kernel[at:])
		if list != nil {
			heads++
		}
		for parts := 0; len(list) >= 8 && parts < 512; parts++ {
			kind, size := le.Uint32(list), le.Uint32(list[4:])
			if size < 8 || size > uint32(len(list)) {
				break
			}
			if name := grubModuleName(list[8:size]); kind == 0 && name != "" {
				out[name] = list[8:size]
			}
			list = list[size:]
		}
		if len(out) > 0 {
			return out
		}
	}
	return out
}

// moduleList is the list of modules behind a head, which says where the list begins and ends: in numbers of 32 bits, or of 64 bits behind a gap of 4
// bytes. nil: there is no such head.
func moduleList(text []byte) []byte {
	le := binary.LittleEndian
	if len(text) >= 24 && le.Uint32(text[4:]) == 0 && le.Uint64(text[8:]) == 24 {
		if end := le.Uint64(text[16:]); end >= 24 && end <= uint64(len(text)) {
			return text[24:end]
		}
	}
	if len(text) >= 12 && le.Uint32(text[4:]) == 12 {
		if end := le.Uint32(text[8:]); end >= 12 && uint64(end) <= uint64(len(text)) {
			return text[12:end]
		}
	}
	return nil
}

// grubModuleName is the name in a module's own section .modname; empty for a file that is no module.
func grubModuleName(content []byte) string {
	if len(content) > maxGrubModule {
		return ""
	}
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return ""
	}
	section := file.Section(".modname")
	if section == nil || section.Flags&elf.SHF_COMPRESSED != 0 || section.FileSize > 256 {
		return ""
	}
	b := make([]byte, section.FileSize)
	n, _ := section.ReaderAt.ReadAt(b, 0)
	name, _, _ := strings.Cut(string(b[:n]), "\x00")
	return name
}

// isPackedModule: grub-install can compress the modules that it copies.
func isPackedModule(content []byte) bool {
	return bytes.HasPrefix(content, []byte("\xfd7zXZ")) || bytes.HasPrefix(content, []byte("\x1f\x8b")) || bytes.HasPrefix(content, []byte("\x89LZO"))
}

// grubLists are the lists beside the modules: which modules each one needs, and which module brings a command.
func grubLists(s *diagnose.System, folder string) (needs map[string][]string, brings map[string]string) {
	needs, brings = map[string][]string{}, map[string]string{}
	for _, line := range s.Files.Lines(path.Join(folder, "moddep.lst")) {
		if name, list, found := strings.Cut(line, ":"); found {
			needs[name] = strings.Fields(list)
		}
	}
	for _, line := range s.Files.Lines(path.Join(folder, "command.lst")) {
		if name, module, found := strings.Cut(strings.TrimPrefix(line, "*"), ":"); found {
			brings[name] = strings.TrimSpace(module)
		}
	}
	return needs, brings
}

// bootCommands are commands without which an entry of the menu does not load its system.
var bootCommands = strings.Fields("linux initrd linux16 initrd16 linuxefi initrdefi multiboot module multiboot2 module2 chainloader")

// neededModules are the modules that GRUB loads from the folder for its menu and the default entry, with those that they need, in the order of
// their names; what is in the core image is left out.
func neededModules(s *diagnose.System, core *grubImage, needs map[string][]string, brings map[string]string) []string {
	open := []string{"normal"}
	if script, file := grubScript(s); script != nil {
		first := defaultEntry(grubEntries(s))
		for _, c := range script.Commands {
			isDefault := first != nil && c.Entry != 0 && c.Line == first.Line && config.FirstText(c.File, file) == first.File
			if module := brings[c.Words[0]]; module != "" && (c.Words[0] == "blscfg" || c.Words[0] == "configfile" && c.Entry == 0 || isDefault && slices.Contains(bootCommands, c.Words[0])) {
				open = append(open, module)
			}
		}
		if first != nil && len(first.Initrds) > 0 && brings["initrd"] != "" {
			open = append(open, brings["initrd"])
		}
	}
	wanted := map[string]bool{}
	for len(open) > 0 && len(wanted) < 512 {
		name := open[0]
		open = open[1:]
		if wanted[name] || core.modules[name] != nil {
			continue
		}
		wanted[name] = true
		open = append(open, needs[name]...)
	}
	return slices.Sorted(maps.Keys(wanted))
}

// lookGrubModules looks at what the core image of GRUB loads on a machine with a BIOS. Without the module "normal", GRUB shows a prompt. A module of
// another release than the core image stops GRUB.
func lookGrubModules(s *diagnose.System) []diagnose.Finding {
	folder := grubFolder(s, "i386-pc")
	if s.Firmware.UEFI {
		return nil
	}
	if folder == "" {
		return missingFolder(s)
	}
	for _, d := range bootDisks(s) {
		core := readGrubCore(s, d, folder)
		if core == nil {
			continue
		}
		if core.modules == nil && !core.other {
			s.Files.NoteGap("the core image of GRUB on "+d.Path, "it could not be unpacked, so that its release was not compared with the modules in "+folder)
		}
		needs, brings := grubLists(s, folder)
		for _, look := range []func() *diagnose.Finding{
			func() *diagnose.Finding { return missingModule(s, core, folder, neededModules(s, core, needs, brings)) },
			func() *diagnose.Finding { return missingLists(s, core, folder, brings) },
			func() *diagnose.Finding { return foreignModule(s, core, folder) },
			func() *diagnose.Finding { return unfitModule(s, core, folder, neededModules(s, core, needs, brings)) },
		} {
			f := look()
			if f == nil {
				continue
			}
			if core.other {
				warnOfOther(core.device, f)
			} else {
				proposeInstall(s, core.device, f)
			}
			return []diagnose.Finding{*f}
		}
	}
	return nil
}

// proposeInstall lets the system install its boot loader on a disk anew: the core image and the modules, which then are of one release.
func proposeInstall(s *diagnose.System, d *diagnose.Device, f *diagnose.Finding) {
	f.ByHand = fmt.Sprintf("Install the boot loader on %s again, from the system in a rescue: grub-install %s.", d.Path, d.Path)
	if GrubInstaller(s) == "" {
		return
	}
	f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Write the boot code, the core image and the modules of the system's own GRUB to %s and /boot.", d.Path), Consent: diagnose.ConsentBoot,
		Writes: []string{d.Path + ": its first sector, and the sectors before its first partition or its BIOS boot partition", "/boot"}}
}

// warnOfOther weakens a finding about the modules of a system where the disk starts another core image than core.img beside these modules. The disk's
// core image may be of another installed system, whose boot loader a repair would replace.
func warnOfOther(d *diagnose.Device, f *diagnose.Finding) {
	f.Severity, f.Confidence = diagnose.Degrades, 0.6
	if f.ID == "grub-module-missing" {
		f.Title = appendToSentence(f.Title, "; the disk starts another core image than core.img beside the modules, so that another system may boot from the disk")
	}
	f.ByHand = fmt.Sprintf("If this system is to boot from %s, run grub-install %s in the system, in a rescue. Leave the disk as it is if another installed system boots from it.", d.Path, d.Path)
}

// missingModule is a finding where a module is not there, or is none.
func missingModule(s *diagnose.System, core *grubImage, folder string, needed []string) *diagnose.Finding {
	for _, name := range append([]string{"normal"}, needed...) {
		if !slices.Contains(needed, name) {
			continue
		}
		file := path.Join(folder, name+".mod")
		why := ""
		switch content, err := s.Files.ReadAtMost(file, maxGrubModule); {
		case config.IsNotExist(err):
			why = "it does not exist"
		case err != nil:
			continue
		case len(content) == 0:
			why = "it is empty"
		case !bytes.HasPrefix(content, []byte(elf.ELFMAG)) && !isPackedModule(content):
			why = "it is no module"
		default:
			continue
		}
		return &diagnose.Finding{
			ID: "grub-module-missing", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.95,
			Title:    fmt.Sprintf("GRUB on %s needs its module %s, and %s, so GRUB shows its prompt or does not load the kernel.", core.device.Path, file, why),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, 0, why), config.DeviceEvidence(core.device.Path, "its boot sector starts GRUB, which reads "+folder)},
		}
	}
	return nil
}

// missingLists is a finding where GRUB does not know which module brings its commands.
func missingLists(s *diagnose.System, core *grubImage, folder string, brings map[string]string) *diagnose.Finding {
	file := path.Join(folder, "command.lst")
	if len(brings) > 0 || core.modules["linux"] != nil || core.modules["normal"] != nil || s.Files.IsUnread(file) {
		return nil
	}
	return &diagnose.Finding{
		ID: "grub-module-missing", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.85,
		Title:    fmt.Sprintf("The file %s is missing or empty, so that GRUB finds none of the commands of its menu.", file),
		Evidence: []diagnose.Evidence{config.FileEvidence(file, 0, "it is missing or empty"), config.DeviceEvidence(core.device.Path, "its boot sector starts GRUB, which reads "+folder)},
	}
}

// foreignModule is a finding where a module in the core image differs from the file of its name: then they are of two releases.
func foreignModule(s *diagnose.System, core *grubImage, folder string) *diagnose.Finding {
	f := &diagnose.Finding{ID: "grub-modules-foreign", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.93}
	if core.other {
		f.Title = fmt.Sprintf("GRUB on %s starts another core image than %s/core.img, which lies beside the modules, so the core image and the modules may be of two releases.", core.device.Path, folder)
		f.Evidence = []diagnose.Evidence{config.DeviceEvidence(core.device.Path, "the sizes in its core image are not those of core.img"), config.FileEvidence(path.Join(folder, "core.img"), 0, "the core image that was installed with the modules")}
		return f
	}
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(core.modules)) {
		content, err := s.Files.ReadAtMost(path.Join(folder, name+".mod"), maxGrubModule)
		if err != nil || isPackedModule(content) || bytes.Equal(bytes.TrimRight(content, "\x00"), bytes.TrimRight(core.modules[name], "\x00")) {
			continue
		}
		differ = append(differ, name)
	}
	if len(differ) == 0 {
		return nil
	}
	file := path.Join(folder, differ[0]+".mod")
	f.Title = fmt.Sprintf("The core image of GRUB on %s and its modules in %s are of two releases, so that GRUB stops when it loads them.", core.device.Path, folder)
	f.Evidence = []diagnose.Evidence{config.DeviceEvidence(core.device.Path, "its core image holds other modules than the folder: "+strings.Join(differ[:min(len(differ), 12)], ", ")),
		config.FileEvidence(file, 0, "it differs from the module in the core image")}
	return f
}

// missingFolder is a finding where GRUB starts from a disk and the folder of its modules is gone as a whole. The disk may start the GRUB of another
// system where a partition of the disk is not of this system.
func missingFolder(s *diagnose.System) []diagnose.Finding {
	file, found := grubConfigPath(s)
	folder := path.Dir(file)
	if !found || isBootHidden(s) || !strings.HasPrefix(folder, "/boot/grub") || len(s.Files.Match(folder, "*-*")) > 0 {
		return nil // a system that starts by UEFI has modules for another platform
	}
	for _, d := range bootDisks(s) {
		sector := readPiece(d.Content, 0, 512)
		if !bytes.Contains(sector[:bootCodeSize], []byte("GRUB ")) || grubCoreDamage(d.Content, sector) != "" {
			continue
		}
		f := diagnose.Finding{
			ID: "grub-module-missing", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.88,
			Title: fmt.Sprintf("GRUB on %s finds none of its modules, because the folder %s/i386-pc does not exist, so GRUB shows its prompt for rescue.", d.Path, folder),
			Evidence: []diagnose.Evidence{config.FileEvidence(path.Join(folder, "i386-pc"), 0, "it does not exist"),
				config.DeviceEvidence(d.Path, "its boot sector starts GRUB")},
		}
		if foreign := foreignPartition(s, d); foreign != nil {
			warnOfOther(d, &f)
			f.Title = appendToSentence(strings.TrimSuffix(f.Title, ", so GRUB shows its prompt for rescue."), fmt.Sprintf("; the disk may start another system, on %s", foreign.Path))
		} else {
			proposeInstall(s, d, &f)
		}
		return []diagnose.Finding{f}
	}
	return nil
}

// foreignPartition is a partition of a disk with a file system that the system does not mount; nil where there is none.
func foreignPartition(s *diagnose.System, disk *diagnose.Device) *diagnose.Device {
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Path == s.Root || d.MountedAt != "" || !config.MountableTypes[d.FS] || !slices.Contains(d.Parents, disk.Path) {
			continue
		}
		if !slices.ContainsFunc(config.ParseFstab(config.TableLines(s, config.FstabPath)), func(e config.FstabLine) bool {
			return slices.Contains(config.FindDevices(s, config.ParseDeviceName(e.Source)), d)
		}) {
			return d
		}
	}
	return nil
}

// unfitModule is a finding where a module that GRUB loads asks for a symbol that neither the core image nor another needed module has. GRUB then stops
// with the message "symbol not found".
func unfitModule(s *diagnose.System, core *grubImage, folder string, needed []string) *diagnose.Finding {
	if core.kernel == nil {
		return nil
	}
	defined := map[string]bool{}
	type wish struct{ module, symbol string }
	var wishes []wish
	for _, name := range needed {
		content, err := s.Files.ReadAtMost(path.Join(folder, name+".mod"), maxGrubModule)
		if err != nil {
			return nil
		}
		symbols, known := moduleSymbols(content)
		if !known {
			return nil
		}
		for _, symbol := range symbols {
			switch {
			case elf.ST_BIND(symbol.Info) != elf.STB_GLOBAL || symbol.Name == "":
			case symbol.Section != elf.SHN_UNDEF:
				defined[symbol.Name] = true
			case len(wishes) < maxGrubSymbols:
				wishes = append(wishes, wish{name, symbol.Name})
			}
		}
	}
	for _, w := range wishes {
		if defined[w.symbol] || bytes.Contains(core.kernel, []byte(w.symbol+"\x00")) {
			continue
		}
		file := path.Join(folder, w.module+".mod")
		return &diagnose.Finding{
			ID: "grub-modules-foreign", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.9,
			Title:    fmt.Sprintf("The module %s of GRUB needs the symbol %s, which the core image on %s does not have, so that GRUB stops when it loads the module.", file, w.symbol, core.device.Path),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, 0, "it needs the symbol "+w.symbol), config.DeviceEvidence(core.device.Path, "its core image and the other modules do not have the symbol")},
		}
	}
	return nil
}

// maxGrubSymbols bounds the symbols that modules ask for.
const maxGrubSymbols = 4096

// moduleSymbols are the symbols of a module; known is false for a module that is compressed, or whose symbols cannot be read.
func moduleSymbols(content []byte) (symbols []elf.Symbol, known bool) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil || slices.ContainsFunc(file.Sections, func(section *elf.Section) bool { return section.Flags&elf.SHF_COMPRESSED != 0 }) {
		return nil, false
	}
	symbols, err = file.Symbols()
	return symbols, err == nil
}

// Features of an ext4 that a reader has to know, by their bits, as the kernel's documentation names them.
var extFeatures = map[uint32]string{0x1: "compression", 0x2: "filetype", 0x4: "recover", 0x8: "journal_dev", 0x10: "meta_bg", 0x40: "extent", 0x80: "64bit", 0x100: "mmp", 0x200: "flex_bg",
	0x400: "ea_inode", 0x1000: "dirdata", 0x2000: "metadata_csum_seed", 0x4000: "large_dir", 0x8000: "inline_data", 0x10000: "encrypt", 0x20000: "casefold"}

// Features that releases of GRUB read: all since 2.04, then those that later releases, or the packages of distributions, added.
const (
	extBase = uint32(0x2 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x200)
	extMost = extBase | 0x2000 | 0x4000 | 0x10000
)

// extReads are the features that the installed GRUB reads. The code of the module ext2 holds the complement of the features that the module knows.
// exact is false where the code holds no such number. The features are then those that any release reads.
func extReads(module []byte) (features uint32, exact bool) {
	for _, more := range []uint32{0x2000 | 0x4000 | 0x10000, 0x2000 | 0x10000, 0x4000 | 0x10000, 0x10000, 0x2000 | 0x4000, 0x2000, 0x4000, 0} {
		if bytes.Contains(module, binary.LittleEndian.AppendUint32(nil, ^(extBase|more))) {
			return extBase | more, true
		}
	}
	return extMost, false
}

// grubReader says which features of a file system the installed GRUB reads.
type grubReader struct {
	module string
	names  map[uint32]string
	// featuresOf are those features in a superblock, of which the first 4 KiB of the file system are given, that a reader has to know; ok is false for
	// another superblock.
	featuresOf func(head []byte) (features uint32, ok bool)
	// reads are the features that the module of GRUB knows, and whether its code says so.
	reads func(module []byte) (features uint32, exact bool)
	mend  func(feature string) string
}

// otherGrub is what helps where a feature cannot be taken away.
const otherGrub = "install a GRUB that reads it, or put /boot on a file system of its own."

var grubReaders = map[string]grubReader{
	"ext": {module: "ext2.mod", names: extFeatures, reads: extReads,
		featuresOf: func(head []byte) (uint32, bool) {
			super := head[1024:]
			return binary.LittleEndian.Uint32(super[0x60:]), binary.LittleEndian.Uint16(super[0x38:]) == 0xef53
		},
		mend: func(feature string) string {
			return "Take the feature from the file system with tune2fs -O ^" + feature + " where that is possible, or " + otherGrub
		}},
	"xfs": {module: "xfs.mod", names: xfsFeatures, reads: xfsReads,
		featuresOf: func(head []byte) (uint32, bool) {
			return binary.BigEndian.Uint32(head[216:]), string(head[:4]) == "XFSB" && binary.BigEndian.Uint16(head[100:])&0xf == 5
		},
		mend: func(string) string { return "A feature of XFS cannot be taken away: " + otherGrub }},
}

// xfsFeatures are the features of an XFS that a reader has to know, by their bits, as mkfs.xfs names them.
var xfsFeatures = map[uint32]string{0x1: "ftype", 0x2: "sparse", 0x4: "meta_uuid", 0x8: "bigtime", 0x10: "needsrepair", 0x20: "nrext64", 0x40: "exchange", 0x80: "parent", 0x100: "metadir", 0x200: "zoned"}

// xfsMost are the features that some release of GRUB reads.
const xfsMost = uint32(0x3f)

// xfsReads are the features that the installed GRUB reads. GRUB learned them in the order of their bits, and its module tests the complement, in the byte
// order of the disk, just before it jumps.
func xfsReads(module []byte) (features uint32, exact bool) {
	for bits := 10; bits > 0; bits-- {
		known := uint32(1)<<bits - 1
		mask := binary.BigEndian.AppendUint32(nil, ^known)
		for rest := module; ; {
			at := bytes.Index(rest, mask)
			if at < 0 || len(rest) < at+6 {
				break
			}
			rest = rest[at+4:]
			if rest[0] == 0x74 || rest[0] == 0x75 || rest[0] == 0x0f && (rest[1] == 0x84 || rest[1] == 0x85) {
				return known, true
			}
		}
	}
	return xfsMost, false
}

// lookGrubFeatures finds a file system of /boot that the installed GRUB cannot read, by the features in its superblock.
func lookGrubFeatures(s *diagnose.System) []diagnose.Finding {
	d := deviceOfBoot(s)
	file, found := grubConfigPath(s)
	if d == nil || d.Content == nil || !found || !strings.HasPrefix(file, "/boot/grub") {
		return nil
	}
	reader, known := grubReaders[cmp.Or(config.TypeGroup(d.FS), d.FS)]
	if !known {
		return nil
	}
	has, ok := reader.featuresOf(readPiece(d.Content, 0, 4096))
	if !ok {
		return nil
	}
	var module []byte
	name := ""
	for _, platform := range []string{"i386-pc", "x86_64-efi", "arm64-efi"} {
		folder := grubFolder(s, platform)
		if folder == "" || (platform == "i386-pc") == s.Firmware.UEFI {
			continue
		}
		if b, err := s.Files.ReadAtMost(path.Join(folder, reader.module), maxGrubModule); err == nil {
			module, name = b, path.Join(folder, reader.module)
		}
	}
	reads, exact := reader.reads(module)
	unread, unnamed := []string{}, has&^reads
	for _, bit := range slices.Sorted(maps.Keys(reader.names)) {
		if unnamed&bit != 0 {
			unread = append(unread, reader.names[bit])
		}
		unnamed &^= bit
	}
	if unnamed != 0 {
		unread = append(unread, fmt.Sprintf("%#x", unnamed))
	}
	if len(unread) == 0 {
		return nil
	}
	f := diagnose.Finding{
		ID: "grub-features-unread", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.85,
		Title:    fmt.Sprintf("The file system on %s, which holds /boot, has the feature %s, which GRUB cannot read, so that it finds no file.", d.Path, strings.Join(unread, " and ")),
		Evidence: []diagnose.Evidence{config.DeviceEvidence(d.Path, fmt.Sprintf("its superblock has the features %#x that a reader has to know", has))},
		ByHand:   reader.mend(unread[0]),
	}
	if exact {
		f.Confidence = 0.93
		f.Evidence = append(f.Evidence, config.FileEvidence(name, 0, fmt.Sprintf("the installed GRUB reads the features %#x", reads)))
	}
	return []diagnose.Finding{f}
}
