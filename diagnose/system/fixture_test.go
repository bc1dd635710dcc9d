package system

import (
	"encoding/binary"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"salvor/diagnose"
)

// installed is a system in memory that a test damages: its files, the files of its EFI system partition, and what was found about its machine.
type installed struct {
	diagnose.System
	files fstest.MapFS
	esp   fstest.MapFS // what lies on the ESP; also below espAt in files
	espAt string
}

// system is what the rules are asked about.
func (in *installed) system() *diagnose.System {
	s := in.System
	files := maps.Clone(in.files)
	for name, f := range in.esp {
		if in.espAt != "" {
			files[strings.TrimPrefix(in.espAt, "/")+"/"+name] = f
		}
	}
	s.Files = diagnose.NewTree(newIndexedFS(files))
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		if s.Devices[i].PartType == espType && s.Devices[i].FS == "vfat" {
			s.Devices[i].Tree = diagnose.NewTree(in.esp)
		}
	}
	return &s
}

// indexedFS answers Lstat of a folder, and of a name that a folder does not have, without a look at all files.
type indexedFS struct {
	fstest.MapFS
	folders map[string]bool
}

func newIndexedFS(files fstest.MapFS) indexedFS {
	out := indexedFS{files, map[string]bool{".": true}}
	for name := range files {
		for folder := path.Dir(name); !out.folders[folder]; folder = path.Dir(folder) {
			out.folders[folder] = true
		}
	}
	return out
}

func (f indexedFS) Lstat(name string) (fs.FileInfo, error) {
	switch {
	case f.MapFS[name] != nil:
	case f.folders[name]:
		return fstest.MapFS{name: {Mode: fs.ModeDir | 0o555}}.Lstat(name)
	case f.folders[path.Dir(name)]:
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
	}
	return f.MapFS.Lstat(name)
}

const espType = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"

// write stores a file of root with mode 0644.
func (in *installed) write(name, text string) { in.writeMode(name, text, 0o644) }

func (in *installed) writeMode(name, text string, mode fs.FileMode) {
	in.files[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text), Mode: mode, Sys: &diagnose.Owner{}}
}

// writeAll stores files of root with mode 0644.
func (in *installed) writeAll(files map[string]string) {
	for name, text := range files {
		in.write(name, text)
	}
}

func (in *installed) link(name, target string) {
	in.files[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777, Sys: &diagnose.Owner{}}
}

func (in *installed) folder(name string, mode fs.FileMode, owner diagnose.Owner) {
	if name = strings.TrimPrefix(name, "/"); name == "" {
		name = "."
	}
	in.files[name] = &fstest.MapFile{Mode: fs.ModeDir | mode, Sys: &owner}
}

// remove deletes a file or a folder with all below it.
func (in *installed) remove(name string) {
	name = strings.TrimPrefix(name, "/")
	for _, files := range []fstest.MapFS{in.files, in.esp} {
		for at := range files {
			if at == name || strings.HasPrefix(at, name+"/") {
				delete(files, at)
			}
		}
	}
}

// replace changes a text in a file, and fails the test where the file does not hold it.
func (in *installed) replace(t *testing.T, name, old, text string) {
	t.Helper()
	f := in.files[strings.TrimPrefix(name, "/")]
	if f == nil || !strings.Contains(string(f.Data), old) {
		t.Fatalf("%s does not hold %q", name, old)
	}
	changed := *f
	changed.Data = []byte(strings.ReplaceAll(string(f.Data), old, text))
	in.files[strings.TrimPrefix(name, "/")] = &changed
}

// add appends lines to a file.
func (in *installed) add(name, text string) {
	old := ""
	if f := in.files[strings.TrimPrefix(name, "/")]; f != nil {
		old = string(f.Data)
	}
	in.write(name, old+text)
}

// device returns the device of a path to be changed.
func (in *installed) device(t *testing.T, name string) *diagnose.Device {
	t.Helper()
	for i := range in.Devices {
		if in.Devices[i].Path == name {
			return &in.Devices[i]
		}
	}
	t.Fatalf("no device %s", name)
	return nil
}

// dropDevice takes a device away.
func (in *installed) dropDevice(t *testing.T, name string) {
	t.Helper()
	before := len(in.Devices)
	in.Devices = slices.DeleteFunc(in.Devices, func(d diagnose.Device) bool { return d.Path == name })
	if len(in.Devices) == before {
		t.Fatalf("no device %s", name)
	}
}

// layouts are healthy systems after the documented layout of each distribution. Each call makes a fresh one.
var layouts = map[string]func() *installed{
	"debian-bios":         debianBIOS,
	"debian-uefi":         debianUEFI,
	"debian-systemd-boot": debianSystemdBoot,
	"debian-luks-raid":    debianRAID,
	"fedora-btrfs":        fedoraBtrfs,
	"rhel-lvm":            rhelLVM,
	"ubuntu-netplan":      ubuntuNetplan,
	"suse-btrfs":          suseBtrfs,
	"alpine-openrc":       alpineOpenRC,
}

