package ironic

import (
	"encoding/json"
	"net/http"
	"slices"

	"salvor/api"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// vendorInterface describes the vendor interface of a node; Unsupported where it has none.
func (c *ironicCall) vendorInterface(n *metal.Node) (metal.InterfaceInfo, error) {
	d, err := c.s.Directory.Driver(c.R.Context(), n)
	if err != nil {
		return metal.InterfaceInfo{}, err
	}
	i, ok := d.Find(n, "vendor")
	if !ok || i.Unsupported {
		return i, metal.Lacks(n, "vendor_passthru")
	}
	return i, nil
}

func (s *server) nodeMethods(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	i, err := c.vendorInterface(n)
	if problem.Is(err, problem.Unsupported) {
		return c.JSON(http.StatusOK, struct{}{})
	}
	if err != nil {
		return err
	}
	methods := i.Methods
	if methods == nil {
		methods = map[string]metal.VendorMethod{}
	}
	return c.JSON(http.StatusOK, methods)
}

// vendorMethod is the method that is called: clients name it in the path, or as an argument.
func (c *ironicCall) vendorMethod() (string, error) {
	name := c.Query.Get("method")
	if len(c.Args) > 1 {
		name = c.Args[1]
		if name == "heartbeat" || name == "lookup" { // the endpoints of old agents, which are closed if we get here
			return "", api.NoRoute(c.R, nil)
		}
	}
	if name == "" {
		return "", problem.Invalidf("Method not specified")
	}
	return name, nil
}

// callNodeMethod runs a vendor method: one that is asynchronous answers 202 and nothing,
// another 200 with what it gives.
func (s *server) callNodeMethod(c *ironicCall) error {
	if err := c.only("method"); err != nil {
		return err
	}
	args, err := c.objectOr(true)
	if err != nil {
		return err
	}
	name, err := c.vendorMethod()
	if err != nil {
		return err
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	i, err := c.vendorInterface(n)
	if err != nil {
		return err
	}
	m, ok := i.Methods[name]
	if !ok {
		return problem.Invalidf("No handler for method %s", truncateInput(name))
	}
	if !slices.Contains(m.HTTPMethods, c.R.Method) {
		return problem.Invalidf("The method %s does not support HTTP %.20s", name, c.R.Method)
	}
	return c.runMethod(n, m, metal.VendorCall{Method: name, HTTPMethod: c.R.Method}, args)
}

// runMethod keeps the arguments sealed: only the vendor knows which of them are secret.
func (c *ironicCall) runMethod(n *metal.Node, m metal.VendorMethod, call metal.VendorCall, args metal.Object) error {
	hidden, err := json.Marshal(metal.VendorCall{Method: call.Method, HTTPMethod: call.HTTPMethod, Args: args})
	if err != nil {
		return err
	}
	q := metal.Question{Class: job.Command, Kind: "vendor command", Args: call, Secret: secret.New(string(hidden))}
	if m.Async {
		if err := c.runCommand(n, q); err != nil {
			return err
		}
		return c.Empty(http.StatusAccepted)
	}
	if !m.RequireExclusiveLock {
		q.Class, q.Kind = job.Background, "vendor question"
	}
	var answer json.RawMessage
	if err := c.ask(n, q, &answer); err != nil {
		return err
	}
	return c.Raw(http.StatusOK, answer)
}

// driverMethods lists the vendor methods of a driver itself, of which ours have none.
func (s *server) driverMethods(c *ironicCall) error {
	if _, err := c.driver(); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct{}{})
}

func (s *server) callDriverMethod(c *ironicCall) error {
	name, err := c.vendorMethod()
	if err != nil {
		return err
	}
	if _, err := c.driver(); err != nil {
		return err
	}
	return problem.Invalidf("No handler for method %s", truncateInput(name))
}
