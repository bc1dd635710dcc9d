// Package odd makes the world that salvor did not make: definitions of guests that somebody else changed, attribute by attribute. Tests and
// `make odd` put such a change between any two actions of an operation, and look at what became of it.
package odd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beevik/etree"
)

// Change is one kind of change that another tool, or a person with virsh, makes to a guest's persistent definition.
type Change struct {
	Name string
	// Make changes the definition; false: this definition has nothing that it could change.
	Make func(domain *etree.Element) bool
	// Kept tells whether the definition still has the change.
	Kept func(domain *etree.Element) bool
	// Fate is what salvor owes to the change when it defines the guest anew.
	Fate Fate
}

// Fate is what becomes of a change.
type Fate int

const (
	// Carried: the new definition has it.
	Carried Fate = iota
	// Restored: the record of the server decides, so the new definition is as salvor writes it.
	Restored
	// Refused: nothing is written, because the server would lose a disk.
	Refused
)

func devices(domain *etree.Element) *etree.Element {
	d := domain.SelectElement("devices")
	if d == nil {
		d = domain.CreateElement("devices")
	}
	return d
}

// rootDisk is the disk whose target ends in "a"; nil: the guest has none in a file.
func rootDisk(domain *etree.Element) *etree.Element {
	for _, d := range devices(domain).SelectElements("disk") {
		target, source := d.SelectElement("target"), d.SelectElement("source")
		if target == nil || source == nil || source.SelectAttr("file") == nil || d.SelectAttrValue("device", "disk") != "disk" {
			continue
		}
		if dev := target.SelectAttrValue("dev", ""); dev != "" && dev[len(dev)-1] == 'a' {
			return d
		}
	}
	return nil
}

// child gives an element a child, or the one that it has.
func child(e *etree.Element, tag string) *etree.Element {
	if c := e.SelectElement(tag); c != nil {
		return c
	}
	return e.CreateElement(tag)
}

// device is a change that adds a device, given as XML without its address, known again by a path below <devices>.
func device(name, text, path string) Change {
	return Change{Name: name, Make: func(domain *etree.Element) bool {
		doc := etree.NewDocument()
		if err := doc.ReadFromString(text); err != nil {
			panic(fmt.Sprintf("odd: %s: %v", name, err)) // a mistake in this file
		}
		devices(domain).AddChild(doc.Root().Copy())
		return true
	}, Kept: func(domain *etree.Element) bool { return devices(domain).FindElement(path) != nil }}
}

// element is a change that adds or replaces an element below <domain>.
func element(name, text, path string) Change {
	return Change{Name: name, Make: func(domain *etree.Element) bool {
		doc := etree.NewDocument()
		if err := doc.ReadFromString(text); err != nil {
			panic(fmt.Sprintf("odd: %s: %v", name, err)) // a mistake in this file
		}
		if old := domain.SelectElement(doc.Root().Tag); old != nil {
			domain.RemoveChild(old)
		}
		domain.AddChild(doc.Root().Copy())
		return true
	}, Kept: func(domain *etree.Element) bool { return domain.FindElement(path) != nil }}
}

// attribute is a change of one attribute of an element of the root disk.
func attribute(name, tag, attr, value string) Change {
	return Change{Name: name, Make: func(domain *etree.Element) bool {
		d := rootDisk(domain)
		if d == nil {
			return false
		}
		child(d, tag).CreateAttr(attr, value)
		return true
	}, Kept: func(domain *etree.Element) bool {
		d := rootDisk(domain)
		return d != nil && d.SelectElement(tag) != nil && d.SelectElement(tag).SelectAttrValue(attr, "") == value
	}}
}

func fated(c Change, f Fate) Change {
	c.Fate = f
	return c
}

// remove is a change that removes the first device of a kind.
func remove(name, tag string, f Fate) Change {
	return Change{Name: name, Fate: f, Make: func(domain *etree.Element) bool {
		d := devices(domain).SelectElement(tag)
		if d == nil {
			return false
		}
		devices(domain).RemoveChild(d)
		return true
	}, Kept: func(domain *etree.Element) bool { return devices(domain).SelectElement(tag) == nil }}
}

// Snapshot has the root disk go on in an overlay, as `virsh snapshot-create-as --disk-only` does. overlay is its file.
func Snapshot(overlay string) Change {
	return Change{Name: "external snapshot", Make: func(domain *etree.Element) bool {
		d := rootDisk(domain)
		if d == nil || d.SelectElement("backingStore") != nil {
			return false
		}
		source, driver := d.SelectElement("source"), child(d, "driver")
		below := d.CreateElement("backingStore")
		below.CreateAttr("type", "file")
		below.CreateElement("format").CreateAttr("type", driver.SelectAttrValue("type", "raw"))
		below.CreateElement("source").CreateAttr("file", source.SelectAttrValue("file", ""))
		source.CreateAttr("file", overlay)
		driver.CreateAttr("type", "qcow2")
		return true
	}, Kept: inFile(overlay)}
}

