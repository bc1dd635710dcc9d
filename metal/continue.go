package metal

import (
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Sighting is how a ramdisk that inspects says which machine it runs on.
type Sighting struct {
	NodeID string   // empty: not known
	MACs   []string // of its NICs, lower case
	BMC    []string // addresses of its BMC
	// Token is the agent token of its boot; empty: it brought none.
	Token secret.Value
	// Proof is FindingsProof of that token, from agents that do not send the token itself; empty: the agent sent none.
	Proof secret.Value
}

// isOf tells whether the ramdisk has the token of a boot.
func (s *Sighting) isOf(token secret.Value) bool {
	return s.Token.Equal(token) || !s.Proof.Empty() && s.Proof.Equal(secret.New(FindingsProof(token.Reveal())))
}

// ContinueInspection takes what a ramdisk found: it is stored as the node's documents,
// and the inspection that waits for it goes on. No such node, several, and one that
// nobody inspects look alike (NotFound), and so does one whose boot carries a token that the
// findings do not prove. Findings are taken once an inspection.
func (s *Nodes) ContinueInspection(ctx context.Context, seen Sighting, inventory, plugin json.RawMessage) (*Node, error) {
	id, err := s.matchSighting(ctx, seen)
	if err != nil {
		return nil, err
	}
	var n *Node
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		if n, err = s.store.Node(ctx, tx, id); err != nil {
			return err
		}
		if !n.within(ctx) {
			return notFound
		}
		if n.CarriesToken() && !seen.isOf(n.AgentToken(s.key)) {
			s.refused.add(n.ID, n.BootNumber, "", time.Time{})
			return notFound // the machine that booted has the token: who has none is somebody else
		}
		if awaited, err := s.awaitsFindings(ctx, tx, n); err != nil || !awaited {
			return orNotFound(err)
		}
		for kind, body := range map[DocumentKind]json.RawMessage{Inventory: inventory, PluginData: plugin} {
			if err := s.store.SaveDocument(tx, Document{NodeID: n.ID, Kind: kind, Body: body, CreatedAt: s.now(), UpdatedAt: s.now()}); err != nil {
				return err
			}
		}
		if err := s.jobs.Signal(tx, job.Node(n.ID)); err != nil {
			return err
		}
		return s.note(tx, n.ID, record.Asker{}, "contact", "the ramdisk brought what it found")
	})
	return n, err
}

func orNotFound(err error) error {
	if err == nil || problem.Is(err, problem.NotFound) {
		return notFound
	}
	return err
}

// awaitsFindings tells whether an inspection of the node waits for its ramdisk. A ramdisk may be
// faster than the job that started it, and asks only once: it is heard before the job has parked.
func (s *Nodes) awaitsFindings(ctx context.Context, tx job.Tx, n *Node) (bool, error) {
	booted := n.ProvisionState == Inspecting && n.Plan != nil && n.Plan.BootNumber == n.BootNumber
	if n.ProvisionState != InspectWait && !booted {
		return false, nil
	}
	doc, err := s.store.Document(ctx, tx, n.ID, Inventory)
	if problem.Is(err, problem.NotFound) {
		return true, nil
	}
	return err == nil && doc.UpdatedAt.Before(n.InspectionStart), err
}

// matchSighting finds the node: by its UUID, by the MACs of its ports, or by its BMC among those
// that are inspected. What contradicts itself finds nothing.
func (s *Nodes) matchSighting(ctx context.Context, seen Sighting) (string, error) {
	found := seen.NodeID
	if len(seen.MACs) > 0 {
		owners, err := s.store.NodesOfMACs(ctx, seen.MACs)
		if err != nil {
			return "", err
		}
		switch {
		case len(owners) == 0 || slices.Contains(owners, found):
		case found != "":
			return "", notFound
		case len(owners) == 1:
			found = owners[0]
		default:
			n, err := s.onlyOne(ctx, owners, func(n *Node) bool {
				return (n.ProvisionState == InspectWait || n.ProvisionState == Inspecting) && (!n.CarriesToken() || seen.isOf(n.AgentToken(s.key)))
			})
			if err != nil {
				return "", err
			}
			found = n.ID
		}
	}
	if found != "" {
		return found, nil
	}
	for _, state := range []State{InspectWait, Inspecting} {
		nodes, err := s.store.Nodes(ctx, nil, NodeFilter{ProvisionState: state}, record.Page{Limit: 1000})
		if err != nil {
			return "", err
		}
		for _, n := range nodes {
			if !n.within(ctx) || !n.hasBMC(seen.BMC) {
				continue
			}
			if found != "" {
				return "", notFound
			}
			found = n.ID
		}
	}
	if found == "" {
		return "", notFound
	}
	return found, nil
}

// hasBMC tells whether an address of driver_info is one of these. Host names are compared as
// they are written; loopback names no BMC.
func (n *Node) hasBMC(addresses []string) bool {
	for key, v := range n.DriverInfo {
		host, ok := v.(string)
		if !ok || !strings.HasSuffix(key, "_address") {
			continue
		}
		if strings.Contains(host, "//") {
			u, err := url.Parse(host)
			if err != nil {
				continue
			}
			host = u.Hostname()
		}
		host = strings.Trim(host, "[]")
		for _, address := range addresses {
			if sameHost(host, address) {
				return true
			}
		}
	}
	return false
}

func sameHost(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX == nil && errY == nil {
		return x.Unmap() == y.Unmap() && !x.Unmap().IsLoopback()
	}
	return a != "" && strings.EqualFold(a, b) && !strings.EqualFold(a, "localhost")
}
