package ipmi

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/test/must"
)

// scriptedSender answers commands from a table, by network function and command in hexadecimal digits; the others it does not know.
type scriptedSender map[string][]byte

func (s scriptedSender) send(_ context.Context, netFn, command byte, _ ...byte) ([]byte, error) {
	if answer, ok := s[fmt.Sprintf("%02x %02x", netFn, command)]; ok {
		return answer, nil
	}
	return nil, classifyCompletionCode(netFn, command, codeBadCommand)
}

func ableBy(p metal.Probe) map[string]string {
	out := map[string]string{}
	for _, a := range p.Abilities {
		out[a.Name] = a.Able + ": " + a.Detail
	}
	return out
}

// TestProbeReadsAnswers: each answer becomes an ability in words, and what the BMC does not know, or answers in part, is no failure.
func TestProbeReadsAnswers(t *testing.T) {
	id := []byte{0x20, 0x81, 0x01, 0x73, 0x02, 0xbf, 0x7c, 0x2a, 0x00, 0x1c, 0x09}
	var out metal.Probe
	p := ipmiProber{ctx: t.Context(), id: id, out: &out, c: scriptedSender{
		"00 01": {0x01, 0, 0}, "00 00": {0x04, 0, 0, 0, 0}, "00 09": {0x01, 0x05, 0xe0, 0x14},
		"06 54": {1, 0xc0, 3, 1, 0x41, 0x81, 0xc1, 0x80, 1, 2, 3, 1, 0xc0, 17, 3, 0x44},
		"0c 22": {0x11, 0}, "0a 40": {0x51, 5, 1, 0, 2},
	}}
	p.identify(&metal.Node{})
	p.look()
	if out.Vendor != "Supermicro" || out.BMCModel != "product 0x091c" || out.Firmware != "1.73" || out.Protocol != "IPMI 2.0" {
		t.Errorf("%+v", out)
	}
	able := ableBy(out)
	for name, want := range map[string]string{
		"power on, off, reboot": "yes: it is on",
		"interrupt (NMI)":       "yes: diagnostic interrupt",
		"boot device":           "yes: boot flags, now cdrom uefi",
		"cipher suites":         "yes: salvor can use 3, 17",
		"serial over LAN":       "no: it is disabled in the BMC",
		"event log (SEL)":       "yes: 261 entries, 512 bytes free",
		"sensors":               "no: the BMC cannot do it: it does not know the command: completion code 0xc1",
	} {
		if able[name] != want {
			t.Errorf("%s: %q, want %q", name, able[name], want)
		}
	}
	out.Abilities = nil
	p.c = scriptedSender{"00 01": {}, "06 54": {1, 0xc0, 1, 1}}
	p.look()
	able = ableBy(out)
	if got := able["power on, off, reboot"]; got != "unknown: the answer has 0 bytes, not 3" {
		t.Errorf("a short answer: %q", got)
	}
	if got := able["cipher suites"]; got != "no: the BMC lists [1], of which salvor takes none" {
		t.Errorf("cipher suites: %q", got)
	}
}

// TestSuitesOfRubbish: no bytes make the reader fail.
func TestSuitesOfRubbish(t *testing.T) {
	for _, c := range []struct {
		records []byte
		want    []int
	}{{nil, nil}, {[]byte{0xc0}, nil}, {[]byte{0xc1, 1}, nil}, {[]byte{0xc1, 0x80, 0xc0, 0xc0, 0xc0, 0xc0, 3}, []int{3}}} {
		if got := suitesOf(c.records); !slices.Equal(got, c.want) {
			t.Errorf("% x: %v, want %v", c.records, got, c.want)
		}
	}
}

// TestProbe of a BMC that another program plays: it changes nothing.
func TestProbe(t *testing.T) {
	s := startSim(t)
	d := &Driver{Locks: &driver.AddressLocks{}}
	p := must.Get(d.ProbeBMC(t.Context(), s.node()))(t)
	able := ableBy(p)
	if p.Protocol != "IPMI 2.0" || p.Firmware != "9.08" || able["power on, off, reboot"] != "yes: it is off" || able["boot device"] != "yes: boot flags, now none" || s.on() {
		t.Errorf("%+v", p)
	}
	t.Logf("%v", able)
}
