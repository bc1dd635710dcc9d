package ironic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"salvor/client"
	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/wire/ironic"
)

// fields are all that is read of a node.
var fields = []string{
	"uuid", "name", "resource_class", "traits", "properties", "instance_uuid", "provision_state", "power_state", "target_power_state",
	"last_error", "maintenance", "network_interface",
}

// Nodes is hypervisor.BareMetal's.
func (e *Endpoint) Nodes(ctx context.Context) ([]hypervisor.Node, error) {
	if err := e.check(ctx); err != nil {
		return nil, err
	}
	nodes, err := e.api.Nodes(ctx, client.Query{Fields: fields})
	if err != nil {
		return nil, err
	}
	out := make([]hypervisor.Node, len(nodes))
	for i := range nodes {
		out[i] = nodeFromAPI(&nodes[i])
	}
	return out, nil
}

// Node is hypervisor.BareMetal's.
func (e *Endpoint) Node(ctx context.Context, serverID string) (*hypervisor.Node, error) {
	n, err := e.api.NodeByInstance(ctx, serverID, fields...)
	if err != nil {
		return nil, err
	}
	if n == nil || n.InstanceUUID != serverID {
		return nil, problem.NotFoundf("no node is the machine of server %s", serverID)
	}
	m := nodeFromAPI(n)
	return &m, nil
}

// nodeFromAPI reads a node.
func nodeFromAPI(n *client.Node) hypervisor.Node {
	m := hypervisor.Node{
		ID: n.UUID, Name: n.Name, Class: compute.ResourceClass(n.ResourceClass), ServerID: n.InstanceUUID,
		Provision: hypervisor.Provision(n.ProvisionState), Switching: n.TargetPowerState != "", LastError: n.LastError, Maintenance: n.Maintenance,
		Capabilities: parseCapabilities(n.Properties["capabilities"]),
		CPUs:         parseWholeNumber(n.Properties["cpus"]), RAM: parseWholeNumber(n.Properties["memory_mb"]), Disk: parseWholeNumber(n.Properties["local_gb"]),
	}
	switch n.PowerState {
	case "power on":
		m.Power = compute.PowerOn
	case "power off":
		m.Power = compute.PowerOff
	}
	traits, _ := n.Record["traits"].([]any)
	for _, t := range traits {
		if text, ok := t.(string); ok {
			m.Traits = append(m.Traits, text)
		}
	}
	wiring := n.Record.Text("network_interface")
	m.TakesVIFs = wiring != "" && wiring != "noop"
	return m
}

// parseWholeNumber reads a number that may be written as text; 0 where it is none.
func parseWholeNumber(v any) int {
	n, err := strconv.Atoi(fmt.Sprint(v))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// parseCapabilities reads "key:value,key:value", or an object.
func parseCapabilities(v any) map[string]string {
	out := map[string]string{}
	switch v := v.(type) {
	case string:
		for pair := range strings.SplitSeq(v, ",") {
			if key, value, ok := strings.Cut(pair, ":"); ok {
				out[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
	case map[string]any:
		for key, value := range v {
			out[key] = fmt.Sprint(value)
		}
	}
	return out
}

// MACs is hypervisor.BareMetal's.
func (e *Endpoint) MACs(ctx context.Context, id string) ([]string, error) {
	ports, err := e.api.List(ctx, client.Ports, client.Query{Filter: url.Values{"node": {id}}, Fields: []string{"uuid", "address", "pxe_enabled"}})
	if err != nil {
		return nil, err
	}
	boots := func(r client.Record) int {
		if on, _ := r["pxe_enabled"].(bool); on {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ports, func(a, b client.Record) int { return boots(a) - boots(b) })
	var out []string
	for _, p := range ports {
		out = append(out, p.Text("address"))
	}
	return out, nil
}

// Claim is hypervisor.BareMetal's.
func (e *Endpoint) Claim(ctx context.Context, id, serverID string) error {
	_, err := e.api.PatchNode(ctx, id, []ironic.PatchOperation{newValuePatch("/instance_uuid", serverID)}, false)
	return err
}

// Release is hypervisor.BareMetal's.
func (e *Endpoint) Release(ctx context.Context, id, serverID string) error {
	n, err := e.api.Node(ctx, id, "uuid", "instance_uuid", "instance_info")
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil || n.InstanceUUID != serverID {
		return err
	}
	patch := []ironic.PatchOperation{{Op: "remove", Path: "/instance_uuid"}}
	if len(n.InstanceInfo) > 0 {
		patch = append(patch, ironic.PatchOperation{Op: "remove", Path: "/instance_info"})
	}
	_, err = e.api.PatchNode(ctx, id, patch, false)
	return err
}

// newValuePatch is a patch that writes a value, whatever was there.
func newValuePatch(path string, value any) ironic.PatchOperation {
	raw, err := json.Marshal(value)
	if err != nil {
		raw = []byte("null") // texts, numbers and maps of them have always a form
	}
	return ironic.PatchOperation{Op: "add", Path: path, Value: raw}
}

// call asks for what the client has no word of its own for.
func (e *Endpoint) call(ctx context.Context, method, path string, body, out any) error {
	return e.api.Call(ctx, method, path, nil, body, out)
}

// Plug is hypervisor.BareMetal's.
func (e *Endpoint) Plug(ctx context.Context, id string, vifs []string) error {
	attached, err := e.attached(ctx, id)
	if err != nil {
		return err
	}
	for _, vif := range vifs {
		if slices.Contains(attached, vif) {
			continue
		}
		if err := e.call(ctx, http.MethodPost, vifPath(id), map[string]string{"id": vif}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Unplug is hypervisor.BareMetal's.
func (e *Endpoint) Unplug(ctx context.Context, id string, vifs []string) error {
	attached, err := e.attached(ctx, id)
	if err != nil {
		return err
	}
	for _, vif := range vifs {
		if !slices.Contains(attached, vif) {
			continue
		}
		if err := e.call(ctx, http.MethodDelete, vifPath(id)+"/"+url.PathEscape(vif), nil, nil); err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
	}
	return nil
}

func vifPath(id string) string { return "/v1/nodes/" + url.PathEscape(id) + "/vifs" }

func (e *Endpoint) attached(ctx context.Context, id string) ([]string, error) {
	var refusal struct {
		VIFs []struct {
			ID string `json:"id"`
		} `json:"vifs"`
	}
	err := e.call(ctx, http.MethodGet, vifPath(id), nil, &refusal)
	out := make([]string, len(refusal.VIFs))
	for i, v := range refusal.VIFs {
		out[i] = v.ID
	}
	return out, err
}
