package system

import (
	"path"
	"regexp"
	"slices"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// maxAskedAccounts bounds the accounts that sshd is asked about.
const maxAskedAccounts = 3

// askSSHD has sshd read its configuration, and then what counts for the first accounts that log in: a Match block counts for some of them only.
func askSSHD(s *diagnose.System) []diagnose.Question {
	program := sshdProgram(s.Files)
	if program == "" {
		return nil
	}
	folders := []string{"/run/sshd"}
	out := []diagnose.Question{{Command: []string{program, "-t"}, Folders: folders}}
	accounts, _ := config.ParsePasswd(s.Files.Lines(config.PasswdPath))
	for i := range accounts {
		a := &accounts[i]
		if len(out) > maxAskedAccounts {
			break
		}
		if a.LogsIn() && isUserName(a.Name) {
			out = append(out, diagnose.Question{Command: []string{program, "-T", "-C", "user=" + a.Name + ",host=client.invalid,addr=192.0.2.1"}, Folders: folders})
		}
	}
	return out
}

// askVisudo has visudo read the rules of sudo. It does not judge owners and modes, which sudo itself takes less strictly.
func askVisudo(s *diagnose.System) []diagnose.Question {
	program := config.FirstExisting(s.Files, "/usr/sbin/visudo", "/sbin/visudo")
	if program == "" || !s.Files.Exists(sudoersPath) {
		return nil
	}
	return []diagnose.Question{{Command: []string{program, "-c", "-f", sudoersPath}}}
}

// askNft has nft read the rules that are loaded at boot. It has no right to ask the kernel, so it finds faults of grammar only.
func askNft(s *diagnose.System) (out []diagnose.Question) {
	program := config.FirstExisting(s.Files, "/usr/sbin/nft", "/sbin/nft")
	enabled, _ := config.ServiceEnabled(s.Files, "nftables")
	for _, file := range []string{"/etc/nftables.conf", "/etc/sysconfig/nftables.conf", "/etc/nftables.nft"} {
		if program != "" && enabled && s.Files.Exists(file) {
			out = append(out, diagnose.Question{Command: []string{program, "-c", "-f", file}})
		}
	}
	return out
}

// askNetplan has netplan write what it makes of its files to the sandbox's /run.
func askNetplan(s *diagnose.System) []diagnose.Question {
	program := config.FirstExisting(s.Files, "/usr/libexec/netplan/generate", "/lib/netplan/generate", "/usr/lib/netplan/generate")
	if program == "" || len(s.Files.Match("/etc/netplan", "*.yaml")) == 0 {
		return nil
	}
	return []diagnose.Question{{Command: []string{program}}}
}

// askGrub has GRUB's own parser read its menu.
func askGrub(s *diagnose.System) (out []diagnose.Question) {
	program := config.FirstExisting(s.Files, "/usr/bin/grub-script-check", "/usr/bin/grub2-script-check")
	file := config.FirstExisting(s.Files, "/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
	if program == "" || file == "" {
		return nil
	}
	return []diagnose.Question{{Command: []string{program, file}}}
}

// askFindmnt has findmnt parse fstab. It knows no device in the sandbox, so only what it cannot parse counts.
func askFindmnt(s *diagnose.System) []diagnose.Question {
	program := config.FirstExisting(s.Files, "/usr/bin/findmnt", "/bin/findmnt")
	if program == "" || !s.Files.Exists(config.FstabPath) {
		return nil
	}
	return []diagnose.Question{{Command: []string{program, "--verify", "--tab-file", config.FstabPath}}}
}

// refusedUnit matches what systemd says of a unit that it does not start. It says much more of units that work.
var refusedUnit = regexp.MustCompile(`(?i)refusing|bad.unit.file|bad-setting|is not executable: no such file|not found: |has no exec|lacks .*exec|has more than one|failed to load`)

// maxAskedUnits bounds the units that systemd is asked about.
const maxAskedUnits = 30

// askSystemd has systemd read the services that start at boot.
func askSystemd(s *diagnose.System) []diagnose.Question {
	program := config.FirstExisting(s.Files, "/usr/bin/systemd-analyze", "/bin/systemd-analyze")
	if program == "" {
		return nil
	}
	var units []string
	for _, folder := range []string{"/etc/systemd/system/multi-user.target.wants", "/etc/systemd/system/sysinit.target.wants", "/etc/systemd/system/network-online.target.wants"} {
		for _, link := range s.Files.Match(folder, "*.service") {
			if name := path.Base(link); unitName.MatchString(name) && !slices.Contains(units, name) && config.UnitFile(s.Files, name) != "" {
				units = append(units, name)
			}
		}
	}
	if len(units) == 0 {
		return nil
	}
	return []diagnose.Question{{Command: append([]string{program, "verify", "--man=no"}, units[:min(len(units), maxAskedUnits)]...)}}
}

// unitName is a name that no program takes for an option.
var unitName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:_.@-]*$`)

// loaderChecker has the dynamic loader of the system list the libraries of programs.
func loaderChecker(what string, stage diagnose.Stage, severity diagnose.Severity, programs func(*diagnose.System) []string, supports ...string) checker {
	return checker{
		id: what + "-load-failed", stage: stage, severity: severity, confidence: 0.9, refuses: "cannot load the program",
		questions: func(s *diagnose.System) []diagnose.Question { return askLoader(s, programs(s)) },
		supports:  supports, loads: true, byHand: "Install the packages that bring the named libraries again, from a rescue with the same release.",
	}
}

// askLoader has the interpreter of each program list what it loads for it. A program without an interpreter needs nothing.
func askLoader(s *diagnose.System, programs []string) (out []diagnose.Question) {
	for _, name := range programs {
		file, err := config.OpenReadAt(s.Files, name)
		if name == "" || err != nil {
			continue
		}
		program, err := config.ReadProgram(file)
		_ = file.Close()
		if err == nil && path.IsAbs(program.Interpreter) && s.Files.Exists(program.Interpreter) {
			out = append(out, diagnose.Question{Command: []string{program.Interpreter, "--list", name}})
		}
	}
	return out
}

// loginShells are the shells of the first accounts that log in.
func loginShells(s *diagnose.System) (out []string) {
	accounts, _ := config.ParsePasswd(s.Files.Lines(config.PasswdPath))
	for i := range accounts {
		if shell := accounts[i].Shell; accounts[i].LogsIn() && path.IsAbs(shell) && !slices.Contains(out, shell) && len(out) < maxAskedAccounts {
			out = append(out, shell)
		}
	}
	return out
}
