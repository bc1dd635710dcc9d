package system

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// endsSoon fails the test where a look at a hostile file takes longer than any bounded one does.
func endsSoon(t *testing.T, look func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); look() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it goes on after a minute")
	}
}

// Each of 16 files includes the next one eight times.
func TestPAMReadsFewFiles(t *testing.T) {
	in := newInstalled()
	for i := range 16 {
		in.write(fmt.Sprintf("/etc/pam.d/s%d", i), strings.Repeat(fmt.Sprintf("@include s%d\n", i+1), 8))
	}
	in.write("/etc/pam.d/s16", "")
	tree := diagnose.NewTree(in.files)
	endsSoon(t, func() {
		if _, exists := pamStack(tree, "s0"); !exists {
			t.Error("the stack does not exist")
		}
	})
}

func TestInitramfsNamesAreBounded(t *testing.T) {
	var names []string
	for i := range 2 * config.MaxInitramfsBytes / 1000 {
		names = append(names, fmt.Sprintf("%0990d", i))
	}
	for what, archive := range map[string][]byte{
		"many": cpioArchive(names...), "long": cpioArchive(strings.Repeat("a", config.MaxInitramfsName+1)),
	} {
		c := config.WalkInitramfs(&config.ReadAtFile{ReaderAt: strings.NewReader(string(archive)), Size: int64(len(archive))})
		sum := 0
		for name := range c.Names {
			sum += len(name)
		}
		if c.NotExamined == "" || c.Damage != "" || sum > config.MaxInitramfsBytes {
			t.Errorf("%s: %d bytes of names, %q, %q", what, sum, c.NotExamined, c.Damage)
		}
	}
}

// The parts of an image share one bound, though each of them is within it.
func TestInitramfsPartsShareOneBound(t *testing.T) {
	part := string(gzipped(append(cpioArchive("init"), make([]byte, 1<<20)...)))
	image := strings.Repeat(part, 8)
	walk := func(image string, limit int64) *config.InitramfsContent {
		return config.WalkInitramfsUpTo(&config.ReadAtFile{ReaderAt: strings.NewReader(image), Size: int64(len(image))}, limit)
	}
	if c := walk(image, 16<<20); c.NotExamined != "" || c.Damage != "" || !c.Names["init"] {
		t.Errorf("within the bound: %+v", c)
	}
	if c := walk(image, 4<<20); c.NotExamined == "" || c.Damage != "" {
		t.Errorf("beyond the bound: %+v", c)
	}
	if c := walk(strings.Repeat(string(gzipped(nil)), config.MaxInitramfsParts+1), 16<<20); c.NotExamined == "" || c.Damage != "" {
		t.Errorf("many parts: %+v", c)
	}
}

func TestSmallFilesAreFewAndSmall(t *testing.T) {
	in := debianUEFI()
	large := strings.Repeat("#", config.MaxSmallFile+1)
	for i := range 2 * config.MaxSmallFiles {
		in.espFile(fmt.Sprintf("/EFI/v%03d/grub.cfg", i), "# a stub\n")
		in.write(fmt.Sprintf("/boot/loader/entries/a-%d.conf", i), "title a\nlinux /vmlinuz\n")
	}
	in.espFile("/EFI/a/grub.cfg", large)
	in.write("/boot/loader/entries/a-9999.conf", large)
	s := in.system()
	stubs := grubStubs(s)
	if len(stubs) != config.MaxSmallFiles || strings.HasPrefix(stubs[0].Path, "/EFI/a/") {
		t.Errorf("%d stubs", len(stubs))
	}
	entries := specificationEntries(s, s.Files, "/boot/loader/entries", nil, byGRUB, nil)
	if len(entries) != config.MaxSmallFiles-1 || entries[0].ID != fmt.Sprintf("a-%d", 2*config.MaxSmallFiles-1) {
		t.Errorf("%d entries", len(entries))
	}
}

// Stubs are read once for a rule, however many searches they hold.
func TestStubsAreReadOnce(t *testing.T) {
	in := debianUEFI()
	in.espFile("/EFI/boot/grub.cfg", strings.Repeat("search.fs_uuid "+deadUUID+" root\n", 8_000))
	for i := range config.MaxSmallFiles {
		in.espFile(fmt.Sprintf("/EFI/v%03d/grub.cfg", i), strings.Repeat("#", config.MaxSmallFile))
	}
	endsSoon(t, func() { lookGrubSearch(in.system()) })
}

