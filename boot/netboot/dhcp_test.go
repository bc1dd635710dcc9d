package netboot

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

var serverAddr = netip.MustParseAddr("192.0.2.1")

type bench struct {
	*dhcpResponder
	plans    *plans
	clock    time.Time
	progress []string
}

func newBench(t *testing.T, c Interface) *bench {
	t.Helper()
	b := &bench{plans: &plans{node: testNode()}, clock: time.Unix(1e9, 0)}
	s, err := New(Config{Plans: b.plans, HTTPPort: 6385, Interfaces: []Interface{c}, RecordProgress: func(_ *metal.Node, what string) { b.progress = append(b.progress, what) }})
	if err != nil {
		t.Fatal(err)
	}
	b.dhcpResponder = s.responder(s.cfg.Interfaces[0], serverAddr)
	b.now = func() time.Time { return b.clock }
	return b
}

func authoritative(t *testing.T) *bench {
	return newBench(t, Interface{Name: "br0", Mode: Authoritative, Ranges: []Range{testRange}})
}

// ask sends a packet through its wire form and gives the answer through its own.
func (b *bench) ask(t *testing.T, kind dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	return b.askOn(t, portServer, kind, mods...)
}

func (b *bench) askOn(t *testing.T, port int, kind dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	mac, _ := net.ParseMAC(testMAC)
	req, err := dhcpv4.New(dhcpv4.PrependModifiers(mods, dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind))...)
	if err != nil {
		t.Fatal(err)
	}
	if req, err = dhcpv4.FromBytes(req.ToBytes()); err != nil {
		t.Fatal(err)
	}
	before := b.plans.queries
	resp, err := b.answer(t.Context(), req, port)
	if err != nil {
		t.Fatal(err)
	}
	if n := b.plans.queries - before; n > 1 {
		t.Errorf("%d queries for one packet", n)
	}
	if resp == nil {
		return nil
	}
	if resp, err = dhcpv4.FromBytes(resp.ToBytes()); err != nil {
		t.Fatal(err)
	}
	if resp.TransactionID != req.TransactionID || resp.OpCode != dhcpv4.OpcodeBootReply {
		t.Errorf("not a reply to the request: %s", resp.Summary())
	}
	if id := toAddr(resp.ServerIdentifier()); id != serverAddr {
		t.Errorf("server identifier %s", id)
	}
	return resp
}

func firmware(class string, arch iana.Arch) dhcpv4.Modifier {
	return func(d *dhcpv4.DHCPv4) {
		d.UpdateOption(dhcpv4.OptClassIdentifier(class))
		d.UpdateOption(dhcpv4.OptClientArch(arch))
	}
}

func wants(a netip.Addr) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a.AsSlice()))
}

func chose(a netip.Addr) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(a.AsSlice()))
}

func mustBe(t *testing.T, resp *dhcpv4.DHCPv4, kind dhcpv4.MessageType) {
	t.Helper()
	if resp == nil || resp.MessageType() != kind {
		t.Fatalf("want %s, have %v", kind, resp)
	}
}

// TestBootFileIsFollowedByAZero: firmware that reads the name of the boot file up to a zero byte finds one behind the name, and the options stay as
// they are for everybody else.
func TestBootFileIsFollowedByAZero(t *testing.T) {
	for _, arch := range []iana.Arch{0, 7, 16} {
		class := "PXEClient"
		if arch == 16 {
			class = "HTTPClient"
		}
		resp := authoritative(t).ask(t, dhcpv4.MessageTypeDiscover, firmware(class, arch))
		name, out := resp.BootFileNameOption(), encodeReply(resp)
		at := bytes.Index(out[dhcpOptions:], []byte(name)) + dhcpOptions
		if at < dhcpOptions || out[at+len(name)] != 0 {
			t.Errorf("architecture %d: behind %q stands %v", arch, name, out[at+len(name):][:4])
		}
		again := must.Get(dhcpv4.FromBytes(out))(t)
		if again.Summary() != resp.Summary() {
			t.Errorf("architecture %d: want\n%s\nhave\n%s", arch, resp.Summary(), again.Summary())
		}
	}
	plain := authoritative(t).ask(t, dhcpv4.MessageTypeDiscover)
	if !bytes.Equal(encodeReply(plain), plain.ToBytes()) {
		t.Error("a reply without a boot file was changed")
	}
}

