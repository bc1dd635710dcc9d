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
// leaves the list out takes any.
func (b systemBoot) targetOf(word string) (string, error) {
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

// BootDevices lists what the BMC allows.
func (d *Driver) BootDevices(ctx context.Context, n *metal.Node) ([]string, error) {
	var out []string
	err := d.with(ctx, n, "list boot devices", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		for _, dev := range devices {
			allowed := len(sys.Boot.Allowed) == 0 || slices.Contains(sys.Boot.Allowed, dev.target)
			if allowed && !slices.Contains(out, dev.word) {
				out = append(out, dev.word)
			}
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

// SetBootDevice sets or removes the override and reads it back.
func (d *Driver) SetBootDevice(ctx context.Context, n *metal.Node, b rescue.Boot) error {
	return d.with(ctx, n, "set boot device", func(s *bmcSession) error { return s.setBoot(ctx, b) })
}

func (s *bmcSession) setBoot(ctx context.Context, b rescue.Boot) error {
	sys, err := s.read()
	if err != nil {
		return err
	}
	// The mode is written only to change it: many BMCs refuse it beside a target.
	mode := modeOf(b.Mode)
	if sys.Boot.Mode == "" || sys.Boot.Mode == mode {
		mode = ""
	}
	if b.Device == "" {
		return s.clearBoot(ctx, sys, mode)
	}
	target, err := sys.Boot.targetOf(b.Device)
	if err != nil {
		return err
	}
	want := bootOverrides{Target: target, Enabled: enabledOnce, Mode: mode}
	if b.Persistent {
		want.Enabled = enabledForever
	}
	return s.override(ctx, sys, want)
}

func (s *bmcSession) clearBoot(ctx context.Context, sys *computerSystem, mode string) error {
	err := s.override(ctx, sys, bootOverrides{Target: targetNone, Enabled: enabledNever, Mode: mode})
	if problem.Is(err, problem.Invalid) {
		// Some take Disabled, but no target beside it.
		return s.override(ctx, sys, bootOverrides{Enabled: enabledNever, Mode: mode})
	}
	return err
}

// override writes the Boot object and proves it by a read-back, of the settings
// resource too where the BMC keeps pending changes apart.
func (s *bmcSession) override(ctx context.Context, sys *computerSystem, want bootOverrides) error {
	if sys.Boot.holds(want) && want.HTTPBootURI == "" {
		return nil
	}
	body := map[string]bootOverrides{"Boot": want}
	err := s.patch(s.system, sys.etag, body)
	if pending := sys.Settings.SettingsObject.Path; problem.Is(err, problem.Unsupported) && pending != "" {
		var doc computerSystem
		etag, err2 := s.get(pending, &doc)
		if err2 != nil {
			return err2
		}
		err = s.patch(pending, etag, body)
	}
	if err != nil {
		return err
	}
	var last systemBoot
	done, err := driver.PollUntil(ctx, func(context.Context) (bool, error) {
		now, err := s.read()
		if err != nil {
			return false, err
		}
		if last = now.Boot; last.holds(want) {
			return true, nil
		}
		if pending := now.Settings.SettingsObject.Path; pending != "" {
			var doc computerSystem
			if _, err := s.get(pending, &doc); err != nil {
				return false, err
			}
			return doc.Boot.holds(want), nil
		}
		return false, nil
	})
	if done || err != nil {
		return err
	}
	return problem.Unavailablef("the BMC took the boot override, but still reads %s %s", s.quote(last.Enabled), s.quote(last.Target))
}

// holds tells whether what is wanted is in force.
func (b systemBoot) holds(want bootOverrides) bool {
	if want.Mode != "" && b.Mode != want.Mode {
		return false
	}
	if want.Enabled == "" && want.Target == "" {
		return true
	}
	if want.Enabled == enabledNever {
		return b.Enabled == enabledNever || b.Target == targetNone || b.Target == ""
	}
	return b.Enabled == want.Enabled && b.Target == want.Target
}

// SetHTTPBoot has the firmware fetch a URL at its next boot. Where the BMC cannot hold
// the URL, DHCP must give it; where it has no such target, the machine's ordinary
// network boot is set, in which UEFI firmware tries HTTP too.
func (d *Driver) SetHTTPBoot(ctx context.Context, n *metal.Node, url string) error {
	return d.with(ctx, n, "set HTTP boot", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		if len(sys.Boot.Allowed) > 0 && !slices.Contains(sys.Boot.Allowed, targetHTTP) {
			return s.setBoot(ctx, rescue.Boot{Device: "pxe", Mode: "uefi"})
		}
		want := bootOverrides{Target: targetHTTP, Enabled: enabledOnce}
		if sys.Boot.Mode != "" && sys.Boot.Mode != modeUEFI {
			want.Mode = modeUEFI
		}
		if sys.Boot.HTTPBootURI != nil {
			want.HTTPBootURI = url
		}
		return s.override(ctx, sys, want)
	})
}
