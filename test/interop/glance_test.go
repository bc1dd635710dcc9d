//go:build e2e

package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"salvor/client"
	"salvor/secret"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/agent"
	"salvor/wire/ironic"
)

// startGlance starts Debian's glance-api with its images in a directory of the test, and puts it into the catalog. It gives the process,
// and a client of an administrator of the project service.
func startGlance(t testing.TB, k *keystone, project string) (*wsgiServer, *gophercloud.ServiceClient) {
	t.Helper()
	dir := t.TempDir()
	k.user("glance", "glances-own", project, "admin")
	for name, text := range map[string]string{
		"glance-api.conf": `[DEFAULT]
log_file = DIR/glance.log
node_staging_uri = file://DIR/staging
enforce_secure_rbac = false
[oslo_policy]
enforce_new_defaults = false
enforce_scope = false
[database]
connection = sqlite:///DIR/glance.db
[glance_store]
stores = file
default_store = file
filesystem_store_datadir = DIR/images
[paste_deploy]
flavor = keystone
[keystone_authtoken]
auth_type = password
auth_url = URL
www_authenticate_uri = URL
username = glance
password = glances-own
project_name = service
user_domain_name = Default
project_domain_name = Default
`,
		"glance-api-paste.ini": `[pipeline:glance-api-keystone]
pipeline = versions authtoken context root
[composite:root]
paste.composite_factory = glance.api:root_app_factory
/: root-versions
/v2: v2
[app:root-versions]
paste.app_factory = glance.api.versions:create_resource
[app:v2]
paste.app_factory = glance.api.v2.router:API.factory
[filter:versions]
paste.filter_factory = glance.api.middleware.version_negotiation:VersionNegotiationFilter.factory
[filter:context]
paste.filter_factory = glance.api.middleware.context:ContextMiddleware.factory
[filter:authtoken]
paste.filter_factory = keystonemiddleware.auth_token:filter_factory
delay_auth_decision = true
`,
	} {
		must.OK(t, os.WriteFile(dir+"/"+name, []byte(strings.NewReplacer("DIR", dir, "URL", k.URL).Replace(text)), 0o600))
	}
	must.OK(t, os.Mkdir(dir+"/images", 0o700))
	k.run(python, "/usr/bin/glance-manage", "--config-file", dir+"/glance-api.conf", "db_sync")
	g := startWSGI(t, "glance", "/usr/bin/glance-wsgi-api", []string{"OS_GLANCE_CONFIG_DIR=" + dir})
	k.announce(k.service("image", "glance"), "RegionOne", "http://"+g.address)
	api := *k.as("glance", "glances-own", &gophercloud.AuthScope{ProjectName: "service", DomainName: "Default"})
	api.Endpoint, api.ResourceBase, api.Type = "http://"+g.address+"/", "http://"+g.address+"/v2/", "image"
	return g, &api
}

// upload makes an image; without content it stays queued.
func upload(t testing.TB, api *gophercloud.ServiceClient, visibility images.ImageVisibility, content []byte) (id string) {
	t.Helper()
	img := must.Get(images.Create(t.Context(), api, images.CreateOpts{Name: "tenant", ContainerFormat: "bare", DiskFormat: "raw", Visibility: &visibility}).Extract())(t)
	if content != nil {
		must.OK(t, imagedata.Upload(t.Context(), api, img.ID, bytes.NewReader(content)).ExtractErr())
	}
	return img.ID
}

// imageAgent plays an agent that fetches the image and proves its checksum, as agents do.
type imageAgent struct {
	*httptest.Server
	mu      sync.Mutex
	results []agent.Result
	url     string // of the image
	content []byte // that it fetched
	before  func() // it fetches; nil: nothing
}

func newImageAgent(t testing.TB) *imageAgent {
	a := &imageAgent{}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// ServeHTTP takes a command and ends it before it answers.
func (a *imageAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(agent.CommandList{Commands: a.results})
		return
	}
	var c agent.Command
	_ = json.NewDecoder(r.Body).Decode(&c)
	_, name, _ := strings.Cut(c.Name, ".")
	res := agent.Result{ID: fmt.Sprint("c", len(a.results)), Name: name, Status: agent.Succeeded, Outcome: json.RawMessage("null")}
	switch c.Name {
	case agent.GetDeploySteps:
		res.Outcome = json.RawMessage(`{"deploy_steps": {"m": []}, "hardware_manager_version": {"m": "1"}}`)
	case agent.PrepareImage:
		if err := a.fetch(c.Params); err != nil {
			res.Status, res.Error = agent.Failed, &agent.CommandError{Type: "ImageDownloadError", Message: err.Error()}
		}
	}
	a.results = append(a.results, res)
	_ = json.NewEncoder(w).Encode(res)
}