// Pivot has the root disk go on in another file, as `virsh blockcopy --pivot` does.
func Pivot(file string) Change {
	c := attribute("blockcopy and pivot", "source", "file", file)
	c.Kept = inFile(file)
	return c
}

func inFile(file string) func(*etree.Element) bool {
	return func(domain *etree.Element) bool {
		d := rootDisk(domain)
		return d != nil && d.SelectElement("source").SelectAttrValue("file", "") == file
	}
}

// Changes are the kinds of changes, each of one attribute or device. dir is where files may lie that they name.
func Changes(dir string) []Change {
	return slices.Concat(diskChanges(dir), deviceChanges(dir), removals(), elementChanges(dir))
}

// diskChanges change the root disk.
func diskChanges(dir string) []Change {
	return []Change{
		Snapshot(dir + "/disk.overlay"),
		Pivot(dir + "/disk.moved"),
		attribute("cache mode of a disk", "driver", "cache", "writeback"),
		attribute("io mode of a disk", "driver", "io", "threads"),
		attribute("write errors of a disk", "driver", "error_policy", "stop"),
		attribute("detect-zeroes of a disk", "driver", "detect_zeroes", "on"),
		{Name: "throttle of a disk", Make: func(domain *etree.Element) bool {
			d := rootDisk(domain)
			if d == nil {
				return false
			}
			child(child(d, "iotune"), "total_iops_sec").SetText("4000")
			return true
		}, Kept: func(domain *etree.Element) bool {
			d := rootDisk(domain)
			return d != nil && d.FindElement("iotune/total_iops_sec[text()='4000']") != nil
		}},
		{Name: "root disk detached", Fate: Refused, Make: func(domain *etree.Element) bool {
			d := rootDisk(domain)
			if d == nil {
				return false
			}
			devices(domain).RemoveChild(d)
			return true
		}, Kept: func(domain *etree.Element) bool { return rootDisk(domain) == nil }},
	}
}

// deviceChanges add a device.
func deviceChanges(dir string) []Change {
	return []Change{
		device("second disk", `<disk type="file" device="disk"><driver name="qemu" type="raw"/><source file="`+dir+`/other.img"/><target dev="vdq" bus="virtio"/></disk>`, "disk/target[@dev='vdq']"),
		device("CD drive", `<disk type="file" device="cdrom"><driver name="qemu" type="raw"/><target dev="sdw" bus="sata"/><readonly/></disk>`, "disk/target[@dev='sdw']"),
		device("interface", `<interface type="user"><mac address="52:54:00:0a:0b:0c"/><model type="virtio"/></interface>`, "interface/mac[@address='52:54:00:0a:0b:0c']"),
		device("screen", `<graphics type="vnc" autoport="yes" listen="127.0.0.1"/>`, "graphics[@type='vnc']"),
		device("screen with a password", `<graphics type="spice" autoport="yes" passwd="not-told"/>`, "graphics[@type='spice']"),
		device("video card", `<video><model type="vga" vram="16384" heads="1" primary="yes"/></video>`, "video/model[@type='vga']"),
		device("tablet", `<input type="tablet" bus="virtio"/>`, "input[@type='tablet']"),
		device("sound card", `<sound model="ich9"/>`, "sound[@model='ich9']"),
		device("watchdog", `<watchdog model="i6300esb" action="reset"/>`, "watchdog[@model='i6300esb']"),
		device("pvpanic", `<panic model="isa"/>`, "panic[@model='isa']"),
		device("vsock", `<vsock model="virtio"><cid auto="no" address="77"/></vsock>`, "vsock/cid[@address='77']"),
		device("shared folder", `<filesystem type="mount" accessmode="mapped"><source dir="`+dir+`"/><target dir="share"/></filesystem>`, "filesystem/target[@dir='share']"),
		device("second serial line", `<serial type="pty"><target type="isa-serial" port="1"/></serial>`, "serial/target[@port='1']"),
		device("guest agent's channel", `<channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"/></channel>`, "channel/target[@name='org.qemu.guest_agent.0']"),
		device("PCI device of the host", `<hostdev mode="subsystem" type="pci" managed="yes"><source><address domain="0x0000" bus="0x00" slot="0x1f" function="0x7"/></source></hostdev>`, "hostdev"),
		device("TPM", `<tpm model="tpm-crb"><backend type="emulator" version="2.0"/></tpm>`, "tpm"),
		device("shared memory", `<shmem name="board"><model type="ivshmem-plain"/><size unit="M">4</size></shmem>`, "shmem[@name='board']"),
	}
}

