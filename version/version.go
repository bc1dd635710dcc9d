// Package version tells which release of salvor a program is, and from which commit it was built.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Release is the semantic version of this source tree. It is a constant because a clone may lack the tags. "-dev" marks a tree on its
// way to that release; the newest heading of CHANGELOG.md has the same number.
const Release = "0.2.0-dev"

// commit is what "make release" has the linker write here, in the form of [Build.Commit]. Every other build leaves it empty and has Go's own stamp.
var commit string

// Build is what is known of a program.
type Build struct {
	Release  string `json:"release"`
	Commit   string `json:"commit"`   // the full hash, with "+changes" where the tree differed from it; "unknown" where Go did not stamp it: go run, go test, a container image, a git worktree
	Go       string `json:"go"`       // as runtime.Version gives it
	Platform string `json:"platform"` // as in "linux/amd64"
}

// Current is the build of the running program.
func Current() Build {
	b := Build{Release: Release, Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if commit != "" {
		b.Commit = commit
		return b
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		b.Commit = revision
		if settings["vcs.modified"] == "true" {
			b.Commit += "+changes"
		}
	}
	return b
}

// String is a line for a person.
func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s)", b.Release, b.Commit, b.Go, b.Platform)
}
