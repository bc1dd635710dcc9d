package redfish

import (
	"context"
	"slices"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// devices are the boot devices by Ironic's word and Redfish's, the preferred first.
var devices = []struct{ word, target string }{
	{"pxe", "Pxe"}, {"disk", "Hdd"}, {"cdrom", "Cd"}, {"cdrom", "UsbCd"}, {"bios", "BiosSetup"},
	{"uefihttp", "UefiHttp"}, {"iscsiboot", targetRemote}, {"floppy", "Floppy"}, {"usb", "Usb"}, {"sdcard", "SDCard"}, {"diag", "Diags"},
}

const (
	enabledOnce    = "Once"
	enabledForever = "Continuous"
	enabledNever   = "Disabled"
	targetNone     = "None"
	targetHTTP     = "UefiHttp"
	modeUEFI       = "UEFI"
	modeBIOS       = "Legacy"
)

func deviceOf(target string) string {
	for _, d := range devices {
		if d.target == target {
			return d.word
		}
	}
	return ""
}

// targetOf picks the BMC's word for a device among those that it allows; a BMC that
// leaves the list out takes any. cd is the preferred word for a virtual CD; empty: Cd.
func (b systemBoot) targetOf(word, cd string) (string, error) {
	if word == "cdrom" && cd != "" && (len(b.Allowed) == 0 || slices.Contains(b.Allowed, cd)) {
		return cd, nil
	}
	known := false
	for _, d := range devices {
		if d.word != word {
			continue
		}
		known = true
		if len(b.Allowed) == 0 || slices.Contains(b.Allowed, d.target) {
			return d.target, nil
		}
	}
	if known {
		return "", problem.Invalidf("the BMC does not offer boot device %q", word)
	}
	return "", problem.Invalidf("unknown boot device %q", driver.Sanitize(word))
}

func modeOf(word string) string { return map[string]string{"uefi": modeUEFI, "bios": modeBIOS}[word] }

// current reads the override as it is in force now.
func (b systemBoot) current() rescue.Boot {
	out := rescue.Boot{Mode: map[string]string{modeUEFI: "uefi", modeBIOS: "bios"}[b.Mode]}
	if b.Enabled == enabledNever || b.Target == targetNone || b.Target == "" {
		return out
	}
	out.Device, out.Persistent = deviceOf(b.Target), b.Enabled == enabledForever
	return out
}

// devicesWhere are the boot devices in Ironic's words, each once, whose boot target is allowed.
func devicesWhere(allowed func(target string) bool) (out []string) {
	for _, dev := range devices {
		if allowed(dev.target) && !slices.Contains(out, dev.word) {
			out = append(out, dev.word)
		}
	}
	return out
}

// listedDevices are the boot devices that the BMC lists; none where it has no list.
func (b systemBoot) listedDevices() []string {
	return devicesWhere(func(target string) bool { return slices.Contains(b.Allowed, target) })
}

// BootDevices lists what the BMC allows.
func (d *Driver) BootDevices(ctx context.Context, n *metal.Node) ([]string, error) {
	var out []string
	err := d.with(ctx, n, "list boot devices", func(s *bmcSession) error {
		sys, err := s.readBoot()
		if err != nil {
			return err
		}
		if out = sys.Boot.listedDevices(); len(sys.Boot.Allowed) == 0 {
			out = devicesWhere(func(string) bool { return true })
		}
		return nil
	})
	return out, err
}

// BootDevice reads the override.
func (d *Driver) BootDevice(ctx context.Context, n *metal.Node) (rescue.Boot, error) {
	var out rescue.Boot
	err := d.with(ctx, n, "read boot device", func(s *bmcSession) error {
		sys, err := s.read()
		if err == nil {
			out = sys.Boot.current()
		}
		return err
	})
	return out, err
}
