package metal

import (
	"context"
	"fmt"
	"salvor/record"
	"strings"
)

// Validity is whether an interface of a node can work, and why not.
type Validity struct {
	OK     bool
	Known  bool // false: the driver has no such interface; clients show None
	Reason string
}

// Validate tells for each kind of interface whether it can work. It asks no machine:
// it compares the record with what the conductors published.
func (s *Nodes) Validate(ctx context.Context, ident string) (map[string]Validity, error) {
	n, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	d, err := s.directory.Driver(ctx, n)
	if err != nil {
		return nil, err
	}
	ports, err := s.store.Ports(ctx, PortFilter{NodeID: n.ID}, record.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	out := make(map[string]Validity, len(InterfaceKinds))
	for _, kind := range InterfaceKinds {
		if kind == "vendor" {
			continue
		}
		out[kind] = validity(n, d, kind, len(ports), kind == "rescue" || kind == "boot" && n.Interfaces["rescue"] != "no-rescue")
	}
	if out["storage"].OK {
		if _, out["storage"], err = s.storageValidity(ctx, n, d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func validity(n *Node, d DriverInfo, kind string, ports int, forRescue bool) Validity {
	i, ok := d.Find(n, kind)
	if !ok {
		return Validity{Reason: fmt.Sprintf("the driver %s has no %s interface %q", n.Driver, kind, n.Interfaces[kind])}
	}
	if i.Unsupported {
		return Validity{Reason: "not supported", Known: false}
	}
	if i.Broken != "" {
		return Validity{Known: true, Reason: i.Broken}
	}
	var missing []string
	for _, key := range i.Required {
		if !n.has(key) {
			missing = append(missing, key)
		}
	}
	if forRescue {
		for _, key := range i.RequiredForRescue {
			if !n.has(key) {
				missing = append(missing, key)
			}
		}
	}
	if len(missing) > 0 {
		return Validity{Known: true, Reason: fmt.Sprintf("driver_info lacks %s", strings.Join(missing, ", "))}
	}
	if i.NeedsHeartbeat {
		if deploy, ok := d.Find(n, "deploy"); ok && deploy.Heartbeat == "" {
			return Validity{Known: true, Reason: fmt.Sprintf("the %s interface %s needs heartbeats, which the deploy interface %s does not take: set deploy_interface to one that does, such as custom-agent", kind, i.Name, deploy.Name)}
		}
	}
	if len(i.ImageFormats) > 0 && !d.FromVolumes(n) {
		if _, err := ImageOf(n, i.ImageFormats); err != nil {
			return Validity{Known: true, Reason: err.Error()}
		}
	}
	if i.NeedsPorts && ports == 0 {
		return Validity{Known: true, Reason: "the node has no port: create one with the MAC of its NIC"}
	}
	return Validity{OK: true, Known: true}
}

// has tells whether driver_info holds a non-empty scalar under the key.
func (n *Node) has(key string) bool { return strings.TrimSpace(n.Info(key)) != "" }
