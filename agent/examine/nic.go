package examine

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

// listNICs lists the network interfaces with hardware behind them.
func listNICs(root string) []diagnose.NIC {
	var out []diagnose.NIC
	folders, _ := filepath.Glob(filepath.Join(root, "sys/class/net/*"))
	for _, folder := range folders {
		mac := sysText(filepath.Join(folder, "address"))
		if sysText(filepath.Join(folder, "type")) != "1" || len(mac) != 17 {
			continue
		}
		device, err := filepath.EvalSymlinks(filepath.Join(folder, "device"))
		if err != nil {
			continue
		}
		nic := diagnose.NIC{MAC: strings.ToLower(mac), Driver: deviceModule(device), Carrier: sysText(filepath.Join(folder, "carrier")) == "1"}
		nic.Names = append(predictableNames(root, folder, device), filepath.Base(folder))
		out = append(out, nic)
	}
	return out
}

func sysText(file string) string {
	b, err := os.ReadFile(file)
	if err != nil || len(b) > 4096 {
		return ""
	}
	return strings.TrimSpace(string(b))
}

var (
	pciAddress = regexp.MustCompile(`^([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)
	usbDevice  = regexp.MustCompile(`^\d+-([0-9.]+):(\d+)\.(\d+)$`)
)

// predictableNames are those of systemd-udevd for an Ethernet interface, from the rules in systemd.net-naming-scheme(7): onboard, slot, path,
// and for USB the one of its MAC that Debian gives.
func predictableNames(root, folder, device string) []string {
	parts := strings.Split(device, "/")
	at := -1
	for i, part := range parts {
		if pciAddress.MatchString(part) {
			at = i
		}
	}
	var names []string
	add := func(format string, args ...any) {
		if name := fmt.Sprintf(format, args...); len(name) < 16 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	suffix := portSuffix(folder)
	base := filepath.Base(device)
	if vif, ok := strings.CutPrefix(base, "vif-"); ok {
		add("enX%s", vif)
		return names
	}
	if at < 0 {
		return nil
	}
	usb := ""
	if m := usbDevice.FindStringSubmatch(base); m != nil {
		usb = "u" + strings.ReplaceAll(m[1], ".", "u")
		if m[2] != "1" {
			usb += "c" + m[2]
		}
		if m[3] != "0" {
			usb += "i" + m[3]
		}
	} else if strings.HasPrefix(filepath.Base(filepath.Dir(device)), "usb") {
		return nil
	}
	pci := strings.Join(parts[:at+1], "/")
	n := pciAddress.FindStringSubmatch(parts[at])
	domain, bus, slot, function := hexNumber(n[1]), hexNumber(n[2]), hexNumber(n[3]), hexNumber(n[4])
	for _, file := range []string{"acpi_index", "index"} {
		if index := sysNumber(filepath.Join(pci, file)); index > 0 && index <= 16383 && usb == "" {
			add("eno%d%s", index, suffix)
			break
		}
	}
	prefix := ""
	if domain > 0 {
		prefix = fmt.Sprintf("P%d", domain)
	}
	of := ""
	if function > 0 || isMultifunction(pci) {
		of = fmt.Sprintf("f%d", function)
	}
	if number, direct := hotplugSlot(root, parts[:at+1]); number > 0 && (direct || !sharesBridge(pci)) {
		add("en%ss%d%s%s%s", prefix, number, of, usb, suffix)
	}
	add("en%sp%ds%d%s%s%s", prefix, bus, slot, of, usb, suffix)
	if usb != "" {
		add("enx%s", strings.ReplaceAll(strings.ToLower(sysText(filepath.Join(folder, "address"))), ":", ""))
	}
	return names
}

// portSuffix tells several ports of one device apart.
func portSuffix(folder string) string {
	if name := sysText(filepath.Join(folder, "phys_port_name")); name != "" {
		return "n" + name
	}
	if port := sysNumber(filepath.Join(folder, "dev_port")); port > 0 {
		return "d" + strconv.FormatInt(port, 10)
	}
	return ""
}

func hexNumber(s string) int64 {
	n, _ := strconv.ParseInt(s, 16, 64)
	return n
}

// isMultifunction reads bit 7 of the header type in the configuration space.
func isMultifunction(pci string) bool {
	f, err := os.Open(filepath.Join(pci, "config"))
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, 0x0e)
	return err == nil && b[0]&0x80 != 0
}

// hotplugSlot is the number of the slot that a device, or the nearest bridge above it, sits in; direct says that it is the device itself.
func hotplugSlot(root string, parts []string) (number int64, direct bool) {
	slots, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/slots/*"))
	for i := len(parts) - 1; i >= 0 && pciAddress.MatchString(parts[i]); i-- {
		address, _, _ := strings.Cut(parts[i], ".")
		for _, slot := range slots {
			if sysText(filepath.Join(slot, "address")) != address {
				continue
			}
			if n, err := strconv.ParseInt(filepath.Base(slot), 10, 32); err == nil && n > 0 {
				return n, i == len(parts)-1
			}
		}
	}
	return 0, false
}

// sharesBridge says whether another device sits behind the bridge of a device, so that the bridge's slot names neither.
func sharesBridge(pci string) bool {
	own, _, _ := strings.Cut(filepath.Base(pci), ".")
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(pci), "*:*:*.*"))
	for _, other := range others {
		if address, _, _ := strings.Cut(filepath.Base(other), "."); address != own && pciAddress.MatchString(filepath.Base(other)) {
			return true
		}
	}
	return false
}
