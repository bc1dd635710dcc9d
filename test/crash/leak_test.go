//go:build e2e

package crash

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"salvor/test/must"
)

var tokenParameter = regexp.MustCompile(`\bipa-agent-token=(\S+)`)

// search looks for a line of its standard input in every file but the kernel's views.
const search = `read -r secret; find / -xdev -type f -exec grep -lF -e "$secret" {} + 2>/dev/null; true`

// leaksNothing proves what is left of a rescue: ssh, an agent that takes nothing without the token of this rescue, no valid token of the boot,
// and no secret in the ramdisk, the store, the log or any answer.
func (x *round) leaksNothing() {
	x.Helper()
	shell := func(stdin, command string) string {
		x.Helper()
		out, err := x.shell(stdin, command)
		if err != nil {
			x.Fatalf("%s: %v", command, err)
		}
		return out
	}
	found := tokenParameter.FindStringSubmatch(shell("", "cat /proc/cmdline"))
	if found == nil {
		x.Fatal("the kernel command line carries no token: what would the others prove")
	}
	token := found[1]
	x.refused(token)
	x.agentRefuses(token)

	if out := shell("", "ps"); !strings.Contains(out, "dropbear") || strings.Count(out, "salvor-agent") != strings.Count(out, "salvor-agent session") {
		x.Errorf("processes of the rescued machine:\n%s", out)
	}
	var hash string
	for line := range strings.Lines(shell("", "cat /etc/shadow")) {
		if fields := strings.Split(line, ":"); fields[0] == "rescue" {
			hash = fields[1]
		}
	}
	if ok, err := opens(x.password, hash); !ok || err != nil {
		x.Fatalf("/etc/shadow holds no hash of the rescue password: %v", err)
	}
	// The secret comes by standard input: no command line may hold it either.
	files := func(secret string) []string {
		return strings.Fields(shell(secret+"\n", search))
	}
	if at := files(hash); !slices.Equal(at, []string{"/etc/shadow"}) {
		x.Errorf("the hash is in %q, want /etc/shadow only", at)
	}
	for name, secret := range map[string]string{"password": x.password, "token": token, "BMC password": x.Machine.Password} {
		if at := files(secret); len(at) > 0 {
			x.Errorf("the %s is in the ramdisk's files: %q", name, at)
		}
	}
	x.storeHides(x.password, hash, token, x.Machine.Password)
	x.answersHide(x.password, hash, token, x.Machine.Password)
}

// refused proves that a token opens no door any more.
func (x *round) refused(token string) {
	x.Helper()
	body := `{"callback_url": "https://` + x.Machine.TenantAddress + `:9999", "agent_version": "salvor-agent/0", "agent_token": "` + token + `"}`
	for _, base := range []string{x.Server.URL, "http://10.79.0.1:6386"} {
		status, err := x.Inside(body, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-OpenStack-Ironic-API-Version: 1.68",
			"-H", "Content-Type: application/json", "--data-binary", "@-", base+"/v1/heartbeat/"+x.id)
		if err != nil || !strings.HasPrefix(status, "4") {
			x.Errorf("a heartbeat with the old token at %s: %s %v", base, status, err)
		}
		status, err = x.Inside("", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-OpenStack-Ironic-API-Version: 1.68",
			base+"/v1/lookup?addresses="+x.Machine.MAC)
		if err != nil || status != "404" {
			x.Errorf("a lookup after the rescue at %s: %s %v", base, status, err)
		}
	}
}

// agentRefuses proves that the agent that serves during the rescue answers nobody without a token, and nobody with that of the boot.
func (x *round) agentRefuses(token string) {
	x.Helper()
	for _, query := range []string{"", "?agent_token=" + token} {
		at := "https://" + x.Machine.TenantAddress + ":9999/v1/commands/" + query
		x.Await("the agent of the rescue refuses", func() bool {
			status, _ := x.Inside("", "curl", "-sk", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", at)
			if strings.HasPrefix(status, "2") {
				x.Fatalf("the agent of the rescue answers %s without its token", at)
			}
			return status == "401"
		})
	}
}

// storeHides proves that secrets are in no file of the server and in no line of its log.
func (x *round) storeHides(secrets ...string) {
	x.Helper()
	places := map[string]string{"the log": x.Server.Log()}
	files := must.Get(filepath.Glob(filepath.Join(x.Server.State, "*")))(x)
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text := must.Get(os.ReadFile(file))(x)
		places[file] = string(text)
	}
	if len(places[filepath.Join(x.Server.State, "salvor.db-wal")]) == 0 {
		x.Error("the write-ahead log was not looked at")
	}
	x.hidden(places, secrets)
}

// answersHide proves it of what the API says.
func (x *round) answersHide(secrets ...string) {
	x.Helper()
	places := map[string]string{}
	for _, path := range []string{"/v1/nodes/detail", "/v1/nodes/m1", "/v1/nodes/m1/states", "/v1/nodes/m1/history?detail=true", "/v1/nodes/m1/validate", "/v1/ports/detail"} {
		places[path] = x.API("GET", path, nil)
	}
	places["salvor node show"] = x.CLI("node", "show", "m1", "-f", "json")
	x.hidden(places, secrets)
}

func (x *round) hidden(places map[string]string, secrets []string) {
	x.Helper()
	for place, text := range places {
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				x.Errorf("secret %d of %d is in %s", i+1, len(secrets), place)
			}
		}
	}
}
