package fleetfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// mask stands for a secret in answers of the API.
const mask = "******"

// fieldKind is what the value of a field is.
type fieldKind int

const (
	textKind fieldKind = iota + 1
	boolKind
	objectKind
)

// The fields that a creation takes. Those of a node are about the machine, not about what runs on it.
var (
	nodeFields = fieldsOf([]string{
		"uuid", "name", "driver", "chassis_uuid", "resource_class", "conductor_group", "owner", "lessee", "description", "shard", "parent_node", "retired_reason",
		"bios_interface", "boot_interface", "console_interface", "deploy_interface", "firmware_interface", "inspect_interface", "management_interface",
		"network_interface", "power_interface", "raid_interface", "rescue_interface", "storage_interface", "vendor_interface",
	}, []string{"automated_clean", "retired", "disable_power_off"}, []string{"driver_info", "properties", "extra", "network_data"})
	portFields = fieldsOf([]string{"uuid", "address", "name", "description", "physical_network", "vendor", "category"},
		[]string{"pxe_enabled", "is_smartnic", "available_for_dynamic_portgroup"}, []string{"extra", "local_link_connection"})
	groupFields   = fieldsOf([]string{"uuid", "address", "name", "mode", "physical_network"}, []string{"standalone_ports_supported"}, []string{"extra", "properties"})
	chassisFields = fieldsOf([]string{"uuid", "description"}, nil, []string{"extra"})
)

func fieldsOf(texts, bools, objects []string) map[string]fieldKind {
	out := map[string]fieldKind{}
	for _, name := range texts {
		out[name] = textKind
	}
	for _, name := range bools {
		out[name] = boolKind
	}
	for _, name := range objects {
		out[name] = objectKind
	}
	return out
}

// found are fields that a control plane finds out or decides by itself.
var found = []string{
	"provision_state", "target_provision_state", "power_state", "target_power_state", "last_error", "reservation", "console_enabled", "driver_internal_info",
	"clean_step", "deploy_step", "service_step", "raid_config", "inspection_started_at", "inspection_finished_at", "provision_updated_at", "conductor", "allocation_uuid",
	"boot_mode", "secure_boot", "health", "created_at", "updated_at", "links", "states", "volume", "fault", "internal_info", "node_uuid", "portgroup_uuid",
}

// refuseField says why a field is none of a creation.
func refuseField(name string, known map[string]fieldKind) string {
	if slices.Contains(found, name) {
		return name + " is what the control plane finds or decides: leave it out"
	}
	names := slices.Sorted(maps.Keys(known))
	if near := problem.Nearest(name, names); near != "" {
		return fmt.Sprintf("%s: unknown field; did you mean %s?", name, near)
	}
	return fmt.Sprintf("%s: unknown field; %s", name, problem.WantOneOf(names))
}

// checkNode finds what is wrong with a node alone.
func (d *fileReader) checkNode(n *Node) {
	of := n.Label()
	if n.Text("driver") == "" {
		d.wrong(n.Line, "%s: driver is missing, such as redfish or ipmi", of)
	}
	if name := n.Text("name"); name != "" && !metal.IsName(name) {
		d.wrong(n.lineOf("name"), "%.100q is no name for a node: want a DNS name of letters, digits, dots and hyphens, which is no UUID", name)
	}
	d.checkUUID(&n.Part, of)
	for _, g := range n.Groups {
		d.checkUUID(&g.Part, of)
		if address := g.Text("address"); address != "" {
			d.checkMAC(&g.Part, of)
		}
	}
	for _, p := range n.AllPorts() {
		d.checkUUID(p, of)
		d.checkMAC(p, of)
	}
	for _, trait := range n.Traits {
		if err := metal.CheckTrait(trait); err != nil {
			d.wrong(n.lineOf("traits"), "%s: %v", of, err)
		}
	}
}

// lineOf is the line of a field, or else that of the node.
func (n *Node) lineOf(field string) int {
	if line := n.lines[field]; line > 0 {
		return line
	}
	return n.Line
}

func (d *fileReader) checkUUID(p *Part, of string) {
	if id := p.Text("uuid"); id != "" && !record.IsUUID(id) {
		d.wrong(p.Line, "%s: uuid: %.60q is no UUID", of, id)
	} else if id != "" {
		p.Fields["uuid"] = strings.ToLower(id)
	}
}

// checkMAC writes an address as the API does.
func (d *fileReader) checkMAC(p *Part, of string) {
	address := p.Text("address")
	if address == "" {
		d.wrong(p.Line, "%s: a port has no address: want its MAC address", of)
		return
	}
	mac, err := metal.ParseMAC(address)
	if err != nil {
		d.wrong(p.Line, "%s: %v", of, err)
		return
	}
	p.Fields["address"] = mac
}

