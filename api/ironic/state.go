package ironic

import (
	"net/http"
	"time"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/ironic"
)

// stateFields are the fields of a node that GET .../states shows.
var stateFields = []string{
	"console_enabled", "last_error", "power_state", "provision_state", "provision_updated_at", "target_power_state",
	"target_provision_state", "raid_config", "target_raid_config", "boot_mode", "secure_boot",
}

func (s *server) getStates(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	return c.showNode(http.StatusOK, n, nodeKind.shown(stateFields, c.version))
}

func (s *server) setPower(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.object()
	if err != nil {
		return err
	}
	if err := knownOnly(body, "target", "timeout"); err != nil {
		return err
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	word, _ := body["target"].(string)
	target := metal.PowerTarget(word)
	soft := target == metal.SoftOff || target == metal.SoftReboot
	if c.version < 27 && (soft || body["timeout"] != nil) {
		return api.NotAcceptablef("Request not acceptable: soft power actions and timeout need API version 1.27.")
	}
	timeout, err := powerTimeout(body["timeout"])
	if err != nil {
		return err
	}
	if !target.Known() {
		return problem.Invalidf(`The requested action "%s" is no power target; use power on, power off, rebooting, soft rebooting or soft power off.`, truncateInput(word))
	}
	if _, err := s.Directory.Driver(c.R.Context(), n); err != nil {
		return err
	}
	if err := s.Nodes.SetPower(c.R.Context(), n.ID, target, timeout, c.Asker()); err != nil {
		return err
	}
	c.location("nodes/" + c.Args[0] + "/states")
	return c.Empty(http.StatusAccepted)
}

// powerTimeout reads whole seconds of at least one; nil is none.
func powerTimeout(v any) (time.Duration, error) {
	if v == nil {
		return 0, nil
	}
	f, ok := v.(float64)
	if !ok || f != float64(int64(f)) || f < 1 || f > 86400 {
		return 0, problem.Invalidf("Invalid input for field/attribute timeout. Value: '%.40v'. timeout has to be a whole number of seconds from 1 to 86400.", v)
	}
	return time.Duration(f) * time.Second, nil
}

func (s *server) validateNode(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	found, err := s.Nodes.Validate(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	out := make(map[string]ironic.Validation, len(found))
	for kind, v := range found {
		one := ironic.Validation{Reason: v.Reason}
		if !c.seesAll(wholeNode) {
			one.Reason = problem.Redact(one.Reason)
		}
		if v.Known {
			ok := v.OK
			one.Result = &ok
		}
		out[kind] = one
	}
	return c.JSON(http.StatusOK, out)
}

func (s *server) setMaintenance(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	b, err := api.ReadBody(c.W, c.R, api.MaxBody)
	if err != nil {
		return err
	}
	reason := ""
	if len(b) > 0 {
		body, err := api.DecodeObject(b)
		if err != nil {
			return err
		}
		if err := knownOnly(body, "reason"); err != nil {
			return err
		}
		if reason, err = wantText("reason", body["reason"]); err != nil {
			return err
		}
	}
	return c.maintain(true, reason)
}

func (s *server) clearMaintenance(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	return c.maintain(false, "")
}

func (c *ironicCall) maintain(on bool, reason string) error {
	if c.version < rescueVersion {
		if _, err := c.nodeForChange(); err != nil {
			return err
		}
	}
	if err := c.s.Nodes.SetMaintenance(c.R.Context(), c.Args[0], on, reason, c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusAccepted)
}
