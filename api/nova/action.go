package nova

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
)

// serverAction is what the body of a request may ask of a server.
type serverAction struct {
	need   accessLevel // beside member, which the path needs
	schema schemaRule
	do     func(actionCall, *compute.Server, any) error
}

// simpleAction does an action that answers 202 without a body.
func simpleAction(a compute.Action) serverAction {
	return serverAction{need: member, schema: anySchema, do: func(c actionCall, srv *compute.Server, _ any) error {
		return c.ask(srv, compute.Act{Action: a})
	}}
}

// ask hands an action on and answers 202.
func (c *novaCall) ask(srv *compute.Server, a compute.Act) error {
	if _, err := c.s.Services.Actions.Act(c.R.Context(), srv.ID, a, c.requester); err != nil {
		return err
	}
	return c.Empty(http.StatusAccepted)
}

// unservedActions are actions of Nova that are not served, with why.
var unservedActions = map[string]string{
	"createImage": "images are not made of servers", "createBackup": "backups are not made",
	"resize": "servers keep their flavor", "confirmResize": "servers keep their flavor", "revertResize": "servers keep their flavor",
	"shelve": "servers are not shelved", "shelveOffload": "servers are not shelved", "unshelve": "servers are not shelved",
	"changePassword": "nothing runs in a server that could change its password; rescue it", "restore": "servers are deleted at once",
	"addSecurityGroup": "there is no packet filter; security groups are told as they were at creation", "removeSecurityGroup": "there is no packet filter; security groups are told as they were at creation",
	"addFloatingIp": "addresses are given at creation", "removeFloatingIp": "addresses are given at creation",
	"addFixedIp": "addresses are given at creation", "removeFixedIp": "addresses are given at creation",
	"os-getVNCConsole": "there is no remote console; see the console log", "os-getSPICEConsole": "there is no remote console; see the console log",
	"os-getSerialConsole": "there is no remote console; see the console log", "os-getRDPConsole": "there is no remote console; see the console log",
	"trigger_crash_dump": "no crash dump is made", "injectNetworkInfo": "the config drive holds the network", "resetNetwork": "the config drive holds the network",
}

var rebootTypeSchema = oneOf("HARD", "Hard", "hard", "SOFT", "Soft", "soft")

var rebuildSchema = objectSchema(
	schemaProperty{name: "imageRef", required: true, rule: uuidSchema}, schemaProperty{name: "adminPass", rule: secretSchema(1024)}, schemaProperty{name: "name", rule: nameSchema},
	schemaProperty{name: "metadata", rule: metadataSchema}, schemaProperty{name: "preserve_ephemeral", rule: booleanSchema}, schemaProperty{name: "OS-DCF:diskConfig", rule: oneOf("AUTO", "MANUAL")},
	schemaProperty{name: "accessIPv4", rule: noAddressSchema}, schemaProperty{name: "accessIPv6", rule: noAddressSchema}, schemaProperty{name: "personality", until: 56, rule: personalitySchema},
	schemaProperty{name: "description", since: 19, rule: nullableSchema(stringSchema(0, 255))}, schemaProperty{name: "key_name", since: 54, rule: nullableSchema(stringSchema(1, 255))},
	schemaProperty{name: "salvor:discard", rule: booleanSchema}, schemaProperty{name: "user_data", since: 57, rule: userDataSchema}, schemaProperty{name: "trusted_image_certificates", since: 63, rule: certificatesSchema},
)

