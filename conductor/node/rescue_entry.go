package node

import (
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"salvor/driver"
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
	agent     *rescue.Agent
}

// into gives the session with the facts; old may be nil.
func (f rescueFacts) into(old *rescue.Session) *rescue.Session {
	session := rescue.Session{}
	if old != nil {
		session = *old
	}
	session.HostKey, session.Fingerprint, session.Addresses, session.Notice = f.hostKey.Key, f.hostKey.Fingerprint, f.addresses, f.notice
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
	return facts, nil
}

// maxEntryAddresses bounds the addresses that a session shows.
const maxEntryAddresses = 16

// addresses are those of the network data that are fixed. Without any, a machine that stays on its network keeps the address at which its
// agent was heard. None: the machine asks for an address when salvor hears it no more.
func (e rescueEntry) addresses(data json.RawMessage, agentURL string) []string {
	var d struct {
		Links []struct {
			ID  string `json:"id"`
			MAC string `json:"ethernet_mac_address"`
		} `json:"links"`
		Networks []struct {
			Link    string `json:"link"`
			Address string `json:"ip_address"`
		} `json:"networks"`
	}
	var out []string
	if json.Unmarshal(data, &d) == nil {
		mac := map[string]string{}
		for _, l := range d.Links {
			mac[l.ID] = l.MAC
		}
		for _, n := range d.Networks {
			text, _, _ := strings.Cut(n.Address, "/")
			address, err := netip.ParseAddr(text)
			if err != nil || address.Zone() != "" || len(out) == maxEntryAddresses || !e.listens(mac[n.Link]) || slices.Contains(out, address.String()) {
				continue
			}
			out = append(out, address.String())
		}
	}
	u, err := url.Parse(agentURL)
	if len(out) > 0 || err != nil || e.moves || len(e.interfaces) > 0 {
		return out
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && address.Zone() == "" {
		return []string{address.String()}
	}
	return nil
}

// listens tells whether ssh answers on a NIC.
func (e rescueEntry) listens(mac string) bool {
	return len(e.interfaces) == 0 || slices.ContainsFunc(e.interfaces, func(m string) bool { return strings.EqualFold(m, mac) })
}
