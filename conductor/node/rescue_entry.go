package node

import (
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/networkdata"
	"salvor/problem"
	"salvor/rescue"
)

// rescueEntry finds out how a user gets into a rescue system: by which host key, at which addresses.
type rescueEntry struct {
	// moves: the machine's ports leave the network on which its agent is heard.
	moves bool
	// interfaces are the MACs on whose addresses ssh listens; none: all.
	interfaces []string
}

// rescueFacts are what a session is told of its rescue system.
type rescueFacts struct {
	hostKey   rescue.HostKey
	addresses []string
	notice    string
	leftOut   []string // of the network
	agent     *rescue.Agent
}

// into gives the session with the facts; old may be nil.
func (f rescueFacts) into(old *rescue.Session) *rescue.Session {
	session := rescue.Session{}
	if old != nil {
		session = *old
	}
	session.HostKey, session.Fingerprint, session.Addresses, session.Notice, session.LeftOut = f.hostKey.Key, f.hostKey.Fingerprint, f.addresses, f.notice, f.leftOut
	session.Agent = f.agent
	return &session
}

// read asks the agent. Conflict: it takes no keys, and the credential has nothing else.
func (e rescueEntry) read(ctx context.Context, m *managedNode, a driver.Agent, f driver.Finalize, c rescue.Credential) (rescueFacts, error) {
	var facts rescueFacts
	system := driver.RescueSystem{}
	if reader, ok := m.rescue.(driver.RescueReader); ok {
		var err error
		switch system, err = reader.ReadRescueSystem(ctx, m.node, a, f); {
		case problem.Is(err, problem.Unavailable):
			return facts, err
		case err != nil: // it refuses: what follows shows whether it refuses that too
			facts.notice = "the agent of the rescue ramdisk did not show its ssh host key"
		}
	}
	if len(c.Keys) > 0 && !system.TakesKeys {
		if c.Hash.Empty() {
			return facts, problem.Conflictf("the agent %s of the rescue ramdisk takes no ssh keys, and the rescue has no password. Ask for rescue again with a password, or build the ramdisk anew: salvor ramdisk build", problem.Quote(a.Version))
		}
		facts.notice = "the agent of the rescue ramdisk takes no ssh keys: only the password opens it"
	}
	if system.HostKey != "" {
		key, err := rescue.ParseHostKey(system.HostKey)
		if err != nil {
			facts.notice = "the agent showed an ssh host key that cannot be read"
		}
		facts.hostKey = key
	}
	data := system.NetworkData
	if len(data) == 0 && f.Extras != nil {
		data = f.Extras.NetworkData
	}
	facts.addresses = e.addresses(data, a.URL)
	if facts.leftOut = system.LeftOut; system.Checked {
		fixed := e.fixed(data)
		facts.addresses = slices.DeleteFunc(facts.addresses, func(address string) bool {
			return slices.Contains(fixed, address) && !slices.Contains(system.Addresses, address)
		})
	}
	for _, text := range facts.leftOut {
		driver.Note(ctx, "the rescue system leaves out of the network: %s", text)
	}
	return facts, nil
}

// maxEntryAddresses bounds the addresses that a session shows.
const maxEntryAddresses = 16

// addresses are those of the network data that are fixed. Without any, a machine that stays on its network keeps the address at which its
// agent was heard. None: the machine asks for an address when salvor hears it no more.
func (e rescueEntry) addresses(data json.RawMessage, agentURL string) []string {
	out := e.fixed(data)
	u, err := url.Parse(agentURL)
	if len(out) > 0 || err != nil || e.moves || len(e.interfaces) > 0 {
		return out
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && address.Zone() == "" {
		return []string{address.String()}
	}
	return nil
}

// fixed are the fixed addresses of network data on which ssh listens.
func (e rescueEntry) fixed(text json.RawMessage) (out []string) {
	data, err := networkdata.Parse(text)
	if err != nil {
		return nil
	}
	on := data.LinksOn(e.listens)
	for _, n := range data.Networks {
		if a := n.Address.Addr().String(); n.Method == networkdata.Static && n.Address.Addr().IsGlobalUnicast() && on[n.Link] && len(out) < maxEntryAddresses && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// listens tells whether ssh answers on a NIC.
func (e rescueEntry) listens(mac string) bool {
	return len(e.interfaces) == 0 || slices.ContainsFunc(e.interfaces, func(m string) bool { return strings.EqualFold(m, mac) })
}
