package system

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
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

func TestGrubBlocksAreFew(t *testing.T) {
	for _, opens := range []string{"submenu a {\n", "if\n", "while\n", "{\n"} {
		script := parseGrub(strings.Repeat(opens, 20_000) + strings.Repeat("menuentry x {\n}\n", 20_000))
		if script.ErrorLine != maxGrubDepth+1 || !strings.Contains(script.Error, "blocks are open") {
			t.Errorf("%q: line %d: %s", opens, script.ErrorLine, script.Error)
		}
	}
	if script := parseGrub(strings.Repeat("submenu a {\n", 20) + "menuentry b {\n}\n" + strings.Repeat("}\n", 20)); script.Error != "" || len(script.Entries) != 1 || len(script.Entries[0].Path) != 21 {
		t.Errorf("20 submenus: %+v", script)
	}
}

func TestGrubEntriesAreFew(t *testing.T) {
	if n := len(parseGrub(strings.Repeat("menuentry x {\n}\n", 2*maxGrubEntries)).Entries); n != maxGrubEntries {
		t.Errorf("%d entries", n)
	}
	if script := parseGrub("submenu " + strings.Repeat("a", maxGrubPath) + " {\nmenuentry b {\n}\n}\n"); script.ErrorLine != 2 {
		t.Errorf("a long title: line %d: %s", script.ErrorLine, script.Error)
	}
}

func TestInitramfsNamesAreBounded(t *testing.T) {
	var names []string
	for i := range 2 * maxInitramfsBytes / 1000 {
		names = append(names, fmt.Sprintf("%0990d", i))
	}
	for what, archive := range map[string][]byte{
		"many": cpioArchive(names...), "long": cpioArchive(strings.Repeat("a", maxInitramfsName+1)),
	} {
		c := walkInitramfs(&readAtFile{ReaderAt: strings.NewReader(string(archive)), Size: int64(len(archive))})
		sum := 0
		for name := range c.Names {
			sum += len(name)
		}
		if c.NotExamined == "" || c.Damage != "" || sum > maxInitramfsBytes {
			t.Errorf("%s: %d bytes of names, %q, %q", what, sum, c.NotExamined, c.Damage)
		}
	}
}

// The parts of an image share one bound, though each of them is within it.
func TestInitramfsPartsShareOneBound(t *testing.T) {
	part := string(gzipped(append(cpioArchive("init"), make([]byte, 1<<20)...)))
	image := strings.Repeat(part, 8)
	walk := func(image string, limit int64) *initramfsContent {
		return walkInitramfsUpTo(&readAtFile{ReaderAt: strings.NewReader(image), Size: int64(len(image))}, limit)
	}
	if c := walk(image, 16<<20); c.NotExamined != "" || c.Damage != "" || !c.Names["init"] {
		t.Errorf("within the bound: %+v", c)
	}
	if c := walk(image, 4<<20); c.NotExamined == "" || c.Damage != "" {
		t.Errorf("beyond the bound: %+v", c)
	}
	if c := walk(strings.Repeat(string(gzipped(nil)), maxInitramfsParts+1), 16<<20); c.NotExamined == "" || c.Damage != "" {
		t.Errorf("many parts: %+v", c)
	}
}

func TestSmallFilesAreFewAndSmall(t *testing.T) {
	in := debianUEFI()
	large := strings.Repeat("#", maxSmallFile+1)
	for i := range 2 * maxSmallFiles {
		in.espFile(fmt.Sprintf("/EFI/v%03d/grub.cfg", i), "# a stub\n")
		in.write(fmt.Sprintf("/boot/loader/entries/a-%d.conf", i), "title a\nlinux /vmlinuz\n")
	}
	in.espFile("/EFI/a/grub.cfg", large)
	in.write("/boot/loader/entries/a-9999.conf", large)
	s := in.system()
	stubs := grubStubs(s)
	if len(stubs) != maxSmallFiles || strings.HasPrefix(stubs[0].Path, "/EFI/a/") {
		t.Errorf("%d stubs", len(stubs))
	}
	entries := specificationEntries(s, s.Files, "/boot/loader/entries", nil, byGRUB, nil)
	if len(entries) != maxSmallFiles-1 || entries[0].ID != fmt.Sprintf("a-%d", 2*maxSmallFiles-1) {
		t.Errorf("%d entries", len(entries))
	}
}

// Stubs are read once for a rule, however many searches they hold.
func TestStubsAreReadOnce(t *testing.T) {
	in := debianUEFI()
	in.espFile("/EFI/boot/grub.cfg", strings.Repeat("search.fs_uuid "+deadUUID+" root\n", 8_000))
	for i := range maxSmallFiles {
		in.espFile(fmt.Sprintf("/EFI/v%03d/grub.cfg", i), strings.Repeat("#", maxSmallFile))
	}
	endsSoon(t, func() { lookGrubSearch(in.system()) })
}

