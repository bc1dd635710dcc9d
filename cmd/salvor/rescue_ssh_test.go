package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
	"salvor/test/must"
)

// fakeSSH puts a program ssh first in PATH that prints its arguments and the file of known hosts, and ends with the status 7.
func fakeSSH(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const script = `#!/bin/sh
for a; do
	case $a in UserKnownHostsFile=*) f=${a#*=\"}; f=${f%\"}; echo "KNOWN $f"; cat "$f"; continue ;; esac
	echo "ARG $a"
done
exit 7
`
	must.OK(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

const readySession = `{"kind": "node", "id": "` + sampleUUID + `", "state": "ready", "fingerprint": "SHA256:yes", "host_key": "ssh-ed25519 AAAA", "addresses": ["192.0.2.7", "fd00::7"]}`

func sessionAPI(session string) *fakeAPI {
	return &fakeAPI{answers: map[string][]string{"GET /salvor/v1/rescue-sessions/m1": {session}, "GET /salvor/v1/rescue-sessions/" + sampleUUID: {session}, "GET /compute/v2.1/servers/" + sampleUUID: {sampleServer}}}
}

// TestSSHPinsTheHostKey: ssh knows the reported host key and no other, whatever the user's files say; what follows the name goes to ssh
// untouched, its status comes back, and the file of known hosts is gone.
func TestSSHPinsTheHostKey(t *testing.T) {
	fakeSSH(t)
	for _, args := range [][]string{{"node", "ssh", "m1", "-v", "ls", "--wait", "-l"}, {"server", "ssh", sampleUUID, "-v", "ls", "--wait", "-l"}} {
		out, errs, status := salvor(t, sessionAPI(readySession), "", args...)
		if status != 7 || !strings.Contains(errs, "ssh ended with the status 7") {
			t.Fatalf("status %d, stderr:\n%s", status, errs)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if tail := strings.Join(lines[len(lines)-7:], " "); tail != "ARG -l ARG rescue ARG 192.0.2.7 ARG -v ARG ls ARG --wait ARG -l" {
			t.Errorf("ends with %s", tail)
		}
		for _, want := range []string{"\nsalvor-rescue ssh-ed25519 AAAA\n", "ARG StrictHostKeyChecking=yes\n", "ARG GlobalKnownHostsFile=/dev/null\n", "ARG HostKeyAlias=salvor-rescue\n", "ARG HostKeyAlgorithms=ssh-ed25519\n", "ARG ControlPath=none\n", "ARG KnownHostsCommand=none\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("lacks %q:\n%s", want, out)
			}
		}
		_, file, _ := strings.Cut(out, "KNOWN ")
		file, _, _ = strings.Cut(file, "\n")
		if _, err := os.Stat(file); file == "" || !os.IsNotExist(err) {
			t.Errorf("the file of known hosts %q is left: %v", file, err)
		}
	}
	out, _, _ := salvor(t, sessionAPI(readySession), "", "node", "ssh", "--user", "root", "--address", "host.example", "m1")
	if !strings.HasSuffix(out, "ARG -l\nARG root\nARG host.example\n") {
		t.Errorf("with a user and an address:\n%s", out)
	}
}

// TestSSHIsRefused: without a key to pin, or with an answer that would add a line or an option, no ssh runs.
func TestSSHIsRefused(t *testing.T) {
	fakeSSH(t)
	swap := func(old, replacement string) string {
		s := strings.Replace(readySession, old, replacement, 1)
		if s == readySession {
			t.Fatal(old)
		}
		return s
	}
	for name, c := range map[string]struct {
		session, want string
		args          []string
		status        int
	}{
		"not in rescue":           {"404 {}", "first run: salvor node rescue m1 --wait", nil, kit.StatusFailed},
		"not yet":                 {swap("ready", "booting"), "is booting, not ready", nil, kit.StatusFailed},
		"a reader":                {swap(`"SHA256:yes", "host_key": "ssh-ed25519 AAAA"`, `"", "host_key": ""`), "no ssh host key", nil, kit.StatusFailed},
		"a former release":        {swap("ssh-ed25519 AAAA", ""), "fingerprint SHA256:yes", nil, kit.StatusFailed},
		"two lines":               {swap("ssh-ed25519 AAAA", `ssh-ed25519 AAAA\nother ssh-ed25519 BBBB`), "compare the fingerprint", nil, kit.StatusFailed},
		"no address":              {swap(`["192.0.2.7", "fd00::7"]`, `[]`), "--address ADDRESS", nil, kit.StatusFailed},
		"addresses that are none": {swap(`["192.0.2.7", "fd00::7"]`, `["-oProxyCommand=id", 7]`), "--address ADDRESS", nil, kit.StatusFailed},
		"an option":               {readySession, "is no address", []string{"--address=-oProxyCommand=id"}, kit.StatusUsage},
		"another user by address": {readySession, "is no address", []string{"--address=root@x"}, kit.StatusUsage},
	} {
		out, errs, status := salvor(t, sessionAPI(c.session), "", append(append([]string{"node", "ssh"}, c.args...), "m1")...)
		if status != c.status || !strings.Contains(errs, c.want) || strings.Contains(out, "ARG") {
			t.Errorf("%s: status %d, stdout %q, stderr:\n%s", name, status, out, errs)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, errs, status := salvor(t, sessionAPI(readySession), "", "node", "ssh", "m1"); status != kit.StatusFailed || !strings.Contains(errs, "no program ssh") {
		t.Errorf("without ssh: status %d, stderr:\n%s", status, errs)
	}
}

// TestNodeRescueShowsTheEntry: the made password comes once, and after the wait all that a login needs.
func TestNodeRescueShowsTheEntry(t *testing.T) {
	api := sessionAPI(strings.Replace(readySession, "{", `{"expires_at": "2026-11-23T00:00:00Z", `, 1))
	api.answers["POST /salvor/v1/nodes/m1/rescue"] = []string{`{"id": "x", "password": "made-for-you"}`}
	api.answers["GET /v1/nodes/m1"] = []string{`{"uuid": "x", "name": "m1", "provision_state": "rescue", "power_state": "power on"}`}
	out := faceAsked(t, api, "node rescue m1 --wait")
	want := "m1: password, shown this once: made-for-you\nm1: rescue (power on, 0 s)\nssh host key: SHA256:yes\naddresses: 192.0.2.7 fd00::7\nends by itself at: 2026-11-23 00:00:00 UTC\nlog in: salvor node ssh m1\n"
	if out != want {
		t.Errorf("printed\n%swant\n%s", out, want)
	}
}

// TestServerRescueByKey sends keys and the end beside Nova's own fields.
func TestServerRescueByKey(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key.pub")
	must.OK(t, os.WriteFile(key, []byte("ssh-ed25519 AAAA me\n"), 0o600))
	faceAsked(t, &fakeAPI{answers: map[string][]string{
		"GET /compute/v2.1/servers/" + sampleUUID: {sampleServer}, "POST /compute/v2.1/servers/" + sampleUUID + "/action": {`{}`},
	}}, "server rescue "+sampleUUID+" --expires-in 1h --key "+key, "POST /compute/v2.1/servers/"+sampleUUID+`/action {"rescue":{"salvor:expires_in":3600,"salvor:keys":["ssh-ed25519 AAAA me"]}}`)
}
