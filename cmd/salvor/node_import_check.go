package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"salvor/client"
	"salvor/cmd/salvor/fleetfile"
	"salvor/cmd/salvor/kit"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/ironic"
)

// maxParents bounds how deep nodes of a file are parts of each other.
const maxParents = 8

// importRow is a node of the file beside what the control plane has.
type importRow struct {
	node *fleetfile.Node
	// id is the UUID of the node that is there; empty: it is new.
	id string
	// patch changes the node that is there, and changed are the fields.
	patch   []ironic.PatchOperation
	changed []string
	// ports and groups are those that the node lacks.
	ports     []*fleetfile.Part
	groups    []*importGroup
	setTraits bool
	// depth counts the nodes of the file that this one is within.
	depth int
}

// importGroup is a port group with the ports that it lacks; id is empty where it is new itself.
type importGroup struct {
	group *fleetfile.Group
	id    string
	ports []*fleetfile.Part
}

// acts tells whether anything is to be done.
func (r *importRow) acts() bool {
	return r.id == "" || len(r.changed) > 0 || len(r.ports) > 0 || len(r.groups) > 0 || r.setTraits
}

// say tells what is done, or what would be. The first word is that by which results are counted.
func (r *importRow) say(dryRun bool) string {
	ports := len(r.ports)
	for _, g := range r.groups {
		ports += len(g.ports)
	}
	parts := fmt.Sprintf("%d ports", ports)
	if ports == 1 {
		parts = "1 port"
	}
	switch {
	case !r.acts():
		return "unchanged"
	case r.id == "" && dryRun:
		return "new, with " + parts
	case r.id == "":
		return "created, with " + parts
	}
	what := slices.Clone(r.changed)
	if ports > 0 {
		what = append(what, parts+" more")
	}
	if r.setTraits {
		what = append(what, "traits")
	}
	verb := "changed"
	if dryRun {
		verb = "differs"
	}
	return verb + ": " + strings.Join(what, ", ")
}

// importCheck compares a file with what the control plane has.
type importCheck struct {
	call     *kit.Call
	update   bool
	drivers  map[string]client.Record
	keys     map[string][]string // of driver_info, by driver
	mistakes []fleetfile.Mistake
	mu       sync.Mutex
}

func (k *importCheck) wrong(line int, format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mistakes = append(k.mistakes, fleetfile.Mistake{Line: line, What: fmt.Sprintf(format, args...)})
}

// rows gives what is to be done for each node. The error is that of an API that does not answer; what it says of the file is a mistake.
func (k *importCheck) rows(file *fleetfile.File) ([]*importRow, []fleetfile.Mistake, error) {
	if err := k.readDrivers(file); err != nil {
		return nil, nil, err
	}
	if err := k.identifyChassis(file.Chassis); err != nil {
		return nil, nil, err
	}
	rows := make([]*importRow, len(file.Nodes))
	for i, n := range file.Nodes {
		rows[i] = &importRow{node: n}
		if n.Chassis != nil {
			n.Fields["chassis_uuid"] = n.Chassis.Text("uuid")
		}
	}
	k.findParents(rows)
	errs := make([]error, len(rows))
	inParallel(len(rows), nodesAtOnce, func(i int) {
		k.checkDriver(rows[i].node)
		errs[i] = k.compare(rows[i], file)
	})
	return rows, k.mistakes, cmp.Or(errs...)
}

// identifyChassis gives a chassis without a UUID that of the one chassis with its description, or else a new one.
func (k *importCheck) identifyChassis(all []*fleetfile.Part) error {
	if !slices.ContainsFunc(all, func(c *fleetfile.Part) bool { return c.Text("uuid") == "" }) {
		return nil
	}
	found, err := k.call.API.List(k.call.Context(), client.Chassis, client.Query{})
	if err != nil {
		return err
	}
	byDescription := map[string][]string{}
	for _, c := range found {
		byDescription[c.Text("description")] = append(byDescription[c.Text("description")], c.Text("uuid"))
	}
	for i, c := range all {
		description := c.Text("description")
		switch there := byDescription[description]; {
		case c.Text("uuid") != "":
		case len(there) == 1 && description != "":
			c.Fields["uuid"] = there[0]
		default:
			c.Fields["uuid"] = derivedID("chassis", description, fmt.Sprint(i))
		}
	}
	return nil
}

// derivedID is a UUID for a record of a file that names none, so that a second import of the file finds what the first has made.
func derivedID(words ...string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("salvor node import\n"+strings.Join(words, "\n"))).String()
}

// findParents counts how deep each node lies within others of the file.
func (k *importCheck) findParents(rows []*importRow) {
	byIdent := map[string]*importRow{}
	for _, r := range rows {
		for _, ident := range []string{r.node.Text("name"), strings.ToLower(r.node.Text("uuid"))} {
			if ident != "" {
				byIdent[ident] = r
			}
		}
	}
	for _, r := range rows {
		for at := r; at != nil && r.depth < maxParents; r.depth++ {
			parent := at.node.Text("parent_node")
			if at = byIdent[cmp.Or(parent, "\x00")]; at == nil {
				break
			}
		}
		if r.depth == maxParents {
			r.depth = 0
			k.wrong(r.node.Line, "%s: parent_node: nodes are parts of each other in a circle, or more than %d times", r.node.Label(), maxParents-1)
		}
	}
}