func TestFirmwareGetsItsBootFile(t *testing.T) {
	scriptURL := "http://192.0.2.1:6385/boot/" + testPath + "/boot.ipxe"
	for name, c := range map[string]struct {
		mods        []dhcpv4.Modifier
		file, class string
		next        bool
		secure      bool
	}{
		"BIOS PXE":                         {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00000:UNDI:002001", 0)}, file: testPath + "/undionly.kpxe", next: true},
		"BIOS PXE, no arch":                {mods: []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient"))}, file: testPath + "/undionly.kpxe", next: true},
		"UEFI PXE 7":                       {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00007", 7)}, file: testPath + "/snponly.efi", next: true},
		"UEFI PXE 9":                       {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00009", 9)}, file: testPath + "/snponly.efi", next: true},
		"UEFI HTTP":                        {mods: []dhcpv4.Modifier{firmware("HTTPClient:Arch:00016", 16)}, file: "http://192.0.2.1:6385/boot/" + testPath + "/boot.efi", class: "HTTPClient"},
		"UEFI HTTP, enforcing Secure Boot": {mods: []dhcpv4.Modifier{firmware("HTTPClient:Arch:00016", 16)}, file: "http://192.0.2.1:6385/boot/" + testPath + "/boot.iso", class: "HTTPClient", secure: true},
		"iPXE, class as text":              {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00000", 0), dhcpv4.WithUserClass("iPXE", false)}, file: scriptURL, next: true},
		"iPXE, RFC 3004":                   {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00007", 7), dhcpv4.WithUserClass("iPXE", true)}, file: scriptURL, next: true},
		"iPXE by option 175":               {mods: []dhcpv4.Modifier{dhcpv4.WithGeneric(optionIPXE, []byte{177, 1, 2})}, file: scriptURL, next: true},
		"iPXE with HTTP":                   {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00000", 0), dhcpv4.WithUserClass("iPXE", false), dhcpv4.WithGeneric(optionIPXE, []byte{33, 1, 1, 19, 1, 1, 24, 1, 1})}, file: scriptURL, next: true},
		"iPXE in a ROM without HTTP, BIOS": {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00000", 0), dhcpv4.WithUserClass("iPXE", false), dhcpv4.WithGeneric(optionIPXE, []byte{33, 1, 1, 18, 1, 1, 24, 1, 1})}, file: testPath + "/undionly.kpxe", next: true},
		"iPXE in a ROM without HTTP, UEFI": {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00007", 7), dhcpv4.WithGeneric(optionIPXE, []byte{177, 1, 2, 33, 1, 1, 21, 1, 1})}, file: testPath + "/snponly.efi", next: true},
		"iPXE that switched HTTP off":      {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00007", 7), dhcpv4.WithGeneric(optionIPXE, []byte{19, 1, 0, 21, 1, 1})}, file: testPath + "/snponly.efi", next: true},
		"iPXE with a damaged option 175":   {mods: []dhcpv4.Modifier{dhcpv4.WithGeneric(optionIPXE, []byte{33, 9, 1})}, file: scriptURL, next: true},
		"operating system":                 {},
		"ARM PXE":                          {mods: []dhcpv4.Modifier{firmware("PXEClient:Arch:00011", 11)}},
		"ARM HTTP":                         {mods: []dhcpv4.Modifier{firmware("HTTPClient:Arch:00019", 19)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := authoritative(t)
			b.plans.node.Plan.SecureBoot = c.secure
			offer := b.ask(t, dhcpv4.MessageTypeDiscover, c.mods...)
			mustBe(t, offer, dhcpv4.MessageTypeOffer)
			a := toAddr(offer.YourIPAddr)
			if !testRange.Network.Contains(a) || a.Less(testRange.From) || testRange.To.Less(a) {
				t.Errorf("address %s", a)
			}
			ack := b.ask(t, dhcpv4.MessageTypeRequest, append(c.mods, wants(a), chose(serverAddr))...)
			mustBe(t, ack, dhcpv4.MessageTypeAck)
			for _, resp := range []*dhcpv4.DHCPv4{offer, ack} {
				if resp.BootFileNameOption() != c.file || resp.BootFileName != c.file || resp.ClassIdentifier() != c.class {
					t.Errorf("file %q %q, class %q", resp.BootFileNameOption(), resp.BootFileName, resp.ClassIdentifier())
				}
				if c.next != (toAddr(resp.ServerIPAddr) == serverAddr) {
					t.Errorf("next server %s", resp.ServerIPAddr)
				}
				if toAddr(resp.YourIPAddr) != a || !slices.Equal(resp.SubnetMask(), net.CIDRMask(24, 32)) || toAddr(resp.Router()[0]) != testRange.Gateway ||
					toAddr(resp.DNS()[0]) != testRange.DNS[0] || resp.IPAddressLeaseTime(0) != defaultLease || resp.IPAddressRenewalTime(0) != defaultLease/2 {
					t.Errorf("%s", resp.Summary())
				}
			}
			if len(b.progress) != 1 {
				t.Errorf("seen %q", b.progress)
			}
		})
	}
}

func TestStrangersGetSilence(t *testing.T) {
	b := authoritative(t)
	b.plans.node = nil
	if resp := b.ask(t, dhcpv4.MessageTypeDiscover, firmware("PXEClient", 0)); resp != nil {
		t.Error(resp.Summary())
	}
	if resp := b.ask(t, dhcpv4.MessageTypeInform); resp != nil {
		t.Error(resp.Summary())
	}
	// Another server may have given it: also one of the range is not ours to take away.
	for _, a := range []netip.Addr{netip.MustParseAddr("198.51.100.7"), testRange.From} {
		for _, says := range []dhcpv4.Modifier{wants(a), dhcpv4.WithClientIP(a.AsSlice())} {
			if resp := b.ask(t, dhcpv4.MessageTypeRequest, says); resp != nil {
				t.Error(resp.Summary())
			}
		}
	}
}

func TestGuestsGetAnAddressAndNothingToBoot(t *testing.T) {
	b := newBench(t, Interface{Name: "br0", Mode: Authoritative, Ranges: []Range{testRange}, Guests: true})
	b.plans.node = nil
	offer := b.ask(t, dhcpv4.MessageTypeDiscover, firmware("PXEClient", 0))
	mustBe(t, offer, dhcpv4.MessageTypeOffer)
	if offer.BootFileName != "" || offer.BootFileNameOption() != "" {
		t.Error(offer.Summary())
	}
}

func TestMediaNodesGetNoBootFile(t *testing.T) {
	b := authoritative(t)
	b.plans.node.Plan.Method = metal.BootMedia
	offer := b.ask(t, dhcpv4.MessageTypeDiscover, firmware("PXEClient", 0))
	mustBe(t, offer, dhcpv4.MessageTypeOffer)
	if offer.BootFileName != "" || offer.BootFileNameOption() != "" {
		t.Error(offer.Summary())
	}
}

func TestRenewalEndsWithThePlan(t *testing.T) {
	for name, end := range map[string]func(*metal.Node){
		"plan gone":       func(n *metal.Node) { n.Plan = nil },
		"boot number up":  func(n *metal.Node) { n.BootNumber++ },
		"NIC not in plan": func(n *metal.Node) { n.Plan.MACs = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := authoritative(t)
			a := toAddr(b.ask(t, dhcpv4.MessageTypeDiscover).YourIPAddr)
			mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest, wants(a), chose(serverAddr)), dhcpv4.MessageTypeAck)
			renew := dhcpv4.WithClientIP(a.AsSlice())
			mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest, renew), dhcpv4.MessageTypeAck)
			mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest, wants(a)), dhcpv4.MessageTypeAck) // after a reboot
			end(b.plans.node)
			mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest, renew), dhcpv4.MessageTypeNak)
			mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest, wants(a)), dhcpv4.MessageTypeNak)
			if resp := b.ask(t, dhcpv4.MessageTypeDiscover); resp != nil {
				t.Error(resp.Summary())
			}
		})
	}
}