// serverActions by their name in the body.
func serverActions() map[string]serverAction {
	return map[string]serverAction{
		"os-start": simpleAction(compute.Start), "os-stop": simpleAction(compute.Stop), "pause": simpleAction(compute.Pause), "unpause": simpleAction(compute.Unpause),
		"suspend": simpleAction(compute.Suspend), "resume": simpleAction(compute.Resume), "unlock": simpleAction(compute.UnlockServer), "unrescue": simpleAction(compute.Unrescue),
		"forceDelete":    simpleAction(compute.Delete),
		"reboot":         {need: member, schema: objectSchema(schemaProperty{name: "type", required: true, rule: rebootTypeSchema}), do: actionCall.reboot},
		"lock":           {need: member, schema: lockSchema, do: actionCall.lock},
		"rescue":         {need: member, schema: nullableSchema(objectSchema(schemaProperty{name: "adminPass", rule: rescuePasswordSchema}, schemaProperty{name: "rescue_image_ref", rule: uuidSchema}, schemaProperty{name: rescueKeys, rule: arraySchema(0, rescue.MaxKeys, stringSchema(1, rescue.MaxKey))}, schemaProperty{name: rescueExpiry, rule: integerSchema(0, int(rescue.MaxLasting/time.Second))})), do: actionCall.rescue},
		"rebuild":        {need: member, schema: rebuildSchema, do: actionCall.rebuild},
		"evacuate":       {need: admin, schema: evacuateSchema, do: actionCall.evacuate},
		"migrate":        {need: admin, schema: migrateSchema, do: actionCall.migrate},
		"os-migrateLive": {need: admin, schema: migrateLiveSchema, do: actionCall.migrateLive},
		"os-resetState": {
			need: admin, schema: objectSchema(schemaProperty{name: "state", required: true, rule: oneOf("active", "error")}), do: actionCall.resetState,
		},
		"os-getConsoleOutput": {
			need: member, schema: nullableSchema(objectSchema(schemaProperty{name: "length", rule: nullableSchema(integerSchema(-1, 1<<31-1))})), do: actionCall.consoleOutput,
		},
	}
}

// lockSchema takes anything before there are reasons, as Nova does.
func lockSchema(at string, v any, minor int) error {
	if minor < 73 {
		return nil
	}
	return nullableSchema(objectSchema(schemaProperty{name: "locked_reason", rule: stringSchema(1, 255)}))(at, v, minor)
}

// rescuePasswordSchema takes one line that is not blank; an empty one is chosen.
func rescuePasswordSchema(at string, v any, minor int) error {
	if err := secretSchema(rescue.MaxPassword)(at, v, minor); err != nil {
		return err
	}
	if s := v.(string); s != "" && (strings.TrimSpace(s) == "" || strings.ContainsAny(s, "\n\r")) {
		return problem.Invalidf("Invalid input for field/attribute %s. It must be one line that is not blank.", at)
	}
	return nil
}

// act does what the body asks of the server that the path names.
func (c actionCall) act() error {
	body, err := c.body("", openObject())
	if err != nil {
		return err
	}
	if len(body) != 1 {
		return problem.Invalidf("Malformed request body: it must ask for one action")
	}
	for name, args := range body {
		a, ok := allActions[name]
		if why, known := unservedActions[name]; !ok && known {
			if _, err := c.server(); err != nil {
				return err
			}
			return notImplemented("The action " + name + " is not served: " + why)
		}
		if !ok {
			return problem.Invalidf("There is no such action: %s", truncateText(name))
		}
		if err := c.permitted(actionRules[name], a.need != admin || c.admin, name); err != nil {
			return err
		}
		if err := a.schema(name, args, c.Minor); err != nil {
			return err
		}
		srv, err := c.server()
		if err != nil {
			return err
		}
		// Who came so far may do it to this server, be it by a policy file that lets others than administrators.
		c.requester.Admin = c.requester.Admin || a.need == admin
		return a.do(c, srv, args)
	}
	return nil
}

var allActions = serverActions()

func (c actionCall) reboot(srv *compute.Server, args any) error {
	kind := compute.Reboot
	if strings.EqualFold(stringProperty(args.(jsonObject), "type"), "hard") {
		kind = compute.RebootHard
	}
	return c.ask(srv, compute.Act{Action: kind})
}

func (c actionCall) lock(srv *compute.Server, args any) error {
	a := compute.Act{Action: compute.LockServer}
	if o, ok := args.(jsonObject); ok && c.Minor >= 73 {
		a.Reason = stringProperty(o, "locked_reason")
	}
	return c.ask(srv, a)
}

// What salvor adds to the body of a rescue: ssh keys that are let in beside the server's own, and after how many seconds the session ends.
const (
	rescueKeys   = "salvor:keys"
	rescueExpiry = "salvor:expires_in"
)

