package config

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/bits"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/diagnose"
)

// keyTypes are the types of public keys that OpenSSH knows, without certificates. ssh-dss is refused by all releases that are examined.
var keyTypes = strings.Fields(`ssh-rsa ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521
	sk-ssh-ed25519@openssh.com sk-ecdsa-sha2-nistp256@openssh.com ssh-ed448`)

// KeyLine is a line of authorized_keys that is no comment.
type KeyLine struct {
	Line    int
	kind    string // the type of the key
	bits    int    // of an RSA key; 0 for others
	Valid   bool
	Command bool // a command is run instead of a shell
	Why     string
	// expiry is the value of the option expiry-time. isAuthority: the line is about certificates. isLocal: the key is taken from the machine itself only.
	expiry               string
	isAuthority, isLocal bool
	// Closed says why sshd does not take a valid key, closedBy by which setting.
	Closed   string
	ClosedBy SSHDSetting
}

// ParseAuthorizedKeys parses a file of keys. It stops after 10,000 lines.
func ParseAuthorizedKeys(lines []string) []KeyLine {
	var out []KeyLine
	for i, text := range lines[:min(len(lines), 10_000)] {
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		out = append(out, parseKeyLine(text, i+1))
	}
	return out
}

func parseKeyLine(text string, line int) KeyLine {
	k := KeyLine{Line: line}
	first, rest := CutField(text)
	if !isKeyType(first) {
		options, after, closed := cutOptions(text)
		if !closed {
			k.Why = "a quotation mark of its options is not closed"
			return k
		}
		k.readOptions(options)
		first, rest = CutField(after)
	}
	blob, _ := CutField(rest)
	k.kind = first
	switch {
	case !isKeyType(first):
		k.Why = "it names no type of key"
	case blob == "":
		k.Why = "the key itself is missing"
	default:
		k.Why = checkKeyBlob(first, blob)
	}
	k.Valid = k.Why == ""
	if k.Valid && first == "ssh-rsa" {
		k.bits = rsaBits(blob)
	}
	return k
}

// readOptions reads the options in front of a key that decide whether the key opens a shell.
func (k *KeyLine) readOptions(options string) {
	for _, option := range splitOptions(options) {
		name, value, _ := strings.Cut(option, "=")
		value = strings.ReplaceAll(strings.Trim(value, `"`), `\"`, `"`)
		switch strings.ToLower(name) {
		case "command":
			k.Command = true
		case "cert-authority":
			k.isAuthority = true
		case "expiry-time":
			k.expiry = value
		case "from":
			k.isLocal = !slices.ContainsFunc(strings.Split(value, ","), func(pattern string) bool {
				return !strings.HasPrefix(pattern, "!") && !strings.HasPrefix(pattern, "127.") && pattern != "::1" && pattern != "localhost"
			})
		}
	}
}

// splitOptions splits options at commas outside of quotation marks.
func splitOptions(text string) []string {
	var out []string
	quoted, begin := false, 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '"':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ',' && !quoted:
			out, begin = append(out, text[begin:i]), i+1
		}
	}
	return append(out, text[begin:])
}

// rsaBits is the size of an encoded RSA key: of its third part, the modulus.
func rsaBits(text string) int {
	blob, err := base64.StdEncoding.DecodeString(text)
	for range 2 {
		if err != nil || len(blob) < 4 || uint64(binary.BigEndian.Uint32(blob)) > uint64(len(blob)-4) {
			return 0
		}
		blob = blob[4+binary.BigEndian.Uint32(blob):]
	}
	if len(blob) < 4 || uint64(binary.BigEndian.Uint32(blob)) > uint64(len(blob)-4) {
		return 0
	}
	modulus := bytes.TrimLeft(blob[4:4+binary.BigEndian.Uint32(blob)], "\x00")
	if len(modulus) == 0 {
		return 0
	}
	return 8*(len(modulus)-1) + bits.Len8(modulus[0])
}

// PrivateKeyKind is the type of the first key in a private key of OpenSSH; empty where the key is of another form. The public part is not encrypted.
func PrivateKeyKind(blob []byte) string {
	rest, found := bytes.CutPrefix(blob, []byte("openssh-key-v1\x00"))
	part := func() []byte {
		if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) > uint64(len(rest)-4) {
			rest = nil
			return nil
		}
		size := binary.BigEndian.Uint32(rest)
		out := rest[4 : 4+size]
		rest = rest[4+size:]
		return out
	}
	for range 3 { // the cipher, the function that derives its key, and the options of that function
		part()
	}
	if !found || len(rest) < 4 {
		return ""
	}
	rest = rest[4:] // how many keys there are
	rest = part()
	if kind := string(part()); isKeyType(kind) {
		return kind
	}
	return ""
}

