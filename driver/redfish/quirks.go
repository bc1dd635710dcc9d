package redfish

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/refusal"
	"salvor/metal"
	"salvor/problem"
)

// QuirksKey is the key of driver_info that adds to the table of quirks, or overrules it for one node.
const QuirksKey = "redfish_quirks"

// quirkKind is a way in which BMCs differ. The set is closed; docs/hardware.md shows it.
type quirkKind string

const (
	quirkCDTarget    quirkKind = "cd_target"     // the boot target of a virtual CD: Cd or UsbCd
	quirkBootBody    quirkKind = "boot_body"     // full: target, frequency and mode are always sent together
	quirkBootPlace   quirkKind = "boot_place"    // settings: the boot override is changed at the settings resource
	quirkBootEnabled quirkKind = "boot_enabled"  // the frequencies of the boot override that the BMC takes
	quirkDriveOrder  quirkKind = "drive_order"   // beginnings of the ids of virtual drives, those to try first
	quirkDriveOnly   quirkKind = "drive_only"    // beginnings of the ids of the only virtual drives that can be used
	quirkInsert      quirkKind = "insert"        // the parameters of an insertion, beside the image
	quirkCDBoot      quirkKind = "cd_boot"       // idrac: Dell's own attributes set the virtual CD as boot device; physical: only a real CD drive is booted
	quirkMedia       quirkKind = "virtual_media" // none: the BMC has virtual media, but not by Redfish's own actions
	quirkApplyTime   quirkKind = "apply_time"    // when changed BIOS settings are applied, if the BMC wants to be told
	quirkSettle      quirkKind = "settle"        // how long after a power off the BMC takes no order, such as 5s
	quirkAuth        quirkKind = "auth"          // how to log in where redfish_auth_type says nothing
	quirkTLSMinimum  quirkKind = "tls_minimum"   // the oldest version of TLS to accept where redfish_tls_minimum_version says nothing
)

// quirkValues are the values of the kinds that have a closed set; the others are checked by parse.
var quirkValues = map[quirkKind][]string{
	quirkCDTarget: {"Cd", "UsbCd"}, quirkBootBody: {"full"}, quirkBootPlace: {"settings"}, quirkCDBoot: {"idrac", "physical"}, quirkMedia: {"none"},
	quirkApplyTime: {"OnReset", "Immediate"}, quirkAuth: {conversation.Basic, conversation.Session, conversation.Auto}, quirkTLSMinimum: tlsVersionNames,
	quirkBootEnabled: nil, quirkDriveOrder: nil, quirkDriveOnly: nil, quirkInsert: nil, quirkSettle: nil,
}

// quirkTexts say in words what salvor does for a quirk, with its value.
var quirkTexts = map[quirkKind]string{
	quirkCDTarget:    "boots the virtual CD by the boot target %s",
	quirkBootBody:    "sends target, frequency and mode of a boot device together (%s)",
	quirkBootPlace:   "sets the boot device at the resource of pending settings (%s)",
	quirkBootEnabled: "sets a boot device with the frequency %s only",
	quirkDriveOrder:  "tries the virtual drives %s first",
	quirkDriveOnly:   "uses only the virtual drives %s",
	quirkInsert:      "sends %s with each medium",
	quirkCDBoot:      "knows how it boots a virtual CD (%s)",
	quirkMedia:       "knows which virtual media it has by Redfish (%s)",
	quirkApplyTime:   "tells it to apply BIOS settings at the time %s",
	quirkSettle:      "waits %s after a power off",
	quirkAuth:        "logs in by the method %s",
	quirkTLSMinimum:  "accepts TLS from version %s on",
}

// quirk is a row of the table: a fact about some BMCs that neither the standard nor the BMC itself tells.
type quirk struct {
	// vendors are words of which the manufacturer has one, in lower case; empty: any.
	vendors []string
	// models are beginnings of the system's model, or of the BMC's, in lower case; empty: any. notModels are those that differ.
	models, notModels []string
	// below: the firmware of the BMC has a lower version; empty: any.
	below string
	kind  quirkKind
	value string
	// source is the public page, or the code, that says so.
	source string
}

