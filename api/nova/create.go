package nova

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

const (
	passwordLength = 12
	maxUserData    = 65535 // bytes of base64
	maxServers     = 100   // of one request
	maxDisks       = 32
	maxNICs        = 32
)

var (
	flavorRefSchema = func(at string, v any, minor int) error {
		if f, ok := v.(float64); ok && f >= 0 {
			return integerSchema(0, 1<<31-1)(at, v, minor)
		}
		return stringSchema(1, 255)(at, v, minor)
	}
	networkSchema = objectSchema(
		schemaProperty{name: "uuid", rule: nullableSchema(stringSchema(1, 255))}, schemaProperty{name: "fixed_ip", rule: nullableSchema(ipAddressSchema)}, schemaProperty{name: "port", rule: nullableSchema(uuidSchema)},
		schemaProperty{name: "tag", since: 32, until: 36, rule: tagSchema}, schemaProperty{name: "tag", since: 42, rule: tagSchema},
	)
	diskSchema = objectSchema(
		schemaProperty{name: "source_type", required: true, rule: oneOf("volume", "image", "snapshot", "blank")},
		schemaProperty{name: "destination_type", rule: oneOf("local", "volume")},
		schemaProperty{name: "uuid", rule: nullableSchema(uuidOrNothing)}, schemaProperty{name: "image_id", rule: uuidSchema}, schemaProperty{name: "volume_id", rule: uuidSchema}, schemaProperty{name: "snapshot_id", rule: uuidSchema},
		schemaProperty{name: "volume_size", rule: nullableSchema(sizeOrNothing)}, schemaProperty{name: "boot_index", rule: nullableSchema(integerSchema(-1, 1<<16))},
		schemaProperty{name: "delete_on_termination", rule: booleanSchema}, schemaProperty{name: "guest_format", rule: nullableSchema(stringSchema(0, 255))},
		schemaProperty{name: "device_name", rule: nullableSchema(stringSchema(0, 255))}, schemaProperty{name: "device_type", rule: nullableSchema(stringSchema(0, 255))},
		schemaProperty{name: "disk_bus", rule: nullableSchema(stringSchema(0, 255))}, schemaProperty{name: "no_device", rule: anySchema}, schemaProperty{name: "connection_info", rule: stringSchema(0, 4096)},
		schemaProperty{name: "tag", since: 32, until: 32, rule: tagSchema}, schemaProperty{name: "tag", since: 42, rule: tagSchema},
		schemaProperty{name: "volume_type", since: 67, rule: nullableSchema(stringSchema(0, 255))},
	)
	personalitySchema  = arraySchema(0, 1000, objectSchema(schemaProperty{name: "path", rule: stringSchema(1, 255)}, schemaProperty{name: "contents", rule: secretSchema(1 << 20)}))
	certificatesSchema = nullableSchema(uniqueItems(arraySchema(1, 50, stringSchema(1, 255))))
	userDataSchema     = nullableSchema(func(at string, v any, minor int) error {
		if err := secretSchema(maxUserData)(at, v, minor); err != nil {
			return err
		}
		if _, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(v.(string)), "")); err != nil {
			return problem.Invalidf("Invalid input for field/attribute user_data. It is not a 'base64'")
		}
		return nil
	})
	schedulerHintsSchema = openObject()

	serverSchema = objectSchema(
		schemaProperty{name: "name", required: true, rule: nameSchema},
		schemaProperty{name: "flavorRef", required: true, rule: flavorRefSchema},
		schemaProperty{name: "imageRef", rule: uuidOrNothing},
		schemaProperty{name: "adminPass", rule: secretSchema(1024)},
		schemaProperty{name: "metadata", rule: metadataSchema},
		schemaProperty{name: "networks", until: 36, rule: nullableSchema(arraySchema(0, maxNICs, networkSchema))},
		schemaProperty{name: "networks", since: 37, required: true, rule: networksSchema},
		schemaProperty{name: "block_device_mapping_v2", rule: arraySchema(0, maxDisks, diskSchema)},
		schemaProperty{name: "block_device_mapping", rule: arraySchema(0, 0, anySchema)},
		schemaProperty{name: "key_name", rule: nullableSchema(stringSchema(1, 255))},
		schemaProperty{name: "user_data", rule: userDataSchema},
		schemaProperty{name: "config_drive", rule: nullableSchema(boolOrNothing)},
		schemaProperty{name: "availability_zone", rule: nullableSchema(stringSchema(1, 255))},
		schemaProperty{name: "security_groups", rule: arraySchema(0, 64, objectSchema(schemaProperty{name: "name", rule: stringSchema(1, 255)}))},
		schemaProperty{name: "min_count", rule: integerSchema(1, maxServers)}, schemaProperty{name: "max_count", rule: integerSchema(1, maxServers)},
		schemaProperty{name: "return_reservation_id", rule: booleanSchema},
		schemaProperty{name: "OS-DCF:diskConfig", rule: oneOf("AUTO", "MANUAL")},
		schemaProperty{name: "accessIPv4", rule: noAddressSchema}, schemaProperty{name: "accessIPv6", rule: noAddressSchema},
		schemaProperty{name: "personality", until: 56, rule: personalitySchema},
		schemaProperty{name: "description", since: 19, rule: nullableSchema(stringSchema(0, 255))},
		schemaProperty{name: "tags", since: 52, rule: tagListSchema},
		schemaProperty{name: "trusted_image_certificates", since: 63, rule: certificatesSchema},
		schemaProperty{name: "host", since: 74, rule: stringSchema(1, 255)}, schemaProperty{name: "hypervisor_hostname", since: 74, rule: stringSchema(1, 255)},
	)
	createSchema = objectSchema(
		schemaProperty{name: "server", required: true, rule: serverSchema},
		schemaProperty{name: "os:scheduler_hints", rule: schedulerHintsSchema}, schemaProperty{name: "OS-SCH-HNT:scheduler_hints", rule: schedulerHintsSchema},
	)
)

