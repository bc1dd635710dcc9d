package identity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/attachments"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumetypes"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imageimport"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"golang.org/x/crypto/bcrypt"

	"salvor/access"
	"salvor/api"
	"salvor/api/identity"
	"salvor/api/image"
	"salvor/api/volume"
	"salvor/blob"
	"salvor/compute/service"
	"salvor/store/storetest"
	"salvor/test/debian"
	"salvor/test/must"
)

// cloud serves the three faces that clients of OpenStack use beside the others.
type cloud struct {
	t        *testing.T
	url      string
	user     string
	password string
}

func newCloud(t *testing.T, basic bool) *cloud {
	t.Helper()
	s, key := storetest.SQLite(t)
	blobs := must.Get(blob.Open(t.TempDir()))(t)
	t.Cleanup(func() { _ = blobs.Close() })
	c := &cloud{t: t, user: "ann", password: "correct horse"}
	var below api.Authenticator = api.NoAuth{}
	if basic {
		below = c.file()
	}
	services, log := service.New(s, s, service.Options{}, time.Now), slog.New(slog.DiscardHandler)
	apiTokens := access.NewTokens(s, time.Now)
	auth := identity.NewTokens(key, below, api.NewTokenAuth(apiTokens, time.Now, log), apiTokens, time.Now)
	faces := map[string]http.Handler{
		"/identity": identity.New(identity.Config{Tokens: auth, Auth: auth, Log: log}),
		"/image":    image.New(image.Config{Images: services.Images, Blobs: blobs, Auth: auth, Log: log}),
		"/volume":   volume.New(volume.Config{Volumes: services.Volumes, Auth: auth, Log: log}),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for prefix, face := range faces {
			if r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/") {
				face.ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// file is an htpasswd file with the one user.
func (c *cloud) file() api.Authenticator {
	c.t.Helper()
	hash := must.Get(bcrypt.GenerateFromPassword([]byte(c.password), bcrypt.MinCost))(c.t)
	name := filepath.Join(c.t.TempDir(), "htpasswd")
	must.OK(c.t, os.WriteFile(name, append([]byte(c.user+":"), hash...), 0o600))
	auth := must.Get(api.NewHTTPBasic(name))(c.t)
	return auth
}

// openstack runs Debian's client and gives what it says as JSON.
func (c *cloud) openstack(args ...string) any {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, debian.Program(c.t, "openstack", "python3-openstackclient"), args...)
	cmd.Dir = c.t.TempDir()
	cmd.Env = []string{
		"HOME=" + cmd.Dir, "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "OS_IDENTITY_API_VERSION=3", "OS_AUTH_TYPE=password", "OS_AUTH_URL=" + c.url + "/identity",
		"OS_USERNAME=" + c.user, "OS_PASSWORD=" + c.password, "OS_PROJECT_NAME=lab", "OS_USER_DOMAIN_ID=default", "OS_PROJECT_DOMAIN_ID=default",
	}
	var output, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &wrong
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("openstack %s: %v\n%s%s(it is Debian's package python3-openstackclient)", strings.Join(args, " "), err, output.String(), wrong.String())
	}
	var out any
	if output.Len() > 0 && args[len(args)-1] == "json" {
		if err := json.Unmarshal(output.Bytes(), &out); err != nil {
			c.t.Fatalf("openstack %s says %s: %v", strings.Join(args, " "), output.String(), err)
		}
	}
	return out
}

func (c *cloud) show(args ...string) map[string]any {
	c.t.Helper()
	return c.openstack(append(args, "-f", "json")...).(map[string]any)
}

// TestOpenStackClient brings an image and names a volume as the guides do.
func TestOpenStackClient(t *testing.T) {
	c := newCloud(t, true)
	if token := c.show("token", "issue"); token["project_id"] != access.ProjectID("lab") || token["user_id"] != identity.UserID("ann") {
		t.Errorf("%v", token)
	}
	data := make([]byte, 3<<20)
	copy(data, "the bytes of an image")
	file := filepath.Join(t.TempDir(), "disk.raw")
	must.OK(t, os.WriteFile(file, data, 0o600))
	made := c.show("image", "create", "--file", file, "--disk-format", "raw", "--container-format", "bare", "--private", "--property", "os_distro=debian", "--tag", "old", "debian")
	if made["status"] != "active" && made["status"] != "queued" { // what it shows is from before the bytes
		t.Errorf("%v", made)
	}
	c.openstack("image", "set", "--property", "hw_rescue_bus=virtio", "--public", "debian")
	shown := c.show("image", "show", "debian")
	properties := shown["properties"].(map[string]any)
	if shown["status"] != "active" || shown["visibility"] != "public" || shown["size"] != float64(len(data)) || properties["os_distro"] != "debian" || properties["hw_rescue_bus"] != "virtio" {
		t.Errorf("%v", shown)
	}
	saved := filepath.Join(t.TempDir(), "saved")
	c.openstack("image", "save", "--file", saved, "debian")
	if got, err := os.ReadFile(saved); err != nil || !bytes.Equal(got, data) {
		t.Errorf("saved %d bytes, %v", len(got), err)
	}
	volume := c.show("volume", "create", "--size", "4", "--bootable", "--property", "salvor:portal=192.0.2.7:3260", "--property", "salvor:iqn=iqn.2001-04.com.example:disk1",
		"--property", "salvor:lun=1", "--property", "salvor:chap_user=ann", "--property", "salvor:chap_password=open-sesame", "disk1")
	if volume["status"] != "available" || volume["name"] != "disk1" {
		t.Errorf("%v", volume)
	}
	c.openstack("volume", "set", "--description", "the first", "--property", "color=red", "disk1")
	shown = c.show("volume", "show", "disk1")
	if b, _ := json.Marshal(shown); shown["description"] != "the first" || shown["bootable"] != "true" || !bytes.Contains(b, []byte(`"color":"red"`)) || bytes.Contains(b, []byte("sesame")) {
		t.Errorf("%s", b)
	}
	c.openstack("volume", "delete", "disk1")
	if left := c.openstack("volume", "list", "-f", "json").([]any); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

// TestOpenStackClientWithoutAuthentication: the same variables work where nobody is asked for a password.
func TestOpenStackClientWithoutAuthentication(t *testing.T) {
	c := newCloud(t, false)
	if list := c.openstack("image", "list", "--long", "-f", "json").([]any); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

func (c *cloud) signedIn() *gophercloud.ProviderClient {
	c.t.Helper()
	provider := must.Get(openstack.AuthenticatedClient(c.t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: c.url + "/identity", Username: c.user, Password: c.password, DomainID: "default", TenantName: "lab", AllowReauth: true,
	}))(c.t)
	return provider
}

func TestGophercloudImages(t *testing.T) {
	c := newCloud(t, true)
	provider := c.signedIn()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client, err := openstack.NewImageV2(provider, gophercloud.EndpointOpts{Region: "RegionOne"})
	must(err)
	made, err := images.Create(ctx, client, images.CreateOpts{Name: "cirros", DiskFormat: "raw", ContainerFormat: "bare", MinDisk: 1, Tags: []string{"x"}, Properties: map[string]string{"os_type": "linux"}}).Extract()
	must(err)
	if made.Status != images.ImageStatusQueued || made.Properties["os_type"] != "linux" {
		t.Errorf("%+v", made)
	}
	must(imagedata.Upload(ctx, client, made.ID, strings.NewReader("bytes")).ExtractErr())
	_, err = images.Update(ctx, client, made.ID, images.UpdateOpts{images.ReplaceImageName{NewName: "second"}, images.ReplaceImageTags{NewTags: []string{"y"}}, images.UpdateVisibility{Visibility: images.ImageVisibilityPublic}}).Extract()
	must(err)
	got, err := images.Get(ctx, client, made.ID).Extract()
	must(err)
	if got.Name != "second" || got.SizeBytes != 5 || got.Status != images.ImageStatusActive || got.Visibility != images.ImageVisibilityPublic || got.CreatedAt.IsZero() {
		t.Errorf("%+v", got)
	}
	data, err := imagedata.Download(ctx, client, made.ID).Extract()
	must(err)
	b, err := io.ReadAll(data)
	must(err)
	must(data.Close())
	if string(b) != "bytes" {
		t.Errorf("%q", b)
	}
	for range 3 {
		_, err := images.Create(ctx, client, images.CreateOpts{Name: "more"}).Extract()
		must(err)
	}
	pages, err := images.List(client, images.ListOpts{Limit: 1, Sort: "name:asc"}).AllPages(ctx)
	must(err)
	all, err := images.ExtractImages(pages)
	must(err)
	if len(all) != 4 || all[3].Name != "second" {
		t.Errorf("%d images: %+v", len(all), all)
	}
	info, err := imageimport.Get(ctx, client).Extract()
	must(err)
	if len(info.ImportMethods.Value) != 0 {
		t.Errorf("%+v", info)
	}
	must(images.Delete(ctx, client, made.ID).ExtractErr())
	if err := images.Get(ctx, client, made.ID).Err; !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("a deleted one: %v", err)
	}
}

func TestGophercloudVolumesAndTokens(t *testing.T) {
	c := newCloud(t, false)
	provider := c.signedIn()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client, err := openstack.NewBlockStorageV3(provider, gophercloud.EndpointOpts{Region: "RegionOne"})
	must(err)
	made, err := volumes.Create(ctx, client, volumes.CreateOpts{Size: 2, Name: "v", Metadata: map[string]string{"salvor:portal": "192.0.2.7", "salvor:iqn": "iqn.2001-04.com.example:v"}}, nil).Extract()
	must(err)
	if made.Status != "available" || made.Metadata["salvor:portal"] != "192.0.2.7:3260" || made.CreatedAt.IsZero() || made.TenantID != access.ProjectID("lab") {
		t.Errorf("%+v", made)
	}
	name := "w"
	_, err = volumes.Update(ctx, client, made.ID, volumes.UpdateOpts{Name: &name}).Extract()
	must(err)
	must(volumes.SetBootable(ctx, client, made.ID, volumes.BootableOpts{Bootable: true}).ExtractErr())
	must(volumes.ExtendSize(ctx, client, made.ID, volumes.ExtendSizeOpts{NewSize: 3}).ExtractErr())
	must(volumes.SetImageMetadata(ctx, client, made.ID, volumes.ImageMetadataOpts{Metadata: map[string]string{"os_distro": "debian"}}).ExtractErr())
	got, err := volumes.Get(ctx, client, made.ID).Extract()
	must(err)
	if got.Name != "w" || got.Size != 3 || got.Bootable != "true" || got.VolumeImageMetadata["os_distro"] != "debian" {
		t.Errorf("%+v", got)
	}
	_, err = volumes.Create(ctx, client, volumes.CreateOpts{Size: 2, Name: "x", Metadata: map[string]string{"salvor:portal": "192.0.2.7", "salvor:iqn": "iqn.2001-04.com.example:x"}}, nil).Extract()
	must(err)
	pages, err := volumes.List(client, volumes.ListOpts{Limit: 1}).AllPages(ctx)
	must(err)
	all, err := volumes.ExtractVolumes(pages)
	must(err)
	if len(all) != 2 {
		t.Errorf("%d volumes", len(all))
	}
	_, err = limits.Get(ctx, client).Extract()
	must(err)
	_, err = quotasets.GetUsage(ctx, client, got.TenantID).Extract()
	must(err)
	pages, err = volumetypes.List(client, volumetypes.ListOpts{}).AllPages(ctx)
	must(err)
	if types, err := volumetypes.ExtractVolumeTypes(pages); err != nil || len(types) != 1 || types[0].Name != "iscsi" {
		t.Errorf("%+v, %v", types, err)
	}
	client.Microversion = "3.27"
	pages, err = attachments.List(client, attachments.ListOpts{}).AllPages(ctx)
	must(err)
	if list, err := attachments.ExtractAttachments(pages); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	must(volumes.Delete(ctx, client, made.ID, nil).ExtractErr())

	keystone, err := openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	must(err)
	token := provider.Token()
	if ok, err := tokens.Validate(ctx, keystone, token); err != nil || !ok {
		t.Errorf("validate: %v, %v", ok, err)
	}
	must(tokens.Revoke(ctx, keystone, token).Err)
	if _, err := volumes.Get(ctx, client, all[0].ID).Extract(); err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("a client with a revoked token asks for a new one: %v", err)
	}
	if provider.Token() == token {
		t.Error("the revoked token is still used")
	}
}
