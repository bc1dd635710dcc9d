// Package oddsystem measures a diagnosis by changes that nobody chose. A generator changes one line, mode, owner, link or file of an installed
// system. The programs of the changed system itself say whether it still works: no rule of salvor takes part in that. Then the rules are asked.
// "make odd" runs it and writes the score into docs/causes.md.
package oddsystem

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/lab/odd"
)

// Rung is one question to the programs of a system.
type Rung struct {
	Name string
	// Asks says who answers.
	Asks string
	// Stages are the stages at which a diagnosis may place a fault of this rung.
	Stages []diagnose.Stage
	// Blocks: without this rung the machine does not boot, or its owner does not come in over ssh.
	Blocks bool
}

// Rungs lists all questions, in the order of a boot. The last two are asked where a start may see the change, or another rung fails that blocks.
var Rungs = []Rung{
	{"loader", "grub-script-check reads grub.cfg", []diagnose.Stage{diagnose.Loader}, true},
	{"init", "/sbin/init starts and prints its version", []diagnose.Stage{diagnose.Init}, true},
	{"fstab", "findmnt --verify", []diagnose.Stage{diagnose.Root, diagnose.Target}, false},
	{"target", "systemd-analyze verify default.target", []diagnose.Stage{diagnose.Target, diagnose.Network, diagnose.SSHD}, false},
	{"network", "ifup -a sets the interface up; netplan generate", []diagnose.Stage{diagnose.Network}, true},
	{"enabled", "systemctl is-enabled ssh.service", []diagnose.Stage{diagnose.SSHD}, true},
	{"sshd-config", "sshd -t", []diagnose.Stage{diagnose.SSHD}, true},
	{"sshd", "sshd starts and listens", []diagnose.Stage{diagnose.SSHD}, true},
	{"ssh", "the owner's key opens a shell over ssh", []diagnose.Stage{diagnose.Login, diagnose.SSHD}, true},
	{"console", "login opens a shell with the owner's password", []diagnose.Stage{diagnose.Login}, false},
	{"sudoers", "visudo -c", []diagnose.Stage{diagnose.Login}, false},
	{"sudo", "the owner's sudo runs a program", []diagnose.Stage{diagnose.Login}, false},
	{"boot", "the system starts, up to a login prompt", []diagnose.Stage{diagnose.Loader, diagnose.Kernel, diagnose.Initramfs, diagnose.Root, diagnose.Init, diagnose.Target}, true},
	{"reach", "the owner's key opens a shell of the started system over its network", []diagnose.Stage{diagnose.Target, diagnose.Network, diagnose.SSHD, diagnose.Login}, true},
}

// Truth has for each rung that was asked what its program said; the empty text: the rung holds.
type Truth map[string]string

// without leaves out the rungs that fail on the system without a change: nothing is known of those.
func (t Truth) without(clean Truth) Truth {
	out := Truth{}
	for rung, said := range t {
		if clean[rung] == "" {
			out[rung] = said
		}
	}
	return out
}

// Result is one change, with what its system's own programs say and what a diagnosis says: one line of the results file.
type Result struct {
	System string `json:"system"`
	// Disk says what was installed; a result of another installation is not counted.
	Disk string `json:"disk"`
	// Seed decides on the change; 0: nothing was changed.
	Seed   uint64           `json:"seed"`
	Change odd.SystemChange `json:"change"`
	// Names are the absolute paths by which the changed file is known: its own, and those of links to it.
	Names []string `json:"names"`
	Truth Truth    `json:"truth"`
	// Container is what a start in a container showed: InContainer, or what kept the owner out; empty: there was none.
	Container string `json:"container,omitempty"`
	// Rules identifies the program that diagnosed.
	Rules string `json:"rules"`
	// Findings are those above info, in the order of the report; the first one is the cause where Cause is set.
	Findings []diagnose.Finding `json:"findings"`
	Cause    string             `json:"cause,omitempty"`
	// Untouched: neither the programs nor the rules look at the changed file, so nothing was asked, and the answers are those of the unchanged system.
	Untouched bool `json:"untouched,omitempty"`
	// Failed is why the change could not be judged.
	Failed string `json:"failed,omitempty"`
}

