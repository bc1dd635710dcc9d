package system_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/problem"
	"salvor/repair"
	"salvor/repair/repairtest"
	mends "salvor/repair/system"
)

// fakePrograms write what the programs of a system write.
var fakePrograms = map[string]repairtest.FakeProgram{
	"ssh-keygen": func(e *repairtest.Editor, p repair.Program) error {
		var names []string
		if p.Command[1] == "-A" {
			for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
				if name := "/etc/ssh/ssh_host_" + kind + "_key"; !e.System().Files.Exists(name) {
					names = append(names, name)
				}
			}
		} else {
			names = []string{p.Command[len(p.Command)-1]}
		}
		for _, name := range names {
			if err := errors.Join(e.Write(name, []byte(rules.HostKey)), e.Chmod(name, 0o600)); err != nil {
				return err
			}
		}
		return nil
	},
	"update-initramfs": func(e *repairtest.Editor, p repair.Program) error {
		release := p.Command[3]
		return e.Write("/boot/initrd.img-"+release, []byte(rules.DebianInitramfs(release, initramfsFiles(release)...)))
	},
	"cp": func(e *repairtest.Editor, p repair.Program) error {
		content, err := e.System().Files.ReadAtMost(p.Command[1], 1<<20)
		return errors.Join(err, e.Write(p.Command[2], content))
	},
	"dracut": func(e *repairtest.Editor, p repair.Program) error {
		image, release := p.Command[3], p.Command[4]
		return e.Write(image, []byte(rules.DracutInitramfs(release, initramfsFiles(release)...)))
	},
	"mkinitfs": func(e *repairtest.Editor, p repair.Program) error {
		return e.Write(p.Command[2], []byte(rules.DracutInitramfs(p.Command[3], initramfsFiles(p.Command[3])...)))
	},
	"depmod": func(e *repairtest.Editor, p repair.Program) error {
		return e.Write("/lib/modules/"+p.Command[1]+"/modules.dep", []byte("kernel/fs/ext4/ext4.ko.xz:\n"))
	},
	"grub-mkconfig": func(e *repairtest.Editor, p repair.Program) error {
		s := e.System()
		prefix, boot, root := "/boot", "", ""
		for _, d := range s.Devices {
			if d.Path == s.Root {
				root = d.UUID
			}
			if d.MountedAt == "/boot" {
				prefix, boot = "", d.UUID
			}
		}
		if boot == "" {
			boot = root
		}
		return e.Write(p.Command[2], []byte(rules.GrubConfig(prefix, boot, "UUID="+root)))
	},
	"grub-script-check": func(*repairtest.Editor, repair.Program) error { return nil },
	"grub-install": func(e *repairtest.Editor, p repair.Program) error {
		if folder, found := strings.CutPrefix(p.Command[2], "--efi-directory="); found {
			var names []string
			id, named := strings.CutPrefix(p.Command[4], "--bootloader-id=")
			switch {
			case p.Command[1] != "--target=x86_64-efi" || p.Command[3] != "--no-nvram":
				return fmt.Errorf("unknown arguments: %q", p.Command)
			case p.Command[4] == "--removable":
				names = []string{"/EFI/BOOT/BOOTX64.EFI"}
			case p.Command[4] == "--force-extra-removable":
				names = []string{"/EFI/debian/grubx64.efi", "/EFI/BOOT/BOOTX64.EFI"}
			case named:
				names = []string{"/EFI/" + id + "/grubx64.efi"}
			default:
				return fmt.Errorf("unknown arguments: %q", p.Command)
			}
			for _, name := range names {
				if err := errors.Join(e.Mkdir(path.Dir(folder+name)), e.Write(folder+name, []byte(rules.EFIProgram()))); err != nil {
					return err
				}
			}
			return nil
		}
		disk := p.Command[2]
		for name, content := range rules.GrubFolderFiles() {
			if err := e.Write(name, []byte(content)); err != nil {
				return err
			}
		}
		sector := rules.GrubMBR(1)
		return errors.Join(e.WriteBlocks(disk, 0, sector[:440]), e.WriteBlocks(disk, 510, []byte{0x55, 0xaa}), e.WriteBlocks(disk, 512, rules.GrubCore(1)))
	},
}

