package ironic

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/wire/agent"
	"salvor/wire/ironic"
)

// maxInspectionBody bounds what a ramdisk may bring, in bytes.
const maxInspectionBody = 16 << 20

// inspectionVersion is the first version of continue_inspection. Ironic serves it at 1.1
// too, which is what ramdisks speak that were built for ironic-inspector: they name no version.
const inspectionVersion = 84

// continueInspection takes what a ramdisk found. It is open, and tells no token: that is lookup's.
func (s *server) continueInspection(c *ironicCall) error {
	if err := c.only("node_uuid", metal.ProofArg); err != nil {
		return err
	}
	if c.version < inspectionVersion && (c.version != MinVersion || c.has("node_uuid")) {
		return problem.NotFoundf("API version %s or newer is required", versionText(inspectionVersion))
	}
	token, proof := c.R.Header.Get(agent.TokenHeader), c.Query.Get(metal.ProofArg)
	if err := c.admitFindings(cmp.Or(token, proof)); err != nil {
		return err
	}
	body, err := c.bodyUpTo(maxInspectionBody)
	if err != nil {
		return err
	}
	sighting, inventory, err := readInspection(body)
	if err != nil {
		return err
	}
	if sighting.NodeID = strings.ToLower(c.Query.Get("node_uuid")); sighting.NodeID != "" && !record.IsUUID(sighting.NodeID) {
		return problem.Invalidf("Expected a UUID but received %s.", truncateInput(sighting.NodeID))
	}
	if sighting.NodeID == "" && len(sighting.MACs) == 0 && len(sighting.BMC) == 0 {
		return problem.Invalidf("No lookup information provided")
	}
	sighting.Token, sighting.Proof = secret.New(token), secret.New(proof)
	delete(body, "inventory")
	delete(body, "logs") // an archive of the ramdisk's journal, which nobody reads here
	plugin, err := json.Marshal(body)
	if err != nil {
		return err
	}
	n, err := s.Nodes.ContinueInspection(c.R.Context(), sighting, inventory, plugin)
	if err != nil {
		return err
	}
	if c.version < inspectionVersion {
		return c.JSON(http.StatusAccepted, map[string]string{"uuid": n.ID})
	}
	contacts, err := s.Nodes.Contacts(c.R.Context(), []string{n.ID})
	if err != nil {
		return err
	}
	node := c.lookupNode(n, contacts[n.ID])
	c.W.Header().Set("Cache-Control", "no-store")
	return c.JSON(http.StatusAccepted, ironic.LookupAnswer{Node: node, Config: s.lookupConfig(metal.Found{Node: n})})
}

// admitFindings counts the request before its body is read, because the body may be large. credential is the token of the boot, or the
// proof that stands for it; empty: there is none.
func (c *ironicCall) admitFindings(credential string) error {
	if most := heartbeatFields["agent_token"].max; len(credential) > most {
		return problem.Invalidf("%s or %s is longer than %d bytes", agent.TokenHeader, metal.ProofArg, most)
	}
	if credential == "" {
		return nil // the endpoint itself counts it
	}
	return api.Admit(c.R, "findings "+credential)
}

func (c *ironicCall) bodyUpTo(limit int64) (map[string]any, error) {
	b, err := api.ReadBody(c.W, c.R, limit)
	if err != nil {
		return nil, err
	}
	return api.DecodeObject(b)
}

// readInspection finds in a ramdisk's words which machine it is about.
func readInspection(body map[string]any) (sighting metal.Sighting, inventory json.RawMessage, err error) {
	o, ok := body["inventory"].(map[string]any)
	if !ok {
		return sighting, nil, problem.Invalidf("Missing mandatory field: inventory (an object)")
	}
	interfaces, ok := o["interfaces"].([]any)
	if !ok || len(interfaces) == 0 {
		return sighting, nil, problem.Invalidf("Missing mandatory field: inventory.interfaces (a list of at least one)")
	}
	names := make([]string, len(interfaces))
	for i, e := range interfaces {
		one, _ := e.(map[string]any)
		if names[i], ok = one["mac_address"].(string); !ok {
			return sighting, nil, problem.Invalidf("inventory.interfaces[%d] has no mac_address", i)
		}
	}
	if sighting.MACs, err = parseMACs(names); err != nil {
		return sighting, nil, err
	}
	for _, key := range []string{"bmc_address", "bmc_v6address"} {
		word, err := wantText("inventory."+key, o[key])
		if err != nil {
			return sighting, nil, err
		}
		if word != "" && word != "0.0.0.0" && word != "::" { // so agents say that there is none
			sighting.BMC = append(sighting.BMC, word)
		}
	}
	inventory, err = json.Marshal(o)
	return sighting, inventory, err
}
