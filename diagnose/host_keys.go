package diagnose

import (
	"encoding/base64"
	"encoding/binary"
	"path"
	"slices"
	"strings"
)

const (
	// MaxHostKeys bounds the host keys of one system and of a plan, maxHostKeyFile a file that holds one, in bytes.
	MaxHostKeys    = 16
	maxHostKeyFile = 8 << 10
)

// HostKeys reads the public host keys of a system's sshd as lines of authorized_keys without a comment, at most one of each file. Files that hold
// anything else are left out.
func HostKeys(tree *Tree) []string {
	out := []string{}
	if tree == nil {
		return out
	}
	for _, name := range tree.Match("/etc/ssh", "ssh_host_*_key.pub") {
		info, err := tree.Stat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxHostKeyFile || len(out) == MaxHostKeys {
			continue
		}
		text, err := tree.ReadAtMost(name, maxHostKeyFile)
		if err != nil {
			continue
		}
		if line := hostKeyLine(string(text)); line != "" && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// hostKeyLine is the first line of a .pub file as TYPE BASE64; empty where it is not well formed. The encoded key begins with the length of its type
// and its type; see RFC 4253, section 6.6.
func hostKeyLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 2 || len(fields[0]) > 64 {
		return ""
	}
	kind := fields[0]
	if match, err := path.Match("[a-z]*", kind); err != nil || !match || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz0123456789-@.") != "" {
		return ""
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(fields[1])
	if err != nil || len(blob) <= 4+len(kind) || binary.BigEndian.Uint32(blob) != uint32(len(kind)) || string(blob[4:4+len(kind)]) != kind {
		return ""
	}
	return kind + " " + fields[1]
}

// sanitizeHostKeys keeps the keys of an agent that are well formed. A public key is no secret, but the agent may have sent anything.
func sanitizeHostKeys(keys []string) []string {
	var out []string
	for _, k := range keys[:min(len(keys), MaxHostKeys)] {
		if k != "" && len(k) <= maxHostKeyFile && hostKeyLine(k) == k {
			out = append(out, k)
		}
	}
	return out
}
