package metal

// ProbeKind and RecordingKind are the questions to a BMC whose answers are a Probe, and the resources that RecordArgs name.
const (
	ProbeKind     = "probe BMC"
	RecordingKind = "record BMC resources"
)

// Probe is what a look at a BMC found. It has no credentials, and nothing that names the machine's owner.
type Probe struct {
	// Protocol is the wire and its version, such as Redfish 1.11.0.
	Protocol string `json:"protocol"`
	// Login says how the driver logs in: basic, session, or a cipher suite and a privilege level.
	Login string `json:"login"`
	// Vendor and Model are the machine's, BMCModel and Firmware its BMC's; empty: the BMC does not tell.
	Vendor   string `json:"vendor"`
	Model    string `json:"model"`
	BMCModel string `json:"bmc_model"`
	Firmware string `json:"firmware"`
	// Abilities are what salvor would ask of the BMC, in the order of a rescue.
	Abilities []Ability `json:"abilities"`
	// Quirks are the deviations from the standard that salvor allows for.
	Quirks []ProbedQuirk `json:"quirks"`
}

// Ability is something that a BMC can do, or cannot.
type Ability struct {
	Name string `json:"name"`
	// Able is AbleYes, AbleNo, or AbleUnknown where the BMC does not tell: salvor tries it then.
	Able string `json:"able"`
	// Detail says how it is done, or why it cannot be.
	Detail string `json:"detail"`
}

// The values of Ability.Able.
const (
	AbleYes     = "yes"
	AbleNo      = "no"
	AbleUnknown = "unknown"
)

// ProbedQuirk is a row of a driver's table of quirks that holds for a BMC.
type ProbedQuirk struct {
	// Fact is kind=value.
	Fact string `json:"fact"`
	// Source is who says so: a public page or code, or the key of driver_info.
	Source string `json:"source"`
}

// MaxRecorded bounds how many resources one question reads.
const MaxRecorded = 20

// RecordArgs ask for resources of a BMC as they are.
type RecordArgs struct {
	// Paths are those of the resources, at most MaxRecorded.
	Paths []string `json:"paths"`
	// Key is random and the same for all questions of a recording: with it, parts of a path that name the machine have the same other
	// name in every resource.
	Key string `json:"key"`
}

// RecordedResource is a resource without what tells of its owner.
type RecordedResource struct {
	Path string `json:"path"`
	// Name is the path without parts that name the machine; it is that of links to it in other resources.
	Name string `json:"name"`
	// Document is the resource; nil: it could not be read, and Problem says why.
	Document map[string]any `json:"document,omitempty"`
	Problem  string         `json:"problem,omitempty"`
	// Links are the paths of further resources, as the BMC names them.
	Links []string `json:"links,omitempty"`
}
