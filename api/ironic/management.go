package ironic

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/wire/ironic"
)

func (s *server) getBootDevice(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	var boot rescue.Boot
	if err := c.ask(n, newQuestion("get boot device", struct{}{}), &boot); err != nil {
		return err
	}
	var out ironic.BootDevice
	if boot.Device != "" {
		out = ironic.BootDevice{Device: &boot.Device, Persistent: &boot.Persistent}
	}
	return c.JSON(http.StatusOK, out)
}

func (s *server) supportedBootDevices(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	devices := []string{}
	if err := c.ask(n, newQuestion("supported boot devices", struct{}{}), &devices); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, ironic.SupportedBootDevices{Devices: devices})
}

func (s *server) setBootDevice(c *ironicCall) error {
	n, body, err := c.bodyFor("boot_device", "persistent")
	if err != nil {
		return err
	}
	device, err := wantText("boot_device", body["boot_device"])
	if err != nil {
		return err
	}
	if device == "" || len(device) > 64 {
		return problem.Invalidf("Missing mandatory parameter: boot_device (a name of at most 64 characters)")
	}
	persistent, err := wantBool("persistent", body["persistent"])
	if err != nil {
		return err
	}
	args := metal.BootDeviceArgs{Boot: rescue.Boot{Device: device, Persistent: persistent}}
	if err := c.ask(n, newCommand("set boot device", args), nil); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) injectNMI(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	if body, err := c.objectOr(true); err != nil || len(body) > 0 {
		return problem.Invalidf("A request to inject an NMI has no arguments.")
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	if err := c.ask(n, newCommand("inject nmi", struct{}{}), nil); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// shownIndicator is an indicator in the list; its name is NAME@COMPONENT.
type shownIndicator struct {
	Name      string        `json:"name"`
	Component string        `json:"component"`
	ReadOnly  bool          `json:"readonly"`
	States    []string      `json:"states"`
	Links     []ironic.Link `json:"links"`
}

func (s *server) listIndicators(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	var found map[string]map[string]metal.Indicator
	if err := c.ask(n, newQuestion("list indicators", struct{}{}), &found); err != nil {
		return err
	}
	list := []shownIndicator{}
	for _, component := range slices.Sorted(maps.Keys(found)) {
		for _, name := range slices.Sorted(maps.Keys(found[component])) {
			one, full := found[component][name], name+"@"+component
			list = append(list, shownIndicator{full, component, one.ReadOnly, one.States, c.links("nodes/" + n.ID + "/management/indicators/" + full)})
		}
	}
	return c.JSON(http.StatusOK, map[string]any{"indicators": list})
}

// indicator reads NAME@COMPONENT out of the path.
func (c *ironicCall) indicator() (metal.IndicatorArgs, error) {
	name, component, ok := strings.Cut(c.Args[1], "@")
	if !ok || name == "" || component == "" {
		return metal.IndicatorArgs{}, problem.Invalidf(`Malformed indicator name "%s": want NAME@COMPONENT`, truncateInput(c.Args[1]))
	}
	return metal.IndicatorArgs{Component: component, Name: name}, nil
}

func (s *server) getIndicator(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	args, err := c.indicator()
	if err != nil {
		return err
	}
	var state string
	if err := c.ask(n, newQuestion("get indicator", args), &state); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]string{"state": state})
}

func (s *server) setIndicator(c *ironicCall) error {
	n, body, err := c.bodyFor("state")
	if err != nil {
		return err
	}
	args, err := c.indicator()
	if err != nil {
		return err
	}
	if args.State, err = oneOf("state", body["state"], "on", "off", "blinking"); err != nil {
		return err
	}
	if err := c.ask(n, newCommand("set indicator", args), nil); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// oneOf takes one of the words.
func oneOf(name string, v any, words ...string) (string, error) {
	word, err := wantText(name, v)
	if err == nil && !slices.Contains(words, word) {
		err = problem.Invalidf("Invalid %s %q. It must be one of: %s.", name, truncateInput(word), strings.Join(words, ", "))
	}
	return word, err
}

func (s *server) setBootMode(c *ironicCall) error {
	n, body, err := c.bodyFor("target")
	if err != nil {
		return err
	}
	mode, err := oneOf("target boot mode", body["target"], "uefi", "bios")
	if err != nil {
		return err
	}
	return c.changeState(n, newCommand("set boot mode", metal.BootModeArgs{Mode: mode}))
}

func (s *server) setSecureBoot(c *ironicCall) error {
	n, body, err := c.bodyFor("target")
	if err != nil {
		return err
	}
	if body["target"] == nil {
		return problem.Invalidf("Invalid secure_boot requested for node. Allowed secure_boot states are: true, false")
	}
	on, err := wantBool("target", body["target"])
	if err != nil {
		return err
	}
	return c.changeState(n, newCommand("set secure boot", metal.SecureBootArgs{On: on}))
}

// changeState gives a command that needs the node at rest.
func (c *ironicCall) changeState(n *metal.Node, q metal.Question) error {
	q.Settled = true
	if err := c.runCommand(n, q); err != nil {
		return err
	}
	c.location("nodes/" + c.Args[0] + "/states")
	return c.Empty(http.StatusAccepted)
}

func (s *server) setRAID(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	if c.version < 12 {
		return api.NotAcceptablef("Request not acceptable: states/raid needs API version 1.12.")
	}
	config, err := c.object()
	if err != nil {
		return err
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	if err := s.Nodes.SetTargetRAID(c.R.Context(), n.ID, config, c.Asker()); err != nil {
		if problem.Is(err, problem.Unsupported) { // as Ironic, for which RAID is then not there
			return problem.NotFoundf("%w", err)
		}
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) getConsole(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	q := newQuestion("get console", struct{}{})
	q.Part = "console"
	var info any
	if err := c.ask(n, q, &info); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"console_enabled": n.ConsoleEnabled, "console_info": info})
}

func (s *server) setConsole(c *ironicCall) error {
	n, body, err := c.bodyFor("enabled")
	if err != nil {
		return err
	}
	if body["enabled"] == nil {
		return problem.Invalidf("Missing mandatory parameter: enabled")
	}
	on, err := wantBool("enabled", body["enabled"])
	if err != nil {
		return err
	}
	q := newCommand("set console", metal.ConsoleArgs{Enabled: on})
	q.Part = "console"
	if err := c.runCommand(n, q); err != nil {
		return err
	}
	c.location("nodes/" + c.Args[0] + "/states/console")
	return c.Empty(http.StatusAccepted)
}
