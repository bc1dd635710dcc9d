// Package personality describes how the BMCs of others differ from the standards, as tables of facts. A personality stands before a plain
// Redfish service or IPMI BMC and has it behave like the other one. Each row names the public page, or the code, that it was checked against.
package personality

import (
	"slices"
	"time"

	"salvor/problem"
)

// Name is what a personality is called, such as "sushy-tools".
type Name string

// The personalities that speak Redfish.
const (
	SushyTools    Name = "sushy-tools"
	IDRAC9        Name = "idrac9"
	ILO5          Name = "ilo5"
	SupermicroX12 Name = "supermicro-x12"
	AMI           Name = "ami"
	OpenBMC       Name = "openbmc"
)

// The personalities that speak IPMI.
const (
	VirtualBMC        Name = "virtualbmc"
	Suite3Only        Name = "suite3-only"
	SilentOnWrongUser Name = "silent-on-wrong-user"
)

// IPMINames are the personalities that speak IPMI.
func IPMINames() []Name { return []Name{VirtualBMC, Suite3Only, SilentOnWrongUser} }

// RedfishNames are the personalities that speak Redfish.
func RedfishNames() []Name { return []Name{SushyTools, IDRAC9, ILO5, SupermicroX12, AMI, OpenBMC} }

// Names are all personalities.
func Names() []Name { return slices.Concat(RedfishNames(), IPMINames()) }

// IsRedfish tells whether a personality speaks Redfish.
func (n Name) IsRedfish() bool { return slices.Contains(RedfishNames(), n) }

// rowKind is a way in which a Redfish BMC differs. The set is closed.
type rowKind string

const (
	kindShows    rowKind = "shows"    // a member of a resource always has a value; nil: the resource lacks the member
	kindReads    rowKind = "reads"    // one value of a member is shown as another
	kindDrives   rowKind = "drives"   // the virtual drives, in their order
	kindRefuses  rowKind = "refuses"  // a request is refused under a condition
	kindForces   rowKind = "forces"   // a member of a boot override has one value, whatever is asked
	kindAssumes  rowKind = "assumes"  // a member that a boot override leaves out gets a value
	kindBoots    rowKind = "boots"    // a boot target has the machine boot another one
	kindSettings rowKind = "settings" // the settings resource of a system, which takes boot overrides
	kindETag     rowKind = "etag"     // a change needs If-Match with the resource's ETag; W/: the BMC shows this mark before the tag, and wants it away
	kindStale    rowKind = "stale"    // a drive goes on to show the image of the medium that was ejected
	kindBasic    rowKind = "basic"    // there are no sessions
	kindEjects   rowKind = "ejects"   // an ejection changes the boot target too
)

// resourceKind is what a row is about.
type resourceKind string

const (
	ofRoot     resourceKind = "root"
	ofSystem   resourceKind = "system"
	ofSettings resourceKind = "settings" // the settings resource of the system
	ofManager  resourceKind = "manager"
	ofDrive    resourceKind = "drive"
	ofInsert   resourceKind = "insert" // the action of a drive
	ofEject    resourceKind = "eject"
	ofReset    resourceKind = "reset" // the action of a system
	ofOther    resourceKind = ""
)

// tableRow is one fact about a BMC. Which fields a kind uses, its comment in serve.go says.
type tableRow struct {
	kind   rowKind
	of     resourceKind
	member string // names with dots between, such as Boot.BootSourceOverrideMode
	value  any
	as     any
	drives []virtualDrive
	when   rowCondition
	answer answer
	source string
}

// virtualDrive is a virtual drive of a BMC. One without types for CDs takes no medium here.
type virtualDrive struct {
	id    string
	types []string
	// noAction: the drive has no action that inserts a medium. noEjectEmpty: while it is empty, it has none that ejects.
	noAction, noEjectEmpty bool
}

// rowCondition is what must be so for a refusal; the zero value: always.
type rowCondition struct {
	has   string   // a member of the request, with dots between the names
	value any      // of has; nil: any
	isNot []any    // has is none of these
	lacks []string // the request has none of these members
	power string   // PowerState of the system
	// The last such order was taken within this time. Real BMCs take up to half a minute; here it is shorter, so that nobody waits.
	afterOff, afterOn, afterEject time.Duration
}

// answer is a refusal.
type answer struct {
	status int
	id     string // MessageId; empty: the body is plain text
	args   []string
	text   string
}

// settleTime is how long a BMC is busy after an order. It is bounded and short, so that tests stay quick.
const settleTime = 300 * time.Millisecond

// Check tells why there is no such personality. Invalid.
func (n Name) Check() error {
	if n == "" || slices.Contains(Names(), n) {
		return nil
	}
	return problem.Invalidf("personality %q: want one of %q", n, Names())
}
