package ironic

import (
	"net/http"
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/wire/agent"
	"salvor/wire/ironic"
)

// maxAddresses bounds the MACs of one lookup: no machine has more NICs.
const maxAddresses = 128

// tokenVersion is the first microversion whose lookup tells the agent token. Older ones
// get the mask: Ironic itself tells them the token again and again.
const tokenVersion = 62

func (s *server) lookup(c *ironicCall) error {
	if err := c.only("addresses", "node_uuid"); err != nil {
		return err
	}
	id := strings.ToLower(c.Query.Get("node_uuid"))
	if id != "" && !record.IsUUID(id) {
		return problem.Invalidf("Expected a UUID but received %s.", truncateInput(id))
	}
	macs, err := parseMACs(strings.Split(strings.Join(c.Query["addresses"], ","), ","))
	if err != nil {
		return err
	}
	if id == "" && len(macs) == 0 {
		return problem.Invalidf("At least one of 'addresses' and 'node_uuid' parameters is required")
	}
	token := c.R.Header.Get(agent.TokenHeader)
	if most := heartbeatFields["agent_token"].max; len(token) > most {
		return problem.Invalidf("%s is longer than %d bytes", agent.TokenHeader, most)
	}
	return c.answerLookup(id, macs, secret.New(token), c.version >= tokenVersion, func(found metal.Found, node ironic.LookupNode) ironic.LookupAnswer {
		return ironic.LookupAnswer{Node: node, Config: s.lookupConfig(found)}
	})
}

// parseMACs keeps the addresses that are MACs and drops the rest silently, as Ironic does.
func parseMACs(addresses []string) ([]string, error) {
	var macs []string
	for _, word := range addresses {
		if mac, err := metal.ParseMAC(word); err == nil {
			if len(macs) == maxAddresses {
				return nil, problem.Invalidf("More than %d addresses.", maxAddresses)
			}
			macs = append(macs, mac)
		}
	}
	return macs, nil
}

func (c *ironicCall) answerLookup(id string, macs []string, token secret.Value, tell bool, shape func(metal.Found, ironic.LookupNode) ironic.LookupAnswer) error {
	found, err := c.s.Nodes.Lookup(c.R.Context(), id, macs, token, tell)
	if err != nil {
		return err
	}
	node := c.lookupNode(found.Node, found.Contact)
	if !found.RescueHash.Empty() {
		node.InstanceInfo["rescue_password"] = found.RescueHash.Reveal()
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return c.JSON(http.StatusOK, shape(found, node))
}

// lookupNode is the part of a node that a ramdisk may see.
func (c *ironicCall) lookupNode(n *metal.Node, contact metal.Contact) ironic.LookupNode {
	v := &nodeView{Node: n, contact: contact}
	node := ironic.LookupNode{
		UUID: v.ID, Properties: maskObject(v.Properties), InstanceInfo: shownInstanceInfo(v.InstanceInfo),
		DriverInternalInfo: maskObject(v.internalInfo()),
	}
	for _, l := range c.links("nodes/" + v.ID) {
		node.Links = append(node.Links, ironic.RamdiskLink{Href: l.Href, Rel: l.Rel})
	}
	return node
}

func maskObject(o metal.Object) map[string]any {
	out, _ := secret.Masked(map[string]any(o)).(map[string]any)
	return out
}

func (s *server) lookupConfig(found metal.Found) *ironic.LookupConfig {
	token := ironic.Hidden
	if !found.Token.Empty() {
		token = found.Token.Reveal()
	}
	return &ironic.LookupConfig{
		HeartbeatTimeout: s.HeartbeatTimeout, AgentToken: &token, AgentTokenRequired: true,
		ImageFormats: s.ImageFormats,
		Metrics: map[string]any{
			"backend": "noop", "prepend_host": false, "prepend_uuid": false, "prepend_host_reverse": true, "global_prefix": nil,
		},
		MetricsStatsd: map[string]any{"statsd_host": "localhost", "statsd_port": 8125},
	}
}

// oldLookup is the vendor passthru by which agents looked up before 1.22. It tells no
// more than the new lookup does: Ironic's own gave the whole node away (CVE-2016-4985).
func (s *server) oldLookup(c *ironicCall) error {
	body, err := c.object()
	if err != nil {
		return err
	}
	if v, _ := body["version"].(string); v != "2" {
		return problem.Invalidf("Unknown lookup payload version: %.40v", body["version"])
	}
	inventory, ok := body["inventory"].(map[string]any)
	if !ok {
		return problem.Invalidf("Missing mandatory parameter: inventory")
	}
	list, _ := inventory["interfaces"].([]any)
	if len(list) == 0 {
		return problem.Invalidf("Missing mandatory parameter: inventory.interfaces")
	}
	var addresses []string
	for _, e := range list {
		o, _ := e.(map[string]any)
		mac, _ := o["mac_address"].(string)
		addresses = append(addresses, mac)
	}
	macs, err := parseMACs(addresses)
	if err != nil {
		return err
	}
	id, err := wantText("node_uuid", body["node_uuid"])
	if err != nil {
		return err
	}
	if id = strings.ToLower(id); id != "" && !record.IsUUID(id) {
		return problem.Invalidf("Expected a UUID but received %s.", truncateInput(id))
	}
	if id == "" && len(macs) == 0 {
		return problem.NotFoundf("Resource could not be found.")
	}
	return c.answerLookup(id, macs, secret.Value{}, false, func(_ metal.Found, node ironic.LookupNode) ironic.LookupAnswer {
		return ironic.LookupAnswer{Node: node, HeartbeatTimeout: s.HeartbeatTimeout}
	})
}