func TestRequestForAnAddressOfAnotherNetwork(t *testing.T) {
	b := authoritative(t)
	nak := b.ask(t, dhcpv4.MessageTypeRequest, wants(netip.MustParseAddr("198.51.100.7")))
	mustBe(t, nak, dhcpv4.MessageTypeNak)
	if !nak.YourIPAddr.IsUnspecified() || nak.Options.Has(dhcpv4.OptionIPAddressLeaseTime) {
		t.Error(nak.Summary())
	}
	mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest), dhcpv4.MessageTypeNak)
}

func TestAnotherServerWasChosen(t *testing.T) {
	b := authoritative(t)
	a := netip.MustParseAddr("192.0.2.17")
	if resp := b.ask(t, dhcpv4.MessageTypeRequest, wants(a), chose(netip.MustParseAddr("192.0.2.2"))); resp != nil {
		t.Error(resp.Summary())
	}
	// Its choice is known: the renewal may come to us.
	if got := toAddr(b.ask(t, dhcpv4.MessageTypeDiscover).YourIPAddr); got != a {
		t.Errorf("offered %s", got)
	}
}

// TestAStrangerThatChoseAnotherServerGetsSilence: a NAK of ours would take the address away that the other server gave it, though it was
// ours once.
func TestAStrangerThatChoseAnotherServerGetsSilence(t *testing.T) {
	b := authoritative(t)
	a := toAddr(b.ask(t, dhcpv4.MessageTypeDiscover).YourIPAddr)
	mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest, wants(a)), dhcpv4.MessageTypeAck)
	b.plans.node = nil
	if resp := b.ask(t, dhcpv4.MessageTypeRequest, wants(a), chose(netip.MustParseAddr("192.0.2.2"))); resp != nil {
		t.Error(resp.Summary())
	}
	mustBe(t, b.ask(t, dhcpv4.MessageTypeRequest, wants(a)), dhcpv4.MessageTypeNak)
}

