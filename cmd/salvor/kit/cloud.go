package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"gopkg.in/yaml.v2"

	"salvor/problem"
	"salvor/secret"
)

// MaxCloudsFile bounds clouds.yaml and secure.yaml, in bytes; maxKeystoneAnswer bounds one answer of Keystone.
const (
	MaxCloudsFile     = 1 << 20
	maxKeystoneAnswer = 16 << 20
)

// CloudEntry is one cloud of clouds.yaml: the keys that gophercloud does not read, and those by which the API itself is asked.
type CloudEntry struct {
	AuthType string `yaml:"auth_type"`
	Endpoint string `yaml:"baremetal_endpoint_override"`
	Auth     struct {
		Endpoint string `yaml:"endpoint"`
		Username string `yaml:"username"`
		Password string `yaml:"password"`
		Token    string `yaml:"token"`
		AuthURL  string `yaml:"auth_url"`
	} `yaml:"auth"`
	CA     string `yaml:"cacert"`
	Cert   string `yaml:"cert"`
	Key    string `yaml:"key"`
	Verify *bool  `yaml:"verify"`
}

// cloudFiles are the clouds.yaml that was found and the secure.yaml beside it, if there is one.
type cloudFiles struct {
	path         string
	text, secure []byte
	clouds       map[string]CloudEntry
}

// cloudLocations are the paths where clouds.yaml is looked for; the first that exists counts, as for the openstack command.
func cloudLocations() []string {
	if file := os.Getenv("OS_CLIENT_CONFIG_FILE"); file != "" {
		return []string{file}
	}
	return []string{"clouds.yaml", filepath.Join(FirstOf(os.Getenv("XDG_CONFIG_HOME"), expandHome("~/.config")), "openstack/clouds.yaml"), "/etc/openstack/clouds.yaml"}
}

// expandHome replaces a leading ~/ by the home directory of the user.
func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// readCloudFiles reads the first clouds.yaml that exists; nil: there is none.
func readCloudFiles() (*cloudFiles, error) {
	for _, path := range cloudLocations() {
		text, err := ReadArgument(nil, path, MaxCloudsFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f := &cloudFiles{path: path, text: text}
		secure := filepath.Join(filepath.Dir(path), "secure.yaml")
		if f.secure, err = ReadArgument(nil, secure, MaxCloudsFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if f.clouds, err = decodeClouds(path, text); err != nil {
			return nil, err
		}
		secrets, err := decodeClouds(secure, f.secure)
		if err != nil {
			return nil, err
		}
		for name, s := range secrets {
			if one, ok := f.clouds[name]; ok {
				one.Auth.Username = FirstOf(s.Auth.Username, one.Auth.Username)
				one.Auth.Password = FirstOf(s.Auth.Password, one.Auth.Password)
				one.Auth.Token = FirstOf(s.Auth.Token, one.Auth.Token)
				f.clouds[name] = one
			}
		}
		return f, nil
	}
	return nil, nil
}

func decodeClouds(path string, text []byte) (map[string]CloudEntry, error) {
	var file struct {
		Clouds map[string]CloudEntry `yaml:"clouds"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s is no clouds.yaml: %s", path, StripControlChars(err.Error()))
	}
	return file.Clouds, nil
}

// findCloud reads the cloud of a name. Its error names the clouds that exist and the files that were read.
func findCloud(name string) (*cloudFiles, CloudEntry, error) {
	f, err := readCloudFiles()
	if err != nil {
		return nil, CloudEntry{}, err
	}
	if f == nil {
		return nil, CloudEntry{}, fmt.Errorf("cloud %q: there is no clouds.yaml; looked for %s", name, strings.Join(cloudLocations(), ", "))
	}
	one, ok := f.clouds[name]
	if !ok {
		return nil, CloudEntry{}, fmt.Errorf("cloud %q: unknown; %s has %s", name, f.path, FirstOf(strings.Join(slices.Sorted(maps.Keys(f.clouds)), ", "), "no clouds"))
	}
	return f, one, nil
}

// cloudLogin is what a cloud gives: the API's address, and by what it lets the user in.
type cloudLogin struct {
	endpoint, username string
	password, token    secret.Value
}

// logIn finds the API of a cloud and the credentials for it, and asks Keystone for a token where the cloud says so.
func (f *cloudFiles) logIn(ctx context.Context, name string, transport http.RoundTripper, timeout time.Duration) (cloudLogin, error) {
	one := f.clouds[name]
	direct := cloudLogin{endpoint: FirstOf(one.Endpoint, one.Auth.Endpoint)}
	switch one.AuthType {
	case "http_basic":
		direct.username, direct.password = one.Auth.Username, secret.New(one.Auth.Password)
	case "admin_token":
		direct.token = secret.New(one.Auth.Token)
	case "none":
	default:
		return f.askKeystone(ctx, name, transport, timeout)
	}
	if direct.endpoint == "" {
		return direct, WithStatus(StatusUsage, fmt.Errorf("cloud %q of %s: auth_type %s needs baremetal_endpoint_override, or endpoint below auth", name, f.path, one.AuthType))
	}
	return direct, nil
}

// askKeystone gives a token for the cloud, and the Bare Metal API of its catalog.
func (f *cloudFiles) askKeystone(ctx context.Context, name string, transport http.RoundTripper, timeout time.Duration) (cloudLogin, error) {
	one := f.clouds[name]
	if one.Auth.AuthURL == "" {
		return cloudLogin{}, WithStatus(StatusUsage, fmt.Errorf("cloud %q of %s: it has no auth_url below auth; auth_type none, http_basic or admin_token needs none", name, f.path))
	}
	options := []clouds.ParseOption{clouds.WithCloudName(name), clouds.WithCloudsYAML(bytes.NewReader(f.text))}
	if f.secure != nil {
		options = append(options, clouds.WithSecureYAML(bytes.NewReader(f.secure)))
	}
	auth, where, _, err := clouds.Parse(options...)
	if err != nil {
		return cloudLogin{}, WithStatus(StatusUsage, fmt.Errorf("cloud %q of %s: %w", name, f.path, err))
	}
	p, err := openstack.NewClient(auth.IdentityEndpoint)
	if err != nil {
		return cloudLogin{}, WithStatus(StatusUsage, fmt.Errorf("cloud %q of %s: auth_url: %w", name, f.path, err))
	}
	p.HTTPClient = http.Client{Transport: boundedTransport{transport}, Timeout: timeout}
	if err := openstack.Authenticate(ctx, p, auth); err != nil {
		if gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) {
			return cloudLogin{}, problem.Forbiddenf("cloud %q: Keystone at %s refuses its credentials: check them in %s", name, auth.IdentityEndpoint, f.path)
		}
		return cloudLogin{}, problem.Unavailablef("cloud %q: log in at %s: %s", name, auth.IdentityEndpoint, StripControlChars(err.Error()))
	}
	out := cloudLogin{endpoint: one.Endpoint, token: secret.New(p.Token())}
	if out.endpoint == "" {
		where.ApplyDefaults("baremetal")
		if out.endpoint, err = p.EndpointLocator(where); err != nil {
			return cloudLogin{}, problem.NotFoundf("cloud %q: the catalog of Keystone has no service baremetal: set baremetal_endpoint_override in %s", name, f.path)
		}
	}
	return out, nil
}

// boundedTransport cuts answers that are too long off.
type boundedTransport struct{ inner http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.inner.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxKeystoneAnswer), answer.Body}
	}
	return answer, err
}
