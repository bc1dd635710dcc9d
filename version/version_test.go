package version

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"salvor/test/must"
)

// TestChangelogHasTheRelease holds the number to the newest heading of the changelog.
func TestChangelogHasTheRelease(t *testing.T) {
	text := must.Get(os.ReadFile("../CHANGELOG.md"))(t)
	newest := regexp.MustCompile(`(?m)^## (Unreleased: )?(\d+\.\d+\.\d+)$`).FindStringSubmatch(string(text))
	if newest == nil {
		t.Fatal("CHANGELOG.md has no heading of a release")
	}
	number, dev := strings.CutSuffix(Release, "-dev")
	if number != newest[2] || dev != (newest[1] != "") {
		t.Errorf("Release is %s, the newest heading of CHANGELOG.md is %q", Release, newest[0])
	}
}

func TestBuildText(t *testing.T) {
	b := Build{Release: "1.2.3", Commit: "0123abc", Go: "go1.26", Platform: "linux/arm64"}
	if want := "1.2.3 (commit 0123abc, go1.26, linux/arm64)"; b.String() != want {
		t.Errorf("%q, want %q", b, want)
	}
	if c := Current(); c.Release != Release || c.Commit == "" || c.Go == "" || !strings.Contains(c.Platform, "/") {
		t.Errorf("the current build is %+v", c)
	}
}

// TestCommitOfARelease: the commit that the linker writes is the one that the program tells.
func TestCommitOfARelease(t *testing.T) {
	t.Cleanup(func() { commit = "" })
	commit = "0123abc+changes"
	if c := Current(); c.Commit != commit {
		t.Errorf("the commit is %q, want %q", c.Commit, commit)
	}
}