// A file of 4 MiB holds so many lines that end in a backslash.
func TestJoinedLinesEnd(t *testing.T) {
	lines := slices.Repeat([]string{`a\`}, diagnose.MaxFile/3)
	in := newInstalled()
	in.write(config.InterfacesPath, strings.Join(lines, "\n"))
	endsSoon(t, func() {
		config.UnitSettings(lines)
		config.ParseSudoers(lines)
		parsePAM(lines, "/etc/pam.d/a")
		(&config.Ifupdown{Tree: diagnose.NewTree(in.files), Read: map[string]bool{}, Sourced: map[string]bool{}}).Include(config.InterfacesPath)
	})
	if text, last := config.JoinLines(lines, 0, config.Unchanged); len(text) > config.MaxJoinedLine+10 || last >= config.MaxJoinedLine {
		t.Errorf("%d bytes, %d lines", len(text), last)
	}
	if text, last := config.JoinLines([]string{`a \`, "b", "c"}, 0, config.Unchanged); text != "a  b" || last != 1 {
		t.Errorf("%q, line %d", text, last)
	}
}

func TestSudoersTagsTakeLinearTime(t *testing.T) {
	line := "a ALL=" + strings.Repeat("TIMEOUT=1 ", config.MaxJoinedLine/10-1) + "/bin/x"
	endsSoon(t, func() {
		if problems, _ := config.ParseSudoers(slices.Repeat([]string{line}, 60)); len(problems) > 0 {
			t.Error(problems[0])
		}
		config.ParseSudoers([]string{"a ALL=" + strings.Repeat("TIMEOUT=1 ", diagnose.MaxFile/10)})
	})
}

// Each line of this fstab names a disk that is not there, or one whose content is another.
func TestFstabTakesLinearTime(t *testing.T) {
	in := debianBIOS()
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "/dev/sda%d /d%d xfs defaults 0 2\n", i%3, i)
	}
	in.write(config.FstabPath, text.String()[:diagnose.MaxFile*3/4])
	in.write(config.CrypttabPath, strings.Repeat("a /dev/b\n", diagnose.MaxFile/9))
	for i := range 100 {
		in.Devices = append(in.Devices, diagnose.Device{Path: fmt.Sprintf("/dev/vd%d", i), Kind: diagnose.DiskDevice, FS: "ext4", UUID: fmt.Sprint(i)})
	}
	s := in.system()
	if n := len(config.ParseFstab(config.TableLines(s, config.FstabPath))); n != config.MaxTableLines {
		t.Errorf("%d lines of fstab", n)
	}
	if n := len(config.ParseCrypttab(config.TableLines(s, config.CrypttabPath))); n != config.MaxTableLines {
		t.Errorf("%d lines of crypttab", n)
	}
	endsSoon(t, func() {
		for _, rule := range fstabRules() {
			rule.Look(s)
		}
	})
}

// config.Netplan has a mistake in each key of one file.
func TestNetplanTakesLinearTime(t *testing.T) {
	var text strings.Builder
	text.WriteString("network:\n  ethernets:\n")
	for i := 0; text.Len() < config.MaxYAML-100; i++ {
		fmt.Fprintf(&text, "    e%d: {dhcp4: true}\n", i)
	}
	endsSoon(t, func() {
		p := &config.Netplan{Merged: map[string]map[string]*config.NetplanLink{}}
		if p.Parse("/etc/netplan/a.yaml", text.String()); len(p.Merged["ethernets"]) > config.MaxNetplanKeys || !p.Partial {
			t.Errorf("%d interfaces", len(p.Merged["ethernets"]))
		}
	})
	if near := config.Nearest(strings.Repeat("a", 1<<20), config.NetplanKeys); near != "" {
		t.Error(near)
	}
}

// Each line of this crypttab asks fstab, and each file of this menu asks whether /boot is hidden.
func TestTablesAreReadInPart(t *testing.T) {
	in := debianBIOS()
	in.write(config.FstabPath, strings.Repeat("UUID="+deadUUID+" /boot ext4 noauto 0 2\n", diagnose.MaxFile/61))
	in.write(config.CrypttabPath, strings.Repeat("a UUID="+deadUUID+" none\n", diagnose.MaxFile/47))
	in.write("/boot/grub/grub.cfg", "menuentry a {\nlinux /a\ninitrd"+strings.Repeat(" /b", 20_000)+"\n}\n")
	s := in.system()
	endsSoon(t, func() {
		lookCrypttab(s)
		grubEntries(s)
	})
	if n := len(config.TableLines(s, config.FstabPath)); n == 0 || n > config.MaxSmallFile/60 {
		t.Errorf("%d lines of fstab", n)
	}
}
