package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"salvor/wire/ironic"
)

// Node is a node's record: the fields that programs ask for, and all fields beside them.
type Node struct {
	UUID                 string `json:"uuid"`
	Name                 string `json:"name"`
	Driver               string `json:"driver"`
	InstanceUUID         string `json:"instance_uuid"`
	ResourceClass        string `json:"resource_class"`
	PowerState           string `json:"power_state"`
	TargetPowerState     string `json:"target_power_state"`
	ProvisionState       string `json:"provision_state"`
	TargetProvisionState string `json:"target_provision_state"`
	LastError            string `json:"last_error"`
	Reservation          string `json:"reservation"`
	Maintenance          bool   `json:"maintenance"`
	MaintenanceReason    string `json:"maintenance_reason"`
	Fault                string `json:"fault"`
	Properties           Record `json:"properties"`
	InstanceInfo         Record `json:"instance_info"`
	Extra                Record `json:"extra"`

	// Record holds every field of the answer.
	Record Record `json:"-"`
}

// UnmarshalJSON keeps what the typed fields do not.
func (n *Node) UnmarshalJSON(text []byte) error {
	type plain Node
	if err := decodeJSON(text, (*plain)(n)); err != nil {
		return err
	}
	return decodeJSON(text, &n.Record)
}

// Label is the node's name, or its UUID where it has none.
func (n *Node) Label() string {
	if n.Name != "" {
		return n.Name
	}
	return n.UUID
}

func nodePath(ident string, parts ...string) string {
	path := "/v1/nodes/" + url.PathEscape(ident)
	for _, p := range parts {
		path += "/" + p
	}
	return path
}

// Nodes lists nodes.
func (c *Client) Nodes(ctx context.Context, q Query) ([]Node, error) {
	return listPages[Node](ctx, c, "/v1/nodes", "nodes", q)
}

// Node reads one node by name or UUID; with names, only those fields.
func (c *Client) Node(ctx context.Context, ident string, names ...string) (*Node, error) {
	var n Node
	if err := c.call(ctx, http.MethodGet, nodePath(ident), fieldsQuery(names), nil, &n); err != nil {
		return nil, err
	}
	return &n, nil
}

// NodeByInstance finds the node of an instance. It is nil where there is none.
func (c *Client) NodeByInstance(ctx context.Context, instance string, names ...string) (*Node, error) {
	q := Query{Filter: url.Values{"instance_uuid": {instance}}, Fields: names, Detail: len(names) == 0}
	nodes, err := c.Nodes(ctx, q)
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	return &nodes[0], nil
}

// CreateNode makes a node of the fields given; "driver" is the least.
func (c *Client) CreateNode(ctx context.Context, fields Record) (*Node, error) {
	var n Node
	if err := c.call(ctx, http.MethodPost, "/v1/nodes", nil, fields, &n); err != nil {
		return nil, err
	}
	return &n, nil
}

// PatchNode changes a node. resetInterfaces takes every interface that the patch does
// not name back to the default of a new driver.
func (c *Client) PatchNode(ctx context.Context, ident string, patch []ironic.PatchOperation, resetInterfaces bool) (*Node, error) {
	var query url.Values
	if resetInterfaces {
		query = url.Values{"reset_interfaces": {"true"}}
	}
	var n Node
	if err := c.call(ctx, http.MethodPatch, nodePath(ident), query, patch, &n); err != nil {
		return nil, err
	}
	return &n, nil
}

// DeleteNode forgets a node.
func (c *Client) DeleteNode(ctx context.Context, ident string) error {
	return c.call(ctx, http.MethodDelete, nodePath(ident), nil, nil, nil)
}

// Provision asks for a change of provision state. Nil means that the request is kept, not that
// it is done: WaitProvision tells that.
func (c *Client) Provision(ctx context.Context, ident string, request ironic.ProvisionRequest) error {
	return c.call(ctx, http.MethodPut, nodePath(ident, "states", "provision"), nil, request, nil)
}

// SetPower asks for a power state.
func (c *Client) SetPower(ctx context.Context, ident string, request ironic.PowerRequest) error {
	return c.call(ctx, http.MethodPut, nodePath(ident, "states", "power"), nil, request, nil)
}

// SetMaintenance takes a node out of salvor's hands.
func (c *Client) SetMaintenance(ctx context.Context, ident, reason string) error {
	return c.call(ctx, http.MethodPut, nodePath(ident, "maintenance"), nil, ironic.MaintenanceRequest{Reason: reason}, nil)
}

// UnsetMaintenance gives it back.
func (c *Client) UnsetMaintenance(ctx context.Context, ident string) error {
	return c.call(ctx, http.MethodDelete, nodePath(ident, "maintenance"), nil, nil, nil)
}

// Validate tells by interface ("power") whether the node has all that it needs.
func (c *Client) Validate(ctx context.Context, ident string) (map[string]ironic.Validation, error) {
	var raw map[string]json.RawMessage
	if err := c.call(ctx, http.MethodGet, nodePath(ident, "validate"), nil, nil, &raw); err != nil {
		return nil, err
	}
	out := make(map[string]ironic.Validation, len(raw))
	for name, text := range raw {
		var v ironic.Validation
		if json.Unmarshal(text, &v) == nil {
			out[name] = v
		}
	}
	return out, nil
}

// BootDevice asks the machine what it boots from.
func (c *Client) BootDevice(ctx context.Context, ident string) (*ironic.BootDevice, error) {
	var b ironic.BootDevice
	if err := c.call(ctx, http.MethodGet, nodePath(ident, "management", "boot_device"), nil, nil, &b); err != nil {
		return nil, err
	}
	return &b, nil
}

// SupportedBootDevices lists what SetBootDevice takes.
func (c *Client) SupportedBootDevices(ctx context.Context, ident string) ([]string, error) {
	var b ironic.SupportedBootDevices
	if err := c.call(ctx, http.MethodGet, nodePath(ident, "management", "boot_device", "supported"), nil, nil, &b); err != nil {
		return nil, err
	}
	return b.Devices, nil
}

// SetBootDevice sets what the machine boots from, next time or for good.
func (c *Client) SetBootDevice(ctx context.Context, ident, device string, persistent bool) error {
	b := ironic.BootDevice{Device: &device, Persistent: &persistent}
	return c.call(ctx, http.MethodPut, nodePath(ident, "management", "boot_device"), nil, b, nil)
}

// History lists what happened to a node, oldest first. It needs microversion 1.78.
func (c *Client) History(ctx context.Context, ident string, q Query) ([]ironic.HistoryEvent, error) {
	return listPages[ironic.HistoryEvent](ctx, c, nodePath(ident, "history"), "history", q)
}
