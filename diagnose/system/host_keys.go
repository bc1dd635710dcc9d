package system

import (
	"bytes"
	"encoding/pem"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func findHostKeys(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if sshdProgram(tree) == "" {
		return nil
	}
	sshd := config.ReadSSHDConfig(tree)
	if sshd.Partial || len(sshd.All("hostkeyagent")) > 0 {
		return nil
	}
	names := []string{"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key"}
	if set := sshd.All("hostkey", "hostdsakey"); len(set) > 0 {
		names = nil
		for _, line := range set {
			names = append(names, line.Args[0])
		}
	}
	k := sortHostKeys(tree, names[:min(len(names), 16)])
	missing, open, damaged, usable := k.missing, k.open, k.damaged, k.usable
	f := diagnose.Finding{Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, ByHand: "Mend them with ssh-keygen -A and chmod 600 /etc/ssh/ssh_host_*_key, run as root."}
	var writes []string
	for _, e := range append(append(append([]diagnose.Evidence{}, open...), damaged...), missing...) {
		writes = append(writes, e.Path)
	}
	switch {
	case len(open) > 0:
		f.ID, f.Evidence, f.Confidence = "sshd-host-keys-open", open, 0.97
		f.Title = "The server sshd ignores the host key " + open[0].Path + ", because others may read it."
		f.Repair = repairFiles("Give the host keys the mode 0600.", paths(open)...)
		if k.atBoot != nil { // a repair would last until the next boot
			f.Repair, f.ByHand = nil, "Correct the line "+k.atBoot.Place()+", which opens the key at each boot."
			f.Evidence = append(f.Evidence, k.atBoot.Evidence())
		}
	case len(damaged) > 0:
		f.ID, f.Evidence, f.Confidence = "sshd-host-keys-damaged", damaged, 0.95
		f.Title = "The host key " + damaged[0].Path + " is damaged: " + damaged[0].Text + "."
		f.Repair = mayLose(repairFiles("Make new host keys in the place of the damaged ones. Clients will ask whether they may trust them.", paths(damaged)...), losesHostKeys)
		if strings.Contains(damaged[0].Text, "carriage") { // new keys would ask every client for trust
			f.Repair, f.ByHand = nil, "Take the carriage returns out, which keeps the keys: sed -i 's/\\r$//' "+damaged[0].Path+"."
		}
	case usable == 0 && len(missing) > 0 && !makesHostKeys(tree):
		f.ID, f.Evidence, f.Confidence = "sshd-host-keys-missing", missing, 0.95
		f.Title = "The server sshd does not start, because it has no host key."
		f.Repair = mayLose(repairFiles("Make new host keys. Clients will ask whether they may trust them.", writes...), losesHostKeys)
	case usable > 0:
		return findHostAlgorithms(sshd, k.kinds)
	default:
		return nil
	}
	if usable > 0 {
		f.Severity = diagnose.Degrades
	}
	return []diagnose.Finding{f}
}

// hostKeys are the host keys of a configuration, by what sshd makes of them after a boot.
type hostKeys struct {
	missing, open, damaged []diagnose.Evidence
	usable                 int
	kinds                  []string             // of the usable keys; an empty one is unknown
	atBoot                 *config.TmpfilesLine // that opens a key
}

// sortHostKeys looks at the files of host keys.
func sortHostKeys(tree *diagnose.Tree, names []string) (k hostKeys) {
	for _, name := range names {
		info, line, err := config.StatAtBoot(tree, name)
		if err != nil && isMadeAtBoot(name) { // such as from a store of secrets
			k.usable++
			k.kinds = append(k.kinds, "")
			continue
		}
		if err != nil {
			k.missing = append(k.missing, config.FileEvidence(name, 0, "it does not exist"))
			continue
		}
		text, err := tree.Read(name)
		owner := diagnose.OwnerOf(info)
		switch {
		case err != nil || !isPrivateKey(text) || hasReturns(text):
			why := "it holds no private key"
			if hasReturns(text) {
				why = "its lines end with carriage returns, and sshd does not read it"
			}
			if info.Size() == 0 {
				if makesHostKeys(tree) { // it replaces empty ones too
					continue
				}
				why = "it is empty"
			}
			k.damaged = append(k.damaged, config.FileEvidence(name, 0, why))
		case owner.UID == 0 && info.Mode()&0o077 != 0 && !isKeyGroup(tree, owner.GID, info.Mode().Perm() == 0o640):
			k.open = append(k.open, config.FileEvidence(name, 0, "its mode is "+config.ModeText(info)+"; sshd wants 0600"))
			if line != nil {
				k.atBoot = line
			}
		default:
			k.usable++
			k.kinds = append(k.kinds, hostKeyKind(tree, name, text))
		}
	}
	return k
}

// hostKeyKind is the type of a host key, as the private key or the public key beside it says; empty where neither does.
func hostKeyKind(tree *diagnose.Tree, name string, private []byte) string {
	if block, _ := pem.Decode(private); block != nil && block.Type == "OPENSSH PRIVATE KEY" {
		if kind := config.PrivateKeyKind(block.Bytes); kind != "" {
			return kind
		}
	}
	for _, line := range tree.Lines(name + ".pub") {
		kind, _ := config.CutField(line)
		return kind
	}
	return ""
}

// findHostAlgorithms is a finding where HostKeyAlgorithms leaves out the types of all host keys, so that sshd has none to offer.
func findHostAlgorithms(sshd *config.SSHDConfig, kinds []string) []diagnose.Finding {
	for _, kind := range kinds {
		if takes, _ := sshd.OffersKeyType(kind); takes || kind == "" {
			return nil
		}
	}
	_, at := sshd.OffersKeyType(kinds[0])
	return []diagnose.Finding{{
		ID: "sshd-host-keys-missing", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93,
		Title:    "The server sshd offers no host key, because " + place(at.File, at.Line) + " leaves the types of all its keys out.",
		Evidence: []diagnose.Evidence{config.FileEvidence(at.File, at.Line, at.Keyword+" "+strings.Join(at.Args, " ")+"; the keys are "+strings.Join(kinds, ", "))},
		ByHand:   "Name the type of a key that is there in HostKeyAlgorithms, or make a key of a type that it names with ssh-keygen.",
	}}
}

// isKeyGroup: RHEL up to 9 gives host keys to the group ssh_keys, which its sshd accepts.
func isKeyGroup(tree *diagnose.Tree, gid uint32, mode0640 bool) bool {
	if !mode0640 {
		return false
	}
	groups, _ := config.ParseGroups(tree.Lines(config.GroupPath))
	for _, g := range groups {
		if g.GID == gid {
			return g.Name == "ssh_keys"
		}
	}
	return false
}

// isPrivateKey looks at the form of a private key, without its secret.
func isPrivateKey(text []byte) bool {
	block, _ := pem.Decode(text)
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") || len(block.Bytes) == 0 {
		return false
	}
	return block.Type != "OPENSSH PRIVATE KEY" || bytes.HasPrefix(block.Bytes, []byte("openssh-key-v1\x00"))
}

