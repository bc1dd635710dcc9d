package ipmi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

var _ driver.BMCProber = (*Driver)(nil)

// Commands that only the probe sends, and their network functions (IPMI 2.0, appendix G).
const (
	netFnStorage   = 0x0a
	netFnTransport = 0x0c

	commandDeviceID     = 0x01
	commandCipherSuites = 0x54
	commandChassis      = 0x00
	commandSDRInfo      = 0x20
	commandSOLConfig    = 0x22
	commandSELInfo      = 0x40
)

// thisChannel is the channel that a command comes in by.
const thisChannel = 0x0e

// manufacturers are makers of BMCs by their number of IANA's list of private enterprises.
var manufacturers = map[int]string{
	2: "IBM", 11: "HP", 42: "Sun Microsystems", 343: "Intel", 674: "Dell", 5771: "Cisco", 10368: "Fujitsu", 10876: "Supermicro", 19046: "Lenovo",
	20974: "American Megatrends", 2011: "Huawei", 47196: "HPE", 49769: "YADRO", 49871: "OpenBMC",
}

// ProbeBMC asks the BMC for all that salvor uses, in one session, and changes nothing. It fails only where the BMC does not tell what it is.
func (d *Driver) ProbeBMC(ctx context.Context, n *metal.Node) (metal.Probe, error) {
	var out metal.Probe
	err := d.with(ctx, n, "probe the BMC", func(ctx context.Context, c commandSender) error {
		id, err := c.send(ctx, netFnApp, commandDeviceID)
		if err != nil {
			return err
		}
		if len(id) < 11 {
			return problem.Unavailablef("the device id has %d bytes, not 11", len(id))
		}
		p := ipmiProber{ctx: ctx, c: c, id: id, out: &out}
		p.identify(n)
		p.look()
		return nil
	})
	return out, err
}

// ipmiProber fills a Probe.
type ipmiProber struct {
	ctx context.Context
	c   commandSender
	id  []byte // the answer to Get Device ID
	out *metal.Probe
}

func (p *ipmiProber) identify(n *metal.Node) {
	maker := int(p.id[6]) | int(p.id[7])<<8 | int(p.id[8]&0x0f)<<16
	product := int(p.id[9]) | int(p.id[10])<<8
	name := manufacturers[maker]
	if name == "" {
		name = fmt.Sprint("manufacturer ", maker)
	}
	p.out.Vendor, p.out.BMCModel = name, fmt.Sprintf("product 0x%04x", product)
	p.out.Firmware = fmt.Sprintf("%d.%02x", p.id[2]&0x7f, p.id[3])
	p.out.Protocol = fmt.Sprintf("IPMI %d.%d", p.id[4]&0x0f, p.id[4]>>4)
	level := strings.ToUpper(n.Info(PrivKey))
	if level == "" {
		level = "ADMINISTRATOR"
	}
	suite := n.Info(CipherKey)
	if suite == "" {
		suite = "3 or 17"
	}
	p.out.Login = fmt.Sprintf("cipher suite %s, privilege level %s", suite, level)
	p.out.Quirks = []metal.ProbedQuirk{}
}

func (p *ipmiProber) add(name, able, detail string) {
	p.out.Abilities = append(p.out.Abilities, metal.Ability{Name: name, Able: able, Detail: detail})
}

// ask sends a command that reads, and gives at least so many bytes of its answer. It adds an ability that the BMC refuses, or is silent about.
func (p *ipmiProber) ask(name string, least int, netFn, command byte, data ...byte) ([]byte, bool) {
	answer, err := p.c.send(p.ctx, netFn, command, data...)
	if err == nil && len(answer) < least {
		err = problem.Unavailablef("the answer has %d bytes, not %d", len(answer), least)
	}
	switch {
	case err == nil:
		return answer, true
	case problem.Is(err, problem.Unavailable):
		p.add(name, metal.AbleUnknown, err.Error())
	default:
		p.add(name, metal.AbleNo, err.Error())
	}
	return nil, false
}

// yes adds an ability that the BMC has where it says so.
func (p *ipmiProber) yes(name string, has bool, detail, otherwise string) {
	if has {
		p.add(name, metal.AbleYes, detail)
		return
	}
	p.add(name, metal.AbleNo, otherwise)
}