// quirks is the table. For each kind the first row that matches holds.
var quirks = []quirk{
	{vendors: []string{"supermicro"}, notModels: []string{"ars-111gl-nhr"}, kind: quirkCDTarget, value: "UsbCd",
		source: "openstack/sushy, sushy/resources/system/system.py: X11 and X12 boot the virtual CD from UsbCd, and silently boot the disk from Cd"},
	{vendors: []string{"supermicro"}, kind: quirkBootBody, value: "full",
		source: "DMTF/Redfishtool, pull request 106: without a mode the BMC falls back to its default one; storyboard 2008547: the frequency must be sent each time"},
	{vendors: []string{"american megatrends", "ami", "asrockrack", "redfish_compatible"}, kind: quirkBootBody, value: "full",
		source: "openstack/ironic, ironic/drivers/modules/redfish/management.py: VENDORS_REQUIRING_FULL_BOOT_REQUEST"},
	{vendors: []string{"lenovo"}, kind: quirkDriveOrder, value: "EXT",
		source: "NVIDIA/libredfish, tests/mockups/lenovo: the drives RDOC1 and RDOC2 are the BMC's own, EXT1 to EXT4 take a URL"},
	{vendors: []string{"dell"}, models: []string{"17g", "18g"}, kind: quirkDriveOnly, value: "1",
		source: "openstack/ironic, ironic/drivers/modules/drac/boot.py: on iDRAC10 only the virtual media with id 1 can be used"},
	{vendors: []string{"dell"}, models: []string{"12g", "13g", "14g", "15g", "16g"}, below: "6.0", kind: quirkCDBoot, value: "idrac",
		source: "openstack/ironic, ironic/drivers/modules/drac/boot.py: iDRAC8, and iDRAC9 before 6.00, take Cd for the physical drive"},
	{vendors: []string{"nokia"}, kind: quirkInsert, value: "TransferProtocolType",
		source: "openstack/sushy, sushy/resources/manager/virtual_media.py: is_transfer_protocol_required"},
}

// bmcIdentity is what the rows of the table are matched with.
type bmcIdentity struct {
	vendor, model, bmcModel, firmware string
}

// matches tells whether a row is about a BMC. A row about old firmware says nothing of a BMC whose firmware is not known.
func (q quirk) matches(of bmcIdentity) bool {
	vendor := strings.ToLower(of.vendor)
	hasModel := func(beginnings []string) bool {
		return slices.ContainsFunc(beginnings, func(b string) bool {
			return strings.HasPrefix(strings.ToLower(of.model), b) || strings.HasPrefix(strings.ToLower(of.bmcModel), b)
		})
	}
	switch {
	case len(q.vendors) > 0 && !slices.ContainsFunc(q.vendors, func(word string) bool { return refusal.HasWord(vendor, word) }):
		return false
	case len(q.models) > 0 && !hasModel(q.models), hasModel(q.notModels):
		return false
	case q.below != "":
		return of.firmware != "" && compareVersions(of.firmware, q.below) < 0
	}
	return true
}

// compareVersions compares the numbers of two versions, such as 5.10.50.00 and 6.0.
func compareVersions(a, b string) int {
	parts := func(v string) []string {
		return strings.FieldsFunc(v, func(r rune) bool { return r < '0' || r > '9' })
	}
	for x, y := parts(a), parts(b); len(x)+len(y) > 0; x, y = x[min(1, len(x)):], y[min(1, len(y)):] {
		var m, n int
		if len(x) > 0 {
			m, _ = strconv.Atoi(x[0])
		}
		if len(y) > 0 {
			n, _ = strconv.Atoi(y[0])
		}
		if c := cmp.Compare(m, n); c != 0 {
			return c
		}
	}
	return 0
}

// bmcFacts are the quirks of one BMC: those of the table, under those of driver_info.
type bmcFacts struct {
	identity bmcIdentity
	own      map[quirkKind]string // of driver_info; an empty value switches a row off
}

// factsOf takes them out of a node's record, with what was read of its BMC at manage.
func factsOf(n *metal.Node) (bmcFacts, error) {
	b := metal.BMCOf(n)
	own, err := parseQuirks(n)
	return bmcFacts{identity: bmcIdentity{vendor: b.Vendor, model: b.Model, bmcModel: b.BMCModel, firmware: b.Firmware}, own: own}, err
}

