package agent

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"salvor/agent/network"
	"salvor/problem"
)

const (
	shadow    = "etc/shadow"
	maxShadow = 1 << 20
)

// setPasswords puts the hash into the shadow file of a tree for the users, adding
// those that are missing. The file is replaced in one step: sshd sees the old or the
// new one. Nothing outside of the tree is touched, whatever links lie in it.
func setPasswords(root, hash string, users []string) error {
	tree, err := network.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	defer tree.Close()
	info, err := tree.Lstat(shadow)
	if err != nil {
		return problem.Unavailablef("set password: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxShadow {
		return problem.Unavailablef("set password: %s is not a file of a sane size", shadow)
	}
	old, err := tree.ReadFile(shadow)
	if err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	if err := replaceShadow(tree, withPasswords(string(old), hash, users), info); err != nil {
		return fmt.Errorf("set password: replace %s: %w", shadow, err)
	}
	return nil
}

// withPasswords is the text of a shadow file with the users' hashes set.
func withPasswords(text, hash string, users []string) string {
	var lines []string
	missing := slices.Clone(users)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.Split(line, ":")
		if len(fields) > 1 && slices.Contains(users, fields[0]) {
			line = withPassword(fields, hash)
			missing = slices.DeleteFunc(missing, func(user string) bool { return user == fields[0] })
		}
		lines = append(lines, line)
	}
	for _, user := range missing {
		// No date of change: with a clock that is off it would mean "expired".
		lines = append(lines, user+":"+hash+"::0:99999:7:::")
	}
	return strings.Join(lines, "\n") + "\n"
}

// withPassword changes one line. A change at day 0 would ask for a new password at the
// first login, and an expiry would refuse it; both go.
func withPassword(fields []string, hash string) string {
	fields[1] = hash
	if len(fields) > 2 && fields[2] == "0" {
		fields[2] = ""
	}
	if len(fields) > 7 {
		fields[7] = ""
	}
	return strings.Join(fields, ":")
}

func replaceShadow(tree *os.Root, text string, like os.FileInfo) error {
	const temporary = shadow + ".salvor"
	_ = tree.Remove(temporary) // of a try that was cut off
	file, err := tree.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	// Every bit beyond these would let somebody else read the hash.
	if err == nil {
		err = file.Chmod(like.Mode().Perm()&0o640 | 0o600)
	}
	if owner, ok := like.Sys().(*syscall.Stat_t); ok && err == nil && os.Geteuid() == 0 {
		err = file.Chown(int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = tree.Rename(temporary, shadow)
	}
	if err != nil {
		_ = tree.Remove(temporary)
	}
	return err
}