// removals remove a device, or change an interface.
func removals() []Change {
	return []Change{
		remove("interface removed", "interface", Restored),
		remove("channel removed", "channel", Restored),
		remove("serial line removed", "serial", Restored),
		remove("random numbers removed", "rng", Carried),
		{Name: "bridge of an interface", Make: func(domain *etree.Element) bool {
			i := devices(domain).SelectElement("interface")
			if i == nil || i.SelectElement("source") == nil {
				return false
			}
			i.SelectElement("source").CreateAttr("bridge", "br-hand")
			return true
		}, Kept: func(domain *etree.Element) bool {
			return devices(domain).FindElement("interface/source[@bridge='br-hand']") != nil
		}},
		{Name: "model of an interface", Make: func(domain *etree.Element) bool {
			i := devices(domain).SelectElement("interface")
			if i == nil {
				return false
			}
			child(i, "model").CreateAttr("type", "e1000e")
			return true
		}, Kept: func(domain *etree.Element) bool {
			return devices(domain).FindElement("interface/model[@type='e1000e']") != nil
		}},
	}
}

// elementChanges change what is no device.
func elementChanges(dir string) []Change {
	return []Change{
		element("pinned CPUs", `<cputune><vcpupin vcpu="0" cpuset="0"/></cputune>`, "cputune/vcpupin[@cpuset='0']"),
		element("shares of the CPU", `<cputune><shares>512</shares></cputune>`, "cputune/shares[text()='512']"),
		element("memory limit", `<memtune><hard_limit unit="KiB">8388608</hard_limit></memtune>`, "memtune/hard_limit[text()='8388608']"),
		element("locked memory", `<memoryBacking><locked/></memoryBacking>`, "memoryBacking/locked"),
		element("local time", `<clock offset="localtime"/>`, "clock[@offset='localtime']"),
		element("panicked guests stay", `<on_crash>preserve</on_crash>`, "on_crash[text()='preserve']"),
		fated(element("more CPUs", `<vcpu placement="static">7</vcpu>`, "vcpu[text()='7']"), Restored),
		fated(element("more memory", `<memory unit="KiB">7340032</memory>`, "memory[text()='7340032']"), Restored),
		{Name: "Hyper-V features", Make: func(domain *etree.Element) bool {
			child(child(child(domain, "features"), "hyperv"), "relaxed").CreateAttr("state", "on")
			return true
		}, Kept: func(domain *etree.Element) bool {
			return domain.FindElement("features/hyperv/relaxed[@state='on']") != nil
		}},
		{Name: "boot menu", Make: func(domain *etree.Element) bool {
			child(child(domain, "os"), "bootmenu").CreateAttr("enable", "yes")
			return true
		}, Kept: func(domain *etree.Element) bool { return domain.FindElement("os/bootmenu[@enable='yes']") != nil }},
		{Name: "UEFI variables in another file", Make: func(domain *etree.Element) bool {
			n := domain.FindElement("os/nvram")
			if n == nil {
				return false
			}
			n.SetText(dir + "/variables.fd")
			return true
		}, Kept: func(domain *etree.Element) bool {
			n := domain.FindElement("os/nvram")
			return n != nil && (n.Text() == dir+"/variables.fd" || strings.Contains(n.Text(), "_rescue"))
		}},
		{Name: "machine type", Make: func(domain *etree.Element) bool {
			domain.FindElement("os/type").CreateAttr("machine", "pc-q35-6.2")
			return true
		}, Kept: func(domain *etree.Element) bool {
			return domain.FindElement("os/type").SelectAttrValue("machine", "") == "pc-q35-6.2"
		}},
		{Name: "arguments of QEMU", Make: func(domain *etree.Element) bool {
			domain.CreateAttr("xmlns:qemu", "http://libvirt.org/schemas/domain/qemu/1.0")
			line := domain.CreateElement("qemu:commandline")
			line.CreateElement("qemu:env").CreateAttr("name", "HAND")
			line.ChildElements()[0].CreateAttr("value", "made")
			return true
		}, Kept: func(domain *etree.Element) bool {
			return domain.FindElement("qemu:commandline/qemu:env[@name='HAND']") != nil
		}},
	}
}
