package metal

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
	"salvor/secret"
)

// VolumeType is how a machine reaches a volume, as volume_type spells it.
type VolumeType string

const (
	ISCSI        VolumeType = "iscsi"
	FibreChannel VolumeType = "fibre_channel"
)

// VolumePlan is what a node boots from its volume targets. The zero plan is that of a node
// that boots from its own disk.
type VolumePlan struct {
	// Initiator is the node's iSCSI name; empty where no volume is reached by iSCSI.
	Initiator string
	// Root is the volume with boot index 0; nil: none.
	Root *Volume
	// Others are attached as further drives, by boot index.
	Others []Volume
}

// Volume is a target that was read and held to the rules. What is in it needs no escaping in a
// URL but for Login and Mutual.
type Volume struct {
	TargetID  string
	BootIndex int
	Type      VolumeType
	Paths     []VolumePath // iSCSI: every path to the same disk, the preferred first
	Login     Login        // that the target asks of the initiator (CHAP)
	Mutual    Login        // that the initiator asks of the target (mutual CHAP)
	WWNs      []string     // fibre channel: ports of the storage system, lower case with colons
	LUN       int          // fibre channel
}

// VolumePath is one path to an iSCSI volume.
type VolumePath struct {
	Host string // an address, IPv6 without brackets, or a name
	Port int
	IQN  string
	LUN  int
}

// Login is a CHAP name with its secret; both are empty where none is asked.
type Login struct {
	Username string
	Password secret.Value
}

const (
	defaultISCSIPort = "3260"
	maxVolumes       = 16 // drives that firmware gives numbers to
	maxPaths         = 8
	maxLUN           = 0x3fff // of the flat form of SCSI
	maxLogin         = 255
)

