package volume

import (
	"maps"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/secret"
)

// The metadata by which a volume's place is given and, but for the password, told.
const (
	prefix      = "salvor:"
	keyPortal   = prefix + "portal"
	keyIQN      = prefix + "iqn"
	keyLUN      = prefix + "lun"
	keyUser     = prefix + "chap_user"
	keyPassword = prefix + "chap_password"
	keyProject  = prefix + "project" // whose the volume is

	defaultPort = "3260"
	maxIQN      = 223
	maxLUN      = 16383
	maxText     = 255
	maxMetadata = 128
)

const placeWords = "salvor makes no volumes; it keeps where one is reached, and an administrator gives that: --property salvor:portal=ADDRESS:PORT --property salvor:iqn=NAME --property salvor:lun=N, " +
	"and --property salvor:chap_user=USER --property salvor:chap_password=PASSWORD if it wants a login."

var (
	iqnForm  = regexp.MustCompile(`^(iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9.-]+(:[A-Za-z0-9.:_-]+)?|eui\.[0-9A-Fa-f]{16}|naa\.[0-9A-Fa-f]{16}([0-9A-Fa-f]{16})?)$`)
	hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
)

// callerPrivileges are who asks: an administrator; and whether storage is configured that exports volumes without a place.
type callerPrivileges struct{ admin, exports bool }

func (s *server) rights(c *api.Call) callerPrivileges { return callerPrivileges{c.Admin(), s.Exports} }

// setPlace takes what is salvor's out of metadata and writes it into the volume. What is
// not named stays; a null takes it away. Only administrators change it: who says where a volume is says whose bytes it
// shows, and to whom its login is sent. So a volume that moves to another target or portal loses a login that is not given anew.
func setPlace(v *compute.Volume, metadata map[string]*string, by callerPrivileges) error {
	was, named := *v, map[string]bool{}
	for key, value := range metadata {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if v.ServerID != "" {
			return problem.Conflictf("Volume %s is attached to a server: where it is reached cannot be changed now.", v.ID)
		}
		if !by.admin { // not even an equal value: the answer would reveal it
			return problem.Forbiddenf("Only administrators say where a volume is, whose it is and how to log in there: ask one to set %s.", key)
		}
		text := ""
		if value != nil {
			text = *value
		}
		if err := setPart(v, key, text); err != nil {
			return err
		}
		delete(metadata, key)
		named[key] = true
		if !by.admin && (key == keyPassword && text != "" || !samePlace(&was, v)) { // a password is not even compared
			return problem.Forbiddenf("Only administrators say where a volume is, whose it is and how to log in there: ask one to set %s.", key)
		}
	}
	if was.Portal != v.Portal || was.IQN != v.IQN {
		if !named[keyUser] {
			v.CHAPUser = ""
		}
		if !named[keyPassword] {
			v.CHAPPassword = secret.Value{}
		}
	}
	return checkPlace(v, by.exports && (by.admin || v.ID != ""))
}

func samePlace(a, b *compute.Volume) bool {
	return a.Portal == b.Portal && a.IQN == b.IQN && a.LUN == b.LUN && a.Project == b.Project && a.CHAPUser == b.CHAPUser && a.CHAPPassword.Equal(b.CHAPPassword)
}

func setPart(v *compute.Volume, key, text string) error {
	var err error
	switch key {
	case keyPortal:
		v.Portal, err = parsePortal(text)
	case keyIQN:
		if v.IQN = text; text != "" && (len(text) > maxIQN || !iqnForm.MatchString(text)) {
			return problem.Invalidf("%s: want the name of an iSCSI target, as iqn.2001-04.com.example:disk1.", keyIQN)
		}
	case keyLUN:
		v.LUN = 0
		if text == "" {
			return nil
		}
		if v.LUN, err = strconv.Atoi(text); err != nil || v.LUN < 0 || v.LUN > maxLUN {
			return problem.Invalidf("%s: want a number from 0 to %d.", keyLUN, maxLUN)
		}
	case keyUser:
		if v.CHAPUser = text; len(text) > maxText || !isPrintable(text) {
			return problem.Invalidf("%s: want at most %d printable characters.", keyUser, maxText)
		}
	case keyPassword:
		if len(text) > maxText || !isPrintable(text) {
			return problem.Invalidf("%s: want at most %d printable characters.", keyPassword, maxText)
		}
		v.CHAPPassword = secret.New(text)
	case keyProject:
		if v.Project = text; text == "" || len(text) > maxText || !isPrintable(text) {
			return problem.Invalidf("%s: want the id of a project, at most %d printable characters.", keyProject, maxText)
		}
	default:
		return problem.Invalidf("Property %.64q is not known: those that begin with %s are %s, %s, %s, %s, %s and %s.",
			key, prefix, keyPortal, keyIQN, keyLUN, keyUser, keyPassword, keyProject)
	}
	return err
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// parsePortal reads ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, and gives it with its port.
func parsePortal(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), defaultPort
	}
	n, errPort := strconv.ParseUint(port, 10, 16)
	if _, errIP := netip.ParseAddr(host); errIP != nil && !hostForm.MatchString(host) || errPort != nil || n == 0 {
		return "", problem.Invalidf("%s: want ADDRESS:PORT, as 192.0.2.7:3260.", keyPortal)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// checkPlace holds a volume to what a hypervisor needs to reach it; exported: storage may make it reachable when a machine needs it.
func checkPlace(v *compute.Volume, exported bool) error {
	switch {
	case exported && v.Portal == "" && v.IQN == "" && v.CHAPUser == "" && v.CHAPPassword.Empty():
		return nil
	case v.Portal == "" || v.IQN == "":
		return problem.Invalidf("%s", placeWords)
	case (v.CHAPUser == "") != v.CHAPPassword.Empty():
		return problem.Invalidf("%s and %s go together.", keyUser, keyPassword)
	}
	return nil
}

// setMetadata makes these the volume's metadata: those of salvor move into the volume's own fields.
// merge keeps what is not named.
func setMetadata(v *compute.Volume, given map[string]*string, merge bool, by callerPrivileges) error {
	given = maps.Clone(given)
	if err := setPlace(v, given, by); err != nil {
		return err
	}
	out := map[string]string{}
	if merge {
		maps.Copy(out, v.Metadata)
	}
	for k, value := range given {
		switch {
		case k == "" || len(k) > maxText || value != nil && len(*value) > maxText:
			return problem.Invalidf("Invalid input for field/attribute metadata: keys must have 1 to %d bytes, values at most %d.", maxText, maxText)
		case value == nil:
			delete(out, k)
		default:
			out[k] = *value
		}
	}
	if len(out) > maxMetadata {
		return problem.Invalidf("Invalid input for field/attribute metadata: at most %d keys are kept.", maxMetadata)
	}
	v.Metadata = out
	return nil
}

// metadataOf gives the metadata of users. Administrators also see the place of the volume.
func metadataOf(v *compute.Volume, admin bool) map[string]string {
	out := map[string]string{}
	if admin {
		out[keyPortal], out[keyIQN], out[keyLUN] = v.Portal, v.IQN, strconv.Itoa(v.LUN)
	}
	if admin && v.CHAPUser != "" {
		out[keyUser] = v.CHAPUser
	}
	maps.Copy(out, v.Metadata)
	return out
}
