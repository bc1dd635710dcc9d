package netboot

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"salvor/metal"
)

// clientKind is what sort of program asks for an address.
type clientKind int

const (
	kindPlain clientKind = iota // an operating system: wants no boot file
	kindIPXE
	kindHTTP    // UEFI HTTP boot
	kindPXEUEFI // x86-64
	kindPXEBIOS
	kindForeign // firmware of a machine that our boot files do not fit
)

const (
	optionIPXE      = dhcpv4.GenericOptionCode(175) // encapsulates options between iPXE and DHCP server
	classPXE        = "PXEClient"
	classHTTP       = "HTTPClient"
	maxHeaderString = 127 // of the file field, with its closing zero
)

// Features of iPXE, as option 175 encapsulates them: a code, a length of 1, and a version.
const (
	firstFeature = 16
	lastFeature  = 63
	featureHTTP  = 19
)

// lacksHTTP tells whether an iPXE lists its features and HTTP is not among them, as iPXE in the ROM of a NIC may be built. Such an iPXE is given our
// own loader, as plain PXE is.
func lacksHTTP(req *dhcpv4.DHCPv4) bool {
	text, lists := req.Options.Get(optionIPXE), false
	for len(text) >= 2 && len(text) >= 2+int(text[1]) {
		code, value := text[0], text[2:2+text[1]]
		text = text[2+text[1]:]
		if code < firstFeature || code > lastFeature || len(value) != 1 {
			continue
		}
		if lists = true; code == featureHTTP && value[0] != 0 {
			return false
		}
	}
	return lists
}

// kindOf reads the vendor class, user class and architecture (RFC 4578) of a request.
func kindOf(req *dhcpv4.DHCPv4) clientKind {
	if (req.Options.Has(optionIPXE) || slices.Contains(req.UserClass(), "iPXE")) && !lacksHTTP(req) {
		return kindIPXE
	}
	class := req.ClassIdentifier()
	text := req.Options.Get(dhcpv4.OptionClientSystemArchitectureType)
	var archs iana.Archs
	_ = archs.FromBytes(text) // those before a damaged one count
	switch {
	case strings.HasPrefix(class, classHTTP):
		for _, a := range archs {
			if a == iana.EFI_X86_64_HTTP || a == iana.EFI_X86_64 || a == iana.EFI_BC {
				return kindHTTP
			}
		}
		return kindForeign
	case strings.HasPrefix(class, classPXE):
		if text == nil {
			return kindPXEBIOS
		}
		for _, a := range archs {
			switch a {
			case iana.INTEL_X86PC:
				return kindPXEBIOS
			case iana.EFI_X86_64, iana.EFI_BC:
				return kindPXEUEFI
			}
		}
		return kindForeign
	}
	return kindPlain
}

// boot adds what the client is to load next, if anything.
func (r *dhcpResponder) boot(resp *dhcpv4.DHCPv4, c dhcpClient) {
	what := "address given"
	switch {
	case c.plan == nil:
		return
	case c.plan.Method == metal.BootMedia || c.kind == kindPlain || c.kind == kindForeign:
		// Firmware that gets an address without a file goes on to its next boot device, the media.
	case c.kind == kindIPXE:
		if r.Mode == Authoritative {
			// No second server is to be waited for: it saves iPXE two seconds.
			resp.UpdateOption(dhcpv4.OptGeneric(optionIPXE, []byte{176, 1, 1}))
		}
		// From a second server iPXE takes a file only with a next server, which the URL does not need.
		resp.ServerIPAddr = r.addr.AsSlice()
		bootFile(resp, r.fileURL(c.plan, metal.BootScript))
		what = "boot script named"
	case c.kind == kindHTTP:
		resp.UpdateOption(dhcpv4.OptClassIdentifier(classHTTP))
		bootFile(resp, r.fileURL(c.plan, c.plan.HTTPFile()))
		what = "UEFI image named"
	case c.kind == kindPXEUEFI:
		r.loader(resp, c.plan, r.uefi)
		what = "boot loader named"
	case c.kind == kindPXEBIOS:
		r.loader(resp, c.plan, r.bios)
		what = "boot loader named"
	}
	// Beside another server the offer is the last that is heard of some firmware.
	if r.Mode == Proxy || resp.MessageType() == dhcpv4.MessageTypeAck {
		r.recordContact(c.node, what)
	}
}

