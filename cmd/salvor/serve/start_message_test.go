package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/access"
	"salvor/config"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// TestStartMessage: each listener is named as it is reached, with what guards the API, and the message leads on by what is missing yet.
func TestStartMessage(t *testing.T) {
	const listeners = "[api]\nport = 0\n[ramdisk]\nlisten = 127.0.0.1:0\n[health]\nlisten = 127.0.0.1:0\n"
	p := newTestControlPlane(t, listeners+"[DEFAULT]\nauth_strategy = token\n")
	doors := must.Get(p.listen())(t)
	at := map[string]any{}
	for _, d := range doors {
		t.Cleanup(func() { d.Close() })
		at[d.name] = d.Addr()
	}
	state := p.cfg.Default.StatePath
	says := func(want string, args ...any) {
		t.Helper()
		var out bytes.Buffer
		p.startMessage(t.Context(), doors).write(p.cfg, p.log, &out)
		if want = fmt.Sprintf(want, args...); !strings.HasSuffix(out.String(), want) {
			t.Errorf("it says\n%s\nwant at its end\n%s", out.String(), want)
		}
	}
	says(`serves:
  API            http://%[1]v
  console        http://%[1]v/console/
  authentication token: tokens of salvor token create
  for ramdisks   http://%[2]v
  health         http://%[3]v/healthz
  for VM hosts   https://%[4]v, TLS with certificates that salvor issues
Next, in another terminal:
  export SALVOR_URL=http://%[1]v
  salvor token create admin --role admin --local --state-dir %[5]s   # make the first token, then export it as SALVOR_TOKEN
`, at["api"], at["ramdisk"], at["health"], at["hosts"], state)

	if _, _, err := p.tokens.Issue(t.Context(), "admin", access.Role("admin"), "", 0, record.Asker{}); err != nil {
		t.Fatal(err)
	}
	says("\n  salvor ramdisk build --out %s/ramdisk   # then start salvor serve again: without a ramdisk it rescues no machine\n", state)
	must.OK(t, os.Mkdir(filepath.Join(state, "ramdisk"), 0o700))
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(state, "ramdisk", name), nil, 0o600))
	}
	says("\n  salvor node create --help   # enroll the first machine; docs/getting-started.md leads through it\n")
	must.OK(t, p.Store.Do(t.Context(), func(tx job.Tx) error {
		return p.Store.InsertNode(tx, &metal.Node{ID: "00000000-0000-4000-8000-000000000001", Driver: "redfish", ProvisionState: metal.Enroll})
	}))
	says("\n  salvor doctor   # check this installation; give it the --config and --state-dir of salvor serve\n")
	for strategy, want := range map[string]string{
		config.NoAuth: "none (noauth). Anyone who can reach the API is an administrator", config.KeystoneAuth: "keystone: https://k",
		config.BasicAuth: "http_basic: the users of " + p.cfg.Default.HTTPBasicAuthUserFile,
	} {
		if p.cfg.Default.AuthStrategy, p.cfg.Keystone.AuthURL = strategy, "https://k"; guardedBy(p.cfg) != want {
			t.Errorf("%s: %s", strategy, guardedBy(p.cfg))
		}
	}
}

// TestStartMessageInTheLog: where the log has JSON lines the message is one of them, and nothing else is written.
func TestStartMessageInTheLog(t *testing.T) {
	p := newTestControlPlane(t, "[api]\nport = 0\npublic_endpoint = https://salvor.example/\n[DEFAULT]\nuse_json = true\n")
	doors := must.Get(p.listen())(t)
	for _, d := range doors {
		defer d.Close()
	}
	var lines, out bytes.Buffer
	p.startMessage(t.Context(), doors).write(p.cfg, newLog(p.cfg, &lines), &out)
	var line map[string]string
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil || out.Len() > 0 {
		t.Fatalf("%v: %s%s", err, lines.String(), out.String())
	}
	if line["msg"] != "started" || line["console"] != "https://salvor.example/console/" || !strings.HasPrefix(line["next"], "salvor ") || line["auth"] == "" {
		t.Error(lines.String())
	}
}

// TestStartMessageWithoutAPI: a process without listeners names its roles, a site its centre.
func TestStartMessageWithoutAPI(t *testing.T) {
	p := newTestControlPlane(t, "")
	p.cfg.Default.Roles = []string{config.RoleConductor}
	var out bytes.Buffer
	p.startMessage(t.Context(), nil).write(p.cfg, p.log, &out)
	site, _ := newTestSite(t, "https://salvor.example:6385")
	site.startMessage(nil).write(p.cfg, p.log, &out)
	for _, want := range []string{"\n  roles          conductor\n", "\n  centre         https://salvor.example:6385\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
}
