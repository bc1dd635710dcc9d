package redfish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
)

var _ driver.BMCProber = (*Driver)(nil)

// probeTime bounds a probe. What a slow BMC has not told by then is not known.
const probeTime = 40 * time.Second

// ProbeBMC reads all that salvor would ask of the BMC, and changes nothing. It fails only where the system itself cannot be read; what
// else cannot be read is an ability that is not known.
func (d *Driver) ProbeBMC(ctx context.Context, n *metal.Node) (metal.Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var out metal.Probe
	err := d.with(ctx, n, "probe the BMC", func(s *bmcSession) error {
		sys, err := s.readBoot()
		if err != nil {
			return err
		}
		p := bmcProber{s: s, sys: sys, node: n, out: &out}
		if err := p.identify(); err != nil {
			return err
		}
		p.power()
		p.boot()
		p.media()
		p.firmware()
		p.storage()
		p.events()
		return nil
	})
	return out, err
}

// bmcProber fills a Probe, look by look.
type bmcProber struct {
	s    *bmcSession
	sys  *computerSystem
	node *metal.Node
	bmc  metal.BMC
	out  *metal.Probe
}

func (p *bmcProber) identify() error {
	if err := p.s.identify(p.sys, &p.bmc); err != nil {
		return err
	}
	var top struct{ RedfishVersion string }
	_, _ = p.s.bmc.Get(conversation.RootPath, &top) // not every BMC shows it
	login := conversation.Basic
	if !p.s.bmc.IsBasic() {
		login = conversation.Session
	}
	p.out.Protocol, p.out.Login = strings.TrimSpace("Redfish "+driver.Sanitize(top.RedfishVersion)), login
	p.out.Vendor, p.out.Model, p.out.BMCModel, p.out.Firmware = p.bmc.Vendor, p.bmc.Model, p.bmc.BMCModel, p.bmc.Firmware
	p.out.Quirks = []metal.ProbedQuirk{}
	for _, known := range p.s.conf.facts.all() {
		p.out.Quirks = append(p.out.Quirks, metal.ProbedQuirk{Fact: known.text(), Source: known.source})
	}
	return nil
}

func (p *bmcProber) add(name, able, detail string) {
	p.out.Abilities = append(p.out.Abilities, metal.Ability{Name: name, Able: able, Detail: detail})
}

// found adds what a look told: how it is done, or the error that it met.
func (p *bmcProber) found(name, detail string, err error) {
	switch {
	case err == nil:
		p.add(name, metal.AbleYes, detail)
	case problem.Is(err, problem.Unavailable):
		p.add(name, metal.AbleUnknown, err.Error())
	default:
		p.add(name, metal.AbleNo, err.Error())
	}
}

// joinTexts makes words of the BMC fit for a line.
func joinTexts(list []string) string {
	out := make([]string, 0, len(list))
	for _, text := range list[:min(len(list), maxSlots)] {
		out = append(out, driver.Sanitize(text))
	}
	return strings.Join(out, ", ")
}

func (p *bmcProber) power() {
	action := p.sys.Actions.Reset
	for _, want := range []struct {
		name  string
		types []string
	}{
		{"power on", resets[metal.PowerOn]}, {"power off", resets[metal.PowerOff]}, {"shut down", []string{resetSoftOff}}, {"reboot", []string{resetRestart}},
		{"interrupt (NMI)", []string{resetNMI}},
	} {
		i := slices.IndexFunc(want.types, func(t string) bool { return slices.Contains(action.Allowed, t) })
		switch {
		case action.Target == "":
			p.add(want.name, metal.AbleNo, "the BMC offers no reset of the system")
		case len(action.Allowed) == 0:
			p.add(want.name, metal.AbleUnknown, "the BMC does not list its reset types; salvor sends "+want.types[0])
		case i < 0:
			p.add(want.name, metal.AbleNo, "the BMC takes only "+joinTexts(action.Allowed))
		default:
			p.add(want.name, metal.AbleYes, want.types[i])
		}
	}
}

