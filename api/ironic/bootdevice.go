package ironic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/wire/ironic"
)

// answerTimeout bounds the wait for what only a machine's controller can tell.
const answerTimeout = 30 * time.Second

// ask hands a question to a conductor and waits for its answer.
func (c *call) ask(n *metal.Node, class job.Class, kind job.Kind, args, answer any) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), answerTimeout)
	defer cancel()
	id, err := c.s.Nodes.Ask(ctx, n.ID, class, kind, args, c.who)
	if err != nil {
		return err
	}
	raw, err := c.s.Nodes.Answer(ctx, id)
	if err != nil && ctx.Err() != nil && problem.KindOf(err) == problem.Internal { // the time ended in the middle of a look
		return problem.Unavailablef("node %s: its controller has not answered yet; ask again", n.ID)
	}
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("answer of job %s (%s): %w", id, kind, err)
	}
	return nil
}

func (s *server) getBootDevice(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	var boot rescue.Boot
	if err := c.ask(n, job.Ask, "get boot device", struct{}{}, &boot); err != nil {
		return err
	}
	var out ironic.BootDevice
	if boot.Device != "" {
		out = ironic.BootDevice{Device: &boot.Device, Persistent: &boot.Persistent}
	}
	return c.json(http.StatusOK, out)
}

func (s *server) supportedBootDevices(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	devices := []string{}
	if err := c.ask(n, job.Ask, "supported boot devices", struct{}{}, &devices); err != nil {
		return err
	}
	return c.json(http.StatusOK, ironic.SupportedBootDevices{Devices: devices})
}

func (s *server) setBootDevice(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.object()
	if err != nil {
		return err
	}
	if err := knownOnly(body, "boot_device", "persistent"); err != nil {
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
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	args := metal.BootDeviceArgs{Boot: rescue.Boot{Device: device, Persistent: persistent}}
	if err := c.ask(n, job.Command, "set boot device", args, nil); err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}