// checkIdentities finds what two records of the file share that only one may have.
func (d *fileReader) checkIdentities() {
	first := map[string]string{}
	claim := func(line int, of, kind, word string) {
		if word == "" {
			return
		}
		key := kind + "\x00" + strings.ToLower(word)
		if before, taken := first[key]; taken {
			d.wrong(line, "%s: the %s %s is that of %s", of, kind, word, before)
			return
		}
		first[key] = fmt.Sprintf("%s in line %d", of, line)
	}
	for _, c := range d.file.Chassis {
		d.checkUUID(c, "chassis")
		claim(c.Line, "chassis", "UUID", c.Text("uuid"))
	}
	for _, n := range d.file.Nodes {
		of := n.Label()
		claim(n.Line, of, "name", n.Text("name"))
		claim(n.Line, of, "UUID", n.Text("uuid"))
		claim(n.Line, of, "BMC", n.BMC())
		for _, g := range n.Groups {
			claim(g.Line, of, "UUID", g.Text("uuid"))
			claim(g.Line, of, "name of a port group", g.Text("name"))
		}
		for _, p := range n.AllPorts() {
			claim(p.Line, of, "UUID", p.Text("uuid"))
			claim(p.Line, of, "MAC address", p.Text("address"))
		}
	}
}

// BMC is the address by which the node's BMC is reached, with what tells the systems of one BMC apart; empty where the file has none.
func (n *Node) BMC() string {
	info, _ := n.Fields["driver_info"].(map[string]any)
	var words []string
	for _, keys := range [][]string{{"redfish_address", "redfish_system_id"}, {"ipmi_address", "ipmi_port", "ipmi_target_address", "ipmi_target_channel"}} {
		if address := info[keys[0]]; address != nil {
			for _, key := range keys {
				if v := info[key]; v != nil {
					words = append(words, strings.TrimRight(fmt.Sprint(v), "/"))
				}
			}
		}
	}
	return strings.Join(words, " ")
}

// FileSuffix ends a key of driver_info whose value is the name of a file that holds the secret: redfish_password_file.
const FileSuffix = "_file"

// SecretFiles are the files that hold secrets of the node, by the key of driver_info that takes each.
func (n *Node) SecretFiles() map[string]string {
	out := map[string]string{}
	info, _ := n.Fields["driver_info"].(map[string]any)
	for key, name := range info {
		if of, ok := strings.CutSuffix(key, FileSuffix); ok && secret.IsKey(of) {
			out[of] = fmt.Sprint(name)
		}
	}
	return out
}

// SetSecret puts a secret into driver_info, in the place of the name of its file.
func (n *Node) SetSecret(key string, text secret.Value) {
	info := n.object("driver_info")
	delete(info, key+FileSuffix)
	info[key] = text.Reveal()
}

// Lacks tells whether driver_info has neither a key nor the name of its file.
func (n *Node) Lacks(key string) bool {
	info, _ := n.Fields["driver_info"].(map[string]any)
	_, has := info[key]
	_, named := info[key+FileSuffix]
	return !has && !named
}

// Kind is a kind of record in a file.
type Kind struct {
	fields map[string]fieldKind
	// defaults are values that a creation gives by itself.
	defaults map[string]any
	// omitted are fields of a creation that an export leaves out, because another control plane gives its own.
	omitted []string
}

// The kinds of records.
var (
	NodeKind = Kind{fields: nodeFields, defaults: map[string]any{"retired": false, "disable_power_off": false}}
	PortKind = Kind{fields: portFields, omitted: []string{"uuid"}, defaults: map[string]any{
		"pxe_enabled": true, "is_smartnic": false, "available_for_dynamic_portgroup": true,
	}}
	GroupKind   = Kind{fields: groupFields, omitted: []string{"uuid"}, defaults: map[string]any{"standalone_ports_supported": true}}
	ChassisKind = Kind{fields: chassisFields}
)

// Exported are the fields of a record that a file needs: those that a creation takes, without those that are empty or have their default.
func Exported(kind Kind, record map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range record {
		_, known := kind.fields[name]
		isDefault := v == nil || v == ""
		switch v := v.(type) {
		case map[string]any:
			isDefault = len(v) == 0
		case bool:
			isDefault = kind.defaults[name] == v
		}
		if known && !isDefault && !slices.Contains(kind.omitted, name) {
			out[name] = withNumbers(v)
		}
	}
	return out
}

// withNumbers gives a value whose json.Numbers are numbers: YAML would write them as texts.
func withNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return toNumber(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			out[key] = withNumbers(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withNumbers(v[i])
		}
		return out
	}
	return v
}

// SortParts puts ports and groups into an order that does not depend on when they were made.
func (n *Node) SortParts() {
	byAddress := func(a, b *Part) int { return strings.Compare(a.Text("address"), b.Text("address")) }
	slices.SortFunc(n.Ports, byAddress)
	slices.SortFunc(n.Groups, func(a, b *Group) int {
		return strings.Compare(a.Text("name")+"\n"+a.Text("address"), b.Text("name")+"\n"+b.Text("address"))
	})
	for _, g := range n.Groups {
		slices.SortFunc(g.Ports, byAddress)
	}
}