// initramfsFiles are what the roots of all layouts need.
func initramfsFiles(release string) []string {
	out := []string{"usr/sbin/mdadm", "etc/mdadm/mdadm.conf", "usr/sbin/lvm", "usr/sbin/cryptsetup"}
	for _, module := range []string{"drivers/md/raid1", "drivers/md/dm-crypt", "drivers/md/dm-mod", "fs/xfs/xfs", "fs/btrfs/btrfs", "fs/ext4/ext4", "drivers/ata/ahci",
		"drivers/nvme/host/nvme", "drivers/block/virtio_blk"} {
		out = append(out, "usr/lib/modules/"+release+"/kernel/"+module+".ko")
	}
	return out
}

func consentOf(id string) diagnose.Consent {
	for _, m := range mends.Mends() {
		if m.Finding == id {
			return m.Consent
		}
	}
	return ""
}

func isAboveInfo(f diagnose.Finding) bool { return f.Severity != diagnose.Info }

func examine(t *testing.T, e *repairtest.Editor) []diagnose.Finding {
	t.Helper()
	found, gaps := diagnose.Run(rules.Rules(), e.System())
	for _, gap := range gaps {
		if strings.HasPrefix(gap.What, "the rule for ") {
			t.Errorf("%s: %s", gap.What, gap.Why)
		}
	}
	return found
}

// mend repairs findings as an agent does, in their order.
func mend(t *testing.T, e *repairtest.Editor, findings ...diagnose.Finding) error {
	t.Helper()
	byID := map[string]repair.Mend{}
	for _, m := range mends.Mends() {
		byID[m.Finding] = m
	}
	for _, f := range mends.Order(findings) {
		if err := byID[f.ID].Do(t.Context(), e, f); err != nil {
			return err
		}
	}
	return mends.Finish(t.Context(), e, findings)
}

// TestMendsRepairEachCase repairs each case of the rules: the finding is gone then, nothing new is found, and what was not named stays as it was.
func TestMendsRepairEachCase(t *testing.T) {
	repaired := map[string]bool{}
	for _, tc := range rules.DamagedSystems() {
		t.Run(tc.Name, func(t *testing.T) {
			s, files := tc.Make(t)
			repaired[tc.ID] = checkRepair(t, s, files, tc.ID) || repaired[tc.ID]
		})
	}
	for _, tc := range moreCases {
		t.Run(tc.layout+"/"+tc.id+"/"+tc.name, func(t *testing.T) {
			s, files := rules.HealthySystem(tc.layout)
			tc.change(files)
			if !checkRepair(t, s, files, tc.id) {
				t.Fatal("it was not repaired")
			}
			repaired[tc.id] = true
		})
	}
	for _, m := range mends.Mends() {
		if !repaired[m.Finding] && m.Finding != "secure-boot-revoked" { // its change is that of secure-boot-unsigned
			t.Errorf("%s: no case is repaired", m.Finding)
		}
	}
}

// checkRepair repairs a finding of a system, and returns false where the rule proposes no repair that salvor carries out.
func checkRepair(t *testing.T, s diagnose.System, files fstest.MapFS, id string) bool {
	t.Helper()
	e := repairtest.New(s, files)
	e.Programs = fakePrograms
	before := examine(t, e)
	at := slices.IndexFunc(before, func(f diagnose.Finding) bool { return f.ID == id })
	if at < 0 {
		t.Fatalf("no finding %s", id)
	}
	f := before[at]
	if f.Repair == nil || f.Repair.Consent == diagnose.ConsentData {
		err := mend(t, e, f)
		if len(e.Touched)+len(e.Runs)+len(e.Settings)+len(e.Blocks) > 0 {
			t.Errorf("a finding without a repair was repaired: %v", err)
		}
		return false
	}
	if got := consentOf(f.ID); got != f.Repair.Consent {
		t.Fatalf("the mend has the consent %q, the rule %q", got, f.Repair.Consent)
	}
	if err := mend(t, e, f); err != nil {
		t.Fatal(err)
	}
	for _, g := range examine(t, e) {
		if g.ID == f.ID && g.Title == f.Title && (isAboveInfo(g) || !isAboveInfo(f)) {
			t.Errorf("still there: %s", g.Title)
		}
		if isAboveInfo(g) && !slices.ContainsFunc(before, func(b diagnose.Finding) bool { return b.ID == g.ID }) {
			t.Errorf("new: %s: %s", g.ID, g.Title)
		}
	}
	checkChanges(t, files, e, f)
	checkNothingMore(t, e, f)
	return true
}

