package system

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing/fstest"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// grubRelease is that of the modules and core images of the fixtures.
const grubRelease = "2.06-13+deb12u1"

// grubModule is a module of GRUB: an ELF file of 32 bits with its name, the text of its release, a symbol of its own and the symbols that it needs.
func grubModule(name, release string, needs ...string) string {
	le := binary.LittleEndian
	text := name + "\x00"
	names := "\x00.modname\x00.shstrtab\x00.symtab\x00.strtab\x00"
	symbols, strings := make([]byte, 16), "\x00"
	symbol := func(name string, section uint16) {
		entry := make([]byte, 16)
		le.PutUint32(entry, uint32(len(strings)))
		entry[12] = 1 << 4 // global
		le.PutUint16(entry[14:], section)
		symbols, strings = append(symbols, entry...), strings+name+"\x00"
	}
	symbol("grub_"+name+"_start", 1)
	for _, name := range needs {
		symbol(name, 0)
	}
	body := text + names + "release " + release + "\x00"
	for len(body)%4 != 0 {
		body += "\x00"
	}
	atSymbols := 52 + len(body)
	body += string(symbols) + strings
	for len(body)%4 != 0 {
		body += "\x00"
	}
	b := make([]byte, 52)
	copy(b, "\x7fELF\x01\x01\x01")
	le.PutUint16(b[16:], 1) // ET_REL
	le.PutUint16(b[18:], 3) // 386
	le.PutUint32(b[20:], 1)
	le.PutUint32(b[32:], uint32(52+len(body)))
	le.PutUint16(b[40:], 52)
	le.PutUint16(b[46:], 40)
	le.PutUint16(b[48:], 5)
	le.PutUint16(b[50:], 2)
	b = append(b, body...)
	section := func(name, kind, offset, size, link int) {
		s := make([]byte, 40)
		for i, v := range []int{name, kind, 0, 0, offset, size, link, 1, 1, 0} {
			le.PutUint32(s[4*i:], uint32(v))
		}
		if kind == 2 {
			le.PutUint32(s[36:], 16)
		}
		b = append(b, s...)
	}
	section(0, 0, 0, 0, 0)
	section(1, 1, 52, len(text), 0)
	section(10, 3, 52+len(text), len(names), 0)
	section(20, 2, atSymbols, len(symbols), 4)
	section(28, 3, atSymbols+len(symbols), len(strings), 0)
	return string(b)
}

// lzmaPacker writes a raw LZMA stream that holds literals only.
type lzmaPacker struct {
	low      uint64
	rng      uint32
	cache    byte
	pending  int
	out      []byte
	isMatch  [4]uint16
	literals [8 * 0x300]uint16
}

func (p *lzmaPacker) shiftLow() {
	if p.low < 0xff000000 || p.low > 0xffffffff {
		carry := byte(p.low >> 32)
		p.out = append(p.out, p.cache+carry) // the first byte of a stream is 0
		for ; p.pending > 0; p.pending-- {
			p.out = append(p.out, 0xff+carry)
		}
		p.cache = byte(p.low >> 24)
	} else {
		p.pending++
	}
	p.low = p.low << 8 & 0xffffffff
}

func (p *lzmaPacker) bit(probability *uint16, bit uint32) {
	bound := (p.rng >> 11) * uint32(*probability)
	if bit == 0 {
		p.rng = bound
		*probability += (1<<11 - *probability) >> 5
	} else {
		p.low += uint64(bound)
		p.rng -= bound
		*probability -= *probability >> 5
	}
	for p.rng < 1<<24 {
		p.rng <<= 8
		p.shiftLow()
	}
}

// lzmaPacked is a stream that config.UnpackLZMA unpacks to b.
func lzmaPacked(b []byte) []byte {
	p := &lzmaPacker{rng: 0xffffffff}
	config.FillHalf(p.isMatch[:])
	config.FillHalf(p.literals[:])
	previous := byte(0)
	for i, c := range b {
		p.bit(&p.isMatch[i&3], 0)
		tree, symbol := p.literals[0x300*int(previous>>5):], uint32(1)
		for at := 7; at >= 0; at-- {
			bit := uint32(c) >> at & 1
			p.bit(&tree[symbol], bit)
			symbol = symbol<<1 | bit
		}
		previous = c
	}
	for range 5 {
		p.shiftLow()
	}
	return p.out
}