// proxy answers firmware beside the network's own server: what to boot, no address.
func (r *dhcpResponder) proxy(req *dhcpv4.DHCPv4, c dhcpClient, port int) (*dhcpv4.DHCPv4, error) {
	if c.plan == nil || c.plan.Method == metal.BootMedia || c.kind == kindPlain || c.kind == kindForeign {
		return nil, nil
	}
	kind := dhcpv4.MessageTypeAck
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform:
		if port != portBINL {
			return nil, nil // meant for the server that gives the address
		}
	default:
		return nil, nil
	}
	resp, err := r.bare(req, kind)
	if err != nil {
		return nil, err
	}
	resp.ClientIPAddr = req.ClientIPAddr
	r.boot(resp, c)
	if c.kind != kindHTTP {
		resp.UpdateOption(dhcpv4.OptClassIdentifier(classPXE))
		// PXE_DISCOVERY_CONTROL 8: take the file named here, look for no boot server.
		resp.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionVendorSpecificInformation, []byte{6, 1, 8, 255}))
	}
	if guid := req.Options.Get(dhcpv4.OptionClientMachineIdentifier); guid != nil {
		resp.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionClientMachineIdentifier, guid)) // PXE wants it back
	}
	return resp, nil
}

// loader names a boot loader on our TFTP server, which gives it to nobody who does not know the boot's path.
func (r *dhcpResponder) loader(resp *dhcpv4.DHCPv4, plan *metal.BootPlan, name string) {
	resp.ServerIPAddr = r.addr.AsSlice()
	resp.UpdateOption(dhcpv4.OptTFTPServerName(r.addr.String()))
	bootFile(resp, plan.Path+"/"+name)
}

// bootFile names the file in the option and, where it fits, in the header too, where old firmware looks.
func bootFile(resp *dhcpv4.DHCPv4, name string) {
	resp.UpdateOption(dhcpv4.OptBootFileName(name))
	if len(name) <= maxHeaderString {
		resp.BootFileName = name
	}
}

// dhcpOptions is where the options of a DHCP message begin: behind the header and the magic cookie.
const dhcpOptions = 240

// encodeReply encodes a reply with a pad byte behind the option that names the boot file. Firmware that takes the name for a text with a zero at its
// end then reads the name alone.
func encodeReply(resp *dhcpv4.DHCPv4) []byte {
	out := resp.ToBytes()
	for i := dhcpOptions; i+1 < len(out) && out[i] != dhcpv4.OptionEnd.Code(); {
		if out[i] == dhcpv4.OptionPad.Code() {
			i++
			continue
		}
		code, next := out[i], i+2+int(out[i+1])
		if code == dhcpv4.OptionBootfileName.Code() && next <= len(out) {
			return slices.Insert(out, next, dhcpv4.OptionPad.Code())
		}
		i = next
	}
	return out
}

func (r *dhcpResponder) fileURL(plan *metal.BootPlan, name string) string {
	at := *plan
	if at.URL == "" {
		at.URL = r.baseURL
	}
	return at.FileURL(name)
}

// toAddr is the zero Addr for no address and 0.0.0.0.
func toAddr(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip)
	if a = a.Unmap(); !ok || !a.Is4() || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

func toIPs(in []netip.Addr) []net.IP {
	out := make([]net.IP, len(in))
	for i, a := range in {
		out[i] = a.AsSlice()
	}
	return out
}

func prefixMask(n netip.Prefix) net.IPMask { return net.CIDRMask(n.Bits(), 32) }