func networksSchema(at string, v any, minor int) error {
	if s, ok := v.(string); ok {
		return oneOf("auto", "none")(at, s, minor)
	}
	return arraySchema(0, maxNICs, networkSchema)(at, v, minor)
}

func sizeOrNothing(at string, v any, minor int) error {
	if v == "" {
		return nil
	}
	return integerSchema(1, 1<<31-1)(at, v, minor)
}

func boolOrNothing(at string, v any, minor int) error {
	if v == "" {
		return nil
	}
	return booleanSchema(at, v, minor)
}

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

func readCount(creation *compute.Creation, body jsonObject) error {
	least, most := 1, 1
	if n, ok := intOf(body["min_count"]); ok {
		least, most = n, n
	}
	if n, ok := intOf(body["max_count"]); ok {
		most = n
	}
	if least > most {
		return problem.Invalidf("min_count must be <= max_count")
	}
	creation.Count = most
	return nil
}

// readNetworks reads "auto", "none" or a list; an empty list is "auto", as in Nova.
func (c serverCall) readNetworks(v any) ([]compute.NetworkRequest, error) {
	if v == "none" {
		return nil, nil
	}
	wanted := listOf(v)
	if len(wanted) == 0 {
		return c.onlyNetwork()
	}
	out := make([]compute.NetworkRequest, 0, len(wanted))
	for _, n := range wanted {
		id := stringProperty(n, "uuid")
		switch {
		case stringProperty(n, "port") != "":
			return nil, problem.Invalidf("Port %s could not be found: servers get their interfaces with their networks", stringProperty(n, "port"))
		case id == "":
			return nil, problem.Invalidf("Invalid input for field/attribute networks. A network needs its uuid")
		}
		if _, err := c.network(id); problem.Is(err, problem.NotFound) {
			return nil, problem.Invalidf("Network %s could not be found.", truncateText(id))
		} else if err != nil {
			return nil, err
		}
		out = append(out, compute.NetworkRequest{Network: id, Address: stringProperty(n, "fixed_ip")})
	}
	return out, nil
}

// onlyNetwork is the network that a server gets where its user names none: the only one there is, if there is one.
func (c serverCall) onlyNetwork() ([]compute.NetworkRequest, error) {
	all, err := c.s.Services.Networks.List(c.R.Context(), compute.NetworkFilter{Project: c.requester.Project}, record.Page{Limit: 2})
	switch {
	case err != nil, len(all) == 0:
		return nil, err
	case len(all) > 1:
		return nil, problem.Conflictf("Multiple possible networks found, use a Network ID to be more specific.")
	}
	return []compute.NetworkRequest{{Network: all[0].ID}}, nil
}

// readDisks reads the block device mapping. The disk that an image is copied to is the flavor's own, so it is none beside it.
func readDisks(creation *compute.Creation, mapping []jsonObject) error {
	invalid := func(format string, args ...any) error {
		return problem.Invalidf("Block Device Mapping is Invalid: %s", fmt.Sprintf(format, args...))
	}
	for _, m := range mapping {
		index := -1
		if n, ok := intOf(m["boot_index"]); ok {
			index = n
		}
		keep, _ := boolOf(m["delete_on_termination"])
		size, _ := intOf(m["volume_size"])
		source, destination, id := stringProperty(m, "source_type"), stringProperty(m, "destination_type"), strings.ToLower(stringProperty(m, "uuid"))
		switch {
		case source == "volume" && id == "":
			return invalid("a volume needs its uuid")
		case source == "volume" && destination == "local":
			return invalid("Mapping volume to local is not supported.")
		case source == "volume":
			creation.Disks = append(creation.Disks, compute.DiskRequest{VolumeID: id, BootIndex: index, Device: stringProperty(m, "device_name"), DeleteOnTermination: keep})
		case source == "image" && destination == "local" && index == 0 && (creation.Image == "" || creation.Image == id):
			creation.Image = id
		case source == "image" && destination == "local":
			return invalid("Mapping image to local is not supported but for the boot disk.")
		case source == "blank" && destination != "volume":
			if size == 0 {
				return invalid("a blank disk needs its volume_size")
			}
			if stringProperty(m, "guest_format") == "swap" { // of swap disks it is in MiB
				size = (size + 1023) / 1024
			}
			creation.Disks = append(creation.Disks, compute.DiskRequest{SizeGiB: size, BootIndex: index, Device: stringProperty(m, "device_name"), DeleteOnTermination: true})
		default:
			return invalid("volumes are not made from %s sources here; name one that exists", source)
		}
	}
	for _, d := range creation.Disks {
		if d.BootIndex == 0 && creation.Image != "" {
			return invalid("Boot sequence for the instance and image/block device mapping combination is not valid.")
		}
	}
	if creation.Image == "" && !hasBootVolume(creation.Disks) {
		if len(mapping) == 0 {
			return problem.Invalidf("Invalid imageRef provided.")
		}
		return invalid("Boot sequence for the instance and image/block device mapping combination is not valid.")
	}
	return nil
}

func hasBootVolume(disks []compute.DiskRequest) bool {
	for _, d := range disks {
		if d.BootIndex == 0 && d.VolumeID != "" {
			return true
		}
	}
	return false
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