// moreCases are those that the rules do not have: with a backup or a package from which a mend restores.
var moreCases = []struct {
	name, layout, id string
	change           func(fstest.MapFS)
}{
	{"a backup", "debian-bios", "passwd-broken", func(files fstest.MapFS) {
		copyFile(files, "etc/passwd", "etc/passwd-", 0o644)
		editFile(files, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n", "")
	}},
	{"a backup, and nothing else", "debian-bios", "passwd-broken", func(files fstest.MapFS) {
		copyFile(files, "etc/passwd", "etc/passwd-", 0o644)
		files["etc/passwd"] = &fstest.MapFile{Mode: 0o644, Sys: &diagnose.Owner{}}
	}},
	{"a backup", "debian-bios", "account-entry-broken", func(files fstest.MapFS) {
		copyFile(files, "etc/passwd", "etc/passwd-", 0o644)
		editFile(files, "etc/passwd", "alice:x:1000:1000:", "alice:x:1000:")
	}},
	{"a backup", "debian-bios", "shadow-missing", func(files fstest.MapFS) {
		copyFile(files, "etc/shadow", "etc/shadow-", 0o640)
		delete(files, "etc/shadow")
	}},
	{"a data disk", "debian-bios", "fstab-type-unknown", func(files fstest.MapFS) { addLine(files, "etc/fstab", "tmpfs /data zeta defaults 0 0") }},
	{"a package", "debian-uefi", "efi-loader-missing", func(files fstest.MapFS) {
		copyFile(files, "boot/efi/EFI/debian/shimx64.efi", "usr/lib/shim/shimx64.efi.signed", 0o644)
		delete(files, "boot/efi/EFI/debian/shimx64.efi")
	}},
	{"a package", "debian-uefi", "efi-loader-damaged", func(files fstest.MapFS) {
		copyFile(files, "boot/efi/EFI/debian/grubx64.efi", "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", 0o644)
		copyFile(files, "boot/efi/EFI/debian/grubx64.efi", "boot/efi/EFI/debian/grubx64.efi", 0o700)
		files["boot/efi/EFI/debian/grubx64.efi"].Data = files["boot/efi/EFI/debian/grubx64.efi"].Data[:3000]
	}},
	{"two packages", "debian-uefi", "efi-loader-missing", func(files fstest.MapFS) {
		copyFile(files, "boot/efi/EFI/debian/shimx64.efi", "usr/lib/shim/shimx64.efi.signed", 0o644)
		copyFile(files, "boot/efi/EFI/debian/grubx64.efi", "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", 0o644)
		delete(files, "boot/efi/EFI/debian/shimx64.efi")
		delete(files, "boot/efi/EFI/debian/grubx64.efi")
	}},
	{"all, by the program of the system", "debian-uefi", "efi-loader-missing", func(files fstest.MapFS) {
		removeLoaders(files)
		addFile(files, "usr/lib/grub/x86_64-efi/modinfo.sh", "#!/bin/sh\n")
	}},
	{"all, by the program of the system", "debian-uefi", "efi-loader-damaged", func(files fstest.MapFS) {
		addFile(files, "usr/lib/grub/x86_64-efi/modinfo.sh", "#!/bin/sh\n")
		for _, name := range []string{"shimx64.efi", "grubx64.efi"} {
			addFile(files, "boot/efi/EFI/debian/"+name, "")
		}
	}},
	{"a copy on the EFI system partition", "debian-systemd-boot", "initramfs-missing", func(files fstest.MapFS) {
		for name := range files {
			if strings.HasPrefix(name, "boot/efi/") && strings.HasPrefix(path.Base(name), "initrd") {
				delete(files, name)
			}
		}
		delete(files, "usr/bin/dracut")
		addFile(files, "usr/sbin/update-initramfs", "#!/bin/sh\n")
		addFile(files, "usr/bin/cp", "\x7fELF")
	}},
	{"all, of systemd", "debian-systemd-boot", "efi-loader-missing", func(files fstest.MapFS) {
		copyFile(files, "boot/efi/EFI/BOOT/BOOTX64.EFI", "usr/lib/systemd/boot/efi/systemd-bootx64.efi", 0o644)
		removeLoaders(files)
	}},
	{"a package", "debian-bios", "sshd-config-missing", func(files fstest.MapFS) {
		copyFile(files, "etc/ssh/sshd_config", "usr/share/openssh/sshd_config", 0o644)
		delete(files, "etc/ssh/sshd_config")
	}},
	{"a block", "debian-bios", "sshd-config-invalid", func(files fstest.MapFS) {
		addLine(files, "etc/ssh/sshd_config", "Match Usr bob\n  PermitTTY no\n\n  X11Forwarding no\nMatch User alice\n  PermitTTY no")
	}},
	{"rubbish", "ubuntu-netplan", "sshd-config-invalid", func(files fstest.MapFS) {
		files["etc/ssh/sshd_config.d/99-rubbish.conf"] = &fstest.MapFile{Data: []byte(strings.Repeat("rubbish it is\n", 40)), Mode: 0o600, Sys: &diagnose.Owner{}}
	}},
	{"a type of ssh keys", "debian-bios", "sshd-host-keys-missing", func(files fstest.MapFS) {
		addLine(files, "etc/ssh/sshd_config", "HostKey /etc/ssh/keys/own_ecdsa")
		files["etc/ssh/keys"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, Sys: &diagnose.Owner{}}
	}},
}

func addFile(files fstest.MapFS, name, text string) {
	files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o755, Sys: &diagnose.Owner{}}
}

