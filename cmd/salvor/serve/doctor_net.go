package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/config"
	"salvor/driver/ipmi"
	"salvor/driver/redfish"
	"salvor/metal"
	"salvor/openstack"
	"salvor/store"
)

// What the doctor looks at on networks.

// interfaceState are what an interface has.
type interfaceState struct {
	up       bool
	prefixes []netip.Prefix // IPv4
}

func interfaceAddresses(name string) (interfaceState, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return interfaceState{}, err
	}
	out := interfaceState{up: i.Flags&net.FlagUp != 0}
	all, err := i.Addrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			out.prefixes = append(out.prefixes, p)
		}
	}
	return out, err
}

func (d *doctor) netboot(ctx context.Context) {
	const check = "boot network"
	if !hasRole(d.cfg, config.RoleNetboot) {
		return
	}
	if len(d.cfg.Netboot.Interfaces) == 0 {
		d.ok(check, "[netboot]interfaces is empty: no DHCP and no TFTP; machines boot by virtual media or UEFI HTTP")
		return
	}
	for _, i := range d.cfg.Netboot.Interfaces {
		d.bootInterface(i)
	}
	for _, port := range []string{"67", "69"} {
		l, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", ":"+port)
		switch {
		case err == nil:
			_ = l.Close()
			d.ok(check, "UDP port %s can be had", port)
		case errors.Is(err, syscall.EADDRINUSE) && d.runs:
			d.ok(check, "UDP port %s is in use, as it should be while salvor serve runs", port)
		case errors.Is(err, syscall.EADDRINUSE):
			d.say(LevelFail, check, "stop the other DHCP or TFTP server of this machine (ss -lunp), such as dnsmasq", "UDP port %s is in use", port)
		default:
			d.say(LevelFail, check, "run salvor serve as root or with CAP_NET_BIND_SERVICE and CAP_NET_RAW; call the doctor as the same user", "UDP port %s: %v", port, err)
		}
	}
}

func (d *doctor) bootInterface(i config.BootInterface) {
	const check = "boot network"
	at, err := d.addresses(i.Name)
	switch {
	case err != nil:
		d.say(LevelFail, check, "name an interface of this machine in [netboot]interfaces (ip link)", "%s: %v", i.Name, err)
	case !at.up:
		d.say(LevelFail, check, "ip link set "+i.Name+" up", "interface %s is down", i.Name)
	case len(at.prefixes) == 0:
		d.say(LevelFail, check, "give it an IPv4 address, under which machines fetch their boot files", "interface %s has no IPv4 address", i.Name)
	case i.Mode == config.Authoritative && i.Bits == 0 && !inSamePrefix(at.prefixes, i.From, i.To):
		d.say(LevelFail, check, "lease addresses of the interface's own network, or name the prefix length of a relayed one: FIRST-LAST/BITS",
			"interface %s has %v, and %s-%s lies outside of that", i.Name, at.prefixes, i.From, i.To)
	default:
		d.ok(check, "interface %s is up and has %v; it serves as %s", i.Name, at.prefixes, i.Mode)
	}
}

func inSamePrefix(all []netip.Prefix, from, to netip.Addr) bool {
	for _, p := range all {
		if p.Contains(from) && p.Contains(to) {
			return true
		}
	}
	return false
}

// loaders are the files that firmware fetches over TFTP, as Debian's package ipxe has them.
func (d *doctor) loaders(context.Context) {
	const check = "boot loaders"
	if len(d.cfg.Netboot.Interfaces) == 0 || !hasRole(d.cfg, config.RoleNetboot) {
		return
	}
	for _, name := range []string{"undionly.kpxe", "snponly.efi"} {
		if err := unix.Access(filepath.Join(d.cfg.Netboot.TFTPRoot, name), unix.R_OK); err != nil {
			d.say(LevelFail, check, "apt install ipxe, or name the directory by [netboot]tftp_root", "%s: %v", filepath.Join(d.cfg.Netboot.TFTPRoot, name), err)
			return
		}
	}
	d.ok(check, "%s has those for BIOS and UEFI", d.cfg.Netboot.TFTPRoot)
}

const (
	sampledNodes     = 8
	controllerWithin = 3 * time.Second
)