// readDrivers asks for the drivers, and for the keys of those that the file names.
func (k *importCheck) readDrivers(file *fleetfile.File) error {
	found, err := k.call.API.List(k.call.Context(), client.Drivers, client.Query{Detail: true})
	if err != nil {
		return err
	}
	k.drivers, k.keys = map[string]client.Record{}, map[string][]string{}
	for _, d := range found {
		k.drivers[d.Text("name")] = d
	}
	for _, n := range file.Nodes {
		name := n.Text("driver")
		if _, asked := k.keys[name]; asked || k.drivers[name] == nil {
			continue
		}
		var properties map[string]any
		if err := k.call.API.Call(k.call.Context(), http.MethodGet, client.Drivers.Path+"/"+url.PathEscape(name)+"/properties", nil, nil, &properties); err != nil {
			return err
		}
		k.keys[name] = slices.Sorted(maps.Keys(properties))
	}
	return nil
}

// checkDriver checks the driver of a node, its interfaces, and the keys of its driver_info. A key that the driver does not know is a mistake where
// it resembles one that the driver knows; other keys may be those of a site's own tools.
func (k *importCheck) checkDriver(n *fleetfile.Node) {
	name := n.Text("driver")
	d, known := k.drivers[name]
	if !known {
		if name != "" {
			names := slices.Sorted(maps.Keys(k.drivers))
			hint := problem.WantOneOf(names)
			if near := problem.Nearest(name, names); near != "" {
				hint = "did you mean " + near + "?"
			}
			k.wrong(n.Line, "%s: the control plane has no driver %s; %s", n.Label(), name, hint)
		}
		return
	}
	for _, kind := range interfaceKinds {
		allowed, ok := d["enabled_"+kind+"_interfaces"].([]any)
		if word := n.Text(kind + "_interface"); word != "" && ok && !slices.Contains(allowed, any(word)) {
			k.wrong(n.Line, "%s: %s_interface: driver %s has no %s; want one of %s", n.Label(), kind, name, word, strings.Trim(fmt.Sprint(allowed), "[]"))
		}
	}
	info, _ := n.Fields["driver_info"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(info)) {
		if slices.Contains(k.keys[name], key) {
			continue
		}
		if near := problem.Nearest(key, k.keys[name]); near != "" && problem.Distance(key, near) <= 2 {
			k.wrong(n.Line, "%s: driver_info: driver %s has no key %s; did you mean %s?", n.Label(), name, key, near)
		}
	}
}

// compare finds what the control plane has of a node.
func (k *importCheck) compare(r *importRow, file *fleetfile.File) error {
	n := r.node
	ident := cmp.Or(n.Text("uuid"), n.Text("name"))
	if ident == "" {
		macs := []string{}
		for _, p := range n.AllPorts() {
			macs = append(macs, p.Text("address"))
		}
		if n.BMC() == "" && len(macs) == 0 {
			k.wrong(n.Line, "a node has no name, no uuid, no address of a BMC and no port: a second import could not find it again")
			return nil
		}
		ident = derivedID("node", n.BMC(), strings.Join(macs, " "))
		n.Fields["uuid"] = ident
	}
	var was client.Record
	var err error
	if metal.IsName(ident) || uuid.Validate(ident) == nil { // else the name itself is a mistake
		was, err = k.call.API.Get(k.call.Context(), client.Nodes, ident)
	}
	if client.StatusOf(err) == http.StatusNotFound {
		was, err = nil, k.refuseTaken(n)
	}
	if err != nil {
		return err
	}
	var ports, groups []client.Record
	if was != nil {
		r.id = was.Text("uuid")
		if err := k.resolveParent(n); err != nil {
			return err
		}
		k.compareFields(r, was)
		of := client.Query{Filter: url.Values{"node": {r.id}}, Detail: true}
		if ports, err = k.call.API.List(k.call.Context(), client.Ports, of); err == nil && len(n.Groups) > 0 {
			groups, err = k.call.API.List(k.call.Context(), client.Portgroups, of)
		}
		if err != nil {
			return err
		}
	} else if err := k.findOthers(n, file); err != nil {
		return err
	}
	if traits, _ := was["traits"].([]any); !sameJSON(n.Traits, traits) && len(n.Traits) > 0 {
		r.setTraits = true
	}
	if r.ports, err = k.missing(n, n.Ports, ports); err != nil {
		return err
	}
	for _, g := range n.Groups {
		group := &importGroup{group: g}
		for _, there := range groups {
			if name, address := g.Text("name"), g.Text("address"); name != "" && there["name"] == name || address != "" && there["address"] == address {
				group.id = there.Text("uuid")
			}
		}
		if group.ports, err = k.missing(n, g.Ports, ports); err != nil {
			return err
		}
		if group.id == "" || len(group.ports) > 0 {
			r.groups = append(r.groups, group)
		}
	}
	if r.id != "" && r.acts() && !k.update && len(r.changed) > 0 {
		k.wrong(n.Line, "%s: the node is there with other fields: %s; give --update to change it, or take it out of the file", n.Label(), strings.Join(r.changed, ", "))
	}
	return nil
}

