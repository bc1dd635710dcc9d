//go:build e2e

package interop

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/test/program"
)

//go:embed suite.py expected
var shipped embed.FS

// suite is a set of tests that another project ships in a Debian package.
type suite struct {
	name, pack, folder string
	// shares is how many processes do the work.
	shares int
	// quick chooses the tests that run in make prove, where time is short; nil: none does.
	quick []string
	// all chooses the tests of a whole run; nil: all of the folder.
	all []string
	// prepare writes the configuration into a directory and gives the environment.
	prepare func(w *cloud, dir string) []string
}

// cloud is a keystone and two salvors: one under the secure rules, one that takes the deprecated ones too.
type cloud struct {
	keystone *keystone
	secure   *program.Server
	lenient  *program.Server
}

var suites = []suite{
	{
		name: "tempest", pack: "ironic-tempest-plugin", folder: "ironic_tempest_plugin/tests/api", shares: 2, prepare: prepareTempest,
		quick: []string{"TestApiDiscovery", "TestConductors", "TestDrivers", "TestVolumeTarget", "TestChassis"},
	},
	{
		name: "tempest-rescue", pack: "tempest", folder: "tempest/api/compute/servers", shares: 1, prepare: prepareRescue,
		all: []string{"test_server_rescue"},
	},
	{
		name: "openstacksdk", pack: "python3-openstacksdk", folder: "openstack/tests/functional/baremetal", shares: 2, prepare: prepareSDK,
		quick: []string{"TestBareMetalConductor", "TestBareMetalDriver", "TestBareMetalChassis", "TestBareMetalVolumetarget.test_volume_target_create"},
	},
	{
		name: "ironicclient", pack: "python3-ironicclient", folder: "ironicclient/tests/functional", shares: 2, prepare: prepareClient,
		quick: []string{"BaremetalConductorTests", "BaremetalChassisTests.test_list"},
	},
}

// ended is how one test ended.
type ended struct {
	Test, Ended, Why string
}

// TestSuites runs the suites against salvor. SALVOR_INTEROP=1 runs them whole and holds the
// counts to the file expected; otherwise a quick part of each runs. SALVOR_INTEROP_ONLY is a
// list of words: only tests whose names hold one of them.
func TestSuites(t *testing.T) {
	w := newCloud(t)
	whole := os.Getenv("SALVOR_INTEROP") != ""
	only := strings.Fields(os.Getenv("SALVOR_INTEROP_ONLY"))
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			chosen := s.quick
			if whole {
				chosen = append(s.all, only...)
			} else if chosen == nil {
				return
			}
			all := s.run(t, w, chosen)
			s.hold(t, all, whole && len(only) == 0)
		})
	}
	for _, log := range []string{w.secure.Log(), w.lenient.Log()} {
		if strings.Contains(log, "salvors-own") || strings.Contains(log, "gAAAAA") {
			t.Error("a password or a token is in a server's log")
		}
		if t.Failed() {
			t.Logf("a server's log:\n%s", log[max(0, len(log)-20_000):])
		}
	}
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	k := startKeystone(t)
	service := k.baremetal()
	const fakes = "[conductor]\nsync_power_state_interval = 0\n"
	w := &cloud{
		keystone: k,
		secure:   program.Serve(t, k.configuration()+fakes),
		lenient:  program.Serve(t, k.configuration()+"[oslo_policy]\nenforce_scope = false\nenforce_new_defaults = false\n"+fakes),
	}
	k.announce(service, "RegionOne", w.secure.URL)
	k.announce(service, "Lenient", w.lenient.URL)
	return w
}

// run runs the tests whose names hold one of the chosen words, all if there is none.
func (s *suite) run(t *testing.T, w *cloud, chosen []string) []ended {
	t.Helper()
	if _, err := os.Stat(filepath.Join("/usr/lib/python3/dist-packages", s.folder)); err != nil {
		t.Fatalf("no tests of %s: install the package %s", s.name, s.pack)
	}
	dir := t.TempDir()
	env := append(os.Environ(), s.prepare(w, dir)...)
	env = append(env, "no_proxy=*", "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore", "HOME="+dir)
	text := must.Get(shipped.ReadFile("suite.py"))(t)
	script := write(t, dir, "suite.py", string(text))
	var mu sync.Mutex
	var all []ended
	var shares sync.WaitGroup
	for share := range s.shares {
		shares.Go(func() {
			got, err := s.share(t.Context(), dir, env, append([]string{script, s.folder, strconv.Itoa(share), strconv.Itoa(s.shares)}, chosen...))
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got...)
		})
	}
	shares.Wait()
	slices.SortFunc(all, func(a, b ended) int { return strings.Compare(a.Test, b.Test) })
	return all
}

func (s *suite) share(ctx context.Context, dir string, env, args []string) ([]ended, error) {
	ctx, cancel := context.WithTimeout(ctx, 25*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, 5*time.Second
	var errs program.Buffer
	cmd.Stderr = &errs
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var all []ended
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one ended
		if json.Unmarshal(lines.Bytes(), &one) == nil && one.Test != "" {
			all = append(all, one)
		}
	}
	if err := cmd.Wait(); err != nil {
		text := errs.String()
		return all, fmt.Errorf("%w\n%s", err, text[max(0, len(text)-4000):])
	}
	return all, nil
}

