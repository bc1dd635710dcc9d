package fleet

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/native"
)

// siteWorld is a centre, and a site whose boot service knows no database.
type siteWorld struct {
	*plane
	door, conductor, site *program.Server
	api                   *client.Client
	token                 string
	kernel                []byte
}

func newSiteWorld(t *testing.T) *siteWorld {
	w := &siteWorld{plane: newPlane(t), kernel: bytes.Repeat([]byte("a kernel of the centre\n"), 10_000)}
	w.config += "[agent]\nrequire_tls = false\n"
	w.door = w.serve("door", "api")
	w.api = newClient(t, w.door.URL)
	w.token = w.salvor("site", "create", "oslo-1", "--conductor-group", "oslo", "-f", "value", "-c", "token")
	file := filepath.Join(t.TempDir(), "token")
	must.OK(t, os.WriteFile(file, []byte(w.token+"\n"), 0o600))
	images := t.TempDir()
	for name, content := range map[string][]byte{"kernel": w.kernel, "ramdisk": []byte("a ramdisk")} {
		must.OK(t, os.WriteFile(filepath.Join(images, name), content, 0o600))
	}
	boot := "rescue_kernel = " + images + "/kernel\nrescue_ramdisk = " + images + "/ramdisk\n"
	// The centre gives boot files away that it is configured for: the same files as the conductor's.
	w.door.Stop()
	w.door.Configure(t, "[conductor]\n"+boot)
	w.door.Start(t)
	w.site = program.Serve(t, "[DEFAULT]\nroles = netboot\n[site]\ncentre = "+w.door.URL+"\ntoken_file = "+file+"\n[ramdisk]\nlisten = 127.0.0.1:0\n")
	w.conductor = w.serve("oslo1", "conductor", siteOslo, boot, "[service_catalog]\nendpoint_override = http://"+w.site.Door("ramdisk"))
	until(t, 10*time.Second, func() (bool, string) { got := alive(t, w.api); return got == "oslo1:oslo", got })
	return w
}

// salvor runs a command against the centre.
func (w *siteWorld) salvor(args ...string) string {
	w.t.Helper()
	return program.CLI{URL: w.door.URL}.Run(w.t, args...)
}

// rescued is a node whose rescue waits for its ramdisk.
func (w *siteWorld) rescued(mac string) string {
	w.t.Helper()
	node, err := w.api.CreateNode(w.t.Context(), client.Record{"driver": "fake-hardware", "conductor_group": "oslo", "boot_interface": "ipxe", "rescue_interface": "agent", "deploy_interface": "custom-agent"})
	if err != nil {
		w.t.Fatal(err)
	}
	id := node.UUID
	must.Get(w.api.Create(w.t.Context(), client.Ports, client.Record{"node_uuid": id, "address": mac}))(w.t)
	w.adopt(w.api, id)
	w.ask(w.api, id, "rescue")
	w.reach(w.api, id, "rescue wait")
	return id
}

// plan asks the centre as a site does.
func (w *siteWorld) plan(token, mac string) (*http.Response, native.SitePlan) {
	w.t.Helper()
	r := must.Get(http.NewRequest(http.MethodGet, w.door.URL+native.SitePlanPath+"?mac="+url.QueryEscape(mac), nil))(w.t)
	r.Header.Set("Authorization", "Bearer "+token)
	resp := must.Get(http.DefaultClient.Do(r))(w.t)
	defer resp.Body.Close()
	var p native.SitePlan
	if resp.StatusCode == http.StatusOK {
		decode(w.t, resp.Body, &p)
	}
	return resp, p
}