func (p *bmcProber) boot() {
	b := p.sys.Boot
	p.bmc.BootTargets = b.listedDevices()
	switch {
	case len(b.Allowed) > 0:
		p.add("boot device", metal.AbleYes, strings.Join(p.bmc.BootTargets, ", "))
	case b.Target == "" && b.Enabled == "":
		p.add("boot device", metal.AbleNo, "the system has no boot override")
	default:
		p.add("boot device", metal.AbleUnknown, "the BMC does not list its boot targets; salvor tries them")
	}
	if len(b.AllowedEnabled) > 0 {
		p.add("boot override", metal.AbleYes, joinTexts(b.AllowedEnabled))
	} else {
		p.add("boot override", metal.AbleUnknown, "the BMC does not list its frequencies; salvor tries Once")
	}
	if mode := b.current().Mode; mode != "" {
		p.add("boot mode", metal.AbleYes, mode+" now")
	} else {
		p.add("boot mode", metal.AbleNo, "the BMC does not tell the boot mode")
	}
	_, doc, err := p.s.secureBoot()
	state := "off now"
	if err == nil && *doc.Enable {
		state = "on now"
	}
	p.found("secure boot", state, err)
	switch {
	case len(b.HTTPBootURI) > 0:
		p.add("HTTP boot", metal.AbleYes, "the BMC takes the URL")
	case slices.Contains(p.bmc.BootTargets, "uefihttp"):
		p.add("HTTP boot", metal.AbleYes, "the URL comes by DHCP")
	case len(b.Allowed) == 0:
		p.add("HTTP boot", metal.AbleUnknown, "the BMC does not list its boot targets")
	default:
		p.add("HTTP boot", metal.AbleNo, "UefiHttp is not among the boot targets")
	}
	_, err = b.targetOf("pxe", "")
	p.found("PXE boot", "by the network cards of the machine", err)
}

// media tells of the virtual drives, and whether a rescue by them can work.
func (p *bmcProber) media() {
	drives, err := p.s.describeDrives(&p.bmc)
	switch {
	case err == nil && p.bmc.DrivesRefused:
		err = problem.Unsupportedf("the BMC does not let salvor use its virtual drives")
	case err == nil && len(drives) == 0:
		err = problem.Unsupportedf("the BMC shows no virtual drives")
	}
	var lines []string
	for _, drive := range drives {
		by := "changed in place"
		if drive.Actions.Insert.Target != "" {
			by = "by action"
		}
		state := "empty"
		if drive.inserted() {
			state = "filled"
		}
		lines = append(lines, fmt.Sprintf("%s (%s, %s, %s)", driver.Sanitize(link.ID(drive.path)), joinTexts(drive.MediaTypes), by, state))
	}
	p.found("virtual media", strings.Join(lines, "; "), err)
	p.found("rescue by virtual media", "", (&Media{}).CheckBMC(p.node, p.bmc))
}

func (p *bmcProber) firmware() {
	doc, err := p.s.bios()
	detail := ""
	if err == nil {
		detail = fmt.Sprintf("%d settings", len(doc.Attributes))
		if pending := doc.Settings.SettingsObject.Path; pending != "" {
			detail += ", changed by a resource of pending settings"
		}
		if doc.Actions.Reset.Target == "" {
			detail += ", no reset to factory settings"
		}
	}
	p.found("BIOS settings", detail, err)
	_, err = p.s.updateService()
	p.found("firmware update", "SimpleUpdate", err)
}

func (p *bmcProber) storage() {
	all, err := p.s.controllers()
	disks, volumes := 0, 0
	for _, c := range all {
		disks, volumes = disks+len(c.disks), volumes+len(c.volumes)
	}
	p.found("RAID", fmt.Sprintf("%d controllers, %d disks, %d volumes", len(all), disks, volumes), err)
	functions, err := p.s.initiators()
	if err == nil && len(functions) == 0 {
		err = problem.Unsupportedf("no network card offers an iSCSI initiator by the BMC")
	}
	p.found("boot from a volume", fmt.Sprintf("%d iSCSI initiators", len(functions)), err)
}

func (p *bmcProber) events() {
	_, err := p.s.subscriptions()
	p.found("event subscriptions", "", err)
}