// hasReturns says whether a private key in OpenSSH's own form has the line ends of Windows, which OpenSSH refuses in its first line. OpenSSL, which
// reads the other forms, takes them.
func hasReturns(text []byte) bool {
	return bytes.Contains(text, []byte("BEGIN OPENSSH PRIVATE KEY-----\r\n"))
}

// makesHostKeys says whether something makes missing host keys before sshd starts.
func makesHostKeys(tree *diagnose.Tree) bool {
	for _, unit := range []string{"sshd-keygen.target", "sshd-keygen.service", "sshd-keygen@.service", "sshdgenkeys.service", "ssh-keygen.service", "regenerate_ssh_host_keys.service"} {
		if config.UnitFile(tree, unit) != "" && config.UnitMask(tree, unit) == "" && (config.FirstBoot(tree) || !config.OnlyAtFirstBoot(tree, unit)) {
			return true
		}
	}
	for _, name := range []string{"/etc/init.d/sshd", "/etc/init.d/ssh", config.UnitFile(tree, "ssh.service"), config.UnitFile(tree, "sshd.service"), "/usr/sbin/sshd-gen-keys-start"} {
		if name == "" {
			continue
		}
		if text, err := tree.Read(name); err == nil && bytes.Contains(text, []byte("keygen")) {
			return true
		}
	}
	return config.CloudInitWillRun(tree)
}

// losesHostKeys says what may be lost with new host keys.
const losesHostKeys = "Clients that know the former host keys refuse to connect until someone trusts the new ones. A backup may hold the former keys."
