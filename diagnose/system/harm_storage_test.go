package system

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
)

// Situation is a system in which a careless repair would destroy data or let somebody in.
type Situation struct {
	Name   string
	layout string
	change func(*testing.T, machine)
	// Finds lists ids that an examination has to find.
	Finds []string
	// Touches lists all that plans may change: paths, "removes PATH", "runs PROGRAM", "blocks of DEVICE", "setting KIND". Empty: no plan changes anything.
	Touches []string
	// Loses are words of what the plan may lose, by the id of the finding. Other findings of the situation lose nothing.
	Loses map[string]string
	// Never lists texts that no plan may write.
	Never []string
	Why   string
}

// Make returns the system with all of its files.
func (s *Situation) Make(t *testing.T) (diagnose.System, fstest.MapFS) {
	for _, tc := range DamagedSystems() {
		if tc.Name == s.layout {
			return tc.Make(t)
		}
	}
	m := machine{separateLayout(s.layout)}
	s.change(t, m)
	return m.allFiles()
}

// Situations are all of them.
func Situations() []Situation {
	return slices.Concat(lostMountSituations(), tableSituations(), diskSituations(), bootSituations(), networkSituations(), sshSituations(), accountSituations())
}

// storedData are places where programs store data, by the program.
var storedData = map[string]string{
	"MySQL": "/var/lib/mysql", "PostgreSQL": "/var/lib/postgresql", "Docker": "/var/lib/docker", "libvirt": "/var/lib/libvirt/images", "Elasticsearch": "/var/lib/elasticsearch",
	"MongoDB": "/var/lib/mongodb", "mail": "/var/vmail", "a service": "/srv", "homes": "/home", "data": "/data", "backups": "/mnt/backup", "nested mounts": "/srv/db/wal",
}

// lostMountSituations: the boot goes on without a disk, and a program starts on the empty folder below its mount.
func lostMountSituations() []Situation {
	const why = "a program that starts on an empty folder makes a new store there, and hides the old one"
	var out []Situation
	for _, name := range slices.Sorted(maps.Keys(storedData)) {
		at := storedData[name]
		out = append(out, Situation{
			Name: "the disk of " + name + " is lost", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-device-missing": "below " + at + " start with the empty folder"}, Why: why,
			change: func(_ *testing.T, m machine) { m.add("/etc/fstab", "UUID="+deadUUID+" "+at+" ext4 defaults 0 2\n") },
		})
	}
	return append(out, Situation{
		Name: "a share of the network is lost", layout: "debian-bios", Finds: []string{"fstab-network-mount"}, Touches: []string{"/etc/fstab"},
		Loses: map[string]string{"fstab-network-mount": "below /var/lib/libvirt/images start with the empty folder"}, Why: why,
		change: func(_ *testing.T, m machine) {
			m.add("/etc/fstab", "nas.example:/vms /var/lib/libvirt/images nfs defaults 0 0\n")
		},
	}, Situation{
		Name: "an encrypted disk is lost", layout: "debian-bios", Finds: []string{"crypttab-device-missing"}, Touches: []string{"/etc/crypttab", "/etc/fstab"},
		Loses: map[string]string{"crypttab-device-missing": "below /var/lib/mysql start with the empty folder"}, Why: why,
		change: func(_ *testing.T, m machine) {
			m.write("/etc/crypttab", "data UUID="+deadUUID+" none luks\n")
			m.add("/etc/fstab", "/dev/mapper/data /var/lib/mysql ext4 defaults 0 2\n")
		},
	}, Situation{
		Name: "a bind mount of a healthy machine", layout: "debian-bios", Why: "both folders are there, and the line is the usual form of mount(8)",
		change: func(_ *testing.T, m machine) {
			m.folder("/srv/data/docker", 0o755)
			m.folder("/var/lib/docker", 0o755)
			m.add("/etc/fstab", "/srv/data/docker /var/lib/docker none bind 0 0\n")
		},
	}, Situation{
		Name: "the source of a bind mount is lost", layout: "debian-bios", Finds: []string{"fstab-bind-source-missing"}, Touches: []string{"/etc/fstab"},
		Loses: map[string]string{"fstab-bind-source-missing": "below /var/lib/docker start with the empty folder"}, Why: why,
		change: func(_ *testing.T, m machine) {
			m.add("/etc/fstab", "/srv/data/docker /var/lib/docker none bind 0 0\n")
		},
	})
}