func isKeyType(name string) bool {
	if base, found := strings.CutSuffix(name, "-cert-v01@openssh.com"); found {
		return slices.Contains(keyTypes, base) || slices.Contains(keyTypes, base+"@openssh.com")
	}
	return slices.Contains(keyTypes, name)
}

func CutField(text string) (field, rest string) {
	text = strings.TrimLeft(text, " \t")
	if at := strings.IndexAny(text, " \t"); at >= 0 {
		return text[:at], text[at:]
	}
	return text, ""
}

// cutOptions cuts the options off, in which blanks may stand between quotation marks.
func cutOptions(text string) (options, rest string, closed bool) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '"':
			i++
		case text[i] == '"':
			quoted = !quoted
		case (text[i] == ' ' || text[i] == '\t') && !quoted:
			return text[:i], text[i:], true
		}
	}
	return text, "", !quoted
}

// checkKeyBlob says what is wrong with an encoded key: it begins with its own type, and its parts fill it.
func checkKeyBlob(kind, text string) string {
	blob, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		blob, err = base64.RawStdEncoding.DecodeString(text)
	}
	if err != nil {
		return "the key is not in base64, or is cut off"
	}
	parts := 0
	for rest := blob; len(rest) > 0; parts++ {
		if len(rest) < 4 {
			return "the key is cut off"
		}
		size := uint64(binary.BigEndian.Uint32(rest))
		if size > uint64(len(rest)-4) {
			if parts > 0 && strings.Contains(kind, "-cert-") {
				return "" // a certificate has numbers between its parts
			}
			return "the key is cut off"
		}
		if parts == 0 && string(rest[4:4+size]) != kind {
			return "the key is of another type than the line says"
		}
		rest = rest[4+size:]
	}
	if parts < 2 {
		return "the key is cut off"
	}
	return ""
}

// KeyFile is what sshd would find of one account's keys in one place.
type KeyFile struct {
	Path    string
	Keys    []KeyLine
	Refused string // why sshd ignores the file; empty where it reads it
	Chain   []diagnose.Evidence
	Fix     []string // paths whose mode or owner is wrong
	Foreign string   // the first of them that may belong to somebody else, and why; empty without one
	// AtBoot is the line of tmpfiles.d that gives a path the mode or the owner that sshd refuses, or that removes the file; nil without one.
	AtBoot *TmpfilesLine
}

// Usable counts the keys that open a shell.
func (f *KeyFile) Usable() int {
	n := 0
	for _, k := range f.Keys {
		if k.Valid && !k.Command && k.Closed == "" && f.Refused == "" {
			n++
		}
	}
	return n
}

// KeyFiles returns the files in which sshd looks for an account's keys, those that exist. shownAt says which path a mount shows at another.
func KeyFiles(tree *diagnose.Tree, config *SSHDConfig, a *Account, now time.Time, shownAt func(string) string) []KeyFile {
	patterns := []string{".ssh/authorized_keys", ".ssh/authorized_keys2"}
	if set := config.All("authorizedkeysfile"); len(set) > 0 {
		patterns = set[0].Args
	}
	var out []KeyFile
	for _, pattern := range patterns[:min(len(patterns), 16)] {
		if strings.EqualFold(pattern, "none") {
			continue
		}
		name := ExpandTokens(pattern, a)
		if !path.IsAbs(name) {
			name = path.Join(a.Home, name)
		}
		name = shownAt(name)
		if _, err := tree.Stat(name); err != nil {
			continue
		}
		f := KeyFile{Path: name, Keys: ParseAuthorizedKeys(tree.Lines(name))}
		if l := RemovedAtBoot(tree, name); l != nil {
			f.refuse(name, "is removed at each boot by "+l.Place(), l)
		}
		for i := range f.Keys {
			f.Keys[i].closeKey(config, now)
		}
		if strings.EqualFold(config.First("strictmodes", "yes"), "yes") {
			f.checkModes(tree, a, shownAt(a.Home))
		}
		out = append(out, f)
	}
	return out
}