// rescue answers 200 with the password, or with nothing where the rescue system takes none.
func (c actionCall) rescue(srv *compute.Server, args any) error {
	o, _ := args.(jsonObject)
	if err := c.mayRescueVolume(srv); err != nil {
		return err
	}
	a := compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Password: secret.New(stringProperty(o, "adminPass"))}}
	if !c.s.NoPasswords {
		a.Password = &secret.Value{}
	}
	keys, _ := o[rescueKeys].([]any)
	for _, k := range keys {
		text, _ := k.(string)
		a.Rescue.Keys = append(a.Rescue.Keys, strings.TrimSpace(text))
	}
	if seconds, ok := intOf(o[rescueExpiry]); ok {
		a.Rescue.Expires = time.Duration(seconds) * time.Second
	}
	ref := strings.ToLower(stringProperty(o, "rescue_image_ref"))
	a.Rescue.ImageUUID = ref
	_, err := c.s.Services.Actions.Act(c.R.Context(), srv.ID, a, c.requester)
	switch {
	case ref != "" && problem.Is(err, problem.NotFound):
		return problem.Invalidf("Requested rescue image '%s' is not supported", ref)
	case ref != "" && (problem.Is(err, problem.Invalid) || problem.Is(err, problem.Unsupported)):
		return problem.Invalidf("Requested rescue image '%s' is not supported: %w", ref, err)
	case err != nil:
		return err
	}
	answer := jsonObject{}
	if a.Password != nil && !a.Password.Empty() {
		answer["adminPass"] = a.Password.Reveal()
	}
	return c.json(http.StatusOK, answer)
}

// mayRescueVolume refuses servers that boot from a volume before the version that rescues them, after what any rescue is refused for.
func (c actionCall) mayRescueVolume(srv *compute.Server) error {
	if c.Minor >= 87 || !slices.ContainsFunc(srv.Disks, func(d compute.Disk) bool { return d.BootIndex == 0 && d.VolumeID != "" }) {
		return nil
	}
	if _, err := compute.Allow(srv, compute.Rescue, compute.NovaSemantics, c.requester.Admin); err != nil {
		return err
	}
	return problem.Invalidf("Instance %s cannot be rescued: Cannot rescue a volume-backed instance", srv.ID)
}

func (c actionCall) rebuild(srv *compute.Server, args any) error {
	o := args.(jsonObject)
	if err := rejectUnsupportedFields(nil, o); err != nil {
		return err
	}
	r := &compute.RebuildArgs{ImageID: strings.ToLower(stringProperty(o, "imageRef")), Name: stringProperty(o, "name")}
	r.Discard, _ = boolOf(o["salvor:discard"])
	if v, ok := o["metadata"]; ok {
		r.Metadata = mapOf(v)
	}
	if _, ok := o["description"]; ok {
		r.Description = new(string)
		*r.Description = stringProperty(o, "description")
	}
	if _, ok := o["key_name"]; ok {
		r.KeyName = new(string)
		*r.KeyName = stringProperty(o, "key_name")
	}
	if _, ok := o["user_data"]; ok {
		data := secret.New(strings.Join(strings.Fields(stringProperty(o, "user_data")), ""))
		r.UserData = &data
	}
	creation := compute.Creation{}
	if err := c.choosePassword(&creation, stringProperty(o, "adminPass")); err != nil {
		return err
	}
	after, err := c.s.Services.Actions.Act(c.R.Context(), srv.ID, compute.Act{Action: compute.Rebuild, Rebuild: r, RebuildPassword: creation.Password}, c.requester)
	if problem.Is(err, problem.NotFound) {
		return problem.Invalidf("Cannot find image for rebuild")
	}
	if err != nil {
		return err
	}
	more := jsonObject{}
	if !c.s.NoPasswords {
		more["adminPass"] = creation.Password.Reveal()
	}
	if c.Minor >= 54 && c.Minor < 75 {
		more["key_name"] = orNil(after.KeyName)
	}
	if c.Minor >= 57 {
		more["user_data"] = nil
		if !after.UserData.Empty() {
			more["user_data"] = after.UserData.Reveal()
		}
	}
	c.W.Header().Set("Location", c.base+"/servers/"+srv.ID)
	return c.showServer(http.StatusAccepted, after, true, more)
}

func (c actionCall) resetState(srv *compute.Server, args any) error {
	state := compute.Active
	if stringProperty(args.(jsonObject), "state") == "error" {
		state = compute.Errored
	}
	return c.ask(srv, compute.Act{Action: compute.ResetState, Reset: state})
}

func (c actionCall) consoleOutput(srv *compute.Server, args any) error {
	o, _ := args.(jsonObject)
	lines, ok := intOf(o["length"])
	if !ok || lines < 0 {
		lines = 0
	}
	if srv.HostID == "" {
		return problem.Conflictf("Instance %s is not ready", srv.ID)
	}
	text, err := c.s.Services.Servers.Console(c.R.Context(), srv, lines)
	if problem.Is(err, problem.Unsupported) {
		return notImplemented("Unable to get console log, functionality not implemented")
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"output": text})
}
