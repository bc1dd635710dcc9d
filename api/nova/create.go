package nova

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/problem"
	"salvor/secret"
)

const (
	passwordLength = 12
	maxUserData    = 65535 // bytes of base64
	maxServers     = 100   // of one request
	maxDisks       = 32
	maxNICs        = 32
)

func (c serverCall) createServers() error {
	outer, err := c.body("", createSchema)
	if err != nil {
		return err
	}
	body := outer["server"].(jsonObject)
	if err := rejectUnsupportedFields(outer, body); err != nil {
		return err
	}
	creation := compute.Creation{
		Name: stringProperty(body, "name"), Description: stringProperty(body, "description"), User: c.user, Metadata: mapOf(body["metadata"]), Tags: wordsOf(body["tags"]),
		Zone: stringProperty(body, "availability_zone"), Image: strings.ToLower(stringProperty(body, "imageRef")), KeyName: stringProperty(body, "key_name"),
		UserData: secret.New(strings.Join(strings.Fields(stringProperty(body, "user_data")), "")), Count: 1,
	}
	if creation.Description == "" && c.Minor < 19 {
		creation.Description = creation.Name
	}
	creation.ConfigDrive, _ = boolOf(body["config_drive"])
	if err := c.readFlavor(&creation, body); err != nil {
		return err
	}
	if err := c.readHost(&creation, body); err != nil {
		return err
	}
	if err := readCount(&creation, body); err != nil {
		return err
	}
	for _, g := range listOf(body["security_groups"]) {
		creation.SecurityGroups = append(creation.SecurityGroups, stringProperty(g, "name"))
	}
	if creation.Networks, err = c.readNetworks(body["networks"]); err != nil {
		return err
	}
	if err := readDisks(&creation, listOf(body["block_device_mapping_v2"])); err != nil {
		return err
	}
	if err := c.choosePassword(&creation, stringProperty(body, "adminPass")); err != nil {
		return err
	}
	made, err := c.s.Services.Servers.Create(c.R.Context(), creation, c.requester)
	if err != nil {
		return c.creationError(err, &creation)
	}
	return c.created(made, &creation, body)
}

// rejectUnsupportedFields refuses what would be lost without a word. An empty list and the security group "default", which some clients send by
// themselves, ask for nothing.
func rejectUnsupportedFields(outer, body jsonObject) error {
	for _, key := range []string{"os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"} {
		asked, _ := outer[key].(jsonObject)
		for _, hint := range slices.Sorted(maps.Keys(asked)) {
			if isEmptyValue(asked[hint]) {
				continue
			}
			return problem.Invalidf("Invalid input for field/attribute %s. The hint %s is not supported: servers are placed by room and availability zone alone. "+
				"Ask again without it; an administrator may name a host (availability_zone=ZONE:HOST)", key, truncateText(hint))
		}
	}
	for _, g := range listOf(body["security_groups"]) {
		if name := stringProperty(g, "name"); name != "" && name != "default" {
			return problem.Invalidf("Invalid input for field/attribute security_groups. Security group %s is not supported: no traffic is filtered here. "+
				"Ask again without it, and filter in the server itself or in the network", truncateText(name))
		}
	}
	if len(listOf(body["personality"])) > 0 {
		return problem.Invalidf("Personality files are not supported; use user_data")
	}
	if l, _ := body["trusted_image_certificates"].([]any); len(l) > 0 {
		return problem.Invalidf("Image signature certificates are not supported")
	}
	return nil
}

// isEmptyValue tells whether a JSON value asks for nothing.
func isEmptyValue(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case jsonObject:
		return len(v) == 0
	}
	return false
}

func listOf(v any) []jsonObject {
	l, _ := v.([]any)
	out := make([]jsonObject, 0, len(l))
	for _, e := range l {
		if o, ok := e.(jsonObject); ok {
			out = append(out, o)
		}
	}
	return out
}

func (c serverCall) readFlavor(creation *compute.Creation, body jsonObject) error {
	ref := stringProperty(body, "flavorRef")
	if n, ok := body["flavorRef"].(float64); ok {
		ref = fmt.Sprint(int(n))
	}
	f, err := c.flavorNamed(ref[strings.LastIndex(ref, "/")+1:]) // a URL names it, too
	if problem.Is(err, problem.NotFound) {
		return problem.Invalidf("Flavor %s could not be found.", truncateText(ref))
	}
	if err != nil {
		return err
	}
	creation.Flavor = f.ID
	return nil
}

// readHost reads where the server must be: a host by name, or in the old form ZONE:HOST.
func (c serverCall) readHost(creation *compute.Creation, body jsonObject) error {
	creation.Host = stringProperty(body, "host")
	if creation.Host == "" {
		creation.Host = stringProperty(body, "hypervisor_hostname")
	}
	if zone, rest, ok := strings.Cut(creation.Zone, ":"); ok {
		creation.Zone = zone
		host, node, _ := strings.Cut(rest, ":")
		if creation.Host = host; host == "" {
			creation.Host = node
		}
	}
	if creation.Zone == defaultZone {
		creation.Zone = ""
	}
	switch {
	case creation.Host == "":
		return nil
	case !c.admin:
		return problem.Forbiddenf(policyForbidden, "os_compute_api:servers:create:forced_host")
	}
	if _, err := c.s.Services.Hosts.Host(c.R.Context(), creation.Host); problem.Is(err, problem.NotFound) {
		return problem.Invalidf("Compute host %s could not be found.", truncateText(creation.Host))
	} else if err != nil {
		return err
	}
	return nil
}

func (c *novaCall) choosePassword(creation *compute.Creation, asked string) error {
	if asked != "" {
		creation.Password = secret.New(asked)
		return nil
	}
	if c.s.NoPasswords {
		return nil
	}
	var err error
	creation.Password, err = service.NewPassword(passwordLength)
	return err
}

// creationError puts what the core says of things that a creation names into Nova's words: the path itself is always there.
func (c serverCall) creationError(err error, creation *compute.Creation) error {
	if !problem.Is(err, problem.NotFound) && !problem.Is(err, problem.Invalid) {
		return err
	}
	// An image of another project is none: its words must be the same.
	if img, look := c.s.Services.Images.Get(c.R.Context(), creation.Image); creation.Image != "" && (problem.Is(look, problem.NotFound) || look == nil && !img.Visible(c.requester)) {
		return problem.Invalidf("Can not find requested image")
	}
	return problem.Invalidf("%s", err.Error())
}

// created answers with what a client needs to find its server again.
func (c serverCall) created(made []*compute.Server, creation *compute.Creation, body jsonObject) error {
	if wanted, _ := boolOf(body["return_reservation_id"]); wanted {
		return c.json(http.StatusAccepted, jsonObject{"reservation_id": reservationID(made[0].ID)})
	}
	srv := made[0]
	answer := jsonObject{
		"id": srv.ID, "links": c.links("/servers/" + srv.ID), "OS-DCF:diskConfig": "MANUAL", "security_groups": namesOf(srv.SecurityGroups),
	}
	if !c.s.NoPasswords {
		answer["adminPass"] = creation.Password.Reveal()
	}
	c.W.Header().Set("Location", c.base+"/servers/"+srv.ID)
	return c.json(http.StatusAccepted, jsonObject{"server": answer})
}

func namesOf(names []string) []jsonObject {
	out := []jsonObject{}
	for _, w := range names {
		out = append(out, jsonObject{"name": w})
	}
	return out
}
