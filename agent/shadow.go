package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"salvor/problem"
)

const maxShadow = 1 << 20

// setPasswords puts the hash into a shadow file for the users, adding those that are
// missing. The file is replaced in one step: sshd sees the old or the new one.
func setPasswords(file, hash string, users []string) error {
	info, err := os.Lstat(file)
	if err != nil {
		return problem.Unavailablef("set password: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxShadow {
		return problem.Unavailablef("set password: %s is not a file of a sane size", file)
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	// Every other bit would let somebody else read the hash.
	mode := info.Mode().Perm() & 0o640
	return replaceFile(file, withPasswords(string(old), hash, users), mode|0o600, info)
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

func replaceFile(file, text string, mode os.FileMode, like os.FileInfo) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), ".shadow-*")
	if err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	defer os.Remove(temporary.Name()) // gone already once renamed
	_, err = temporary.WriteString(text)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if owner, ok := like.Sys().(*syscall.Stat_t); ok && err == nil && os.Geteuid() == 0 {
		err = temporary.Chown(int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = temporary.Sync()
	}
	if cerr := temporary.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("set password: replace %s: %w", file, err)
	}
	return nil
}
