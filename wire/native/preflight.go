package native

// Preflight answers GET /salvor/v1/nodes/{ident}/preflight: which operations could succeed on a node.
type Preflight struct {
	Subject    Subject           `json:"subject"`
	State      string            `json:"state"`
	Operations []PreflightResult `json:"operations"`
}

// PreflightResult is an operation with every reason why it cannot succeed; none: its check found none.
type PreflightResult struct {
	Operation string `json:"operation"` // rescue, unrescue, deploy, provide, clean, inspect, service
	// Now tells whether the node's state takes the operation at the moment.
	Now     bool              `json:"now"`
	Reasons []PreflightReason `json:"reasons"`
	// Warnings are what the operation will go on without.
	Warnings []PreflightReason `json:"warnings,omitempty"`
}

// PreflightReason is one cause.
type PreflightReason struct {
	Interface string `json:"interface"` // of the node: boot, network, rescue, ...
	Text      string `json:"text"`
}
