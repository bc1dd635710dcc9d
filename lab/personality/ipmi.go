package personality

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// ipmiKind is a way in which an IPMI BMC differs. The set is closed.
type ipmiKind string

const (
	ipmiOneSuite ipmiKind = "one_suite" // a session with another cipher suite is refused by status
	ipmiSilent   ipmiKind = "silent"    // a login that it refuses is not answered
	ipmiPyghmi   ipmiKind = "pyghmi"    // the BMC is a program on the library pyghmi
	ipmiForever  ipmiKind = "forever"   // a boot device holds until another one is set, and cannot be removed
	ipmiRunning  ipmiKind = "running"   // of a machine that is on, it reads the boot device that the machine was started with
)

// ipmiRow is one fact about an IPMI BMC.
type ipmiRow struct {
	kind   ipmiKind
	what   string // for the page
	source string
}

const (
	virtualBMC    = "openstack/virtualbmc, virtualbmc/vbmc.py"
	pyghmiSession = "openstack/pyghmi, pyghmi/ipmi/private/serversession.py"
)

// ipmi are the rows of each personality.
var ipmi = map[Name][]ipmiRow{
	VirtualBMC: {
		{ipmiPyghmi, "the BMC is a program on pyghmi: it has cipher suite 3 alone, opens a session with it whatever is asked, and does not answer a wrong user name or login", pyghmiSession},
		{ipmiForever, "a boot device holds until another one is set; a removal, and a device that is neither network, disk nor CD, is taken and changes nothing", virtualBMC + ": set_boot_device"},
		{ipmiRunning, "of a machine that is on, the boot device reads as the machine was started with", virtualBMC + ": get_boot_device"},
	},
	Suite3Only: {
		{ipmiOneSuite, "a session with another cipher suite than 3 is refused with the status of no matching suite (0x11)", "IPMI 2.0 specification, tables 13-15 and 22-20"},
	},
	SilentOnWrongUser: {
		{ipmiSilent, "a login that the BMC refuses is not answered", pyghmiSession + ": _got_rakp1"},
	},
}

func (n Name) hasIPMI(k ipmiKind) bool {
	return slices.ContainsFunc(ipmi[n], func(r ipmiRow) bool { return r.kind == k })
}

// UsesPyghmi tells whether the BMC is a program on the Python library pyghmi.
func (n Name) UsesPyghmi() bool { return n.hasIPMI(ipmiPyghmi) }

// BootsForever tells whether a boot device holds until another one is set, and cannot be removed.
func (n Name) BootsForever() bool { return n.hasIPMI(ipmiForever) }

// ReadsRunning tells whether the boot device of a machine that is on reads as the machine was started with.
func (n Name) ReadsRunning() bool { return n.hasIPMI(ipmiRunning) }

// Filters tells whether a Filter makes a plain BMC like this one.
func (n Name) Filters() bool { return n.hasIPMI(ipmiOneSuite) || n.hasIPMI(ipmiSilent) }

const (
	maxPeers    = 64
	maxDatagram = 2048
	peerIdle    = time.Minute
)

// Filter stands between the clients of an IPMI BMC and a plain one. It changes the handshake of sessions, which is not encrypted.
type Filter struct {
	name  Name
	front *net.UDPConn
	plain *net.UDPAddr

	mu    sync.Mutex
	peers map[string]*net.UDPConn
	done  sync.WaitGroup
}

// NewFilter serves on an address, with the plain BMC at another one, until it is closed.
func NewFilter(name Name, at, plain *net.UDPAddr) (*Filter, error) {
	front, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, err
	}
	f := &Filter{name: name, front: front, plain: plain, peers: map[string]*net.UDPConn{}}
	f.done.Go(f.serve)
	return f, nil
}

// Address is where it serves.
func (f *Filter) Address() *net.UDPAddr { return f.front.LocalAddr().(*net.UDPAddr) }

// Close ends it, and waits until it has ended.
func (f *Filter) Close() {
	_ = f.front.Close()
	f.mu.Lock()
	for _, back := range f.peers {
		_ = back.Close()
	}
	f.mu.Unlock()
	f.done.Wait()
}

func (f *Filter) serve() {
	in := make([]byte, maxDatagram)
	for {
		n, peer, err := f.front.ReadFromUDP(in)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // of a peer that is gone
		}
		if answer := f.refusal(in[:n]); answer != nil {
			_, _ = f.front.WriteToUDP(answer, peer)
			continue
		}
		if back := f.back(peer); back != nil {
			_, _ = back.Write(in[:n])
		}
	}
}

// back is the connection to the plain BMC for a peer; nil: there are too many peers, or the filter ends.
func (f *Filter) back(peer *net.UDPAddr) *net.UDPConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if back := f.peers[peer.String()]; back != nil {
		return back
	}
	if len(f.peers) >= maxPeers {
		return nil
	}
	back, err := net.DialUDP("udp", nil, f.plain)
	if err != nil {
		return nil
	}
	f.peers[peer.String()] = back
	f.done.Go(func() {
		f.answer(back, peer)
		f.mu.Lock()
		delete(f.peers, peer.String())
		f.mu.Unlock()
		_ = back.Close()
	})
	return back
}

// answer passes what the plain BMC says on to a peer.
func (f *Filter) answer(back *net.UDPConn, peer *net.UDPAddr) {
	in := make([]byte, maxDatagram)
	for {
		_ = back.SetReadDeadline(time.Now().Add(peerIdle))
		n, err := back.Read(in)
		if err != nil {
			return
		}
		if !f.isSilentAbout(in[:n]) {
			_, _ = f.front.WriteToUDP(in[:n], peer)
		}
	}
}

// Where things lie in a datagram of RMCP+ (IPMI 2.0, 13.6, 13.17 and 13.18).
const (
	atAuthType    = 4
	atPayloadType = 5
	atPayload     = 16
	rmcpPlus      = 6

	openRequest = 0x10
	openAnswer  = 0x11
	rakp2       = 0x13
	rakp4       = 0x15

	openRequestSize = 32
	noMatchingSuite = 0x11
)

func payloadOf(b []byte) (kind byte, payload []byte) {
	if len(b) < atPayload || b[atAuthType] != rmcpPlus {
		return 0, nil
	}
	return b[atPayloadType] & 0x3f, b[atPayload:]
}

// refusal is the answer to a request of a session with another suite; nil: the request is passed on.
func (f *Filter) refusal(b []byte) []byte {
	kind, p := payloadOf(b)
	if kind != openRequest || len(p) < openRequestSize || !f.name.hasIPMI(ipmiOneSuite) {
		return nil
	}
	if p[12] == 1 && p[20] == 1 && p[28] == 1 { // suite 3: HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128
		return nil
	}
	const size = 8
	out := append([]byte{6, 0, 0xff, 7, rmcpPlus, openAnswer, 0, 0, 0, 0, 0, 0, 0, 0, size, 0}, p[0], noMatchingSuite, 0, 0)
	return append(out, p[4:8]...) // the console's session id
}

// isSilentAbout tells whether an answer is a refused login, of which this BMC says nothing.
func (f *Filter) isSilentAbout(b []byte) bool {
	kind, p := payloadOf(b)
	return f.name.hasIPMI(ipmiSilent) && (kind == rakp2 || kind == rakp4) && len(p) > 1 && p[1] != 0
}
