//go:build e2e

package interop

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"

	"salvor/test/must"
)

// adminPassword is that of keystone's first user, admin.
const adminPassword = "keys-to-the-kingdom"

// keystone is Debian's keystone under uwsgi, all its files in a directory of the test.
type keystone struct {
	URL string // with /v3

	*wsgiServer
	t   testing.TB
	dir string
	api *gophercloud.ServiceClient // as admin
}

// startKeystone makes an empty database, starts the server on a free port and stops it at the test's end.
func startKeystone(t testing.TB) *keystone {
	t.Helper()
	k := &keystone{t: t, dir: t.TempDir()}
	k.configure()
	k.manage("db_sync")
	// SQLite locks out readers while somebody writes, unless it keeps a log.
	k.python("import sqlite3; sqlite3.connect('DIR/keystone.db').execute('pragma journal_mode=wal')")
	k.start()
	k.manage("bootstrap", "--bootstrap-password", adminPassword, "--bootstrap-region-id", "RegionOne",
		"--bootstrap-public-url", k.URL, "--bootstrap-internal-url", k.URL, "--bootstrap-admin-url", k.URL)
	k.api = k.as("admin", adminPassword, &gophercloud.AuthScope{System: true})
	return k
}

func (k *keystone) path(name string) string { return filepath.Join(k.dir, name) }

func (k *keystone) configure() {
	k.t.Helper()
	text := strings.ReplaceAll(`[DEFAULT]
log_file = DIR/keystone.log
[database]
connection = sqlite:///DIR/keystone.db
[identity]
# Log-ins by the hundred; this keystone keeps nobody's secret.
password_hash_rounds = 4
[token]
provider = fernet
[fernet_tokens]
key_repository = DIR/fernet
[fernet_receipts]
key_repository = DIR/fernet
[credential]
key_repository = DIR/fernet
`, "DIR", k.dir)
	must.OK(k.t, os.WriteFile(k.path("keystone.conf"), []byte(text), 0o600))
	must.OK(k.t, os.Mkdir(k.path("fernet"), 0o700))
	for _, name := range []string{"0", "1"} {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		must.OK(k.t, os.WriteFile(filepath.Join(k.path("fernet"), name), []byte(base64.URLEncoding.EncodeToString(key)), 0o600))
	}
}

func (k *keystone) run(name string, args ...string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		k.t.Fatalf("%s %s: %v (the package python3-keystone is needed)\n%s", name, args[0], err, out)
	}
}

func (k *keystone) manage(args ...string) {
	k.t.Helper()
	k.run(python, append([]string{"/usr/bin/keystone-manage", "--config-file", k.path("keystone.conf")}, args...)...)
}

func (k *keystone) python(program string) {
	k.t.Helper()
	k.run(python, "-c", strings.ReplaceAll(program, "DIR", k.dir))
}

func (k *keystone) start() {
	k.t.Helper()
	k.wsgiServer = startWSGI(k.t, "keystone", "/usr/bin/keystone-wsgi-public", nil, "--pyargv", "--config-file "+k.path("keystone.conf"))
	k.URL = "http://" + k.address + "/v3"
}

// as logs a user in.
func (k *keystone) as(user, password string, scope *gophercloud.AuthScope) *gophercloud.ServiceClient {
	k.t.Helper()
	provider := must.Get(openstack.NewClient(k.URL))(k.t)
	auth := tokens.AuthOptions{Username: user, Password: password, DomainName: "Default", Scope: tokens.Scope{
		System: scope.System, ProjectID: scope.ProjectID, ProjectName: scope.ProjectName, DomainName: scope.DomainName,
	}, AllowReauth: true}
	if err := openstack.AuthenticateV3(k.t.Context(), provider, &auth, gophercloud.EndpointOpts{}); err != nil {
		k.t.Fatalf("log in to keystone as %s: %v", user, err)
	}
	return &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: k.URL + "/", Type: "identity"}
}

// role gives the id of a role, which is made if keystone's bootstrap did not.
func (k *keystone) role(name string) string {
	k.t.Helper()
	ctx := k.t.Context()
	page := must.Get(roles.List(k.api, roles.ListOpts{Name: name}).AllPages(ctx))(k.t)
	if found := must.Get(roles.ExtractRoles(page))(k.t); len(found) > 0 {
		return found[0].ID
	}
	return must.Get(roles.Create(ctx, k.api, roles.CreateOpts{Name: name}).Extract())(k.t).ID
}

// project makes a project.
func (k *keystone) project(name string) string {
	k.t.Helper()
	return must.Get(projects.Create(k.t.Context(), k.api, projects.CreateOpts{Name: name, DomainID: "default"}).Extract())(k.t).ID
}

// user makes a user with a role in a project.
func (k *keystone) user(name, password, project, role string) {
	k.t.Helper()
	ctx := k.t.Context()
	u := must.Get(users.Create(ctx, k.api, users.CreateOpts{Name: name, Password: password, DomainID: "default"}).Extract())(k.t)
	if err := roles.Assign(ctx, k.api, k.role(role), roles.AssignOpts{UserID: u.ID, ProjectID: project}).ExtractErr(); err != nil {
		k.t.Fatalf("give %s the role %s: %v", name, role, err)
	}
}

// announce puts an endpoint of a service into the catalog of a region.
func (k *keystone) announce(service, region, url string) {
	k.t.Helper()
	for _, kind := range []gophercloud.Availability{gophercloud.AvailabilityPublic, gophercloud.AvailabilityInternal, gophercloud.AvailabilityAdmin} {
		_, err := endpoints.Create(k.t.Context(), k.api, endpoints.CreateOpts{Availability: kind, Region: region, URL: url, ServiceID: service}).Extract()
		if err != nil {
			k.t.Fatalf("catalog: %v", err)
		}
	}
}

// service makes a service in the catalog.
func (k *keystone) service(kind, name string) (id string) {
	k.t.Helper()
	return must.Get(services.Create(k.t.Context(), k.api, services.CreateOpts{Type: kind, Extra: map[string]any{"name": name}}).Extract())(k.t).ID
}

// baremetal makes the service in the catalog and the user that salvor is.
func (k *keystone) baremetal() (service string) {
	k.t.Helper()
	k.user("salvor", "salvors-own", k.project("service"), "service")
	return k.service("baremetal", "ironic")
}

// configuration is what makes salvor ask this keystone.
func (k *keystone) configuration() string {
	return fmt.Sprintf("[DEFAULT]\nauth_strategy = keystone\n[keystone_authtoken]\nauth_url = %s\nusername = salvor\npassword = salvors-own\nproject_name = service\n", k.URL)
}