// sparseDisk is the content of a device: what a test wrote, and zeros.
type sparseDisk struct {
	size   int64
	pieces map[int64][]byte
}

func newDisk(size int64) *sparseDisk { return &sparseDisk{size, map[int64][]byte{}} }

func (d *sparseDisk) put(at int64, b []byte) *sparseDisk {
	d.pieces[at] = b
	return d
}

func (d *sparseDisk) ReadAt(p []byte, at int64) (int, error) {
	if at >= d.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), d.size-at))
	clear(p[:n])
	for _, start := range slices.Sorted(maps.Keys(d.pieces)) {
		piece := d.pieces[start]
		from, to := max(at, start), min(at+int64(n), start+int64(len(piece)))
		if from < to {
			copy(p[from-at:to-at], piece[from-start:to-start])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

const (
	gib     = int64(1) << 30
	mib     = int64(1) << 20
	someNow = "2026-11-26T12:00:00Z"
)

// newInstalled is what all systems share: a machine with one NIC, and the files that every distribution has.
func newInstalled() *installed {
	now, _ := time.Parse(time.RFC3339, someNow)
	in := &installed{files: fstest.MapFS{}, esp: fstest.MapFS{}}
	in.Memory, in.KernelArch, in.Now, in.Clock = 8*gib, "amd64", now, now
	in.NICs = []diagnose.NIC{{MAC: "52:54:00:12:34:56", Driver: "virtio_net", Names: []string{"enp1s0", "eth0"}, Carrier: true}}
	in.writeAll(map[string]string{
		"/etc/hostname":   "web-7\n",
		"/etc/hosts":      "127.0.0.1 localhost\n127.0.1.1 web-7\n",
		"/etc/machine-id": "4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c\n",
		"/etc/passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n" +
			"sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\nalice:x:1000:1000:Alice,,,:/home/alice:/bin/bash\n",
		"/etc/group":         "root:x:0:\ndaemon:x:1:\nsudo:x:27:alice\nnogroup:x:65534:\nalice:x:1000:\n",
		"/etc/shells":        "/bin/sh\n/bin/bash\n/usr/bin/bash\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
		"/etc/resolv.conf":   "nameserver 192.0.2.53\n",
		"/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\nKbdInteractiveAuthentication no\nUsePAM yes\nX11Forwarding yes\nPrintMotd no\n" +
			"AcceptEnv LANG LC_*\nSubsystem sftp /usr/lib/openssh/sftp-server\n",
		"/home/alice/.bashrc": "# alice\n",
	})
	in.writeMode("/etc/shadow", "root:*:19700:0:99999:7:::\ndaemon:*:19700:0:99999:7:::\nsshd:!:19700::::::\n"+
		"alice:$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7:19700:0:99999:7:::\n", 0o640)
	in.writeMode("/etc/sudoers", "Defaults env_reset\nDefaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"+
		"root ALL=(ALL:ALL) ALL\n%sudo ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n", 0o440)
	for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
		in.writeMode("/etc/ssh/ssh_host_"+kind+"_key", hostKey, 0o600)
		in.write("/etc/ssh/ssh_host_"+kind+"_key.pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxuMZMy8hQz9dOHf3OXwnFhqZ0aGYL0PSHLEXWFFzLm root@web-7\n")
	}
	in.folder("/", 0o755, diagnose.Owner{})
	in.folder("/root", 0o700, diagnose.Owner{})
	in.folder("/root/.ssh", 0o700, diagnose.Owner{})
	in.writeMode("/root/.ssh/authorized_keys", authorizedKey, 0o600)
	alice := diagnose.Owner{UID: 1000, GID: 1000}
	in.folder("/home", 0o755, diagnose.Owner{})
	in.folder("/home/alice", 0o700, alice)
	in.folder("/home/alice/.ssh", 0o700, alice)
	in.files["home/alice/.ssh/authorized_keys"] = &fstest.MapFile{Data: []byte(authorizedKey), Mode: 0o600, Sys: &alice}
	in.folder("/etc", 0o755, diagnose.Owner{})
	in.folder("/etc/ssh", 0o755, diagnose.Owner{})
	in.folder("/tmp", fs.ModeSticky|0o777, diagnose.Owner{})
	for _, name := range []string{"/usr", "/proc", "/sys", "/dev", "/run"} {
		in.folder(name, 0o755, diagnose.Owner{})
	}
	return in
}

const (
	authorizedKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxuMZMy8hQz9dOHf3OXwnFhqZ0aGYL0PSHLEXWFFzLm alice@desk\n"
	// hostKey has the shape of a private key and is none.
	hostKey = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAbm90IGEga2V5LCBidXQgdGhlIHNoYXBlIG9mIG9uZQ==\n-----END OPENSSH PRIVATE KEY-----\n"
)

// usrmerge makes the links of a system whose /bin, /lib and /sbin lie below /usr, with its essential programs and systemd as init.
func (in *installed) usrmerge(arch uint16) {
	for _, name := range []string{"bin", "sbin", "lib"} {
		in.link("/"+name, "usr/"+name)
	}
	in.link("/lib64", "usr/lib64")
	in.writeMode("/usr/lib64/ld-linux-x86-64.so.2", elfFile(arch, ""), 0o755)
	for _, name := range []string{"/usr/bin/bash", "/usr/sbin/sshd", "/usr/bin/mount", "/usr/sbin/nologin", "/usr/lib/systemd/systemd", "/usr/sbin/fsck", "/usr/bin/ssh-keygen", "/usr/sbin/cryptsetup"} {
		in.writeMode(name, elfFile(arch, "/lib64/ld-linux-x86-64.so.2"), 0o755)
	}
	in.writeMode("/usr/bin/sudo", elfFile(arch, "/lib64/ld-linux-x86-64.so.2"), fs.ModeSetuid|0o755)
	in.writeMode("/usr/bin/su", elfFile(arch, "/lib64/ld-linux-x86-64.so.2"), fs.ModeSetuid|0o755)
	in.writeMode("/usr/lib/openssh/sftp-server", elfFile(arch, "/lib64/ld-linux-x86-64.so.2"), 0o755)
	in.link("/usr/bin/sh", "bash")
	in.link("/usr/sbin/init", "../lib/systemd/systemd")
	in.writeMode("/usr/lib/x86_64-linux-gnu/libc.so.6", elfFile(arch, ""), 0o755)
	in.systemdUnits()
}

// systemdUnits writes the units that a boot to multi-user.target needs.
func (in *installed) systemdUnits() {
	const units = "/usr/lib/systemd/system/"
	for _, target := range []string{"basic", "sysinit", "local-fs", "multi-user", "graphical", "rescue", "emergency", "network", "network-online", "sockets"} {
		in.write(units+target+".target", "[Unit]\nDescription="+target+"\n")
	}
	for _, service := range []string{"systemd-journald", "systemd-udevd", "systemd-logind", "systemd-remount-fs", "dbus", "systemd-networkd", "NetworkManager"} {
		in.write(units+service+".service", "[Unit]\nDescription="+service+"\n[Service]\nExecStart=/usr/lib/systemd/"+service+"\n[Install]\nWantedBy=multi-user.target\n")
		in.writeMode("/usr/lib/systemd/"+service, "#!/bin/sh\n", 0o755)
	}
	in.link(units+"default.target", "graphical.target")
	in.link("/etc/systemd/system/multi-user.target.wants/ssh.service", units+"ssh.service")
	in.write(units+"ssh.service", "[Unit]\nDescription=OpenBSD Secure Shell server\n[Service]\nExecStartPre=/usr/sbin/sshd -t\nExecStart=/usr/sbin/sshd -D\n"+
		"[Install]\nWantedBy=multi-user.target\nAlias=sshd.service\n")
}

// elfFile is the head of a program with an interpreter.
func elfFile(machine uint16, interpreter string) string {
	b := make([]byte, 64+56+len(interpreter)+1)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], 3) // ET_DYN
	le.PutUint16(b[18:], machine)
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[32:], 64) // program headers
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[58:], 64)
	if interpreter == "" {
		return string(b)
	}
	le.PutUint16(b[56:], 1)
	p := b[64:]
	le.PutUint32(p, 3) // PT_INTERP
	le.PutUint64(p[8:], 64+56)
	le.PutUint64(p[32:], uint64(len(interpreter)+1))
	le.PutUint64(p[40:], uint64(len(interpreter)+1))
	copy(b[64+56:], interpreter)
	return string(b)
}