// refuseTaken refuses the name of a node that is not there under its UUID, where another node has that name.
func (k *importCheck) refuseTaken(n *fleetfile.Node) error {
	name := n.Text("name")
	if n.Text("uuid") == "" || !metal.IsName(name) {
		return nil
	}
	other, err := k.call.API.Get(k.call.Context(), client.Nodes, name, "uuid")
	if client.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	if err == nil {
		k.wrong(n.Line, "%s: the name is that of node %s", name, other.Text("uuid"))
	}
	return err
}

// findOthers looks for what a new node names: the chassis, and the node that it is part of.
func (k *importCheck) findOthers(n *fleetfile.Node, file *fleetfile.File) error {
	if id := n.Text("chassis_uuid"); id != "" && !slices.ContainsFunc(file.Chassis, func(c *fleetfile.Part) bool { return c.Text("uuid") == id }) {
		if _, err := k.call.API.Get(k.call.Context(), client.Chassis, id, "uuid"); client.StatusOf(err) == http.StatusNotFound {
			k.wrong(n.Line, "%s: chassis_uuid: there is no chassis %s", n.Label(), id)
		} else if err != nil {
			return err
		}
	}
	parent := n.Text("parent_node")
	if parent == "" || slices.ContainsFunc(file.Nodes, func(o *fleetfile.Node) bool { return o.Text("name") == parent || o.Text("uuid") == parent }) {
		return nil
	}
	_, err := k.call.API.Get(k.call.Context(), client.Nodes, parent, "uuid")
	if client.StatusOf(err) == http.StatusNotFound {
		k.wrong(n.Line, "%s: parent_node: there is no node %s", n.Label(), parent)
		return nil
	}
	return err
}

// resolveParent puts the UUID of the node that a node is part of in the place of its name, as the API does.
func (k *importCheck) resolveParent(n *fleetfile.Node) error {
	parent := n.Text("parent_node")
	if parent == "" || uuid.Validate(parent) == nil {
		return nil
	}
	found, err := k.call.API.Get(k.call.Context(), client.Nodes, parent, "uuid")
	if client.StatusOf(err) == http.StatusNotFound { // a node of the file that is new
		return nil
	}
	if err == nil {
		n.Fields["parent_node"] = found.Text("uuid")
	}
	return err
}

// missing are the ports of the file that a node lacks. A port that another node has is a mistake.
func (k *importCheck) missing(n *fleetfile.Node, want []*fleetfile.Part, have []client.Record) (out []*fleetfile.Part, err error) {
	for _, p := range want {
		address := p.Text("address")
		if slices.ContainsFunc(have, func(r client.Record) bool { return r.Text("address") == address }) {
			continue
		}
		if metalMAC, bad := metal.ParseMAC(address); bad == nil {
			found, err := k.call.API.List(k.call.Context(), client.Ports, client.Query{Filter: url.Values{"address": {metalMAC}}, Fields: []string{"uuid", "node_uuid"}})
			if err != nil {
				return nil, err
			}
			if len(found) > 0 {
				k.wrong(p.Line, "%s: the MAC address %s is that of node %s", n.Label(), address, found[0].Text("node_uuid"))
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// compareFields makes the patch from what is there to what the file says. Keys of objects that the file does not name stay. A secret of the API's
// answer is masked: the secret of the file is taken for the same, or with --update written in any case.
func (k *importCheck) compareFields(r *importRow, was client.Record) {
	differs := func(path, name string, value any) {
		op, err := client.Set(path, value)
		if err != nil {
			k.wrong(r.node.Line, "%s: %s: %v", r.node.Label(), name, err)
		}
		r.patch, r.changed = append(r.patch, op), append(r.changed, name)
	}
	for _, field := range slices.Sorted(maps.Keys(r.node.Fields)) {
		want, have := r.node.Fields[field], was[field]
		object, isObject := want.(map[string]any)
		if !isObject || field == "network_data" {
			if !sameJSON(want, have) {
				differs("/"+field, field, want)
			}
			continue
		}
		inner, _ := have.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(object)) {
			value, there := inner[key]
			if same := value == secret.Mask && !k.update || there && sameJSON(object[key], value); !same {
				differs("/"+field+"/"+escapeJSONPointer(key), field+"."+key, object[key])
			}
		}
	}
}

// sameJSON compares two values as JSON: a number is one number in each type of Go.
func sameJSON(a, b any) bool {
	plain := func(v any) (out any) {
		text, err := json.Marshal(v)
		if err == nil {
			_ = json.Unmarshal(text, &out)
		}
		return out
	}
	return reflect.DeepEqual(plain(a), plain(b))
}