// InContainer is Result.Container where the owner came in.
const InContainer = "in"

// checkEvery is of how many changes with which a container lets the owner in the machine is started all the same.
const checkEvery = 10

// Mark is how a result is counted.
type Mark string

// Marks of results.
const (
	// Right: something broke, and the verdict names the cause at the right rung; where the owner still comes in, a finding does.
	Right Mark = "right"
	// Wrong: something broke, and the verdict names another cause or another rung.
	Wrong Mark = "wrong"
	// Nothing: something broke, and the verdict is nothing-found; where the owner still comes in, no finding above info names the change.
	Nothing Mark = "nothing found"
	// Quiet: nothing broke, and nothing above info was found.
	Quiet Mark = "quiet"
	// Noise: nothing broke, and something above info was found.
	Noise Mark = "noise"
	// NoTruth: a finding is about a rung that no program was asked about.
	NoTruth Mark = "no truth"
)

// Broken are the rungs that fail, in the order of a boot.
func (t Truth) Broken() []Rung {
	var out []Rung
	for _, r := range Rungs {
		if t[r.Name] != "" {
			out = append(out, r)
		}
	}
	return out
}

// Blocks says whether a rung fails that the machine needs to boot, or its owner to come in over ssh. Where the machine was started, its start decides:
// a start makes some things anew that are missing before, such as the accounts of services.
func (t Truth) Blocks() bool {
	if boot, started := t["boot"]; started {
		return boot != "" || t["reach"] != ""
	}
	return slices.ContainsFunc(t.Broken(), func(r Rung) bool { return r.Blocks })
}

// asked says whether a rung of a stage was asked.
func (t Truth) asked(stage diagnose.Stage) bool {
	return slices.ContainsFunc(Rungs, func(r Rung) bool {
		_, ok := t[r.Name]
		return ok && slices.Contains(r.Stages, stage)
	})
}

// Judge compares what was said with the truth.
func Judge(r Result) Mark {
	broken := r.Truth.Broken()
	var cause *diagnose.Finding
	for i := range r.Findings {
		if r.Cause != "" && r.Findings[i].ID == r.Cause {
			cause = &r.Findings[i]
			break
		}
	}
	if len(broken) == 0 {
		switch {
		case len(r.Findings) == 0:
			return Quiet
		case slices.ContainsFunc(r.Findings, func(f diagnose.Finding) bool { return r.Truth.asked(f.Stage) }):
			return Noise
		}
		return NoTruth
	}
	isRight := func(f *diagnose.Finding) bool {
		return r.names(f) && slices.ContainsFunc(broken, func(b Rung) bool { return slices.Contains(b.Stages, f.Stage) })
	}
	switch {
	case cause != nil && isRight(cause):
		return Right
	case cause != nil && !r.Truth.asked(cause.Stage):
		return NoTruth
	case cause != nil:
		return Wrong
	case !r.Truth.Blocks() && slices.ContainsFunc(r.Findings, func(f diagnose.Finding) bool { return isRight(&f) }):
		return Right
	}
	return Nothing
}

// names says whether a finding names the changed file: by a path, or by its name in a sentence.
func (r Result) names(f *diagnose.Finding) bool {
	texts := []string{f.Title}
	for _, e := range f.Evidence {
		texts = append(texts, e.Path, e.Text)
	}
	for _, name := range r.Names {
		for _, text := range texts {
			if strings.Contains(text, name) || len(path.Base(name)) > 3 && strings.Contains(text, path.Base(name)) {
				return true
			}
		}
	}
	return false
}

// Count counts marks.
func Count(results []Result) map[Mark]int {
	out := map[Mark]int{}
	for _, r := range results {
		out[Judge(r)]++
	}
	return out
}

// sortResults puts results into the order of systems and seeds.
func sortResults(results []Result) {
	slices.SortFunc(results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.System, b.System), cmp.Compare(a.Seed, b.Seed))
	})
}