// checkModes is sshd's StrictModes: the file and the folders above it, up to the home, belong to the account or to root, and no one else may
// write to them.
func (f *KeyFile) checkModes(tree *diagnose.Tree, a *Account, home string) {
	at, err := tree.Resolve(f.Path)
	if err != nil {
		return
	}
	home, err = tree.Resolve(home)
	outside := err != nil || home == "/" || at != home && !strings.HasPrefix(at, home+"/")
	for first := true; ; first = false {
		info, line, err := StatAtBoot(tree, at)
		if err != nil {
			return
		}
		owner, writable := diagnose.OwnerOf(info).UID, info.Mode()&0o022 != 0
		if writable && info.Mode()&0o002 == 0 && tree.Exists("/etc/debian_version") {
			writable = !isPrivateGroup(tree, diagnose.OwnerOf(info).GID, a)
		}
		refusals := len(f.Fix)
		switch {
		case owner != 0 && owner != a.UID:
			f.refuse(at, "belongs to the user id "+strconv.FormatUint(uint64(owner), 10)+" and not to "+a.OrRoot(), line)
		case writable:
			f.refuse(at, "may be written by others: its mode is "+ModeText(info), line)
		case first && !info.Mode().IsRegular():
			f.refuse(at, "is no regular file", line)
		case first && owner != a.UID && a.UID != 0 && info.Mode()&0o044 == 0:
			f.refuse(at, "cannot be read by "+a.Name+": its mode is "+ModeText(info)+" and root owns it", line)
		}
		switch {
		case f.Foreign != "" || len(f.Fix) == refusals:
		case outside:
			f.Foreign = at + " lies outside of the home of " + a.Name
		case owner != 0 && owner != a.UID:
			f.Foreign = at + " belongs to another user id, which may have put keys of its own there"
		case first && info.Mode().IsRegular() && diagnose.OwnerOf(info).Links > 1:
			f.Foreign = at + " has another name, by a hard link, and may be a file that the account must not have"
		}
		if at == home || at == "/" {
			return
		}
		at = path.Dir(at)
	}
}

// OrRoot names the owners that sshd accepts for files of an account.
func (a *Account) OrRoot() string {
	if a.UID == 0 {
		return a.Name
	}
	return a.Name + " or root"
}

// isPrivateGroup says whether the account is the only member of a group: the sshd of Debian and Ubuntu lets such a group write.
func isPrivateGroup(tree *diagnose.Tree, gid uint32, a *Account) bool {
	members := 0
	accounts, _ := ParsePasswd(tree.Lines(PasswdPath))
	for _, other := range accounts {
		if other.GID == gid {
			if other.UID != a.UID {
				return false
			}
			members++
		}
	}
	groups, _ := ParseGroups(tree.Lines(GroupPath))
	for _, g := range groups {
		if g.GID != gid {
			continue
		}
		for _, name := range g.Members {
			if name != "" && name != a.Name {
				return false
			}
			if name != "" {
				members++
			}
		}
	}
	return members > 0
}

// refuse notes why sshd ignores the file; line is what makes it so at each boot, or nil.
func (f *KeyFile) refuse(at, why string, line *TmpfilesLine) {
	if line != nil && f.AtBoot == nil {
		f.AtBoot = line
		f.Chain = append(f.Chain, line.Evidence())
		if !strings.Contains(why, line.Place()) {
			why += ", which " + line.Place() + " sets at each boot"
		}
	}
	if f.Refused == "" {
		f.Refused = at + " " + why
	}
	f.Chain = append(f.Chain, FileEvidence(at, 0, why))
	f.Fix = append(f.Fix, at)
}

// ModeText writes a mode as chmod takes it.
func ModeText(info fs.FileInfo) string {
	mode := uint32(info.Mode().Perm())
	for bit, value := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if info.Mode()&bit != 0 {
			mode |= value
		}
	}
	return "0" + strconv.FormatUint(uint64(mode), 8)
}

// localZones is how far the time of a machine without the zone of an expiry-time may lie from UTC.
const localZones = 14 * time.Hour

// isOver says whether an expiry-time of authorized_keys has passed: YYYYMMDD or YYYYMMDDHHMM[SS] in the machine's own time, or in UTC with Z or UTC
// behind the digits, in letters of any case. sshd refuses a key whose time cannot be read.
func isOver(text string, now time.Time) bool {
	plain := strings.TrimRight(text, "UTCZutcz")
	zone := strings.ToUpper(text[len(plain):])
	isUTC := zone == "Z" || zone == "UTC"
	if zone != "" && !isUTC {
		return true
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		at, err := time.Parse(layout, plain)
		if err != nil || len(plain) != len(layout) {
			continue
		}
		if !isUTC {
			at = at.Add(localZones)
		}
		return !now.IsZero() && now.After(at)
	}
	return true
}

// closeKey fills in why sshd does not take a valid key for a shell from elsewhere.
func (k *KeyLine) closeKey(c *SSHDConfig, now time.Time) {
	takes, at := c.takesKeyType(k.kind)
	least, _ := strconv.Atoi(c.First("requiredrsasize", "1024"))
	switch {
	case !k.Valid || k.isAuthority:
	case k.expiry != "" && isOver(k.expiry, now):
		k.Closed = "its expiry-time " + k.expiry + " is over"
	case k.isLocal:
		k.Closed = "its option from lets in the machine itself only"
	case !takes:
		k.Closed, k.ClosedBy = fmt.Sprintf("%s leaves its type %s out", at.Keyword, k.kind), at
	case k.kind == "ssh-rsa" && k.bits > 0 && k.bits < least:
		k.Closed, k.ClosedBy = fmt.Sprintf("it has %d bits, and RequiredRSASize asks for %d", k.bits, least), c.SettingOf("requiredrsasize")
	}
}