// elfWithLibrary is a program that needs a library.
func elfWithLibrary(machine uint16, interpreter, library string) string {
	b := []byte(elfFile(machine, interpreter))
	le := binary.LittleEndian
	const moved = 2 * 56 // for two more program headers
	at := 64 + 56
	b = append(b[:at:at], append(make([]byte, moved), b[at:]...)...)
	le.PutUint64(b[64+8:], uint64(at+moved)) // of the interpreter
	names, dynamic := len(b), 0
	b = append(b, "\x00"+library+"\x00"...)
	dynamic = len(b)
	for _, v := range []uint64{5, uint64(names), 1, 1, 0, 0} { // DT_STRTAB, DT_NEEDED, DT_NULL
		b = le.AppendUint64(b, v)
	}
	le.PutUint16(b[56:], 3)
	segment := func(i int, kind uint32, offset, size int) {
		p := b[64+56*i:]
		le.PutUint32(p, kind)
		le.PutUint64(p[8:], uint64(offset))
		le.PutUint64(p[16:], uint64(offset))
		le.PutUint64(p[32:], uint64(size))
	}
	segment(1, 1, 0, len(b)) // PT_LOAD
	segment(2, 2, dynamic, len(b)-dynamic)
	return string(b)
}

const (
	elfAMD64 = 62
	elfARM64 = 183
)
