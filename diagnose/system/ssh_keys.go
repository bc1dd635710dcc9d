package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// keyRules are about the keys with which accounts log in.
func keyRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"ssh-key-permissions", "authorized-keys-malformed"}, Files: true, Look: findKeyTroubles},
		{IDs: []string{"ssh-keys-refused"}, Files: true, Look: findRefusedKeys},
		{IDs: []string{"home-missing"}, Files: true, Look: findMissingHomes},
	}
}

func findKeyTroubles(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	if !l.sshd || strings.EqualFold(l.config.First("pubkeyauthentication", "yes"), "no") {
		return nil
	}
	var out []diagnose.Finding
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.UID == 0 && strings.EqualFold(l.config.First("permitrootlogin", ""), "no") {
			continue
		}
		usable, malformed := 0, 0
		for _, f := range a.keys {
			usable += f.Usable()
			for _, k := range f.Keys {
				if !k.Valid {
					malformed++
				}
			}
		}
		for _, f := range a.keys {
			if f.Refused != "" && hasKey(&f) && usable == 0 {
				found := diagnose.Finding{
					ID: "ssh-key-permissions", Stage: diagnose.Login, Severity: l.severity(a.Name, diagnose.Degrades), Confidence: 0.95,
					Title:    fmt.Sprintf("The server sshd ignores the keys of %s in %s, because %s.", a.Name, f.Path, f.Refused),
					Evidence: f.Chain,
					Explains: []string{"login-impossible", "ssh-login-impossible"},
					Repair:   repairFiles("Take the right to write from everybody but the owner, and let "+a.Name+" read the file.", f.Fix...),
					ByHand:   "Only " + a.OrRoot() + " may own and write the file, its folder and the home: chmod go-w, and chown.",
				}
				if groups := writingGroups(s.Files, f.Fix, a); len(groups) > 0 {
					found.Repair.Loses = "Members of these groups can no longer write there: " + strings.Join(groups, ", ") + "."
				}
				if info, err := s.Files.Stat(f.Path); err == nil && a.UID != 0 && diagnose.OwnerOf(info).UID == 0 && info.Mode()&0o044 == 0 { // the file is given to the account
					found.Repair.Loses = strings.TrimSpace(found.Repair.Loses + fmt.Sprintf(" The account %s may change its keys in %s, which only root could.", a.Name, f.Path))
				}
				if f.AtBoot != nil {
					found.Repair = nil
					found.ByHand = "Correct the line " + f.AtBoot.Place() + ", and give the path its mode and owner back."
				} else if f.Foreign != "" {
					found.Repair = nil
					found.ByHand = "salvor does not change it, because " + f.Foreign + ". Check the keys in the file first. " + found.ByHand
				}
				out = append(out, found)
			}
		}
		if malformed > 0 && !anyRefused(a.keys) {
			f := malformedKeys(a)
			f.Severity = diagnose.Info
			if usable == 0 {
				f.Severity = l.severity(a.Name, diagnose.Degrades)
			}
			out = append(out, f)
		}
	}
	return out
}

// findRefusedKeys finds accounts whose keys sshd does not see or does not take after a boot, although the files of the keys are in order: a mount lies
// over them, or the list of revoked keys is lost. Whether a password opens another way does not matter: an owner comes with a key.
func findRefusedKeys(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	if !l.sshd || l.elsewhere != "" {
		return nil
	}
	var out []diagnose.Finding
	for i := range l.accounts {
		a := &l.accounts[i]
		at := a.keyRefusal.at
		isLost := at.File == config.FstabPath || at.Keyword == "revokedkeys"
		isTold := slices.ContainsFunc(out, func(f diagnose.Finding) bool { return f.Evidence[0].Path == at.File && f.Evidence[0].Line == at.Line })
		if a.byKey || !isLost || !hasKeys(a) || isTold {
			continue
		}
		out = append(out, diagnose.Finding{
			ID: "ssh-keys-refused", Stage: diagnose.Login, Severity: l.severity(a.Name, diagnose.Degrades), Confidence: 0.9,
			Title:    fmt.Sprintf("The server sshd takes no key of %s, because %s.", a.Name, a.keyRefusal.why),
			Evidence: []diagnose.Evidence{config.FileEvidence(at.File, at.Line, strings.Join(append([]string{at.Keyword}, at.Args...), " "))},
			Explains: []string{"login-impossible", "ssh-login-impossible"},
			ByHand:   "Correct the line that is named, or bring back what it names.",
		})
	}
	return out
}

