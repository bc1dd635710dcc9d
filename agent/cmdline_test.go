package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

func TestParseCommandLine(t *testing.T) {
	p, err := ParseCommandLine(`BOOT_IMAGE=/kernel quiet ipa-api-url=http://10.77.0.1:6385,https://[fd00::1]:6385/ root="LABEL=a b" ` +
		"ipa-agent-token=abc ipa_api_url=http://evil ipa-insecure=1 ipa-ca-file=/etc/ca.pem ipa-driver-name=pxe_ipmitool salvor-root-password -- ipa-api-urlx=no\n")
	want := Parameters{
		APIURLs: []string{"http://10.77.0.1:6385", "https://[fd00::1]:6385/"}, Token: secret.New("abc"), Insecure: true,
		CAFile: "/etc/ca.pem", Driver: "pxe_ipmitool", RootPassword: true,
	}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = ParseCommandLine("ipa-insecure=0 ipa-api-url=http://a ipa-api-url=http://b")
	if err != nil || p.Insecure || len(p.APIURLs) != 1 || p.APIURLs[0] != "http://b" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"ipa-api-url=10.0.0.1:6385", "ipa-api-url=ftp://x", "ipa-api-url=http://", "ipa-api-url=http://u:p@x", "ipa-api-url=http://[", strings.Repeat("x", maxCommandLine+1)} {
		if _, err := ParseCommandLine(bad); !problem.Is(err, problem.Invalid) {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
}

func FuzzParseCommandLine(f *testing.F) {
	f.Add(`a "b c" ipa-api-url="http://x" ipa-insecure`)
	f.Add("ipa-api-url=,, ipa-agent-token=\"")
	f.Fuzz(func(t *testing.T, line string) {
		p, err := ParseCommandLine(line)
		if err != nil && !problem.Is(err, problem.Invalid) {
			t.Errorf("%v is not Invalid", err)
		}
		for _, u := range p.APIURLs {
			if !strings.HasPrefix(strings.ToLower(u), "http") {
				t.Errorf("took %q", u)
			}
		}
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{Root: ramdisk(t), CommandLine: "quiet"}); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "ipa-api-url") {
		t.Errorf("no URL: %v", err)
	}
	link := filepath.Join(t.TempDir(), "root")
	must.OK(t, os.Symlink("/", link))
	// This machine is no ramdisk, and a roundabout name for its root is its root.
	for _, root := range []string{"", "/", link, "/proc/self/root", "/etc/.."} {
		if _, err := New(Config{Root: root, CommandLine: "ipa-api-url=http://x"}); !problem.Is(err, problem.Forbidden) {
			t.Errorf("root %q: %v", root, err)
		}
		if err := Network(t.Context(), root, nil); !problem.Is(err, problem.Forbidden) {
			t.Errorf("network at %q: %v", root, err)
		}
	}
	if err := Network(t.Context(), t.TempDir(), nil); !problem.Is(err, problem.Forbidden) {
		t.Errorf("network in the machine's own namespace: %v", err)
	}
	if _, err := New(Config{Root: "/no/such/dir", CommandLine: ""}); !problem.Is(err, problem.Invalid) {
		t.Errorf("missing root: %v", err)
	}
}

func TestShadow(t *testing.T) {
	for name, c := range map[string]struct{ before, want string }{
		"both there":  {"root:*:1:0:9:7:::\nrescue:!:19000:0:99999:7:::\n", "root:*:1:0:9:7:::\nrescue:H:19000:0:99999:7:::\n"},
		"missing":     {"root:*:1:0:9:7:::\n", "root:*:1:0:9:7:::\nrescue:H::0:99999:7:::\n"},
		"empty":       {"", "rescue:H::0:99999:7:::\n"},
		"no last end": {"rescue:!:1::::::", "rescue:H:1::::::\n"},
		"expired":     {"rescue:!:0:0:99999:7::1:\n", "rescue:H::0:99999:7:::\n"},
		"twice":       {"rescue:a:1::::::\nrescue:b:1::::::\n", "rescue:H:1::::::\nrescue:H:1::::::\n"},
		"alike":       {"rescue2:a:1::::::\n", "rescue2:a:1::::::\nrescue:H::0:99999:7:::\n"},
	} {
		if got := withPasswords(c.before, "H", []string{"rescue"}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestShadowFile(t *testing.T) {
	root := ramdisk(t)
	file := filepath.Join(root, "etc/shadow")
	must.OK(t, os.Chmod(file, 0o666))
	must.OK(t, setPasswords(root, testHash, []string{"rescue"}))
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	// A link would lead out of the directory given.
	outside := filepath.Join(t.TempDir(), "shadow")
	must.OK(t, os.WriteFile(outside, []byte(testShadow), 0o600))
	must.OK(t, os.Remove(file))
	if err := setPasswords(root, testHash, []string{"rescue"}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("no file: %v", err)
	}
	must.OK(t, os.Symlink(outside, file))
	if err := setPasswords(root, testHash, []string{"rescue"}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a link: %v", err)
	}
	// A folder that leads out is as bad.
	must.OK(t, os.RemoveAll(filepath.Join(root, "etc")))
	must.OK(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "etc")))
	if err := setPasswords(root, testHash, []string{"rescue"}); err == nil {
		t.Error("a folder that leads out of the root was followed")
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != testShadow {
		t.Errorf("a file outside of the root was changed: %q, %v", text, err)
	}
}

func TestIsCryptHash(t *testing.T) {
	sum256, sum512 := strings.Repeat("a", 43), strings.Repeat("Z", 86)
	for hash, want := range map[string]bool{
		testHash: true, "$5$$" + sum256: true, "$6$salt$" + sum512: true, "$6$rounds=5000$salt$" + sum512: true, "$5$rounds=656000$0123456789./abcd$" + sum256: true,
		"": false, "$": false, "$5$": false, "$5$salt$": false, "open sesame": false, "$6$salt$" + sum256: false, "$5$salt$" + sum512: false,
		"$1$salt$" + sum256: false, "$5$salt:$" + sum256: false, "$5$salt$" + sum256 + "\n": false, "$5$salt$" + sum256[1:] + ":": false, "$5$salt$" + sum256[1:] + "\n": false,
		"$5$01234567890123456$" + sum256: false, "$5$rounds=1$salt$" + sum256: false, "$5$rounds=5000$" + sum256: false, "$5$rounds=x$salt$" + sum256: false,
		"x$5$salt$" + sum256: false, "$5$salt$" + sum256 + "$": false, "$5$a$b$" + sum256: false,
	} {
		if isCryptHash(hash) != want {
			t.Errorf("%q: want %v", hash, want)
		}
	}
	for name, want := range map[string]bool{testNode: true, "node-1.rack_2~x": true, "": false, "..": false, "a/b": false, "a?b": false, "a b": false, strings.Repeat("x", 256): false} {
		if isNode(name) != want {
			t.Errorf("node %.40q: want %v", name, want)
		}
	}
}
