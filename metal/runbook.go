package metal

// Step is one step of cleaning, deployment or service.
type Step struct {
	Interface string `json:"interface"`
	Step      string `json:"step"`
	Args      Object `json:"args,omitempty"`
	// Priority orders deploy steps, highest first; 0 leaves the step out.
	Priority int `json:"priority,omitempty"`
	// Order is the place in a runbook, lowest first.
	Order int `json:"order,omitempty"`
}

// DeployTemplate is a list of deploy steps, chosen by a node's trait of the same name.
type DeployTemplate struct {
	Record
	Name  string
	Steps []Step // their args are sealed by the store
	Extra Object
}

// DeployTemplateFilter narrows a list of deploy templates; zero fields do not narrow.
type DeployTemplateFilter struct{ Names []string }

// Runbook is a list of clean or service steps that operators run by name.
type Runbook struct {
	Record
	Name           string
	Description    string
	Steps          []Step // their args are sealed by the store
	Traits         []string
	DisableRamdisk bool
	Public         bool
	Owner          string // project; empty while public
	Extra          Object
}

// RunbookFilter narrows a list of runbooks. Project keeps those that it owns and the public ones.
type RunbookFilter struct{ Project string }
