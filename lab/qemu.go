package lab

import (
	"fmt"
	"os"
	"strconv"
)

const (
	qemuProgram = "qemu-system-x86_64"
	ovmfCode    = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars    = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

// qemuFiles are the files of one machine, relative to the lab's directory: QEMU runs there, so that
// no path is too long for a socket and no odd character reaches QEMU's option parser.
type qemuFiles struct {
	Disk, Vars, Serial, QMP, CD string
}

func filesOf(machine string) qemuFiles {
	return qemuFiles{
		Disk: machine + "/disk.img", Vars: machine + "/vars.fd", Serial: machine + "/serial.log",
		QMP: machine + "/qmp.sock", CD: machine + "/cd.iso",
	}
}

// bootOrder is the devices to try, first one first. A failed network or CD boot goes on to the
// disk, as on real boards; only a blank disk goes on to the network.
func bootOrder(first Device, disk DiskKind, cd bool) []Device {
	switch {
	case first == DeviceCD && cd:
		return []Device{DeviceCD, DeviceDisk}
	case first == DevicePXE || first == DeviceHTTP || first == DeviceVolume:
		return []Device{first, DeviceDisk}
	case disk == BlankDisk:
		return []Device{DeviceDisk, DevicePXE}
	}
	return []Device{DeviceDisk}
}

// qemuArgs is the command line of one start of a machine.
func qemuArgs(m machineSpec, firmware Firmware, order []Device, cd bool) []string {
	files := filesOf(m.Name)
	index := func(devices ...Device) string {
		for i, d := range order {
			for _, want := range devices {
				if d == want {
					return ",bootindex=" + strconv.Itoa(i)
				}
			}
		}
		return ""
	}
	has := func(d Device) bool { return index(d) != "" }
	args := []string{
		"-name", m.Name, "-uuid", m.UUID,
		"-machine", "q35,accel=" + m.Accel, "-cpu", "max", "-m", strconv.Itoa(m.Memory),
		"-nodefaults", "-no-user-config", "-display", "none",
		// A guest's reset ends QEMU: the lab starts it again, so that a boot override is used once.
		"-no-reboot", "-boot", "menu=off,strict=on",
		"-chardev", "file,id=serial,append=on,path=" + files.Serial, "-serial", "chardev:serial",
		"-qmp", "unix:" + files.QMP + ",server=on,wait=off",
		"-device", "virtio-rng-pci",
		// The host's page cache outlives QEMU, so flushing to the real disk would prove nothing more.
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,discard=unmap,file=" + files.Disk,
		"-device", "virtio-blk-pci,drive=disk,serial=" + m.Name + index(DeviceDisk),
		"-netdev", "tap,id=net,script=no,downscript=no,ifname=" + m.Tap,
	}
	nic := "virtio-net-pci,netdev=net,mac=" + m.MAC + index(DevicePXE, DeviceHTTP)
	if firmware == UEFI || !has(DevicePXE) {
		nic += ",romfile=" // iPXE in the ROM would cost seconds, or take over from UEFI's own network boot
	}
	args = append(args, "-device", nic)
	if cd {
		args = append(args, "-device", "virtio-scsi-pci,id=scsi",
			"-drive", "if=none,id=cd,media=cdrom,format=raw,readonly=on,file="+files.CD,
			"-device", "scsi-cd,id=cd0,drive=cd"+index(DeviceCD))
	}
	if firmware == UEFI {
		args = append(args, uefiArgs(files, has)...)
	}
	return args
}

// uefiArgs brings in the firmware and keeps it from slow network boots that were not asked for.
func uefiArgs(files qemuFiles, has func(Device) bool) []string {
	pxe := "n"
	if has(DevicePXE) {
		pxe = "y"
	}
	return []string{
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + ovmfCode,
		"-drive", "if=pflash,unit=1,format=raw,file=" + files.Vars,
		"-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=" + pxe,
		"-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n",
		"-fw_cfg", "name=opt/org.tianocore/IPv6Support,string=n",
	}
}

// requiredFiles finds missing packages before anything is started, and names them.
func requiredFiles(s Spec) error {
	need := map[string]string{
		"/usr/bin/" + qemuProgram: "qemu-system-x86", "/usr/lib/ipxe/qemu/efi-virtio.rom": "ipxe-qemu",
		"/usr/share/seabios/bios-256k.bin": "seabios", ovmfCode: "ovmf", ovmfVars: "ovmf",
	}
	switch {
	case s.Like.UsesPyghmi():
		need[pyghmiDir] = "python3-pyghmi"
	case s.BMC == IPMI:
		need[ipmiProgram] = "openipmi"
	}
	if s.Initiator {
		need["/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so"] = "qemu-block-extra"
	}
	if s.Disk == TenantDisk {
		for file, pkg := range tenantFiles {
			need[file] = pkg
		}
	}
	if s.Hosts > 0 {
		for file, pkg := range hostFiles {
			need[file] = pkg
		}
	}
	for file, pkg := range need {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("lab needs the Debian package %s: %w", pkg, err)
		}
	}
	return nil
}