// grubCoreFile is core.img as grub-install writes it, with those modules in it.
func grubCoreFile(modules ...string) []byte {
	le := binary.LittleEndian
	list := []byte{}
	for _, m := range modules {
		list = le.AppendUint32(list, 0)
		list = le.AppendUint32(list, uint32(8+len(m)))
		list = append(list, m...)
	}
	kernel := append([]byte("code with the word mimg in it, and more code of the kernel"), make([]byte, 200)...)
	kernel = append(kernel, "mimg"...)
	kernel = le.AppendUint32(kernel, 12)
	kernel = le.AppendUint32(kernel, uint32(12+len(list)))
	kernel = append(kernel, list...)
	packed := lzmaPacked(kernel)
	unpacker := make([]byte, 96)
	copy(unpacker, "\xea\x1c\x82")
	le.PutUint32(unpacker[8:], uint32(len(packed)))
	le.PutUint32(unpacker[12:], uint32(len(kernel)))
	first := make([]byte, sectorSize)
	copy(first, "\x52\x56\xbe\x1b\x81")
	copy(first[0x180:], "loading\x00.\x00\r\n\x00Geom\x00Read\x00 Error\x00")
	return slices.Concat(first, unpacker, packed)
}

// embeddedNames are the modules that grub-install puts into a core image.
var embeddedNames = []string{"biosdisk", "part_msdos", "ext2", "fshelp"}

func embeddedFixture(release string) []string {
	var out []string
	for _, name := range embeddedNames {
		out = append(out, grubModule(name, release))
	}
	return out
}

// grubCore is a core image that lies at a sector.
func grubCore(at uint64) []byte {
	b := grubCoreFile(embeddedFixture(grubRelease)...)
	for len(b)%sectorSize != 0 || len(b) < 20*sectorSize {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint64(b[0x1f4:], at+1)
	binary.LittleEndian.PutUint16(b[0x1fc:], uint16(len(b)/sectorSize-1))
	binary.LittleEndian.PutUint16(b[0x1fe:], 0x820)
	return b
}

// grubFolderFiles writes the modules of GRUB for a BIOS, as grub-install does.
func (in *installed) grubFolderFiles(folder string) {
	needs := map[string]string{"normal": "extcmd boot terminal", "linux": "relocator boot", "extcmd": "", "boot": "", "terminal": "", "relocator": "", "ext2": "fshelp", "fshelp": "",
		"biosdisk": "", "part_msdos": "", "search": "extcmd", "echo": "extcmd", "gzio": ""}
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		list.WriteString(name + ": " + needs[name] + "\n")
		in.write(folder+"/"+name+".mod", grubModule(name, grubRelease))
	}
	in.write(folder+"/moddep.lst", list.String())
	in.write(folder+"/command.lst", "*linux: linux\ninitrd: linux\n*search: search\necho: echo\n*menuentry: normal\n")
	in.write(folder+"/core.img", string(grubCoreFile(embeddedFixture(grubRelease)...)))
}

// rewriteModules replaces all modules of a folder by those of another release.
func (in *installed) rewriteModules(folder, release string) {
	for name := range maps.Clone(in.files) {
		if base, found := strings.CutPrefix(name, strings.TrimPrefix(folder, "/")+"/"); found && strings.HasSuffix(base, ".mod") {
			in.files[name] = &fstest.MapFile{Data: []byte(grubModule(strings.TrimSuffix(base, ".mod"), release)), Mode: 0o644, Sys: &diagnose.Owner{}}
		}
	}
}

// extFeaturesOf sets the features of an ext4 that a reader has to know.
func extFeaturesOf(d *diagnose.Device, features uint32) {
	binary.LittleEndian.PutUint32(d.Content.(*sparseDisk).pieces[1024][0x60:], features)
}