func TestStrangersTakeNothingFromTheRange(t *testing.T) {
	b := authoritative(t)
	b.plans.node = nil
	for a := addrToUint32(testRange.From); a <= addrToUint32(testRange.To); a++ {
		b.ask(t, dhcpv4.MessageTypeRequest, wants(uint32ToAddr(a)), chose(netip.MustParseAddr("192.0.2.2")))
		b.ask(t, dhcpv4.MessageTypeDecline, wants(uint32ToAddr(a)))
	}
	if n := len(b.pools[0].holder); n != 0 {
		t.Errorf("%d addresses are held", n)
	}
}

func TestInform(t *testing.T) {
	b := authoritative(t)
	ack := b.ask(t, dhcpv4.MessageTypeInform, firmware("PXEClient", 7), dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 77)))
	mustBe(t, ack, dhcpv4.MessageTypeAck)
	if ack.Options.Has(dhcpv4.OptionIPAddressLeaseTime) || !ack.YourIPAddr.IsUnspecified() || ack.BootFileName != testPath+"/snponly.efi" {
		t.Error(ack.Summary())
	}
	if resp := b.ask(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IPv4(198, 51, 100, 7))); resp != nil {
		t.Errorf("sent to another network: %s", resp.Summary())
	}
}

func TestDeclinedAddressIsNotGivenAgain(t *testing.T) {
	b := authoritative(t)
	a := toAddr(b.ask(t, dhcpv4.MessageTypeDiscover).YourIPAddr)
	b.ask(t, dhcpv4.MessageTypeDecline, wants(a), chose(serverAddr))
	second := toAddr(b.ask(t, dhcpv4.MessageTypeDiscover, wants(a)).YourIPAddr)
	if second == a || !second.IsValid() {
		t.Errorf("offered %s after %s", second, a)
	}
	b.ask(t, dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(second.AsSlice()))
	b.clock = b.clock.Add(declineHold)
	if third := toAddr(b.ask(t, dhcpv4.MessageTypeDiscover).YourIPAddr); third != a {
		t.Errorf("offered %s, want %s", third, a)
	}
}