// get asks the site as a machine does; silence is status 0.
func (w *siteWorld) get(path string) (int, string) {
	w.t.Helper()
	r := must.Get(http.NewRequest(http.MethodGet, "http://"+w.site.Door("ramdisk")+path, nil))(w.t)
	r.Header.Set("X-OpenStack-Ironic-API-Version", "1.68")
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// TestSite boots machines of a site through a door without database credentials: while the centre answers, while it is cut
// off, over a restart in that time, and not at all once the site is trusted no more.
func TestSite(t *testing.T) {
	w := newSiteWorld(t)
	const mac = "52:54:00:00:00:61"
	id := w.rescued(mac)
	stranger := w.salvor("site", "create", "bergen-1", "--conductor-group", "bergen", "-f", "value", "-c", "token")
	if resp, _ := w.plan(stranger, mac); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a plan for the site of another group: %s", resp.Status)
	}
	for _, wrong := range []string{"", "x", w.token + "x"} {
		if resp, _ := w.plan(wrong, mac); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a plan for the token %q: %s", wrong, resp.Status)
		}
	}
	resp, plan := w.plan(w.token, mac)
	if resp.StatusCode != http.StatusOK || plan.NodeID != id || plan.Token.Empty() {
		t.Fatalf("the plan is %+v, %s", plan, resp.Status)
	}
	script := "/boot/" + plan.Path + "/boot.ipxe"
	boots := func(when string) {
		t.Helper()
		status, text := w.get(script)
		if status != http.StatusOK || !strings.Contains(text, "ipa-agent-token="+plan.Token.Reveal()) {
			t.Fatalf("%s: the boot script is %d %s\n%s", when, status, text, w.site.Log())
		}
		if status, text := w.get("/boot/" + plan.Path + "/kernel"); status != http.StatusOK || text != string(w.kernel) {
			t.Fatalf("%s: the kernel is %d, %d bytes\n%s", when, status, len(text), w.site.Log())
		}
		if status, text := w.get("/boot/" + plan.Path + "/ramdisk"); status != http.StatusOK || text != "a ramdisk" {
			t.Fatalf("%s: the ramdisk is %d %s", when, status, text)
		}
		for _, nothing := range []string{"/boot/AAAAAAAAAAAAAAAAAAAAAAAA/boot.ipxe", "/v1/nodes", "/salvor/v1/sites", "/console/"} {
			if status, text := w.get(nothing); status != 0 {
				t.Errorf("%s: %s answers %d %s; want silence\n%s", when, nothing, status, text, w.site.Log())
			}
		}
	}
	boots("with the centre")
	if status, text := w.get("/v1/lookup?addresses=" + mac); status != http.StatusOK || !strings.Contains(text, id) {
		t.Errorf("lookup through the site: %d %s", status, text)
	}
	elsewhere := w.salvor("node", "show", id, "-f", "value", "-c", "provision_state")
	if elsewhere != "rescue wait" {
		t.Errorf("the node is %s", elsewhere)
	}
	w.heartbeat(id, "wrong", http.StatusNotFound)
	// The next reading of all plans writes them down.
	until(t, 20*time.Second, func() (bool, string) {
		return w.holdsPlans(), "no plans on the disk"
	})
	w.conceals(plan.Token.Reveal())

	must.OK(t, w.door.Signal(syscall.SIGSTOP))
	boots("with the centre cut off")
	w.site.Kill()
	w.site.Start(t)
	boots("restarted with the centre cut off")
	must.OK(t, w.door.Signal(syscall.SIGCONT))
	until(t, 20*time.Second, func() (bool, string) {
		status, text := w.get("/v1/lookup?addresses=" + mac)
		return status == http.StatusOK, text
	})
	// What is over is not answered any more.
	w.ask(w.api, id, "abort")
	until(t, 30*time.Second, func() (bool, string) {
		status, _ := w.get(script)
		return status == 0, "the script of an ended boot is still given"
	})
	w.salvor("site", "revoke", "oslo-1")
	until(t, 20*time.Second, func() (bool, string) {
		return strings.Contains(w.site.Log(), "nothing is answered any more"), w.site.Log()
	})
	if got := w.salvor("site", "list", "-f", "value", "-c", "name"); got != "bergen-1" {
		t.Errorf("the sites are %q", got)
	}
}

func (w *siteWorld) heartbeat(id, token string, want int) {
	w.t.Helper()
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+w.site.Door("ramdisk")+"/v1/heartbeat/"+id,
		strings.NewReader(`{"callback_url": "http://127.0.0.1:9999", "agent_token": "`+token+`", "agent_version": "x"}`)))(w.t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-OpenStack-Ironic-API-Version", "1.68")
	resp := must.Get(http.DefaultClient.Do(r))(w.t)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		w.t.Errorf("a heartbeat through the site: %s %s; want %d", resp.Status, text, want)
	}
}

func (w *siteWorld) holdsPlans() bool {
	info, err := os.Stat(filepath.Join(w.site.State, "site", "plans.sealed"))
	return err == nil && info.Size() > 500
}

// conceals looks for secrets in what the site has on its disk and in its log.
func (w *siteWorld) conceals(secrets ...string) {
	w.t.Helper()
	must.OK(w.t, filepath.WalkDir(w.site.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, s := range append(secrets, w.token) {
			if bytes.Contains(b, []byte(s)) {
				w.t.Errorf("%s holds a secret in clear", path)
			}
		}
		return err
	}))
	for _, log := range []string{w.site.Log(), w.door.Log(), w.conductor.Log()} {
		for _, s := range append(secrets, w.token) {
			if strings.Contains(log, s) {
				w.t.Error("a log holds a secret")
			}
		}
	}
}
