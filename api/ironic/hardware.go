package ironic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"salvor/access"
	"salvor/job"
	"salvor/metal"
)

// hardwareRoutes are what a node's hardware is asked or told, and what drivers say of themselves.
func (s *server) hardwareRoutes() []apiRoute {
	return []apiRoute{
		{method: "PUT", path: "/v1/nodes/{node}/states/raid", do: s.setRAID},
		{method: "GET", path: "/v1/nodes/{node}/states/console", need: access.Read, do: s.getConsole},
		{method: "PUT", path: "/v1/nodes/{node}/states/console", do: s.setConsole},
		{method: "PUT", path: "/v1/nodes/{node}/states/boot_mode", since: 76, do: s.setBootMode},
		{method: "PUT", path: "/v1/nodes/{node}/states/secure_boot", since: 76, do: s.setSecureBoot},
		{method: "GET", path: "/v1/nodes/{node}/management/boot_device", need: access.Read, do: s.getBootDevice},
		{method: "PUT", path: "/v1/nodes/{node}/management/boot_device", do: s.setBootDevice},
		{method: "GET", path: "/v1/nodes/{node}/management/boot_device/supported", need: access.Read, do: s.supportedBootDevices},
		{method: "PUT", path: "/v1/nodes/{node}/management/inject_nmi", since: 29, do: s.injectNMI},
		{method: "GET", path: "/v1/nodes/{node}/management/indicators", need: access.Read, since: 63, do: s.listIndicators},
		{method: "GET", path: "/v1/nodes/{node}/management/indicators/{indicator}", need: access.Read, since: 63, do: s.getIndicator},
		{method: "PUT", path: "/v1/nodes/{node}/management/indicators/{indicator}", since: 63, do: s.setIndicator},
		{method: "GET", path: "/v1/nodes/{node}/vendor_passthru/methods", need: access.Read, do: s.nodeMethods},
		{method: "*", path: "/v1/nodes/{node}/vendor_passthru", do: s.callNodeMethod},
		{method: "*", path: "/v1/nodes/{node}/vendor_passthru/{method}", do: s.callNodeMethod},
		{method: "GET", path: "/v1/nodes/{node}/vifs", need: access.Read, since: 28, do: s.listVIFs},
		{method: "POST", path: "/v1/nodes/{node}/vifs", since: 28, do: s.attachVIF},
		{method: "DELETE", path: "/v1/nodes/{node}/vifs/{vif}", since: 28, do: s.detachVIF},
		{method: "GET", path: "/v1/nodes/{node}/vmedia", need: access.Read, since: 93, do: s.getMedia},
		{method: "POST", path: "/v1/nodes/{node}/vmedia", since: 89, do: s.attachMedium},
		{method: "DELETE", path: "/v1/nodes/{node}/vmedia", since: 89, do: s.detachMedia},
		{method: "GET", path: "/v1/nodes/{node}/bios", need: access.Read, since: 40, do: s.listBIOS},
		{method: "GET", path: "/v1/nodes/{node}/bios/{setting}", need: access.Read, since: 40, do: s.getBIOS},
		{method: "GET", path: "/v1/nodes/{node}/firmware", need: access.Read, since: 86, do: s.listFirmware},
		{method: "GET", path: "/v1/nodes/{node}/inventory", need: access.Read, since: 81, do: s.getInventory},
		{method: "GET", path: "/v1/drivers", need: access.Read, do: s.listDrivers},
		{method: "GET", path: "/v1/drivers/{driver}", need: access.Read, do: s.getDriver},
		{method: "GET", path: "/v1/drivers/{driver}/properties", need: access.Read, do: s.driverProperties},
		{method: "GET", path: "/v1/drivers/{driver}/raid/logical_disk_properties", need: access.Read, do: s.logicalDisks},
		{method: "GET", path: "/v1/drivers/{driver}/vendor_passthru/methods", need: access.Read, do: s.driverMethods},
		{method: "*", path: "/v1/drivers/{driver}/vendor_passthru", do: s.callDriverMethod},
		{method: "*", path: "/v1/drivers/{driver}/vendor_passthru/{method}", do: s.callDriverMethod},
	}
}

const (
	// answerTimeout bounds the wait for what only a machine's controller can tell.
	answerTimeout = 30 * time.Second
	// settleTimeout bounds the wait for a command that clients do not expect to have been
	// done when they are answered: its failure is told if it comes this soon.
	settleTimeout = 5 * time.Second
)

// ask hands a question to a conductor and waits for its answer; a nil answer is not read.
func (c *ironicCall) ask(n *metal.Node, q metal.Question, answer any) error {
	ctx, cancel := context.WithTimeout(c.R.Context(), answerTimeout)
	defer cancel()
	id, err := c.s.Nodes.Ask(ctx, n.ID, q, c.Asker())
	if err != nil {
		return err
	}
	raw, err := c.s.Nodes.Answer(ctx, id)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("answer of job %s (%s): %w", id, q.Kind, err)
	}
	return nil
}

// runCommand hands a command to a conductor and waits a little for its end; one that takes
// longer goes on, and shows its failure on the node.
func (c *ironicCall) runCommand(n *metal.Node, q metal.Question) error {
	id, err := c.s.Nodes.Ask(c.R.Context(), n.ID, q, c.Asker())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), settleTimeout)
	defer cancel()
	if _, err = c.s.Nodes.Answer(ctx, id); ctx.Err() != nil {
		return nil
	}
	return err
}

// newCommand is a question that tells something.
func newCommand(kind job.Kind, args any) metal.Question {
	return metal.Question{Class: job.Command, Kind: kind, Args: args}
}

// newQuestion is one that only asks.
func newQuestion(kind job.Kind, args any) metal.Question {
	return metal.Question{Class: job.Background, Kind: kind, Args: args}
}

// node reads the node of the path for a request without query arguments.
func (c *ironicCall) node() (*metal.Node, error) {
	if err := c.only(); err != nil {
		return nil, err
	}
	return c.s.Nodes.Node(c.R.Context(), c.Args[0])
}

// bodyFor reads the body of a request that changes a node, of these keys, and the node.
func (c *ironicCall) bodyFor(keys ...string) (*metal.Node, map[string]any, error) {
	if err := c.only(); err != nil {
		return nil, nil, err
	}
	body, err := c.object()
	if err != nil {
		return nil, nil, err
	}
	if err := knownOnly(body, keys...); err != nil {
		return nil, nil, err
	}
	n, err := c.nodeForChange()
	return n, body, err
}
