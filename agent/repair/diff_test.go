package repair

import (
	"os"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// TestDiffsHideSecrets: a line of the context of a diff shows no secret, and the facts of the corpus stay readable.
func TestDiffsHideSecrets(t *testing.T) {
	t.Parallel()
	read := func(file string) (lines [][]string) {
		for line := range strings.Lines(string(must.Get(os.ReadFile("../../diagnose/testdata/" + file))(t))) {
			if f := strings.Split(strings.TrimRight(line, "\n"), "\t"); len(f) > 1 && f[0] != "" {
				lines = append(lines, f)
			}
		}
		return lines
	}
	const canary = "Xk9vQz7w"
	for _, f := range read("secrets.txt") {
		line := strings.NewReplacer("{S}", canary, "{T}", canary).Replace(f[1])
		before := "# a\n" + line + "\n# b\n"
		if got := MaskedDiff(f[0], []byte(before), []byte(before+"new\n")); strings.Contains(got, canary) || !strings.Contains(got, "\n+") {
			t.Errorf("%s %s: want a diff without the secret, got %s", f[0], line, got)
		}
	}
	for _, f := range read("harmless.txt") {
		if got := MaskedDiff(f[0], nil, []byte(f[1]+"\n")); !strings.Contains(got, f[2]) {
			t.Errorf("%s %s: want %q to stay readable, got %s", f[0], f[1], f[2], got)
		}
	}
	if got := maskLine("/etc/shadow", " root:$y$x:19000:0"); !strings.Contains(got, "root:"+diagnose.Masked) {
		t.Errorf("a line of shadow: want the account without its hash, got %s", got)
	}
}