func (a *imageAgent) fetch(params json.RawMessage) error {
	if a.before != nil {
		a.before()
	}
	var p agent.PrepareParams
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	a.url = p.ImageInfo.URLs[0]
	answer, err := http.Get(a.url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the image: status %d", answer.StatusCode)
	}
	if a.content, err = io.ReadAll(answer.Body); err != nil {
		return err
	}
	if sum := sha512.Sum512(a.content); p.ImageInfo.HashAlgo != "sha512" || p.ImageInfo.HashValue != hex.EncodeToString(sum[:]) || p.ImageInfo.DiskFormat != "raw" {
		return fmt.Errorf("the bytes are not those that %s %s %s tells", p.ImageInfo.DiskFormat, p.ImageInfo.HashAlgo, p.ImageInfo.HashValue)
	}
	part, err := http.NewRequest(http.MethodGet, a.url, nil)
	if err != nil {
		return err
	}
	part.Header.Set("Range", "bytes=1000000-1000009")
	if answer, err = http.DefaultClient.Do(part); err != nil {
		return err
	}
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusPartialContent || !bytes.Equal(got, a.content[1000000:1000010]) {
		return fmt.Errorf("a part: status %d, %x, %v", answer.StatusCode, got, err)
	}
	return nil
}

// glanceWorld is a salvor that asks a real Glance, and a node whose disk its agent writes.
type glanceWorld struct {
	testing.TB
	api    *client.Client
	server *program.Server
	agent  *imageAgent
	node   string
}

func newGlanceWorld(t *testing.T, k *keystone) *glanceWorld {
	t.Helper()
	kernel := t.TempDir()
	for _, name := range []string{"kernel", "ramdisk"} {
		must.OK(t, os.WriteFile(kernel+"/"+name, []byte(name), 0o600))
	}
	listen := program.FreeAddress(t)
	s := program.Serve(t, k.configuration()+fmt.Sprintf(`[glance]
auth_url = %s
username = salvor
password = salvors-own
[ramdisk]
listen = %s
[agent]
require_tls = false
rescue_password_in_lookup = true
[conductor]
deploy_kernel = %[3]s/kernel
deploy_ramdisk = %[3]s/ramdisk
automated_clean = false
sync_power_state_interval = 0
`, k.URL, listen, kernel))
	token := k.as("admin", adminPassword, &gophercloud.AuthScope{System: true}).Token()
	w := &glanceWorld{TB: t, server: s, agent: newImageAgent(t), api: must.Get(client.New(client.Config{Endpoint: s.URL, Token: secret.New(token)}))(t)}
	n := must.Get(w.api.CreateNode(t.Context(), client.Record{
		"driver": "fake-hardware", "deploy_interface": "direct", "boot_interface": "ipxe", "network_interface": "noop", "properties": client.Record{"local_gb": 10},
	}))(t)
	w.node = n.UUID
	must.Get(w.api.Create(t.Context(), client.Ports, client.Record{"node_uuid": n.UUID, "address": mac}))(t)
	w.provision("manage", "manageable")
	w.provision("provide", "available")
	return w
}

func (w *glanceWorld) provision(verb, want string) *client.Node {
	w.Helper()
	must.OK(w, w.api.Provision(w.Context(), w.node, ironic.ProvisionRequest{Target: verb}))
	return w.reach(want)
}

func (w *glanceWorld) reach(want string) (n *client.Node) {
	w.Helper()
	program.Until(w, w.node+" is "+want, patience, func() (err error) {
		if n, err = w.api.Node(w.Context(), w.node); err == nil && n.ProvisionState != want {
			err = fmt.Errorf("it is %s: %s", n.ProvisionState, n.LastError)
		}
		return err
	})
	return n
}

// names has the node name an image.
func (w *glanceWorld) names(source string) {
	w.Helper()
	set := must.Get(client.Set("/instance_info", client.Record{"image_source": source}))(w)
	must.Get(w.api.PatchNode(w.Context(), w.node, []ironic.PatchOperation{set}, false))(w)
}