// removeLoaders removes all loaders of the EFI system partition.
func removeLoaders(files fstest.MapFS) {
	for name := range files {
		if strings.HasPrefix(name, "boot/efi/EFI/") && strings.EqualFold(path.Ext(name), ".efi") {
			delete(files, name)
		}
	}
}

func copyFile(files fstest.MapFS, from, to string, mode fs.FileMode) {
	files[to] = &fstest.MapFile{Data: slices.Clone(files[from].Data), Mode: mode, Sys: files[from].Sys}
}

func editFile(files fstest.MapFS, name, from, to string) {
	changed := *files[name]
	changed.Data = []byte(strings.Replace(string(changed.Data), from, to, 1))
	files[name] = &changed
}

func addLine(files fstest.MapFS, name, line string) {
	changed := *files[name]
	changed.Data = append(slices.Clone(changed.Data), line+"\n"...)
	files[name] = &changed
}

// A Match line that sshd refuses takes its block with it, whose settings would hold for everybody, and no other one.
func TestMendOfMatchBlock(t *testing.T) {
	s, files := rules.HealthySystem("debian-bios")
	addLine(files, "etc/ssh/sshd_config", "Match Usr bob\n  PermitTTY no\nMatch User alice\n  PermitTTY no")
	e := repairtest.New(s, files)
	if err := mend(t, e, examine(t, e)...); err != nil {
		t.Fatal(err)
	}
	text := string(e.Snapshot()["etc/ssh/sshd_config"].Data)
	if !strings.HasSuffix(text, "# Match Usr bob\n#   PermitTTY no\nMatch User alice\n  PermitTTY no\n") {
		t.Errorf("%s", text)
	}
}

// A configuration of the package takes no passwords where an account has a key, unless an included file says so.
func TestPackagedConfigurationOfSSHD(t *testing.T) {
	const packaged = "# Debian\nInclude /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n"
	for keys, want := range map[bool]string{
		true:  "# Debian\nInclude /etc/ssh/sshd_config.d/*.conf\nPasswordAuthentication no\nUsePAM yes\n",
		false: packaged,
	} {
		s, files := rules.HealthySystem("debian-bios")
		files["usr/share/openssh/sshd_config"] = &fstest.MapFile{Data: []byte(packaged), Mode: 0o644, Sys: &diagnose.Owner{}}
		delete(files, "etc/ssh/sshd_config")
		for name := range files {
			if !keys && strings.HasSuffix(name, "/.ssh/authorized_keys") {
				delete(files, name)
			}
		}
		e := repairtest.New(s, files)
		found := examine(t, e)
		at := slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.ID == "sshd-config-missing" })
		if at < 0 {
			t.Fatalf("keys %v: %v", keys, found)
		}
		if err := mend(t, e, found[at]); err != nil {
			t.Fatal(err)
		}
		after := e.Snapshot()["etc/ssh/sshd_config"]
		if string(after.Data) != want || after.Mode.Perm() != 0o644 || owner(after) != (diagnose.Owner{}) {
			t.Errorf("keys %v: %v %s", keys, after.Mode, after.Data)
		}
	}
}