var (
	iscsiName = regexp.MustCompile(`^(iqn\.[0-9]{4}-(0[1-9]|1[0-2])\.[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[A-Za-z0-9.:_-]+)?|eui\.[0-9A-Fa-f]{16}|naa\.([0-9A-Fa-f]{16}|[0-9A-Fa-f]{32}))$`)
	hostName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
	hexOnly   = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// PlanVolumes reads what a node boots from its targets, or says what is missing, as Invalid. It is a
// pure function of the records: the same rules hold for validate, before a deployment and when a
// machine asks for its boot script.
func PlanVolumes(n *Node, connectors []*Connector, targets []*Target) (VolumePlan, error) {
	sorted := slices.DeleteFunc(slices.Clone(targets), func(t *Target) bool { return t.BootIndex < 0 })
	slices.SortStableFunc(sorted, func(a, b *Target) int { return a.BootIndex - b.BootIndex })
	if len(sorted) == 0 || sorted[0].BootIndex != 0 {
		return VolumePlan{}, nil
	}
	if len(sorted) > maxVolumes {
		return VolumePlan{}, problem.Invalidf("%d volume targets: a machine can be given at most %d drives", len(sorted), maxVolumes)
	}
	var plan VolumePlan
	for _, t := range sorted {
		v, err := readVolume(n, connectors, t)
		if err != nil {
			return VolumePlan{}, problem.Invalidf("volume target %s (boot index %d): %w", t.ID, t.BootIndex, err)
		}
		if v.BootIndex == 0 && plan.Root == nil {
			plan.Root = &v
			continue
		}
		if v.Type == ISCSI && plan.Root.Type != ISCSI {
			return VolumePlan{}, problem.Invalidf("volume target %s (boot index %d): a machine whose root is a fibre channel volume has no boot script that could attach an iSCSI volume", t.ID, t.BootIndex)
		}
		plan.Others = append(plan.Others, v)
	}
	if plan.Root.Type == ISCSI {
		plan.Initiator = connectorOf(connectors, "iqn")
	}
	return plan, nil
}

// volumeNeeds is what a node must have for each type of volume.
var volumeNeeds = map[VolumeType]struct {
	capability string
	connectors []string
}{
	ISCSI:        {"iscsi_boot", []string{"iqn"}},
	FibreChannel: {"fibre_channel_boot", []string{"wwpn", "wwnn"}},
}

func readVolume(n *Node, connectors []*Connector, t *Target) (Volume, error) {
	v := Volume{TargetID: t.ID, BootIndex: t.BootIndex, Type: VolumeType(strings.ToLower(t.VolumeType))}
	need, known := volumeNeeds[v.Type]
	if !known {
		return v, problem.Invalidf("nothing boots from volume_type %.64q: want %s or %s", t.VolumeType, ISCSI, FibreChannel)
	}
	if !n.can(need.capability) {
		return v, problem.Invalidf("the node does not say that it can boot from it: set %s:true in properties/capabilities", need.capability)
	}
	for _, kind := range need.connectors {
		id := connectorOf(connectors, kind)
		if id == "" {
			return v, problem.Invalidf("the node has no volume connector of type %s: storage knows it by none", kind)
		}
		if err := (&Connector{Type: kind, ConnectorID: id}).CheckForm(); err != nil {
			return v, err
		}
	}
	if v.Type == FibreChannel {
		return v, v.readFC(t.Properties)
	}
	return v, v.readISCSI(t.Properties)
}

// can tells whether a capability of the node is switched on.
func (n *Node) can(key string) bool {
	switch strings.ToLower(n.Capability(key)) {
	case "true", "1", "yes", "on", "t", "y":
		return true
	}
	return false
}

// Capability reads one of properties/capabilities; empty if it is not there.
func (n *Node) Capability(key string) string { return Capability(n.Properties["capabilities"], key) }

// connectorOf is the id of the node's first connector of a type.
func connectorOf(connectors []*Connector, kind string) string {
	for _, c := range connectors {
		if strings.EqualFold(c.Type, kind) {
			return c.ConnectorID
		}
	}
	return ""
}

// validISCSIName tells whether s is an iSCSI name as RFC 3720 and 3980 spell it.
func validISCSIName(s string) bool { return len(s) <= 223 && iscsiName.MatchString(s) }

// parseWWN reads 16 hexadecimal digits, with or without separators and 0x.
func parseWWN(s string) (string, bool) {
	digits := strings.TrimPrefix(strings.ToLower(strings.NewReplacer(":", "", "-", "").Replace(s)), "0x")
	if !hexOnly.MatchString(digits) {
		return "", false
	}
	var out []string
	for i := 0; i < len(digits); i += 2 {
		out = append(out, digits[i:i+2])
	}
	return strings.Join(out, ":"), true
}

// readISCSI takes single properties (target_portal) and those of several paths (target_portals).
func (v *Volume) readISCSI(p Object) error {
	portals, err := propertyWords(p, "target_portal")
	if err != nil {
		return err
	}
	names, err := propertyWords(p, "target_iqn")
	if err != nil {
		return err
	}
	luns, err := lunsOf(p, "target_lun")
	if err != nil {
		return err
	}
	if len(portals) > maxPaths {
		return problem.Invalidf("%d portals; at most %d are tried", len(portals), maxPaths)
	}
	for i, portal := range portals {
		name, ok1 := portalValue(names, i, len(portals))
		lun, ok2 := portalValue(luns, i, len(portals))
		if !ok1 || !ok2 {
			return problem.Invalidf("%d portals, %d names and %d LUNs: each portal wants one of its own, or all of them one", len(portals), len(names), len(luns))
		}
		path, err := readPath(portal, name, lun)
		if err != nil {
			return err
		}
		v.Paths = append(v.Paths, path)
	}
	return v.readLogins(p)
}

func readPath(portal, name string, lun int) (VolumePath, error) {
	path := VolumePath{IQN: name, LUN: lun}
	if !validISCSIName(name) {
		return path, problem.Invalidf("target_iqn %.100q is no iSCSI name", name)
	}
	host, port := portal, defaultISCSIPort
	if rest, ok := strings.CutPrefix(portal, "["); ok {
		address, after, closed := strings.Cut(rest, "]")
		if !closed || after != "" && after[0] != ':' {
			return path, problem.Invalidf("target_portal %.100q is not ADDRESS:PORT", portal)
		}
		host = address
		if after != "" {
			port = after[1:]
		}
	} else if strings.Count(portal, ":") == 1 {
		host, port, _ = strings.Cut(portal, ":")
	}
	address, err := netip.ParseAddr(host)
	if err != nil && (len(host) > 253 || !hostName.MatchString(host)) || err == nil && address.Zone() != "" {
		return path, problem.Invalidf("target_portal %.100q names no host", portal)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return path, problem.Invalidf("target_portal %.100q: there is no such port", portal)
	}
	path.Host, path.Port = host, int(n)
	return path, nil
}

// readLogins reads CHAP as Cinder gives it, and the twins for mutual CHAP.
func (v *Volume) readLogins(p Object) error {
	method := strings.ToUpper(strings.NewReplacer("_", "", "-", "", " ", "").Replace(formatScalar(p["auth_method"])))
	var err error
	if v.Login, err = readLogin(p, "auth_username", "auth_password"); err != nil {
		return err
	}
	if v.Mutual, err = readLogin(p, "auth_mutual_username", "auth_mutual_password"); err != nil {
		return err
	}
	switch method {
	case "", "NONE":
	case "CHAP", "MUTUALCHAP":
		if v.Login.Username == "" {
			return problem.Invalidf("auth_method is %s, but auth_username and auth_password are not there", formatScalar(p["auth_method"]))
		}
		if method == "MUTUALCHAP" && v.Mutual.Username == "" {
			return problem.Invalidf("mutual CHAP needs auth_mutual_username and auth_mutual_password")
		}
	default:
		return problem.Invalidf("auth_method %.32q is not known: want CHAP", formatScalar(p["auth_method"]))
	}
	if v.Mutual.Username != "" && v.Login.Username == "" {
		return problem.Invalidf("mutual CHAP needs auth_username and auth_password too")
	}
	return nil
}

func readLogin(p Object, userKey, passwordKey string) (Login, error) {
	user, password := formatScalar(p[userKey]), formatScalar(p[passwordKey])
	if (user == "") != (password == "") {
		return Login{}, problem.Invalidf("%s and %s belong together; one of them is missing", userKey, passwordKey)
	}
	for key, s := range map[string]string{userKey: user, passwordKey: password} {
		if len(s) > maxLogin || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return Login{}, problem.Invalidf("%s holds a control character or is longer than %d bytes", key, maxLogin)
		}
	}
	return Login{Username: user, Password: secret.New(password)}, nil
}

