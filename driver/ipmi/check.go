package ipmi

import (
	"bytes"
	"encoding/hex"
	"net/netip"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

var (
	_ driver.SettingsChecker = (*Driver)(nil)
	_ driver.SettingsChecker = SOL{}
	_ driver.SettingsChecker = Vendor{}
)

// CheckSettings is driver.SettingsChecker's.
func (d *Driver) CheckSettings(n *metal.Node, _ bool) error {
	conf, err := parseDriverInfo(n)
	if err != nil {
		return err
	}
	if _, err := bmcKeyBytes(conf); err != nil {
		return err
	}
	if _, err := netip.ParseAddr(conf.host); err != nil || d.Control == nil {
		return nil // a host name may lead elsewhere later
	}
	if err := d.Control("udp", conf.address(), nil); err != nil {
		return problem.New(problem.KindOf(driver.Trouble(err)), "%w", driver.Trouble(err))
	}
	return nil
}

// CheckSettings is driver.SettingsChecker's. The console needs the client in Go.
func (s SOL) CheckSettings(n *metal.Node, elsewhere bool) error {
	if err := s.Driver.CheckSettings(n, elsewhere); err != nil {
		return err
	}
	if conf, err := parseDriverInfo(n); err == nil && s.needsTool(conf) {
		return errConsoleByTool
	}
	return nil
}

// CheckSettings is driver.SettingsChecker's.
func (v Vendor) CheckSettings(n *metal.Node, elsewhere bool) error {
	return v.Driver.CheckSettings(n, elsewhere)
}

// bmcKeyBytes is the BMC's own key as ipmitool takes it, which reads it from a variable of its environment.
func bmcKeyBytes(conf ipmiSettings) ([]byte, error) {
	key, _ := hex.DecodeString(conf.bmcKey.Reveal())
	if bytes.IndexByte(key, 0) >= 0 {
		return nil, problem.Invalidf("%s has a zero byte, which ipmitool takes only where everybody on this machine could read it; give the BMC another key", BMCKeyKey)
	}
	return key, nil
}
