package redfish

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

var (
	_ driver.SettingsChecker = (*Driver)(nil)
	_ driver.SettingsChecker = (*Media)(nil)
	_ driver.SettingsChecker = BIOS{}
	_ driver.SettingsChecker = RAID{}
	_ driver.SettingsChecker = Firmware{}
	_ driver.SettingsChecker = Vendor{}
)

// CheckSettings is driver.SettingsChecker's.
func (d *Driver) CheckSettings(n *metal.Node, elsewhere bool) error {
	if elsewhere {
		n = withoutFiles(n)
	}
	conf, err := parseDriverInfo(n)
	if err != nil || d.Control == nil {
		return err
	}
	if _, err := netip.ParseAddr(conf.base.Hostname()); err != nil {
		return nil // a host name may lead elsewhere later
	}
	if err := d.Control("tcp", addressOf(conf.base), nil); err != nil {
		return problem.New(problem.KindOf(driver.Trouble(err)), "%w", driver.Trouble(err))
	}
	return nil
}

// withoutFiles is a node whose settings name no file of certificates.
func withoutFiles(n *metal.Node) *metal.Node {
	c := *n
	c.DriverInfo = maps.Clone(n.DriverInfo)
	for _, key := range []string{VerifyKey, iloKeys[VerifyKey]} {
		if path, ok := c.DriverInfo[key].(string); ok && strings.HasPrefix(path, "/") {
			delete(c.DriverInfo, key)
		}
	}
	return &c
}

// addressOf is the host and port of a URL.
func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
	}
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// CheckSettings is driver.SettingsChecker's.
func (b *Media) CheckSettings(n *metal.Node, elsewhere bool) error {
	return b.Driver.CheckSettings(n, elsewhere)
}

// CheckSettings is driver.SettingsChecker's.
func (b BIOS) CheckSettings(n *metal.Node, elsewhere bool) error {
	return b.Driver.CheckSettings(n, elsewhere)
}

// CheckSettings is driver.SettingsChecker's.
func (r RAID) CheckSettings(n *metal.Node, elsewhere bool) error {
	return r.Driver.CheckSettings(n, elsewhere)
}

// CheckSettings is driver.SettingsChecker's.
func (f Firmware) CheckSettings(n *metal.Node, elsewhere bool) error {
	return f.Driver.CheckSettings(n, elsewhere)
}

// CheckSettings is driver.SettingsChecker's.
func (v Vendor) CheckSettings(n *metal.Node, elsewhere bool) error {
	return v.Driver.CheckSettings(n, elsewhere)
}
