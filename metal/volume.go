package metal

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Connector is the initiator's side of a volume: how the node is known to a storage system.
type Connector struct {
	record.Record
	NodeID      string
	Type        string // iqn, ip, mac, wwnn, wwpn, net-id, port, portgroup, or what an operator calls it
	ConnectorID string // unique among all of its type
	// Lessee is the project that made the connector while it leased the node. Empty: the operator or the owner made it, and a lessee
	// cannot change it.
	Lessee string
	Extra  Object
}

// ConnectorFilter narrows a list of volume connectors; zero fields do not narrow.
type ConnectorFilter struct{ NodeID, Type, ConnectorID, Project string }

// Target is the disk's side of a volume: where the node finds it.
type Target struct {
	record.Record
	NodeID     string
	VolumeType string // iscsi, fibre_channel
	VolumeID   string
	BootIndex  int    // 0 is the root; unique among the targets of the node
	Properties Object // of the connection, with credentials; sealed by the store
	Lessee     string // the project that made the target while it leased the node; empty: the operator or the owner
	Extra      Object
}

// TargetFilter narrows a list of volume targets; zero fields do not narrow.
type TargetFilter struct {
	NodeID, VolumeType, VolumeID, Project string
	BootIndex                             *int
}

// Connectors is the service that changes volume connectors by the rules.
type Connectors = record.Collection[Connector, ConnectorFilter]

// Targets is the service that changes volume targets by the rules.
type Targets = record.Collection[Target, TargetFilter]

// NewConnectors makes the service. A strict one takes connectors of known types and forms only.
func NewConnectors(store Store, nodes *Nodes, strict bool) *Connectors {
	s := record.NewCollection("volume connector", store.Connectors(), nodes.jobs, nodes.now)
	s.Check = func(c *Connector) error {
		if err := c.check(); err != nil || !strict {
			return err
		}
		return c.CheckForm()
	}
	s.Admit = func(ctx context.Context, tx job.Tx, c record.Change[Connector]) error {
		return nodes.admitVolume(ctx, tx, s.Name, volumeChangeOf(c, func(r *Connector) string { return r.NodeID }))
	}
	s.Subject = nil // a move concerns two nodes
	s.Settle = func(_ context.Context, tx job.Tx, c record.Change[Connector]) error {
		return nodes.noteVolume(tx, s.Name, c.Newest().ID, s.Done(c), volumeChangeOf(c, func(r *Connector) string { return r.NodeID }), c.Asker)
	}
	return s
}

// NewTargets makes the service.
func NewTargets(store Store, nodes *Nodes) *Targets {
	s := record.NewCollection("volume target", store.Targets(), nodes.jobs, nodes.now)
	s.Check = (*Target).check
	s.Admit = func(ctx context.Context, tx job.Tx, c record.Change[Target]) error {
		return nodes.admitVolume(ctx, tx, s.Name, volumeChangeOf(c, func(r *Target) string { return r.NodeID }))
	}
	s.Subject = nil // a move concerns two nodes
	s.Settle = func(_ context.Context, tx job.Tx, c record.Change[Target]) error {
		return nodes.noteVolume(tx, s.Name, c.Newest().ID, s.Done(c), volumeChangeOf(c, func(r *Target) string { return r.NodeID }), c.Asker)
	}
	return s
}

// volumeChange is what a change of a connector or target means for nodes: from is empty for a creation, to for a removal.
type volumeChange struct{ from, to string }

func volumeChangeOf[R any](c record.Change[R], node func(*R) string) volumeChange {
	var v volumeChange
	if c.Old != nil {
		v.from = node(c.Old)
	}
	if c.New != nil {
		v.to = node(c.New)
	}
	return v
}

// admitVolume refuses to change what a running machine boots from. A new record is taken
// at any time: it counts from the next boot on. One of a node that never ran may go at any time.
func (s *Nodes) admitVolume(ctx context.Context, tx job.Tx, word string, v volumeChange) error {
	if v.from == "" {
		_, err := s.parent(ctx, tx, v.to, true)
		return err
	}
	action := word + " update"
	free := []State(nil)
	if v.to == "" {
		action, free = word+" deletion", []State{Enroll, Manageable, AdoptFailed}
	}
	if v.to != "" {
		if err := s.checkNewParent(ctx, tx, v.from, v.to); err != nil {
			return err
		}
	}
	ids := []string{v.from}
	if v.to != "" && v.to != v.from {
		ids = append(ids, v.to)
	}
	for _, id := range ids {
		n, err := s.parent(ctx, tx, id, id != v.from)
		if err != nil {
			return err
		}
		if n.Reservation != "" {
			return Locked(n)
		}
		if n.PowerState != PowerOff && !slices.Contains(free, n.ProvisionState) {
			return problem.Invalidf(`The requested action "%s" can not be performed on node "%s" while it is in state "%s". Power it off first.`, action, n.ID, cmp.Or(string(n.PowerState), "unknown"))
		}
	}
	return nil
}