// Bits of the additional device support of Get Device ID (IPMI 2.0, 20.1), and of Get Chassis Capabilities (28.1).
const (
	supportSensors = 0x01
	supportSDR     = 0x02
	supportSEL     = 0x04
	supportChassis = 0x80
	capabilityNMI  = 0x04
)

func (p *ipmiProber) look() {
	support := p.id[5]
	if status, ok := p.ask("power on, off, reboot", 3, netFnChassis, commandStatus); ok {
		p.add("power on, off, reboot", metal.AbleYes, map[bool]string{true: "it is on", false: "it is off"}[status[0]&1 == 1])
	}
	if flags, ok := p.ask("interrupt (NMI)", 5, netFnChassis, commandChassis); ok {
		if flags[0]&capabilityNMI != 0 {
			p.add("interrupt (NMI)", metal.AbleYes, "diagnostic interrupt")
		} else {
			p.add("interrupt (NMI)", metal.AbleUnknown, "the BMC does not claim a diagnostic interrupt; salvor sends one")
		}
	}
	if flags, err := readFlags(p.ctx, p.c); err == nil {
		now := flags.boot()
		p.add("boot device", metal.AbleYes, "boot flags, now "+cmp.Or(strings.TrimSpace(now.Device+" "+now.Mode), "none"))
	} else {
		p.add("boot device", metal.AbleUnknown, err.Error())
	}
	if valid, ok := p.ask("boot device kept for 60 s and more", 3, netFnChassis, commandGetBoot, paramValidClear, 0, 0); ok {
		p.add("boot device kept for 60 s and more", metal.AbleYes, fmt.Sprintf("boot flag valid bits 0x%02x", valid[2]&0x1f))
	}
	p.cipherSuites()
	p.add("chassis device", ableOf(support&supportChassis != 0), "as the device id says")
	if sol, ok := p.ask("serial over LAN", 2, netFnTransport, commandSOLConfig, thisChannel, 1, 0, 0); ok {
		p.yes("serial over LAN", sol[1]&1 != 0, "enabled", "it is disabled in the BMC")
	}
	if support&supportSEL == 0 {
		p.add("event log (SEL)", metal.AbleNo, "the device id does not claim it")
	} else if info, ok := p.ask("event log (SEL)", 5, netFnStorage, commandSELInfo); ok {
		p.add("event log (SEL)", metal.AbleYes, fmt.Sprintf("%d entries, %d bytes free", int(info[1])|int(info[2])<<8, int(info[3])|int(info[4])<<8))
	}
	if support&(supportSDR|supportSensors) == 0 {
		p.add("sensors", metal.AbleNo, "the device id does not claim them")
	} else if info, ok := p.ask("sensors", 3, netFnStorage, commandSDRInfo); ok {
		p.add("sensors", metal.AbleYes, fmt.Sprintf("%d records", int(info[1])|int(info[2])<<8))
	}
}

func ableOf(has bool) string {
	if has {
		return metal.AbleYes
	}
	return metal.AbleNo
}

// maxSuiteAnswers bounds how often the list of cipher suites is asked on: its index has six bits.
const maxSuiteAnswers = 64

// cipherSuites reads the list of cipher suites (IPMI 2.0, 22.15), 16 bytes an answer.
func (p *ipmiProber) cipherSuites() {
	const name = "cipher suites"
	const byAlgorithm = 0x80 // the list index in the low bits
	var records []byte
	for i := range byte(maxSuiteAnswers) {
		answer, ok := p.ask(name, 1, netFnApp, commandCipherSuites, thisChannel, 0, byAlgorithm|i)
		if !ok {
			return
		}
		records = append(records, answer[1:]...)
		if len(answer) < 17 {
			break
		}
	}
	has := suitesOf(records)
	var usable []string
	for _, id := range has {
		if slices.Contains(suites, id) {
			usable = append(usable, fmt.Sprint(id))
		}
	}
	p.yes(name, len(usable) > 0, "salvor can use "+strings.Join(usable, ", "), fmt.Sprintf("the BMC lists %v, of which salvor takes none", has))
}

// suitesOf reads the ids of cipher suites out of their records: a start byte, the id, for a maker's own three bytes more, and algorithms.
func suitesOf(records []byte) (ids []int) {
	const standard, own = 0xc0, 0xc1
	for i := 0; i+1 < len(records); i++ {
		switch records[i] {
		case standard:
			ids = append(ids, int(records[i+1]))
			i++
		case own:
			i += 4
		}
	}
	return ids
}
