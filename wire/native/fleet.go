package native

import "time"

// Fleet answers GET /salvor/v1/fleet: how many nodes there are of each state that any is in.
type Fleet struct {
	Total       int `json:"total"`
	Maintenance int `json:"maintenance"`
	Faulty      int `json:"faulty"` // with a fault
	// SilentBMCs and RefusingBMCs count the nodes whose BMC did not answer the last reading of the power, or refused it.
	SilentBMCs   int          `json:"silent_bmcs"`
	RefusingBMCs int          `json:"refusing_bmcs"`
	States       []FleetState `json:"states"` // in the order of a machine's life
}

// FleetState counts the nodes of a provision state.
type FleetState struct {
	State       string `json:"state"`
	Count       int    `json:"count"`
	Maintenance int    `json:"maintenance"`
	Faulty      int    `json:"faulty"`
}

// FleetPage answers GET /salvor/v1/fleet/nodes. Parameters: state=, search= (a part of the name, or how the UUID or the
// instance's UUID begins), maintenance=true, faulty=true,
// bmc= (answering, silent, refusing, unknown), uuid= (several by commas), limit=N (at most 1000), marker=UUID (of the last node of the page before).
type FleetPage struct {
	Nodes []FleetNode `json:"nodes"`
	// More tells that there is more than fitted the page.
	More bool `json:"more"`
}

// FleetNode is a node in a list of many.
type FleetNode struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	State       string `json:"provision_state"`
	Target      string `json:"target_provision_state"`
	Power       string `json:"power_state"` // empty: not known
	TargetPower string `json:"target_power_state"`
	// BMC is answering, silent (no usable answer to the last reading of the power), refusing or unknown (no reading, or an old one).
	BMC string `json:"bmc"`
	// PowerReadAt is when the BMC last told power_state; null: power_state is no reading of it. PowerFresh: there is a reading that is not old.
	PowerReadAt    *time.Time `json:"power_read_at"`
	PowerFresh     bool       `json:"power_fresh"`
	Maintenance    bool       `json:"maintenance"`
	Fault          string     `json:"fault"`
	ConductorGroup string     `json:"conductor_group"`
	Failed         bool       `json:"failed"` // the newest operation came to nothing; why is on the node itself
	Since          *time.Time `json:"since"`  // it is in the state
}

// States answers GET /salvor/v1/states: the table of provision states by which nodes go forward.
type States struct {
	States      []State      `json:"states"` // in the order of a machine's life
	Transitions []Transition `json:"transitions"`
}

// State is a provision state.
type State struct {
	State  string `json:"state"`
	Stable bool   `json:"stable"` // it stays until somebody asks for something
	Target string `json:"target"` // empty in stable states
}

// Transition leads from a state to another, by a verb that somebody asks or by an event that a job reports.
type Transition struct {
	From  string `json:"from"`
	Verb  string `json:"verb,omitempty"`
	Event string `json:"event,omitempty"`
	To    string `json:"to"`
	Min   int    `json:"min,omitempty"` // first microversion, 1.N, that may use the verb
	Job   string `json:"job,omitempty"` // kind of job that the verb begins
}