// noteVolume writes the timelines of the nodes that a change touches. What the record holds stays out of them.
func (s *Nodes) noteVolume(tx job.Tx, word, id, done string, v volumeChange, asker record.Asker) error {
	text := word + " " + id + " " + done
	if v.from != "" && v.to != "" && v.from != v.to {
		if err := s.note(tx, v.from, asker, "request", word+" "+id+" moved to node "+v.to); err != nil {
			return err
		}
		text = word + " " + id + " moved here from node " + v.from
	}
	return s.note(tx, cmp.Or(v.to, v.from), asker, "request", text)
}

func (c *Connector) check() error {
	switch {
	case c.Type == "" || utf8.RuneCountInString(c.Type) > 32:
		return problem.Invalidf("Invalid input for field/attribute type. It must have 1 to 32 characters.")
	case c.ConnectorID == "" || utf8.RuneCountInString(c.ConnectorID) > words255:
		return problem.Invalidf("Invalid input for field/attribute connector_id. It must have 1 to 255 characters.")
	}
	return nil
}

func (t *Target) check() error {
	switch {
	case t.VolumeType == "" || utf8.RuneCountInString(t.VolumeType) > 64:
		return problem.Invalidf("Invalid input for field/attribute volume_type. It must have 1 to 64 characters.")
	case t.VolumeID == "" || utf8.RuneCountInString(t.VolumeID) > 36:
		return problem.Invalidf("Invalid input for field/attribute volume_id. It must have 1 to 36 characters.")
	}
	return nil
}

// connectorForms are the known types of connectors, with what their ids look like.
var connectorForms = map[string]struct {
	want string
	ok   func(string) bool
}{
	"iqn":       {"an iSCSI name: iqn.YYYY-MM.DOMAIN[:NAME], eui. with 16 or naa. with 16 or 32 hexadecimal digits", validISCSIName},
	"ip":        {"an IP address", func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Zone() == "" }},
	"mac":       {"a MAC address", func(s string) bool { _, err := ParseMAC(s); return err == nil }},
	"wwnn":      {wwnForm, wwn.MatchString},
	"wwpn":      {wwnForm, wwn.MatchString},
	"net-id":    {"the UUID of a network", record.IsUUID},
	"port":      {"the UUID of a port", record.IsUUID},
	"portgroup": {"the UUID of a portgroup", record.IsUUID},
}

const wwnForm = "a World Wide Name: 16 hexadecimal digits, with or without colons between the pairs"

var wwn = regexp.MustCompile(`^([0-9A-Fa-f]{16}|([0-9A-Fa-f]{2}:){7}[0-9A-Fa-f]{2})$`)

// CheckForm refuses (Invalid) a connector of a type that is not known, or whose id is none of its type.
func (c *Connector) CheckForm() error {
	form, ok := connectorForms[c.Type]
	if !ok {
		known := slices.Sorted(maps.Keys(connectorForms))
		return problem.Invalidf("volume connector type %q is not known; use one of %s", c.Type, strings.Join(known, ", "))
	}
	if !form.ok(c.ConnectorID) {
		return problem.Invalidf("volume connector of type %s: %q is not %s", c.Type, c.ConnectorID, form.want)
	}
	return nil
}

// checkConnectors holds all connectors of a node to their forms.
func (s *Nodes) checkConnectors(ctx context.Context, nodeID string) error {
	all, err := s.store.Connectors().List(ctx, nil, ConnectorFilter{NodeID: nodeID}, record.Page{Limit: 1000})
	for _, c := range all {
		if err == nil {
			err = c.CheckForm()
		}
	}
	return err
}

// credentialWords are the parts of a property's name, without its separators, that tell of
// a credential beside the ones that every secret has.
var credentialWords = []string{"authuser", "authname", "authpass", "authkey", "chapuser", "chapname", "chappass", "username", "credential", "privatekey", "apikey", "accesskey"}

// VolumeSecret tells which keys of a target's properties are credentials: what looks like a
// secret, and auth_username with its discovery and mutual twins.
func VolumeSecret(key string) bool {
	if known, ok := usualProperties[key]; ok {
		return known
	}
	return isCredential(key)
}

func isCredential(key string) bool {
	if secret.IsKey(key) {
		return true
	}
	flat := strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(key))
	return secret.IsKey(flat) || slices.ContainsFunc(credentialWords, func(w string) bool { return strings.Contains(flat, w) })
}

// usualProperties spares the usual keys the search: a page of targets has thousands of them.
var usualProperties = func() map[string]bool {
	m := map[string]bool{}
	for _, key := range []string{
		"auth_method", "auth_username", "auth_password", "discovery_auth_method", "discovery_auth_username", "discovery_auth_password",
		"mutual_auth_username", "mutual_auth_password", "target_iqn", "target_iqns", "target_portal", "target_portals", "target_lun", "target_luns",
		"target_wwn", "target_discovered", "volume_id", "access_mode", "encrypted", "qos_specs", "device_path", "cacheable", "enforce_multipath",
	} {
		m[key] = isCredential(key)
	}
	return m
}()