// hold reports how the tests ended. A test that is skipped or fails needs a line in the file
// expected that says why; a whole run needs as many that pass as it says.
func (s *suite) hold(t *testing.T, all []ended, whole bool) {
	t.Helper()
	text, err := shipped.ReadFile("expected")
	if err != nil {
		t.Fatal(err)
	}
	least, excused := -1, map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		switch {
		case len(words) < 3 || words[0] != s.name:
		case words[1] == "passed":
			if least, err = strconv.Atoi(words[2]); err != nil {
				t.Fatalf("expected: %s: %v", line, err)
			}
		case len(words) == 4:
			excused[words[1]+" "+words[2]] = words[3]
		}
	}
	count := map[string]int{}
	for _, one := range all {
		count[one.Ended]++
		if one.Ended == "passed" {
			continue
		}
		reason := ""
		for name, why := range excused {
			how, name, _ := strings.Cut(name, " ")
			if how == one.Ended && strings.Contains(one.Test, name) {
				reason = why
			}
		}
		if reason == "" {
			t.Errorf("%s: %s: %s\n%s", s.name, one.Ended, one.Test, one.Why)
			continue
		}
		t.Logf("%s: %s: %s: %s", s.name, one.Ended, one.Test, reason)
	}
	t.Logf("%s: %d passed, %d skipped, %d failed", s.name, count["passed"], count["skipped"], count["failed"])
	if count["passed"] == 0 || whole && (least < 0 || count["passed"] < least) {
		t.Errorf("%s: %d tests passed, the file expected asks for %d", s.name, count["passed"], least)
	}
}

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (w *cloud) write(dir, name, text string) string {
	text = strings.NewReplacer("AUTH", w.keystone.URL, "PASSWORD", adminPassword, "DIR", dir).Replace(text)
	return write(w.keystone.t, dir, name, text)
}

// prepareTempest has tempest make its users by itself and ask as an administrator of the system.
func prepareTempest(w *cloud, dir string) []string {
	w.write(dir, "tempest.conf", `[DEFAULT]
log_file = DIR/tempest.log
[oslo_concurrency]
lock_path = DIR/lock
[auth]
use_dynamic_credentials = true
create_isolated_networks = false
admin_username = admin
admin_password = PASSWORD
admin_project_name = admin
admin_domain_name = Default
default_credentials_domain_name = Default
[identity]
auth_version = v3
uri_v3 = AUTH
region = RegionOne
v3_endpoint_type = public
[identity-feature-enabled]
api_v2 = false
api_v3 = true
[service_available]
ironic = true
neutron = false
nova = false
glance = false
cinder = false
swift = false
[enforce_scope]
ironic = true
[baremetal]
driver = fake-hardware
enabled_drivers = fake-hardware
enabled_hardware_types = fake-hardware,ipmi,redfish
min_microversion = 1.1
max_microversion = 1.82
[validation]
run_validation = false
`)
	return []string{"TEMPEST_CONFIG_DIR=" + dir, "TEMPEST_CONFIG=tempest.conf"}
}

// prepareSDK names one cloud for each part that the tests play; only the operator asks for bare metal.
func prepareSDK(w *cloud, dir string) []string {
	text := "clouds:\n"
	for name, scope := range map[string]string{
		"devstack-admin": "system_scope: all", "devstack": "project_name: admin\n      project_domain_id: default", "devstack-alt": "project_name: admin\n      project_domain_id: default",
	} {
		text += "  " + name + ":\n    region_name: RegionOne\n    auth:\n      auth_url: AUTH\n      username: admin\n      password: PASSWORD\n      user_domain_id: default\n      " + scope + "\n"
	}
	file := w.write(dir, "clouds.yaml", text)
	return []string{"OS_CLIENT_CONFIG_FILE=" + file, "OS_CLOUD=devstack-admin", "OS_TEST_TIMEOUT=120"}
}

// prepareClient gives the tests what they look for: a file, and the command below the working directory.
// They know no token of the system, so they ask the salvor that takes the deprecated rules.
func prepareClient(w *cloud, dir string) []string {
	file := w.write(dir, "test.conf", `[functional]
auth_strategy = keystone
os_auth_url = AUTH
os_username = admin
os_password = PASSWORD
os_project_name = admin
os_user_domain_id = default
os_project_domain_id = default
os_identity_api_version = 3
`)
	bin := filepath.Join(dir, ".tox", "functional", "bin")
	must.OK(w.keystone.t, os.MkdirAll(bin, 0o700))
	for _, name := range []string{"openstack", "baremetal"} {
		must.OK(w.keystone.t, os.Symlink("/usr/bin/"+name, filepath.Join(bin, name)))
	}
	return []string{"IRONICCLIENT_TEST_CONFIG=" + file, "OS_REGION_NAME=Lenient"}
}