func TestRelay(t *testing.T) {
	far := Range{Network: netip.MustParsePrefix("198.51.100.0/24"), From: netip.MustParseAddr("198.51.100.10"), To: netip.MustParseAddr("198.51.100.20")}
	b := newBench(t, Interface{Name: "br0", Mode: Authoritative, Ranges: []Range{testRange, far}})
	relay := net.IPv4(198, 51, 100, 1)
	info := dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.AgentCircuitIDSubOption, []byte("port 7"))))
	offer := b.ask(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithRelay(relay), info)
	mustBe(t, offer, dhcpv4.MessageTypeOffer)
	if !far.Network.Contains(toAddr(offer.YourIPAddr)) || !offer.GatewayIPAddr.Equal(relay) || string(offer.RelayAgentInfo().Get(dhcpv4.AgentCircuitIDSubOption)) != "port 7" {
		t.Error(offer.Summary())
	}
	req := &dhcpv4.DHCPv4{GatewayIPAddr: relay}
	if to := replyDestination(req, offer, netip.AddrPort{}, portServer); to.String() != "198.51.100.1:67" {
		t.Errorf("to %s", to)
	}
	nak := b.ask(t, dhcpv4.MessageTypeRequest, dhcpv4.WithRelay(relay), wants(netip.MustParseAddr("192.0.2.12")))
	mustBe(t, nak, dhcpv4.MessageTypeNak)
	if !nak.IsBroadcast() {
		t.Error("the relay is not told to broadcast")
	}
	// The relay has an address elsewhere and names the link.
	link := dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.LinkSelectionSubOption, []byte{198, 51, 100, 0})))
	offer = b.ask(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithRelay(net.IPv4(10, 9, 9, 9)), link)
	mustBe(t, offer, dhcpv4.MessageTypeOffer)
	if !far.Network.Contains(toAddr(offer.YourIPAddr)) {
		t.Error(offer.Summary())
	}
	if resp := b.ask(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithRelay(net.IPv4(10, 9, 9, 9))); resp != nil {
		t.Errorf("answered a relay of no network: %s", resp.Summary())
	}
}

func TestDestination(t *testing.T) {
	from := netip.MustParseAddrPort("192.0.2.30:1068")
	ack := &dhcpv4.DHCPv4{Options: dhcpv4.OptionsFromList(dhcpv4.OptMessageType(dhcpv4.MessageTypeAck))}
	nak := &dhcpv4.DHCPv4{Options: dhcpv4.OptionsFromList(dhcpv4.OptMessageType(dhcpv4.MessageTypeNak))}
	bound := &dhcpv4.DHCPv4{ClientIPAddr: net.IPv4(192, 0, 2, 30)}
	for _, c := range []struct {
		req, resp *dhcpv4.DHCPv4
		port      int
		want      string
	}{
		{&dhcpv4.DHCPv4{}, ack, 67, "255.255.255.255:68"},
		{bound, ack, 67, "192.0.2.30:68"},
		{bound, nak, 67, "255.255.255.255:68"},
		{bound, ack, 4011, "192.0.2.30:1068"},
	} {
		if got := replyDestination(c.req, c.resp, from, c.port).String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestProxy(t *testing.T) {
	b := newBench(t, Interface{Name: "br0", Mode: Proxy})
	uefi := firmware("PXEClient:Arch:00007", 7)
	guid := dhcpv4.WithGeneric(dhcpv4.OptionClientMachineIdentifier, append([]byte{0}, make([]byte, 16)...))
	offer := b.ask(t, dhcpv4.MessageTypeDiscover, uefi, guid)
	mustBe(t, offer, dhcpv4.MessageTypeOffer)
	if !offer.YourIPAddr.IsUnspecified() || offer.Options.Has(dhcpv4.OptionIPAddressLeaseTime) || offer.ClassIdentifier() != "PXEClient" ||
		offer.BootFileName != testPath+"/snponly.efi" || toAddr(offer.ServerIPAddr) != serverAddr || len(offer.Options.Get(dhcpv4.OptionClientMachineIdentifier)) != 17 {
		t.Error(offer.Summary())
	}
	if resp := b.ask(t, dhcpv4.MessageTypeRequest, uefi, wants(netip.MustParseAddr("192.0.2.12")), chose(netip.MustParseAddr("192.0.2.2"))); resp != nil {
		t.Error(resp.Summary())
	}
	ack := b.askOn(t, portBINL, dhcpv4.MessageTypeRequest, uefi, dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 30)))
	mustBe(t, ack, dhcpv4.MessageTypeAck)
	if ack.BootFileName != testPath+"/snponly.efi" {
		t.Error(ack.Summary())
	}
	http := b.ask(t, dhcpv4.MessageTypeDiscover, firmware("HTTPClient:Arch:00016", 16))
	mustBe(t, http, dhcpv4.MessageTypeOffer)
	if http.ClassIdentifier() != "HTTPClient" {
		t.Error(http.Summary())
	}
	if resp := b.ask(t, dhcpv4.MessageTypeDiscover); resp != nil {
		t.Errorf("an operating system was answered: %s", resp.Summary())
	}
	b.plans.node = nil
	if resp := b.ask(t, dhcpv4.MessageTypeDiscover, uefi); resp != nil {
		t.Error(resp.Summary())
	}
}

