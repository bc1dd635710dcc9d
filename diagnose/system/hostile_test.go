package system

import (
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
)

// hostileTime bounds the CPU time of all rules together for one hostile configuration.
const hostileTime = 6 * time.Second

// numbered repeats a line with a number.
func numbered(count int, format string) string {
	var out strings.Builder
	for i := range count {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// fill repeats a line up to a size in bytes.
func fill(size int, line string) string { return strings.Repeat(line, size/len(line)) }

// large is just below what a rule reads of a file.
const large = 4<<20 - 4096

// hostileConfigurations are files that make a parser slow, each by its own way: inclusions of themselves, of each other, and of many; lines without an
// end; deep nesting; aliases of YAML; tables of millions of entries.
var hostileConfigurations = []struct {
	name  string
	write func(*installed)
}{
	{"interfaces that source themselves", func(in *installed) {
		in.write("/etc/network/interfaces", fill(60_000, "source /etc/network/interfaces\n"))
	}},
	{"interfaces.d whose files source all", func(in *installed) {
		in.write("/etc/network/interfaces", "source /etc/network/interfaces.d/*\n")
		for i := range 300 {
			in.write(fmt.Sprintf("/etc/network/interfaces.d/f%d", i), strings.Repeat("source /etc/network/interfaces.d/*\n", 300))
		}
	}},
	{"interfaces.d with a pattern each", func(in *installed) {
		in.write("/etc/network/interfaces", numbered(60_000, "source /etc/network/interfaces.d/f%d*\n"))
		for i := range 300 {
			in.write(fmt.Sprintf("/etc/network/interfaces.d/f%d", i), numbered(300, "source /etc/network/interfaces.d/*%d\n"))
		}
	}},
	{"interfaces of 4 MiB", func(in *installed) {
		in.write("/etc/network/interfaces", fill(large, "iface e inet static\n address 1\n"))
	}},
	{"sshd includes of each other", func(in *installed) {
		in.write("/etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\n")
		for i := range 200 {
			in.write(fmt.Sprintf("/etc/ssh/sshd_config.d/%d.conf", i), strings.Repeat("Include /etc/ssh/sshd_config.d/*.conf\n", 200))
		}
	}},
	{"sshd includes with a pattern each", func(in *installed) {
		for i := range 200 {
			in.write(fmt.Sprintf("/etc/ssh/sshd_config.d/%d.conf", i), numbered(200, "Include /etc/ssh/sshd_config.d/%d*.conf\n"))
		}
	}},
	{"sshd_config of 4 MiB", func(in *installed) {
		in.write("/etc/ssh/sshd_config", fill(large, "Match User a\n AllowUsers b c d\n"))
	}},
	{"300 files of netplan", func(in *installed) {
		for i := range 300 {
			in.write(fmt.Sprintf("/etc/netplan/%d.yaml", i), "network:\n  ethernets:\n"+numbered(300, "    e%d: {dhcp4: true}\n"))
		}
	}},
	{"aliases of YAML", func(in *installed) {
		text := "network:\n  a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
		for i := 1; i < 12; i++ {
			text += fmt.Sprintf("  a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
		}
		in.write("/etc/netplan/a.yaml", text)
		in.write("/etc/cloud/cloud.cfg", text)
	}},
	{"merges of YAML", func(in *installed) {
		text := "network:\n  a0: &a0 {x: 1}\n"
		for i := 1; i < 2000; i++ {
			text += fmt.Sprintf("  a%d: &a%d {<<: [*a%d, *a%d], y%d: 1}\n", i, i, i-1, max(i-2, 0), i)
		}
		in.write("/etc/netplan/a.yaml", text)
	}},
	{"nested YAML", func(in *installed) { in.write("/etc/netplan/a.yaml", "network: "+strings.Repeat("[", 60_000)) }},
	{"loops of PAM", func(in *installed) {
		for i := range 40 {
			in.write(fmt.Sprintf("/etc/pam.d/s%d", i), numbered(40, "@include s%d\n"))
		}
		in.write("/etc/pam.d/sshd", numbered(40, "auth include s%d\naccount substack s1\n"))
	}},
	{"PAM of 4 MiB", func(in *installed) { in.write("/etc/pam.d/sshd", fill(large, "auth [success=ok] pam_x.so a b c\n")) }},
	{"passwd of 4 MiB", func(in *installed) { in.write("/etc/passwd", numbered(80_000, "u%d:x:1000:1000::/home/u:/bin/bash\n")) }},
	{"shadow of 4 MiB", func(in *installed) {
		in.writeMode("/etc/shadow", numbered(100_000, "u%d:$y$j9T$abcdefgh:1:0:9::1:\n"), 0o640)
	}},
	{"group of 4 MiB", func(in *installed) { in.write("/etc/group", numbered(60_000, "g%d:x:1:alice,bob,carol,dave,erin\n")) }},
	{"fstab of 4 MiB", func(in *installed) {
		in.write("/etc/fstab", numbered(60_000, "/dev/vg/%d /data/x ext4 defaults,nofail 0 2\n"))
	}},
	{"an option list of 4 MiB in fstab", func(in *installed) { in.write("/etc/fstab", "/dev/sdx1 /x ext4 "+fill(large, "a,")+" 0 2\n") }},
	{"crypttab of 4 MiB", func(in *installed) { in.write("/etc/crypttab", numbered(80_000, "c%d UUID=x none luks,discard\n")) }},
	{"sudoers of 4 MiB", func(in *installed) {
		in.writeMode("/etc/sudoers", fill(large, "alice ALL=(ALL) NOPASSWD: /bin/a, /bin/b\n"), 0o440)
	}},
	{"sudoers that include themselves", func(in *installed) {
		in.writeMode("/etc/sudoers", numbered(500, "@include /etc/sudoers.d/%d\n@includedir /etc/sudoers.d\n"), 0o440)
		for i := range 200 {
			in.writeMode(fmt.Sprintf("/etc/sudoers.d/%d", i), numbered(200, "@include /etc/sudoers.d/%d\n@includedir /etc/sudoers.d\n"), 0o440)
		}
	}},
	{"a line of 4 MiB in sudoers", func(in *installed) { in.writeMode("/etc/sudoers", "alice ALL="+fill(large, "(ALL)a,\\\n"), 0o440) }},
	{"nftables of 4 MiB", func(in *installed) {
		in.write("/etc/nftables.conf", "table inet f { chain i { type filter hook input priority 0; policy drop;\n"+fill(large, "tcp dport { 1, 2 } accept; ")+"}}\n")
		in.link("/etc/systemd/system/sysinit.target.wants/nftables.service", "/usr/lib/systemd/system/nftables.service")
		in.write("/usr/lib/systemd/system/nftables.service", "[Service]\nExecStart=/usr/sbin/nft -f /etc/nftables.conf\n[Install]\nWantedBy=sysinit.target\n")
	}},
	{"nested nftables", func(in *installed) {
		in.write("/etc/nftables.conf", fill(large, "table x { chain y { jump y; "))
		in.link("/etc/systemd/system/sysinit.target.wants/nftables.service", "/usr/lib/systemd/system/nftables.service")
		in.write("/usr/lib/systemd/system/nftables.service", "[Service]\nExecStart=/usr/sbin/nft -f /etc/nftables.conf\n[Install]\nWantedBy=sysinit.target\n")
	}},
	{"modprobe of 4 MiB", func(in *installed) {
		in.write("/etc/modprobe.d/a.conf", fill(large, "blacklist virtio_blk\ninstall a /bin/false\nalias b c\n"))
		for i := range 300 {
			in.write(fmt.Sprintf("/etc/modprobe.d/%d.conf", i), fill(8<<10, "softdep a pre: b\n"))
		}
	}},
	{"functions of GRUB that call each other", func(in *installed) {
		in.write("/boot/grub/grub.cfg", numbered(20_000, "function f%d {\n f1\n f2\n}\n")+numbered(20_000, "f%d\n"))
	}},
	{"nested ifs of GRUB", func(in *installed) { in.write("/boot/grub/grub.cfg", strings.Repeat("if [ a = b ]; then\n", 200_000)) }},
	{"a menu of 4 MiB of GRUB", func(in *installed) {
		in.write("/boot/grub/grub.cfg", fill(large, "menuentry 'x' --class a {\n linux /v root=/dev/x ro\n}\n"))
	}},
	{"variables of GRUB that grow", func(in *installed) {
		in.write("/boot/grub/grub.cfg", "set a=xxxxxxxx\n"+strings.Repeat("set a=$a$a$a$a\n", 5000)+"menuentry x {\n linux /v $a\n}\n")
	}},
	{"NetworkManager of 500 files", func(in *installed) {
		for i := range 500 {
			in.writeMode(fmt.Sprintf("/etc/NetworkManager/system-connections/%d.nmconnection", i), "[connection]\nid=x\ntype=ethernet\n[ipv4]\n"+numbered(200, "address%d=1.2.3.4/24\n"), 0o600)
		}
	}},
	{"authorized keys of 4 MiB", func(in *installed) {
		in.writeMode("/root/.ssh/authorized_keys", fill(large, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA x\n"), 0o600)
	}},
}

// TestHostileConfigurations: all rules together need at most six seconds of CPU time for a hostile configuration.
func TestHostileConfigurations(t *testing.T) { // not parallel: it counts the time of its thread
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range hostileConfigurations {
		in := freshLayout("debian-bios")
		in.write("/usr/sbin/netplan", "x")
		in.remove("/usr/lib/NetworkManager")
		in.remove("/etc/NetworkManager")
		former := maps.Clone(in.files)
		c.write(in)
		s := in.system()
		files := openedFS{in.files, map[string]bool{}}
		s.Files = diagnose.NewTree(files)
		before := threadTime(t)
		diagnose.Run(Rules(), s)
		took := threadTime(t) - before
		if took > hostileTime {
			t.Errorf("%s: want at most %s of CPU time, got %s", c.name, hostileTime, took)
		}
		reached := false
		for name, file := range in.files {
			reached = reached || former[name] != file && files.opened[name]
		}
		if !reached {
			t.Errorf("%s: no rule has opened any of its files: the test shows nothing", c.name)
		}
		t.Logf("%-42s %s", c.name, took.Round(time.Millisecond))
	}
}

// openedFS notes which files are opened.
type openedFS struct {
	fstest.MapFS
	opened map[string]bool
}

func (f openedFS) Open(name string) (fs.File, error) {
	f.opened[name] = true
	return f.MapFS.Open(name)
}

// threadTime is the CPU time that the thread has used.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