// controllers asks whether the BMCs of some nodes are there, without logging in.
func (d *doctor) controllers(ctx context.Context) {
	const check = "BMCs"
	if d.cfg.IPMI.Client == string(ipmi.IPMITool) {
		if _, err := exec.LookPath("ipmitool"); err != nil {
			d.say(LevelFail, check, "apt install ipmitool, or set [ipmi]client to native", "[ipmi]client is ipmitool, and that is not installed")
		}
	}
	base, err := store.OpenDatabase(ctx, d.cfg.Database.Direct(), store.Look)
	if err != nil {
		return // told already
	}
	defer base.Close()
	nodes, err := base.Machines(ctx, sampledNodes)
	if err != nil {
		return // there are no tables yet
	}
	found := make([]string, len(nodes))
	errs := make([]error, len(nodes))
	var wait sync.WaitGroup
	for i, n := range nodes {
		wait.Go(func() {
			found[i], errs[i] = reachController(ctx, &metal.Node{Driver: n.Driver, DriverInfo: n.DriverInfo})
		})
	}
	wait.Wait()
	for i, n := range nodes {
		name := cmp.Or(n.Name, n.ID)
		switch {
		case errs[i] != nil:
			d.say(LevelWarn, check, "see the address (salvor node show "+name+" -c driver_info), cabling, VLAN and firewall", "%s of node %s: %v", found[i], name, errs[i])
		case found[i] != "":
			d.ok(check, "%s of node %s is there", found[i], name)
		}
	}
}

// reachController tells where the controller of a node should be; no error: something answers there. Empty: the node names none.
func reachController(ctx context.Context, n *metal.Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, controllerWithin)
	defer cancel()
	if address := redfish.Address(n); address != "" {
		at := webAddress(address)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err == nil {
			_ = c.Close()
		}
		return at, err
	}
	address := n.Info(ipmi.AddressKey)
	if address == "" {
		return "", nil
	}
	at := net.JoinHostPort(address, cmp.Or(n.Info("ipmi_port"), "623"))
	return at, pingIPMI(ctx, at)
}

// webAddress is HOST:PORT of a Redfish address, which may lack its scheme and its port.
func webAddress(address string) string {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(port, "443"))
}

// pingIPMI sends the presence ping of ASF 2.0 (section 3.2.4.3), which every IPMI controller answers without a login.
func pingIPMI(ctx context.Context, at string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	ping := []byte{0x06, 0x00, 0xff, 0x06, 0x00, 0x00, 0x11, 0xbe, 0x80, 0x00, 0x00, 0x00}
	answer := make([]byte, 64)
	for try := 1; ; try++ {
		if _, err := c.Write(ping); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(controllerWithin / 3)); err != nil {
			return err
		}
		n, err := c.Read(answer)
		switch {
		case err == nil && n >= 9 && bytes.Equal(answer[4:8], ping[4:8]) && answer[8] == 0x40:
			return nil
		case err == nil:
			return errors.New("something answers there that is no IPMI controller")
		case ctx.Err() != nil || try == 3:
			return fmt.Errorf("no answer to a ping: %w", stripErrorURL(err))
		}
	}
}

// centre looks at what a site's boot service proves itself by, and whether the centre answers.
func (d *doctor) centre(ctx context.Context) {
	const check = "centre"
	if _, err := readSiteToken(d.cfg.Site.TokenFile); err != nil {
		d.say(LevelFail, check, "salvor site create, at the centre, prints one: put it into a file for the user of salvor serve alone", "%v", err)
	}
	client, err := centreClient(d.cfg.Site)
	if err != nil {
		d.say(LevelFail, check, "correct [site]centre or [site]ca_file", "%v", err)
		return
	}
	d.asks(ctx, client, check, "see [site]centre and [site]ca_file, and every firewall on the way", strings.TrimRight(d.cfg.Site.Centre, "/"), LevelFail)
}

// services logs in to the services of OpenStack that the configuration names.
func (d *doctor) services(ctx context.Context) {
	for _, of := range []struct {
		kind    openstack.Service
		section string
		access  config.Credentials
	}{
		{openstack.Network, "neutron", d.cfg.Neutron.Credentials}, {openstack.Image, "glance", d.cfg.Glance.Credentials}, {openstack.Compute, "nova", d.cfg.Nova.Credentials},
	} {
		client, err := newOpenStackClient(of.kind, of.section, of.access)
		if client == nil && err == nil {
			continue
		}
		if err == nil {
			err = client.Reach(ctx)
		}
		if err != nil {
			d.say(LevelFail, of.section, "correct ["+of.section+"], or look at Keystone and "+of.kind.Name, "%v", err)
			continue
		}
		d.ok(of.section, "%s answers", of.kind.Name)
	}
}

// asks tells whether salvor answers there: /v1 needs no credential, on the doors of ramdisks neither.
func (d *doctor) asks(ctx context.Context, client *http.Client, check, do, at, level string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/v1", nil)
	if err != nil {
		d.say(LevelFail, check, do, "%q is no URL", at)
		return
	}
	answer, err := client.Do(request)
	if err != nil {
		d.say(level, check, do, "%s does not answer: %v", at, stripErrorURL(err))
		return
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		d.say(level, check, do, "%s/v1 answers %s", at, answer.Status)
		return
	}
	d.ok(check, "%s answers", at)
}