// The initramfs and the menu are made once, the menu last, whatever number of findings ask for it.
func TestFinishRunsEachToolOnce(t *testing.T) {
	s, files := rules.HealthySystem("debian-bios")
	files["etc/modprobe.d/x.conf"] = &fstest.MapFile{Data: []byte("blacklist ext4\ninstall ext4 /bin/false\ninstall ext4 /bin/true\n"), Mode: 0o644, Sys: &diagnose.Owner{}}
	editFile(files, "etc/initramfs-tools/conf.d/resume", "RESUME=UUID=", "RESUME=UUID=dead")
	editFile(files, "boot/grub/grub.cfg", "--set=root 3a1d", "--set=root dead")
	e := repairtest.New(s, files)
	e.Programs = fakePrograms
	found := examine(t, e)
	if err := mend(t, e, found...); err != nil {
		t.Fatal(err)
	}
	var ran []string
	for _, p := range e.Runs {
		ran = append(ran, p.Command[0][strings.LastIndexByte(p.Command[0], '/')+1:])
	}
	if want := []string{"update-initramfs", "grub-mkconfig", "grub-script-check"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v; findings %v", ran, want, found)
	}
	for _, f := range examine(t, e) {
		if isAboveInfo(f) {
			t.Errorf("%s: %s", f.ID, f.Title)
		}
	}
}

// An initramfs of those modules that the machine uses is not built by another machine, which is what update-initramfs takes the sandbox for.
func TestDependentModulesAreNotBuilt(t *testing.T) {
	s, files := rules.HealthySystem("debian-bios")
	files["etc/initramfs-tools/conf.d/small"] = &fstest.MapFile{Data: []byte("MODULES=dep\n"), Mode: 0o644, Sys: &diagnose.Owner{}}
	editFile(files, "etc/initramfs-tools/conf.d/resume", "RESUME=UUID=", "RESUME=UUID=dead")
	e := repairtest.New(s, files)
	e.Programs = fakePrograms
	if err := mend(t, e, examine(t, e)...); !problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "/etc/initramfs-tools/conf.d/small has MODULES=dep") {
		t.Errorf("%v", err)
	}
	if len(e.Runs) > 0 {
		t.Errorf("ran %v", e.Runs)
	}
}

// An argument that begins the file of kernel-install is changed as well as those in entries.
func TestFirstArgumentOfKernelInstall(t *testing.T) {
	for _, d := range rules.DamagedSystems() {
		if d.ID != "root-subvolume-missing" {
			continue
		}
		s, files := d.Make(t)
		addFile(files, "etc/kernel/cmdline", "rootflags=subvol=rooot root=UUID=x ro\n")
		for name := range files {
			if strings.HasPrefix(name, "boot/vmlinuz-") && !strings.Contains(name, rules.FedoraKernel) {
				delete(files, name)
			}
		}
		e := repairtest.New(s, files)
		found := slices.DeleteFunc(examine(t, e), func(f diagnose.Finding) bool { return f.ID != d.ID })
		if err := mend(t, e, found...); err != nil {
			t.Fatal(err)
		}
		if text := string(e.Snapshot()["etc/kernel/cmdline"].Data); text != "rootflags=subvol=root root=UUID=x ro\n" {
			t.Errorf("%q", text)
		}
		return
	}
	t.Error("no case")
}

// The lines that leave a driver out are changed before the initramfs is built again.
func TestRepairRemovesDriverOmission(t *testing.T) {
	lines := map[string]string{
		"etc/dracut.conf.d/site.conf":     "\nomit_drivers+=\" floppy \"\n",
		"etc/dracut.conf.d/zz.conf":       "omit_drivers+=\"  \" # too\n",
		"etc/initramfs-tools/modules":     "virtio_blk\n",
		"etc/initramfs-tools/conf.d/tiny": "MODULES=most\n",
	}
	for _, d := range rules.DamagedSystems() {
		if !strings.Contains(d.Name, "initramfs-lacks-driver/left out by") {
			continue
		}
		s, files := d.Make(t)
		e := repairtest.New(s, files)
		e.Programs = fakePrograms
		found := slices.DeleteFunc(examine(t, e), func(f diagnose.Finding) bool { return f.ID != d.ID })
		if err := mend(t, e, found...); err != nil {
			t.Fatal(err)
		}
		for name, want := range lines {
			if f := e.Snapshot()[name]; f != nil && strings.HasSuffix(string(f.Data), want) {
				delete(lines, name)
			}
		}
	}
	if len(lines) > 0 {
		t.Errorf("not written: %q", lines)
	}
}

