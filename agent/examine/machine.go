package examine

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"salvor/agent/disk"
	"salvor/diagnose"
)

// totalMemory of the machine in bytes, as the kernel has it.
func totalMemory(root string) int64 { return memoryLine(root, "MemTotal:") }

// AvailableMemory is how much memory new programs may take without swapping, in bytes.
func AvailableMemory() int64 { return availableMemory("/") }

func availableMemory(root string) int64 { return memoryLine(root, "MemAvailable:") }

func memoryLine(root, key string) int64 {
	b, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// foundHardware is what the machine has, of disks also those that are not examined.
func foundHardware(disks []disk.Found, base diagnose.System) *diagnose.Hardware {
	h := &diagnose.Hardware{Memory: base.Memory, Disks: []diagnose.DiskRecord{}, NICs: []string{}}
	for _, d := range disks {
		h.Disks = append(h.Disks, diagnose.DiskRecord{Model: diagnose.Excerpt(d.Model), Serial: diagnose.Excerpt(optionalText(d.Serial)), WWN: diagnose.Excerpt(optionalText(d.WWN)), Size: d.Size})
	}
	for _, nic := range base.NICs {
		h.NICs = append(h.NICs, nic.MAC)
	}
	return h
}

// memoryErrors adds up what the memory controllers counted since the ramdisk's boot.
func memoryErrors(root string) (corrected, uncorrected int64) {
	controllers, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/edac/mc/mc*"))
	for _, c := range controllers {
		corrected += sysNumber(filepath.Join(c, "ce_count"))
		uncorrected += sysNumber(filepath.Join(c, "ue_count"))
	}
	return corrected, uncorrected
}

// diskDrivers are the modules, or without one the drivers, of a disk and of what lies between it and its bus; bridges of PCI are no part of it.
func diskDrivers(root, path string) []string {
	var out []string
	at, err := filepath.EvalSymlinks(filepath.Join(root, "sys/class/block", filepath.Base(path), "device"))
	if err != nil {
		return nil
	}
	for ; strings.Contains(at, "/devices/"); at = filepath.Dir(at) {
		if driver, _ := os.Readlink(filepath.Join(at, "driver")); filepath.Base(driver) == "pcieport" {
			continue
		}
		if name := deviceModule(at); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// deviceModule is the module, or without one the driver, of a device that sysfs shows as a folder; empty where nothing drives the device. Some drivers
// have other names than their modules: bcmgenet is in the module genet.
func deviceModule(folder string) string {
	driver, err := os.Readlink(filepath.Join(folder, "driver"))
	if err != nil {
		return ""
	}
	if module, err := os.Readlink(filepath.Join(folder, "driver/module")); err == nil {
		return filepath.Base(module)
	}
	return filepath.Base(driver)
}