// fact is the value of a kind; empty: the BMC does as the standard says.
func (f bmcFacts) fact(kind quirkKind) string {
	value, _ := f.factAndSource(kind)
	return value
}

// factAndSource is the value of a kind and who says so: the source of a row of the table, or the key of driver_info.
func (f bmcFacts) factAndSource(kind quirkKind) (value, source string) {
	if v, ok := f.own[kind]; ok {
		return v, QuirksKey
	}
	i := slices.IndexFunc(quirks, func(q quirk) bool { return q.kind == kind && q.matches(f.identity) })
	if i < 0 {
		return "", ""
	}
	return quirks[i].value, quirks[i].source
}

// list is the value of a kind that has several.
func (f bmcFacts) list(kind quirkKind) []string {
	return strings.FieldsFunc(f.fact(kind), func(r rune) bool { return r == ',' || r == ' ' })
}

// knownFact is a fact that holds, with who says so.
type knownFact struct {
	kind          quirkKind
	value, source string
}

// text is the fact as "kind=value".
func (f knownFact) text() string { return string(f.kind) + "=" + f.value }

// all are the facts that hold, in the order of their kinds.
func (f bmcFacts) all() (out []knownFact) {
	for _, kind := range slices.Sorted(maps.Keys(quirkValues)) {
		if value, source := f.factAndSource(kind); value != "" {
			out = append(out, knownFact{kind, value, source})
		}
	}
	return out
}

// texts are the facts as "kind=value", in their order.
func (f bmcFacts) texts() (out []string) {
	for _, known := range f.all() {
		out = append(out, known.text())
	}
	return out
}

// inWords are the facts as sentences without a subject, in the same order.
func (f bmcFacts) inWords() (out []string) {
	for _, known := range f.all() {
		out = append(out, fmt.Sprintf(quirkTexts[known.kind], driver.Sanitize(known.value)))
	}
	return out
}

// settle waits until a BMC takes orders again after a power off.
func (f bmcFacts) settle(ctx context.Context) error {
	d, _ := time.ParseDuration(f.fact(quirkSettle))
	if d <= 0 {
		return nil
	}
	return driver.Pause(ctx, d)
}

// maxSettle bounds what a node's record may have salvor wait.
const maxSettle = 2 * time.Minute

// parseQuirks reads the key of driver_info: an object, or text as "kind=value kind=value". All errors are Invalid.
func parseQuirks(n *metal.Node) (map[quirkKind]string, error) {
	out := map[quirkKind]string{}
	add := func(kind, value string) error {
		allowed, known := quirkValues[quirkKind(kind)]
		switch {
		case !known:
			return problem.Invalidf("%s has the unknown kind %q; there are %s", QuirksKey, kind, joinKinds())
		case value != "" && allowed != nil && !slices.Contains(allowed, value):
			return problem.Invalidf("%s: %s is %q; it may be %s", QuirksKey, kind, value, strings.Join(allowed, ", "))
		case value != "" && quirkKind(kind) == quirkSettle:
			if d, err := time.ParseDuration(value); err != nil || d < 0 || d > maxSettle {
				return problem.Invalidf("%s: %s is %q; it must be a duration such as 5s, and at most %s", QuirksKey, kind, value, maxSettle)
			}
		case len(value) > 200:
			return problem.Invalidf("%s: %s has more than 200 bytes", QuirksKey, kind)
		}
		out[quirkKind(kind)] = value
		return nil
	}
	switch v := n.DriverInfo[QuirksKey].(type) {
	case nil:
	case string:
		for _, field := range strings.Fields(v) {
			kind, value, _ := strings.Cut(field, "=")
			if err := add(kind, value); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, kind := range slices.Sorted(maps.Keys(v)) {
			if err := add(kind, metal.Text(v[kind])); err != nil {
				return nil, err
			}
		}
	default:
		return nil, problem.Invalidf("%s must be an object, or text such as cd_target=UsbCd", QuirksKey)
	}
	return out, nil
}

func joinKinds() string {
	var all []string
	for kind := range quirkValues {
		all = append(all, string(kind))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
