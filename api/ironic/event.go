package ironic

import (
	"net/http"
	"slices"
	"strings"

	"salvor/access"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// eventRoutes are nodes as many (parents, shards) and what other services report about nodes.
func (s *server) eventRoutes() []apiRoute {
	return []apiRoute{
		{method: "GET", path: "/v1/nodes/{node}/children", need: access.Read, since: 83, do: s.listChildren},
		{method: "GET", path: "/v1/shards", need: access.Read, since: 82, do: s.listShards},
		{method: "POST", path: "/v1/events", since: 54, do: s.takeEvents},
	}
}

// listChildren names the nodes whose parent the node is.
func (s *server) listChildren(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	ids := []string{}
	p := record.Page{Limit: 1000}
	for {
		nodes, err := s.Nodes.List(c.R.Context(), metal.NodeFilter{ParentNode: n.ID}, p)
		if err != nil {
			return err
		}
		for _, child := range nodes {
			if c.sees(child) {
				ids = append(ids, child.ID)
			}
		}
		if len(nodes) < p.Limit {
			break
		}
		p.Marker = nodes[len(nodes)-1].ID
	}
	return c.JSON(http.StatusOK, map[string]any{
		"children": ids,
		"links":    []map[string]string{{"href": c.Base + "/v1/nodes/?parent_node=" + n.ID, "rel": "children"}},
	})
}

func (s *server) listShards(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	shards, err := s.Nodes.Shards(c.R.Context())
	if err != nil {
		return err
	}
	out := make([]map[string]any, len(shards))
	for i, one := range shards {
		name := one.Name
		if name == "" {
			name = "None" // as Ironic writes nodes without one
		}
		out[i] = map[string]any{"name": name, "count": one.Count}
	}
	return c.JSON(http.StatusOK, map[string]any{"shards": out})
}

// eventWords are the keys of a network event: whether it must be there, and what it has to be.
var eventWords = map[string]struct {
	needed bool
	check  func(string) bool
}{
	"event": {true, func(s string) bool {
		return slices.Contains([]string{"network.bind_port", "network.unbind_port", "network.delete_port"}, s)
	}},
	"port_id":           {true, record.IsUUID},
	"mac_address":       {true, func(s string) bool { _, err := metal.ParseMAC(s); return err == nil }},
	"status":            {true, nil},
	"device_id":         {false, record.IsUUID},
	"binding:host_id":   {false, record.IsUUID},
	"binding:vnic_type": {false, nil},
}

// takeEvents checks what the network service tells and drops it, as Ironic does: nothing waits for it.
func (s *server) takeEvents(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.object()
	if err != nil {
		return err
	}
	if err := knownOnly(body, "events"); err != nil {
		return err
	}
	events, _ := body["events"].([]any)
	if len(events) == 0 {
		return problem.Invalidf("events must be a list of at least one event")
	}
	for i, e := range events {
		if err := checkEvent(e); err != nil {
			return problem.Invalidf("events[%d]: %w", i, err)
		}
	}
	return c.Empty(http.StatusNoContent)
}

func checkEvent(v any) error {
	o, ok := v.(map[string]any)
	if !ok {
		return problem.Invalidf("an event must be an object")
	}
	var missing []string
	for name, word := range eventWords {
		if _, ok := o[name]; !ok && word.needed {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return problem.Invalidf("Missing mandatory field: %s", strings.Join(missing, ", "))
	}
	for name, value := range o {
		word, known := eventWords[name]
		if !known {
			return problem.Invalidf("Unexpected arguments: %s", truncateInput(name))
		}
		text, ok := value.(string)
		if value == nil && !word.needed {
			continue
		}
		if !ok || word.check != nil && !word.check(text) {
			return wrongType(name, value, "a valid "+name)
		}
	}
	return nil
}