// writingGroups are the groups, each once, whose members other than an account may write the paths.
func writingGroups(tree *diagnose.Tree, paths []string, a *login) []string {
	groups, _ := config.ParseGroups(tree.Lines(config.GroupPath))
	var out []string
	for _, name := range paths {
		info, err := tree.Stat(name)
		if err != nil || info.Mode()&0o020 == 0 {
			continue
		}
		for _, g := range groups {
			others := slices.ContainsFunc(g.Members, func(member string) bool { return member != "" && member != a.Name && member != "root" })
			if text := g.Name + " in " + name; g.GID == diagnose.OwnerOf(info).GID && others && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

func hasKey(f *config.KeyFile) bool {
	for _, k := range f.Keys {
		if k.Valid && !k.Command {
			return true
		}
	}
	return false
}

func anyRefused(files []config.KeyFile) bool {
	for _, f := range files {
		if f.Refused != "" {
			return true
		}
	}
	return false
}

func malformedKeys(a *login) diagnose.Finding {
	f := diagnose.Finding{
		ID: "authorized-keys-malformed", Stage: diagnose.Login, Confidence: 0.95, Explains: []string{"login-impossible", "ssh-login-impossible"},
		ByHand: "Each key is one line: its type, the key in base64, a comment. Write the line again from the .pub file of its owner.",
	}
	for _, file := range a.keys {
		for _, k := range file.Keys {
			if k.Valid || len(f.Evidence) >= 10 {
				continue
			}
			if f.Title == "" {
				f.Title = fmt.Sprintf("The server sshd skips a key of %s in %s: %s.", a.Name, place(file.Path, k.Line), k.Why)
			}
			f.Evidence = append(f.Evidence, config.FileEvidence(file.Path, k.Line, k.Why))
		}
	}
	return f
}

func findMissingHomes(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	var out []diagnose.Finding
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.Home == "" || a.Home == "/" || s.Files.Exists(a.Home) || mountMayHold(s, a.Home) || a.refused != "" {
			continue
		}
		f := diagnose.Finding{
			ID: "home-missing", Stage: diagnose.Login, Severity: diagnose.Info, Confidence: 0.85,
			Title:    fmt.Sprintf("The home %s of %s does not exist, so no key of this account is found.", a.Home, a.Name),
			Evidence: []diagnose.Evidence{config.FileEvidence(config.PasswdPath, a.Line, a.Name+" has the home "+a.Home), config.FileEvidence(a.Home, 0, "it does not exist")},
			Repair:   repairFiles("Make an empty home for "+a.Name+".", a.Home),
			ByHand:   "Restore the home from a backup, or make it and add a key to .ssh/authorized_keys.",
		}
		if l.sshd && !a.byPassword && !l.others(a.Name) {
			f.Severity, f.Explains = diagnose.BlocksAccess, []string{"login-impossible", "ssh-login-impossible"}
		}
		out = append(out, f)
	}
	return out
}

// mountMayHold says whether something that was not mounted for the examination may hold a place: by fstab, by a unit of systemd, by the automounter, or a
// pool of ZFS, whose file systems name their own places.
func mountMayHold(s *diagnose.System, place string) bool {
	mounted := map[string]bool{"/": true}
	for _, d := range s.Devices {
		mounted[d.MountedAt] = true
	}
	for _, line := range config.TableLines(s, config.FstabPath) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0][0] == '#' {
			continue
		}
		at := path.Clean(fields[1])
		if at != "/" && (at == place || strings.HasPrefix(place, at+"/")) && !mounted[at] {
			return true
		}
	}
	isOfRoot := slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/boot"}, func(folder string) bool { return place == folder || strings.HasPrefix(place, folder+"/") })
	if !isOfRoot && slices.ContainsFunc(s.Devices, func(d diagnose.Device) bool { return d.FS == "zfs_member" }) {
		return true
	}
	for _, folder := range []string{"/etc/systemd/system", "/usr/local/lib/systemd/system"} {
		for _, unit := range s.Files.Match(folder, "*.mount") {
			for _, l := range config.UnitSettings(s.Files.Lines(unit)) {
				if at := path.Clean(l.Value); l.Key == "Where" && at != "/" && (at == place || strings.HasPrefix(place, at+"/")) && !mounted[at] {
					return true
				}
			}
		}
	}
	for _, name := range []string{"/etc/auto.master", "/etc/autofs/auto.master"} {
		for _, line := range s.Files.Lines(name) {
			if fields := strings.Fields(line); len(fields) > 0 && len(fields[0]) > 1 && strings.HasPrefix(place, fields[0]) {
				return true
			}
		}
	}
	return false
}
