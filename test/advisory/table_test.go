package advisory

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"salvor/test/must"
)

// TestTheTableNamesWhatThereIs holds docs/security.md to the tests: each that it names is
// there, and each of this room is named.
func TestTheTableNamesWhatThereIs(t *testing.T) {
	table := must.Get(os.ReadFile("../../docs/security.md"))(t)
	there, here := map[string]bool{}, map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	root := os.DirFS("../..")
	must.OK(t, fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
			here[m[1]] = here[m[1]] || strings.HasPrefix(path, "test/advisory/")
		}
		return err
	}))
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(table), -1) {
		if !there[m[1]] {
			t.Errorf("docs/security.md names %s, which is nowhere", m[1])
		}
	}
	for name := range here {
		if here[name] && name != "TestTheTableNamesWhatThereIs" && !strings.Contains(string(table), "`"+name+"`") {
			t.Errorf("docs/security.md does not name %s", name)
		}
	}
}