func (v *Volume) readFC(p Object) error {
	wwns, err := propertyWords(p, "target_wwn")
	if err != nil {
		return err
	}
	for _, s := range wwns {
		wwn, ok := parseWWN(s)
		if !ok {
			return problem.Invalidf("target_wwn %.64q is no world wide name", s)
		}
		v.WWNs = append(v.WWNs, wwn)
	}
	luns, err := lunsOf(p, "target_lun")
	if err == nil {
		v.LUN = luns[0]
	}
	return err
}

// portalValue gives the value that goes with the i-th portal: its own, or the only one.
func portalValue[T any](values []T, i, portals int) (T, bool) {
	switch len(values) {
	case portals:
		return values[i], true
	case 1:
		return values[0], true
	}
	var none T
	return none, false
}

// pluralProperty gives the property, whose plural may list values for several paths.
func pluralProperty(p Object, key string) ([]any, error) {
	for _, k := range []string{key + "s", key} {
		switch v := p[k].(type) {
		case nil:
		case []any:
			if len(v) > 0 {
				return v, nil
			}
		default:
			return []any{v}, nil
		}
	}
	return nil, problem.Invalidf("its properties lack %s; salvor does not ask Cinder for it: give the target the data of Cinder's connection_info", key)
}

func propertyWords(p Object, key string) ([]string, error) {
	values, err := pluralProperty(p, key)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(values))
	for i, v := range values {
		s, ok := v.(string)
		if !ok || s == "" {
			return nil, problem.Invalidf("%s must be a string", key)
		}
		out[i] = s
	}
	return out, nil
}

func lunsOf(p Object, key string) ([]int, error) {
	values, err := pluralProperty(p, key)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(values))
	for i, v := range values {
		if n, ok := v.(json.Number); ok {
			v = n.String()
		}
		n, err := strconv.Atoi(formatScalar(v))
		if err != nil || n < 0 || n > maxLUN {
			return nil, problem.Invalidf("%s must be a number from 0 to %d", key, maxLUN)
		}
		out[i] = n
	}
	return out, nil
}