// addDisk gives a machine a second disk with one partition.
func (m machine) addDisk(kind, uuid string, change func(*diagnose.Device)) {
	part := holding(partitionOf("/dev/sdb1", "/dev/sdb", 1, mib, 90*gib, linuxType, "0b9f3c0e-1d67-4d0e-8c5d-0d3a5a8b0077"), kind, uuid, "", "")
	if change != nil {
		change(&part)
	}
	m.Devices = append(m.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: 100 * gib, Serial: "QM00002", Table: "gpt"}, part)
}

// holds gives a device files that an examination reads.
func holds(files ...string) func(*diagnose.Device) {
	return func(d *diagnose.Device) {
		in := &installed{files: fstest.MapFS{}}
		for _, name := range files {
			in.write(name, "x")
		}
		d.Tree = diagnose.NewTree(in.files)
		d.Places = diagnose.PlacesOf(d.Tree)
	}
}

// tableSituations are about lines of /etc/fstab and /etc/crypttab whose device is another one now.
func tableSituations() []Situation {
	const foreignUUID = "5f0c1111-2222-4333-8444-555566667777"
	fstab := func(line string) func(machine) { return func(m machine) { m.add("/etc/fstab", line+"\n") } }
	with := func(changes ...func(machine)) func(*testing.T, machine) {
		return func(_ *testing.T, m machine) {
			for _, change := range changes {
				change(m)
			}
		}
	}
	disk := func(kind string, change func(*diagnose.Device)) func(machine) {
		return func(m machine) { m.addDisk(kind, foreignUUID, change) }
	}
	cryptSwap := func(options string) func(machine) {
		return func(m machine) {
			m.write("/etc/crypttab", "cryptswap UUID="+deadUUID+" /dev/urandom "+options+"\n")
			m.add("/etc/fstab", "/dev/mapper/cryptswap none swap sw 0 0\n")
		}
	}
	return []Situation{
		{Name: "a swap line whose UUID belongs to a data file system", layout: "debian-bios", Finds: []string{"fstab-type-wrong"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-type-wrong": "less swap space"}, Never: []string{"ext4    sw", "none            ext4"}, Why: "a line of swap space mounts nothing",
			change: func(t *testing.T, m machine) {
				m.remove("/etc/initramfs-tools/conf.d/resume")
				d := m.device(t, "/dev/sda5")
				d.FS, d.Content = "ext4", nil
			}},
		{Name: "encrypted swap space is lost, and a container of data is there", layout: "debian-bios", Finds: []string{"crypttab-device-missing"}, Touches: []string{"/etc/crypttab", "/etc/fstab"},
			Never: []string{foreignUUID}, Why: "the line makes new swap space in its device at each boot, over the header of the container",
			change: with(cryptSwap("swap,cipher=aes-xts-plain64,size=512"), disk("crypto_LUKS", nil))},
		{Name: "an encrypted /tmp is lost, and a container of data is there", layout: "debian-bios", Finds: []string{"crypttab-device-missing"}, Touches: []string{"/etc/crypttab", "/etc/fstab"},
			Loses: map[string]string{"crypttab-device-missing": "below /tmp"}, Never: []string{foreignUUID}, Why: "the line makes a new file system in its device at each boot",
			change: with(func(m machine) { m.write("/etc/crypttab", "crypttmp UUID="+deadUUID+" /dev/urandom tmp=ext4\n") }, fstab("/dev/mapper/crypttmp /tmp ext4 defaults 0 0"), disk("crypto_LUKS", nil))},
		{Name: "a plain mapping is lost, and a container of data is there", layout: "debian-bios", Finds: []string{"crypttab-device-missing"}, Touches: []string{"/etc/crypttab", "/etc/fstab"},
			Loses: map[string]string{"crypttab-device-missing": "below /data"}, Never: []string{foreignUUID}, Why: "a mapping without a header writes over a container whatever its key is",
			change: with(func(m machine) {
				m.write("/etc/crypttab", "raw UUID="+deadUUID+" /etc/keys/raw plain\n")
				m.write("/etc/keys/raw", "k")
			}, fstab("/dev/mapper/raw /data ext4 defaults 0 2"), disk("crypto_LUKS", nil))},
		{Name: "the container of a database is lost, and a backup's is there", layout: "debian-bios", Finds: []string{"crypttab-device-missing"}, Touches: []string{"/etc/crypttab"},
			Loses: map[string]string{"crypttab-device-missing": "another container"}, Why: "the only container may be that of a backup disk",
			change: with(func(m machine) { m.write("/etc/crypttab", "data UUID="+deadUUID+" none luks\n") }, fstab("/dev/mapper/data /srv/db ext4 defaults 0 2"), disk("crypto_LUKS", nil))},
		{Name: "a line of crypttab whose device holds another file system", layout: "debian-bios", Finds: []string{"crypttab-device-not-luks"}, Why: "nobody knows which device is meant",
			change: with(func(m machine) { m.write("/etc/crypttab", "data UUID="+foreignUUID+" none luks\n") }, disk("ext4", nil))},
		{Name: "encrypted swap space whose device holds a data file system", layout: "debian-bios", Finds: []string{"crypttab-overwrites"},
			Why:    "the next boot makes swap space there, so that a report has to say so before a repair boots the machine",
			change: with(cryptSwap("swap"), func(m machine) { m.edit("/etc/crypttab", "UUID="+deadUUID, "/dev/sdb1") }, disk("ext4", nil))},
		{Name: "the order of the disks changed, and the name belongs to a backup", layout: "debian-bios", Finds: []string{"fstab-type-wrong"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-type-wrong": "mounted at /var/lib/mysql"}, Never: []string{"/var/lib/mysql ext4"}, Why: "to write the type of the disk that has the name now mounts the backup",
			change: with(fstab("/dev/sdb1 /var/lib/mysql xfs defaults 0 2"), disk("ext4", nil))},
		{Name: "the name of a disk is gone, and the only free file system is a backup", layout: "debian-bios", Finds: []string{"fstab-kernel-name"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-kernel-name": "another file system"}, Why: "the only free file system may be a backup",
			change: with(fstab("/dev/sdc1 /var/lib/mysql ext4 defaults 0 2"), disk("ext4", nil))},
		{Name: "/boot is lost, and the only free file system is a database's", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Why: "new kernels would be written to the database's disk, and never boot",
			change: with(fstab("UUID="+deadUUID+" /boot ext4 defaults 0 2"), disk("ext4", holds("/mysql/ibdata1", "/mysql/undo_001")))},
		{Name: "/var is lost, and the only free file system is a database's", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Why: "services would make their folders on the database's disk",
			change: with(fstab("UUID="+deadUUID+" /var ext4 defaults 0 2"), disk("ext4", holds("/mysql/ibdata1", "/mysql/undo_001")))},
		{Name: "/usr is lost, and the only free file system was not read", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Why: "nobody knows what the file system holds",
			change: with(fstab("UUID="+deadUUID+" /usr ext4 defaults 0 2"), disk("ext4", nil))},
		{Name: "/boot got another UUID", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Touches: []string{"/etc/fstab"}, Why: "the file system holds kernels and GRUB, so it is that of /boot",
			change: with(fstab("UUID="+deadUUID+" /boot ext4 defaults 0 2"), disk("ext4", holds("/vmlinuz-"+debian12, "/grub/grub.cfg")))},
		{Name: "the ESP is lost beside the rescue partition of a vendor", layout: "debian-uefi", Finds: []string{"fstab-device-missing"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-device-missing": "below /boot/efi"}, Never: []string{"7E5C-0001"}, Why: "new loaders would be written over the vendor's files",
			change: func(t *testing.T, m machine) {
				m.dropDevice(t, "/dev/vda1")
				m.espAt = ""
				part := holding(partitionOf("/dev/vda4", "/dev/vda", 4, 19*gib, 512*mib, "de94bba4-06d1-4d40-a16a-bfd50179d6ac", "0b9f3c0e-1d67-4d0e-8c5d-0d3a5a8b0044"), "vfat", "7E5C-0001", "RECOVERY", "")
				holds("/recovery/winre.wim")(&part)
				m.Devices = append(m.Devices, part)
			}},
		{Name: "a subvolume is lost, and another system's has the name", layout: "fedora-btrfs", Finds: []string{"fstab-subvolume-missing"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-subvolume-missing": "another system"}, Why: "two systems on one btrfs have a home each",
			change: func(t *testing.T, m machine) {
				m.device(t, "/dev/nvme0n1p3").Subvolumes = []string{"root", "@home", "@"}
			}},
		{Name: "the mount of a database has an unknown type", layout: "debian-bios", Finds: []string{"fstab-type-unknown"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-type-unknown": "mounted at /var/lib/mysql"},
			Why: "the database would start on the empty folder", change: with(fstab("/dev/disk/by-id/wwn-1 /var/lib/mysql zeta defaults 0 2"))},
		{Name: "the mount of a database has an unknown option", layout: "debian-bios", Finds: []string{"fstab-option-invalid"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-option-invalid": "mounted at /var/lib/mysql"},
			Why: "the database would start on the empty folder", change: with(fstab("UUID="+foreignUUID+" /var/lib/mysql ext4 zzzzz 0 2"), disk("ext4", nil))},
		{Name: "the mount of a database has a misspelt option", layout: "debian-bios", Finds: []string{"fstab-option-invalid"}, Touches: []string{"/etc/fstab"},
			Why: "the right option is near, and the line stays", change: with(fstab("UUID="+foreignUUID+" /var/lib/mysql ext4 noatme 0 2"), disk("ext4", nil))},
		{Name: "an iSCSI disk without _netdev is lost", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-device-missing": "below /srv/vms"},
			Why: "the disk comes over the network only when the system runs", change: with(fstab("UUID=" + deadUUID + " /srv/vms xfs defaults 0 0"))},
		{Name: "the device of a cluster is lost", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-device-missing": "below /var/lib/pgsql"},
			Why: "the other member of the cluster may use the device", change: with(fstab("/dev/drbd0 /var/lib/pgsql ext4 defaults 0 0"))},
		{Name: "/etc is a checkout of git", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-device-missing": "below /data"},
			Why: "the change shows in the checkout, and its store stays", change: with(func(m machine) {
				m.write("/etc/.git/HEAD", "ref: refs/heads/main\n")
				m.write("/etc/.git/index", "DIRC")
			}, fstab("UUID="+deadUUID+" /data ext4 defaults 0 2"))},
		{Name: "a mount point is a link to another place", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-device-missing": "below /data"},
			Why: "nothing is made at the link or where it leads", change: with(func(m machine) { m.link("/data", "/mnt/elsewhere") }, fstab("UUID="+deadUUID+" /data ext4 defaults 0 2"))},
		{Name: "a line names a member of a pool of ZFS", layout: "debian-bios", Why: "what the device holds is not known to be wrong", change: with(fstab("/dev/sdb1 /tank zfs defaults 0 0"), disk("zfs_member", nil))},
		{Name: "a line names a member of LVM", layout: "debian-bios", Finds: []string{"fstab-type-wrong"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-type-wrong": "mounted at /data"},
			Never: []string{"LVM2_member"}, Why: "the line becomes a comment, and the volumes stay", change: with(fstab("/dev/sdb1 /data ext4 defaults 0 2"), disk("LVM2_member", nil))},
		{Name: "a root that is read-only on purpose", layout: "rhel-lvm", Finds: []string{"fstab-root-read-only"}, Why: "the system's own tool makes its root read-only",
			change: func(_ *testing.T, m machine) {
				m.edit("/etc/fstab", "root / xfs defaults", "root / xfs ro")
				m.write("/etc/sysconfig/readonly-root", "READONLY=yes\n")
			}},
		{Name: "a root that is read-only without a reason", layout: "debian-bios", Finds: []string{"fstab-root-read-only"}, Touches: []string{"/etc/fstab"}, Loses: map[string]string{"fstab-root-read-only": "on purpose"},
			Why: "somebody may spare a card of flash memory", change: func(_ *testing.T, m machine) { m.edit("/etc/fstab", "errors=remount-ro", "ro,errors=remount-ro") }},
	}
}

// diskSituations are about disks that hold more than the system.
func diskSituations() []Situation {
	fault := func(m machine) { m.add("/etc/fstab", "UUID="+deadUUID+" /data ext4 defaults 0 2\n") }
	return []Situation{
		{Name: "a clone of the disk is there", layout: "debian-bios", Finds: []string{"identity-duplicate", "sshd-user-missing"}, Touches: []string{"/etc/passwd", "/etc/shadow"},
			Loses: map[string]string{"identity-duplicate": "/dev/sda1 and /dev/sdb1"}, Why: "the repair changes one of two disks, and the boot may take the other one",
			change: func(t *testing.T, m machine) {
				m.edit("/etc/passwd", "sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\n", "")
				for _, d := range slices.Clone(m.Devices) {
					d.Path, d.Serial, d.MountedAt, d.Space = fmt.Sprintf("/dev/sdb%s", d.Path[len("/dev/sda"):]), "QM00002", "", nil
					if d.Kind == diagnose.PartitionDevice {
						d.Parents = []string{"/dev/sdb"}
					} else {
						d.Serial = "QM00002"
					}
					m.Devices = append(m.Devices, d)
				}
			}},
		{Name: "one member of a RAID1 is there", layout: "debian-luks-raid", Finds: []string{"array-degraded", "fstab-device-missing"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-device-missing": "below /data", "array-degraded": "/dev/md1"}, Why: "the other member does not get what the repair writes, and may be the newer one",
			change: func(t *testing.T, m machine) {
				fault(m)
				m.dropDevice(t, "/dev/sdb2")
				m.device(t, "/dev/md1").Parents = []string{"/dev/sda2"}
				m.Arrays[1].Present, m.Arrays[1].Members = 1, m.Arrays[1].Members[:1]
			}},
		{Name: "another system on the machine is suspended", layout: "debian-bios", Finds: []string{"hibernation-image"}, Why: "the suspended system would write over the repair",
			change: func(_ *testing.T, m machine) {
				fault(m)
				m.addDisk("swsuspend", "5f0c1111-2222-4333-8444-000000000001", func(d *diagnose.Device) { d.Content = newDisk(gib).put(4086, []byte("S1SUSPEND\x00")) })
			}},
		{Name: "a disk is failing", layout: "debian-bios", Finds: []string{"disk-failing"}, Why: "each write may be the last",
			change: func(_ *testing.T, m machine) {
				fault(m)
				m.Disks = append(m.Disks, diagnose.DiskHealth{Path: "/dev/sda", Failing: true, Reasons: []string{"it fails"}, Command: []string{"smartctl"}, Exit: 8})
			}},
		{Name: "a file system is damaged", layout: "debian-bios", Finds: []string{"file-system-damaged"}, Why: "writing may damage more",
			change: func(_ *testing.T, m machine) {
				fault(m)
				m.Checks = append(m.Checks, diagnose.Check{Device: "/dev/sda1", Command: []string{"e2fsck", "-fn"}, Exit: 4, Damaged: true})
			}},
		{Name: "the disk is full, and an initramfs is missing", layout: "debian-bios", Finds: []string{"disk-full", "initramfs-missing"}, Touches: []string{"/boot/grub/grub.cfg", "/etc/default/grub"},
			Why: "half an initramfs is worse than none, so the other kernel becomes the default", change: func(t *testing.T, m machine) {
				space := *m.device(t, "/dev/sda1").Space
				space.Free = 0
				m.device(t, "/dev/sda1").Space = &space
				m.remove("/boot/initrd.img-" + debian12)
			}},
		{Name: "the rest of a GPT lies behind a disk of LVM", layout: "debian-bios", Why: "the head of the table would be written over the label of the volume",
			change: func(_ *testing.T, m machine) {
				old := gptDisk(10*gib, partitionOf("/dev/sdb1", "/dev/sdb", 1, mib, gib, linuxType, "0b9f3c0e-1d67-4d0e-8c5d-0d3a5a8b0055"))
				delete(old.pieces, 0)
				delete(old.pieces, 2*sectorSize)
				old.put(sectorSize, append([]byte("LABELONE\x01\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 496)...))
				m.Devices = append(m.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: 10 * gib, Content: old, NotExamined: "blkid found two contents"})
			}},
		{Name: "the rest of a GPT lies behind a disk whose content nobody knows", layout: "debian-bios", Why: "a database or a mapping may use the disk without a label",
			change: func(_ *testing.T, m machine) {
				old := gptDisk(10*gib, partitionOf("/dev/sdb1", "/dev/sdb", 1, mib, gib, linuxType, "0b9f3c0e-1d67-4d0e-8c5d-0d3a5a8b0055"))
				delete(old.pieces, 0)
				delete(old.pieces, sectorSize)
				old.put(2*sectorSize, []byte("ORCLDISKDATA0001"))
				m.Devices = append(m.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: 10 * gib, Content: old})
			}},
		{Name: "a disk of a firmware's RAID", layout: "debian-bios", Why: "the end of the disk holds what the firmware knows of its RAID",
			change: func(_ *testing.T, m machine) {
				member := gptDisk(10*gib, partitionOf("/dev/sdb1", "/dev/sdb", 1, mib, gib, linuxType, "0b9f3c0e-1d67-4d0e-8c5d-0d3a5a8b0055"))
				member.put(10*gib-1024, []byte("Intel Raid ISM Cfg Sig. 1.3.00"))
				member.put(10*gib-512, make([]byte, 512))
				m.Devices = append(m.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: 10 * gib, Table: "gpt", FS: "isw_raid_member", Content: member})
			}},
		{Name: "the filter of a host of VMs hides the volumes of its guests", layout: "debian-bios", Why: "the host would use volumes that its guests use",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/lvm/lvm.conf", "devices {\n\tglobal_filter = [ \"r|.*|\" ]\n}\n")
				m.addDisk("LVM2_member", "pvpvpv-guest", nil)
			}},
		{Name: "the clock holds local time, for Windows", layout: "debian-bios", Finds: []string{"clock-wrong"}, Touches: []string{"setting clock"}, Loses: map[string]string{"clock-wrong": "local time"},
			Why: "both systems would read the time of another zone", change: func(_ *testing.T, m machine) {
				m.Clock = m.Clock.AddDate(-3, 0, 0)
				m.write("/etc/adjtime", "0.0 0 0.0\n0\nLOCAL\n")
			}},
		{Name: "huge pages of a database take all memory", layout: "debian-bios", Finds: []string{"hugepages-too-many"}, Touches: []string{"/etc/sysctl.d/90-db.conf"},
			Loses: map[string]string{"hugepages-too-many": "huge pages"}, Why: "the database does not start without them",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/sysctl.d/90-db.conf", "# oracle\nvm.nr_hugepages = 4000\n")
			}},
	}
}
