package ironic

import (
	"net/http"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// heartbeatFields are what a ramdisk may say, since when and how long it may be in bytes.
var heartbeatFields = map[string]struct {
	since metal.Version
	max   int
}{
	"callback_url": {22, 2048}, "agent_token": {22, 512}, "agent_version": {36, 255},
	"agent_verify_ca": {68, 32 << 10}, "agent_status": {72, 64}, "agent_status_message": {72, 4096},
}

// maxHeartbeat bounds a heartbeat, in bytes: its fields and some air.
const maxHeartbeat = 64 << 10

func (s *server) heartbeat(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	api.Arrive(c.R)
	body, err := c.bodyUpTo(maxHeartbeat)
	if err != nil {
		return err
	}
	words := map[string]string{}
	for name, v := range body {
		f, ok := heartbeatFields[name]
		if !ok {
			return problem.Invalidf("Unexpected arguments: %s", truncateInput(name))
		}
		if v == nil {
			continue
		}
		if c.version < f.since {
			return problem.Invalidf(`Field "%s" not recognised in this version`, name)
		}
		word, ok := v.(string)
		if !ok {
			return problem.Invalidf("Invalid input for field/attribute %s. It must be a string.", name)
		}
		if len(word) > f.max {
			return problem.Invalidf("%s is longer than %d bytes", name, f.max)
		}
		words[name] = word
	}
	if body["callback_url"] == nil {
		return problem.Invalidf("Missing mandatory parameter: callback_url")
	}
	if c.version >= 36 && words["agent_version"] == "" && words["agent_status"] == "" {
		return problem.Invalidf("Agent version is required for heartbeat processing.")
	}
	return c.takeHeartbeat(metal.Heartbeat{
		URL: words["callback_url"], Version: words["agent_version"], CA: words["agent_verify_ca"], Token: secret.New(words["agent_token"]),
		Status: words["agent_status"], StatusMessage: words["agent_status_message"],
	})
}

// takeHeartbeat hands a heartbeat on, unless the node's deploy interface takes none:
// that is worth a warning and nothing else, as specified.
func (c *ironicCall) takeHeartbeat(h metal.Heartbeat) error {
	proof := ""
	if !h.Token.Empty() {
		proof = c.Args[0] + " " + h.Token.Reveal()
	}
	if err := api.Admit(c.R, proof); err != nil {
		return err
	}
	if h.Token.Empty() && !h.Legacy {
		return c.s.Nodes.RefuseTokenless(c.Args[0]) // before any row is read
	}
	if same, err := c.s.Nodes.RepeatedHeartbeat(c.R.Context(), c.Args[0], h); err != nil {
		return err
	} else if same {
		return c.Empty(http.StatusAccepted)
	}
	n, err := c.s.Nodes.HeartbeatNode(c.R.Context(), c.Args[0], h)
	if err != nil {
		return err
	}
	drivers, err := c.s.drivers(c.R.Context())
	if err != nil {
		return err
	}
	if d, ok := drivers[n.Driver]; ok {
		if i, ok := d.Find(n, "deploy"); ok && i.Heartbeat == "" {
			c.s.Log.Warn("heartbeat for a node whose deploy interface does not support heartbeats", "node", n.ID, "driver", n.Driver,
				"deploy_interface", i.Name, "request_id", c.Asker().RequestID)
			return c.Empty(http.StatusAccepted)
		}
	}
	if err := c.s.Nodes.HeartbeatOf(c.R.Context(), n, h); err != nil {
		return err
	}
	return c.Empty(http.StatusAccepted)
}

// oldHeartbeat is the vendor passthru by which agents beat before 1.22. They know no
// token, so a node whose boot has one is none for them.
func (s *server) oldHeartbeat(c *ironicCall) error {
	api.Arrive(c.R)
	body, err := c.bodyUpTo(maxHeartbeat)
	if err != nil {
		return err
	}
	url, ok := body["agent_url"].(string)
	if !ok || len(url) > heartbeatFields["callback_url"].max {
		return problem.Invalidf("Missing mandatory parameter: agent_url")
	}
	token, _ := body["agent_token"].(string)
	return c.takeHeartbeat(metal.Heartbeat{URL: url, Version: metal.LegacyAgent, Token: secret.New(token), Legacy: true})
}