func TestStoreFailureIsSilence(t *testing.T) {
	b := authoritative(t)
	b.plans.err = problem.Unavailablef("the store is away")
	mac, _ := net.ParseMAC(testMAC)
	req := must.Get(dhcpv4.NewDiscovery(mac))(t)
	if resp, err := b.answer(t.Context(), req, portServer); resp != nil || !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, %v", resp, err)
	}
}

// FuzzDHCP varies all that comes after the header's fixed part, which a mutator would
// seldom leave whole.
func FuzzDHCP(f *testing.F) {
	for _, mods := range [][]dhcpv4.Modifier{
		{dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), firmware("PXEClient", 0)},
		{dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), firmware("HTTPClient", 16), wants(testRange.From), chose(serverAddr)},
		{dhcpv4.WithMessageType(dhcpv4.MessageTypeInform), dhcpv4.WithUserClass("iPXE", true)},
		{dhcpv4.WithMessageType(dhcpv4.MessageTypeDecline), wants(testRange.From), dhcpv4.WithGeneric(optionIPXE, []byte{1, 255})},
		{dhcpv4.WithMessageType(dhcpv4.MessageTypeRelease), dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, []byte{5, 9, 1})},
	} {
		req := must.Get(dhcpv4.New(mods...))(f)
		f.Add(req.ToBytes()[headerSize:], uint32(0), uint32(0), false, true)
	}
	f.Add([]byte{53, 1, 3, 255}, addrToUint32(testRange.From), addrToUint32(serverAddr), true, false)
	mac, _ := net.ParseMAC(testMAC)
	f.Fuzz(func(t *testing.T, options []byte, ciaddr, giaddr uint32, proxy, known bool) {
		head, err := dhcpv4.New(dhcpv4.WithHwAddr(mac), dhcpv4.WithClientIP(uint32ToAddr(ciaddr).AsSlice()), dhcpv4.WithRelay(uint32ToAddr(giaddr).AsSlice()))
		if err != nil {
			t.Fatal(err)
		}
		req, err := dhcpv4.FromBytes(append(head.ToBytes()[:headerSize], options...))
		if err != nil {
			return
		}
		c, port := Interface{Name: "br0", Mode: Authoritative, Ranges: []Range{testRange}}, portServer
		if proxy {
			c, port = Interface{Name: "br0", Mode: Proxy}, portBINL
		}
		b := newBench(t, c)
		if !known {
			b.plans.node = nil
		}
		resp, err := b.answer(t.Context(), req, port)
		if err != nil || resp == nil {
			return
		}
		if a := toAddr(resp.YourIPAddr); a.IsValid() && (proxy || !known || a.Less(testRange.From) || testRange.To.Less(a)) {
			t.Errorf("gave %s", a)
		}
		if !known && resp.MessageType() != dhcpv4.MessageTypeNak {
			t.Errorf("a stranger was answered: %s", resp.Summary())
		}
		if _, err := dhcpv4.FromBytes(resp.ToBytes()); err != nil {
			t.Errorf("reply does not parse: %v", err)
		}
		replyDestination(req, resp, netip.AddrPort{}, port)
	})
}

// headerSize is what comes before the options, magic cookie included.
const headerSize = 240