// A file of 4 MiB holds so many lines that end in a backslash.
func TestJoinedLinesEnd(t *testing.T) {
	lines := slices.Repeat([]string{`a\`}, diagnose.MaxFile/3)
	in := newInstalled()
	in.write(interfacesPath, strings.Join(lines, "\n"))
	endsSoon(t, func() {
		unitSettings(lines)
		parseSudoers(lines)
		parsePAM(lines, "/etc/pam.d/a")
		(&ifupdown{tree: diagnose.NewTree(in.files), read: map[string]bool{}, sourced: map[string]bool{}}).include(interfacesPath)
	})
	if text, last := joinLines(lines, 0, unchanged); len(text) > maxJoinedLine+10 || last >= maxJoinedLine {
		t.Errorf("%d bytes, %d lines", len(text), last)
	}
	if text, last := joinLines([]string{`a \`, "b", "c"}, 0, unchanged); text != "a  b" || last != 1 {
		t.Errorf("%q, line %d", text, last)
	}
}

func TestSudoersTagsTakeLinearTime(t *testing.T) {
	line := "a ALL=" + strings.Repeat("TIMEOUT=1 ", maxJoinedLine/10-1) + "/bin/x"
	endsSoon(t, func() {
		if problems, _ := parseSudoers(slices.Repeat([]string{line}, 60)); len(problems) > 0 {
			t.Error(problems[0])
		}
		parseSudoers([]string{"a ALL=" + strings.Repeat("TIMEOUT=1 ", diagnose.MaxFile/10)})
	})
}

// Each line of this fstab names a disk that is not there, or one whose content is another.
func TestFstabTakesLinearTime(t *testing.T) {
	in := debianBIOS()
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "/dev/sda%d /d%d xfs defaults 0 2\n", i%3, i)
	}
	in.write(fstabPath, text.String()[:diagnose.MaxFile*3/4])
	in.write(crypttabPath, strings.Repeat("a /dev/b\n", diagnose.MaxFile/9))
	for i := range 100 {
		in.Devices = append(in.Devices, diagnose.Device{Path: fmt.Sprintf("/dev/vd%d", i), Kind: diagnose.DiskDevice, FS: "ext4", UUID: fmt.Sprint(i)})
	}
	s := in.system()
	if n := len(parseFstab(tableLines(s, fstabPath))); n != maxTableLines {
		t.Errorf("%d lines of fstab", n)
	}
	if n := len(parseCrypttab(tableLines(s, crypttabPath))); n != maxTableLines {
		t.Errorf("%d lines of crypttab", n)
	}
	endsSoon(t, func() {
		for _, rule := range fstabRules() {
			rule.Look(s)
		}
	})
}

// netplan has a mistake in each key of one file.
func TestNetplanTakesLinearTime(t *testing.T) {
	var text strings.Builder
	text.WriteString("network:\n  ethernets:\n")
	for i := 0; text.Len() < maxYAML-100; i++ {
		fmt.Fprintf(&text, "    e%d: {dhcp4: true}\n", i)
	}
	endsSoon(t, func() {
		p := &netplan{merged: map[string]map[string]*netplanLink{}}
		if p.parse("/etc/netplan/a.yaml", text.String()); len(p.merged["ethernets"]) > maxNetplanKeys || !p.partial {
			t.Errorf("%d interfaces", len(p.merged["ethernets"]))
		}
	})
	if near := nearest(strings.Repeat("a", 1<<20), netplanKeys); near != "" {
		t.Error(near)
	}
}

// Each line of this crypttab asks fstab, and each file of this menu asks whether /boot is hidden.
func TestTablesAreReadInPart(t *testing.T) {
	in := debianBIOS()
	in.write(fstabPath, strings.Repeat("UUID="+deadUUID+" /boot ext4 noauto 0 2\n", diagnose.MaxFile/61))
	in.write(crypttabPath, strings.Repeat("a UUID="+deadUUID+" none\n", diagnose.MaxFile/47))
	in.write("/boot/grub/grub.cfg", "menuentry a {\nlinux /a\ninitrd"+strings.Repeat(" /b", 20_000)+"\n}\n")
	s := in.system()
	endsSoon(t, func() {
		lookCrypttab(s)
		grubEntries(s)
	})
	if n := len(tableLines(s, fstabPath)); n == 0 || n > maxSmallFile/60 {
		t.Errorf("%d lines of fstab", n)
	}
}