// judged wants validate to give a reason why the deployment cannot succeed; empty: it can. A Glance under load is slower than a validate
// waits, and is no reason then.
func (w *glanceWorld) judged(source, want string) {
	w.Helper()
	w.names(source)
	program.Until(w, "validate judges "+source, patience, func() error {
		all, err := w.api.Validate(w.Context(), w.node)
		if reason := all["deploy"].Reason; err == nil && (!strings.Contains(reason, want) || want == "" && reason != "") {
			err = fmt.Errorf("validate says %q, want %q", reason, want)
		}
		return err
	})
}

// deploys boots the agent of a deployment, which works until the node is in a state.
func (w *glanceWorld) deploys(want string) *client.Node {
	w.Helper()
	w.agent.mu.Lock()
	w.agent.results = nil
	w.agent.mu.Unlock()
	w.provision("active", "wait call-back")
	found := must.Get(w.api.Lookup(w.Context(), client.Version(68), []string{mac}, ""))(w)
	var n *client.Node
	program.Until(w, w.node+" is "+want, patience, func() (err error) {
		if n, err = w.api.Node(w.Context(), w.node); err != nil || n.ProvisionState == want {
			return err
		}
		_ = w.api.Heartbeat(w.Context(), client.Version(68), w.node, ironic.Heartbeat{CallbackURL: w.agent.URL, AgentVersion: "12.0.0", AgentToken: found.Config.AgentToken})
		return fmt.Errorf("it is %s: %s", n.ProvisionState, n.LastError)
	})
	return n
}

// TestGlance deploys the image of a real Glance: what validate says of each kind of image, the bytes that the agent fetches, an image that
// is deleted before it does, and a Glance that is away.
func TestGlance(t *testing.T) {
	k := startKeystone(t)
	project := k.project("service")
	k.user("salvor", "salvors-own", project, "service")
	g, api := startGlance(t, k, project)
	w := newGlanceWorld(t, k)
	ctx := context.Background()
	content := make([]byte, 3<<20)
	_, _ = rand.Read(content)
	good := upload(t, api, images.ImageVisibilityPublic, content)
	k.user("ann", "anns-own", k.project("one"), "member")
	ann := *api
	ann.ProviderClient = k.as("ann", "anns-own", &gophercloud.AuthScope{ProjectName: "one", DomainName: "Default"}).ProviderClient
	off := upload(t, api, images.ImageVisibilityPublic, content)
	must.Get(api.Post(ctx, api.ServiceURL("images", off, "actions", "deactivate"), nil, nil, &gophercloud.RequestOpts{OkCodes: []int{204}}))(t)
	for source, want := range map[string]string{
		good:                                   "",
		"glance://" + good:                     "",
		"00000000-0000-4000-8000-000000000000": "Glance has no image",
		upload(t, &ann, images.ImageVisibilityPrivate, content): "Glance has no image",
		upload(t, api, images.ImageVisibilityPublic, nil):       "is queued",
		off: "is deactivated",
	} {
		w.judged(source, want)
	}

	w.judged(good, "")
	w.deploys("active")
	if !bytes.Equal(w.agent.content, content) {
		t.Errorf("the agent fetched %d other bytes", len(w.agent.content))
	}
	if answer := must.Get(http.Get(w.agent.url))(t); answer.StatusCode != http.StatusNotFound {
		t.Errorf("after the deployment the image is still given away: %d", answer.StatusCode)
	}
	w.provision("deleted", "available")

	gone := upload(t, api, images.ImageVisibilityPublic, content)
	w.judged(gone, "")
	w.agent.before = func() { must.OK(t, images.Delete(ctx, api, gone).ExtractErr()) }
	if n := w.deploys("deploy failed"); !strings.Contains(n.LastError, "status 503") || !strings.Contains(n.LastError, "Glance has no image "+gone) {
		t.Errorf("an image that is deleted meanwhile: %s", n.LastError)
	}

	g.stop()
	w.judged(good, "read image "+good+" in Glance")
	for _, secret := range []string{"salvors-own", "anns-own"} {
		if strings.Contains(w.server.Log(), secret) {
			t.Errorf("the log tells the password %s", secret)
		}
	}
}