// checkNothingMore: a mend whose finding is gone does nothing.
func checkNothingMore(t *testing.T, e *repairtest.Editor, f diagnose.Finding) {
	t.Helper()
	done, runs, settings, blocks := e.Snapshot(), len(e.Runs), len(e.Settings), len(e.Blocks)
	for _, m := range mends.Mends() {
		if m.Finding == f.ID {
			if err := m.Do(t.Context(), e, f); err != nil {
				t.Errorf("again: %v", err)
			}
		}
	}
	if diff := differentFiles(done, e.Snapshot()); len(diff) > 0 || len(e.Runs) > runs || len(e.Settings) > settings || len(e.Blocks) > blocks {
		t.Errorf("the second time changed %v", diff)
	}
}

func differentFiles(a, b fstest.MapFS) []string {
	var out []string
	for name, f := range b {
		if o := a[name]; o == nil || string(o.Data) != string(f.Data) || o.Mode != f.Mode || owner(o) != owner(f) {
			out = append(out, name)
		}
	}
	for name := range a {
		if b[name] == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func owner(f *fstest.MapFile) diagnose.Owner {
	if o, ok := f.Sys.(*diagnose.Owner); ok && o != nil {
		return *o
	}
	return diagnose.Owner{}
}

// changesModes are ids whose repair is a change of modes and owners.
var changesModes = []string{"permissions-lost", "permissions-open", "tmp-unusable", "ssh-key-permissions", "sudo-not-setuid", "sudoers-refused", "sshd-host-keys-open",
	"sshd-folder-unsafe", "network-config-invalid", "init-not-executable", "sshd-host-keys-damaged"}

// checkChanges: files that mends write keep their owner and their mode, and all but a few of their lines.
func checkChanges(t *testing.T, before fstest.MapFS, e *repairtest.Editor, f diagnose.Finding) {
	t.Helper()
	after := e.Snapshot()
	for _, name := range e.Touched {
		name = strings.Trim(name, "/")
		o, n := before[name], after[name]
		if o == nil || n == nil {
			continue
		}
		if (o.Mode != n.Mode || owner(o) != owner(n)) && !slices.Contains(changesModes, f.ID) {
			t.Errorf("%s: mode %v and owner %v, before %v and %v", name, n.Mode, owner(n), o.Mode, owner(o))
		}
		left := map[string]int{}
		for _, line := range strings.Split(string(n.Data), "\n") {
			left[line]++
		}
		lost := 0
		for _, line := range strings.Split(string(o.Data), "\n") {
			if left[line]--; left[line] < 0 {
				lost++
			}
		}
		if lost > len(f.Evidence)+2 {
			t.Errorf("%s: %d lines are gone", name, lost)
		}
	}
	if slices.Contains(changesModes, f.ID) {
		return
	}
	for name, n := range after {
		if o := before[name]; o != nil && o.Mode&fs.ModeType == n.Mode&fs.ModeType && (o.Mode != n.Mode || owner(o) != owner(n)) {
			t.Errorf("%s: mode %v, before %v", name, n.Mode, o.Mode)
		}
	}
}

// Nothing of a healthy system is repaired.
func TestMendsLeaveHealthySystems(t *testing.T) {
	for _, layout := range rules.HealthyLayouts() {
		s, files := rules.HealthySystem(layout)
		e := repairtest.New(s, files)
		for _, m := range mends.Mends() {
			f := diagnose.Finding{ID: m.Finding, Title: "Gone.", Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile, Path: "/etc/fstab", Line: 1}}}
			if err := m.Do(t.Context(), e, f); err != nil && !problem.Is(err, problem.Unsupported) {
				t.Errorf("%s on %s: %v", m.Finding, layout, err)
			}
		}
		if diff := differentFiles(files, e.Snapshot()); len(diff) > 0 || len(e.Runs)+len(e.Settings)+len(e.Blocks) > 0 {
			t.Errorf("%s: changed %v", layout, diff)
		}
	}
}
