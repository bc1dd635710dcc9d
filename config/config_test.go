package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"salvor/problem"
	"salvor/test/must"
)

func write(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "salvor.conf")
	must.OK(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

func load(t *testing.T, content string) (*Config, []string, error) {
	t.Helper()
	return Load(Source{File: write(t, content), Env: []string{"HOME=/home/jo"}})
}

func mustLoad(t *testing.T, content string) *Config {
	t.Helper()
	c, warnings, err := load(t, content)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		if !strings.Contains(w, "changes nothing") {
			t.Errorf("warning: %s", w)
		}
	}
	return c
}

func TestDefaults(t *testing.T) {
	c, warnings, err := Load(Source{Env: []string{"HOME=/home/jo"}})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.API.HostIP.String() != "127.0.0.1" || c.API.Port != 6385 || c.API.MaxLimit != 1000 || !c.API.RestrictLookup {
		t.Errorf("api: %+v", c.API)
	}
	if c.Conductor.RescueCallbackTimeout != 30*time.Minute || c.Conductor.RescuePasswordHashAlgorithm != "sha256" || !c.Conductor.AutomatedClean {
		t.Errorf("conductor: %+v", c.Conductor)
	}
	if c.Agent.RescuePasswordInLookup || !c.Agent.RequireTLS || c.IPMI.Cipher != 0 || c.IPMI.Client != "native" {
		t.Errorf("agent %+v ipmi %+v", c.Agent, c.IPMI)
	}
	if len(c.Default.EnabledHardwareTypes) != 6 || c.Default.Host == "" || c.Netboot.TFTPRoot != "/usr/lib/ipxe" {
		t.Errorf("default %+v netboot %+v", c.Default, c.Netboot)
	}
	if !filepath.IsAbs(c.Default.StatePath) || c.Database.Connection.Reveal() != "sqlite:"+c.Default.StatePath+"/salvor.db" || c.Secrets.KeyFile != c.Default.StatePath+"/secrets.key" {
		t.Errorf("state %q database %q key %q", c.Default.StatePath, c.Database.Connection.Reveal(), c.Secrets.KeyFile)
	}
}

func TestStateDirectory(t *testing.T) {
	for _, c := range []struct {
		env  []string
		euid int
		want string
	}{
		{nil, 0, "/var/lib/salvor"},
		{[]string{"XDG_STATE_HOME=/s", "HOME=/home/jo"}, 7, "/s/salvor"},
		{[]string{"XDG_STATE_HOME=relative", "HOME=/home/jo"}, 7, "/home/jo/.local/state/salvor"},
		{nil, 7, ""},
	} {
		if got := stateDirectory(c.env, c.euid); got != c.want {
			t.Errorf("stateDirectory(%q, %d) = %q, want %q", c.env, c.euid, got, c.want)
		}
	}
}

func TestFileForms(t *testing.T) {
	c := mustLoad(t, `
# comment
; another
[DEFAULT]
debug : yes
host=rack-1.example
enabled_rescue_interfaces = agent,
    fake
enabled_rescue_interfaces = no-rescue
default_rescue_interface = agent

[conductor]
rescue_callback_timeout = 60
rescue_callback_timeout = 90
rescue_kernel = /k
rescue_ramdisk = http://images.example/rd
[pxe]
kernel_append_params = "console=ttyS0 %(host)s # not a comment"
[database]
connection = postgres://salvor:p%28a%29s@db/salvor?sslmode=require
[conductor]
automated_clean = False
`)
	if !c.Default.Debug || c.Default.Host != "rack-1.example" {
		t.Errorf("%+v", c.Default)
	}
	if got := c.Default.EnabledInterfaces["rescue"]; !reflect.DeepEqual(got, []string{"agent", "fake", "no-rescue"}) {
		t.Errorf("rescue interfaces %q", got)
	}
	if c.Conductor.RescueCallbackTimeout != 90*time.Second || c.Conductor.AutomatedClean {
		t.Errorf("%+v", c.Conductor)
	}
	if c.PXE.KernelAppendParams != "console=ttyS0 %(host)s # not a comment" {
		t.Errorf("%q", c.PXE.KernelAppendParams)
	}
	if got := c.Database.Connection.Reveal(); got != "postgres://salvor:p%28a%29s@db/salvor?sslmode=require" {
		t.Errorf("connection %q", got)
	}
	if got := c.Origin("conductor", "rescue_callback_timeout"); !strings.HasSuffix(got, "salvor.conf:14") {
		t.Errorf("origin %q", got)
	}
	if got := c.Origin("api", "port"); got != "" {
		t.Errorf("origin of a default %q", got)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"mistyped", "[conductor]\nrescue_calback_timeout = 1\n", `salvor.conf:2: [conductor]"rescue_calback_timeout" is not an option; did you mean rescue_callback_timeout?`},
		{"elsewhere", "[conductor]\nmax_limit = 1\n", `[api] has an option of this name`},
		{"far off", "[secrets]\nzzzzzzzzzzzz = 1\n", `this section has: key_command`},
		{"number", "\n[api]\nport = http\n", `salvor.conf:3: [api]port: the value "http" is not allowed; allowed: a whole number from 0 to 65535`},
		{"range", "[api]\nport = 65536\n", `from 0 to 65535`},
		{"negative", "[conductor]\nrescue_callback_timeout = -1\n", `whole seconds, at least 0`},
		{"fraction", "[conductor]\nrescue_callback_timeout = 1.5\n", `whole seconds`},
		{"overflow", "[conductor]\nrescue_callback_timeout = 99999999999999999999\n", `whole seconds`},
		{"boolean", "[DEFAULT]\ndebug = perhaps\n", `allowed: true or false`},
		{"word", "[conductor]\nrescue_password_hash_algorithm = md5\n", `allowed: sha256 or sha512`},
		{"plain password", "[conductor]\nrequire_rescue_password_hashed = false\n", `allowed: only true: salvor keeps no password in clear`},
		{"agent boot", "[agent]\nmanage_agent_boot = false\n", `only true`},
		{"tls without files", "[api]\nenable_ssl_api = true\n", `[api]cert_file and key_file: empty, but enable_ssl_api needs both`},
		{"clients without authorities", "[api]\nenable_ssl_api = true\ncert_file = /c\nkey_file = /k\nclient_certificate_roles = ops:admin\n", `without ca_file no client's certificate is proved`},
		{"client roles", "[api]\nclient_certificate_roles = ops:root\n", `NAME:ROLE separated by commas`},
		{"strategy", "[DEFAULT]\nauth_strategy = ldap\n", `noauth or http_basic or token or keystone`},
		{"address", "[api]\nhost_ip = $my_ip\n", `an IP address`},
		{"listen", "[ramdisk]\nlisten = 6386\n", `ADDRESS:PORT`},
		{"listen name", "[ramdisk]\nlisten = eth0:80\n", `ADDRESS:PORT`},
		{"url", "[service_catalog]\nendpoint_override = ftp://x/\n", `http://host`},
		{"url with user", "[api]\npublic_endpoint = http://u:p@x/\n", `without user`},
		{"import host", "[image]\nimport_hosts = http://x/\n", `HOST or HOST:PORT`},
		{"path", "[secrets]\nkey_file = key\n", `an absolute path`},
		{"kernel", "[conductor]\nrescue_kernel = k\nrescue_ramdisk = /r\n", `file, http or https`},
		{"kernel by architecture", "[conductor]\nrescue_kernel_by_arch = aarch64:k\nrescue_ramdisk_by_arch = aarch64:/r\n", `ARCH:FILE separated by commas`},
		{"an architecture twice", "[conductor]\ndeploy_kernel_by_arch = aarch64:/k,aarch64:/l\ndeploy_ramdisk_by_arch = aarch64:/r\n", `ARCH:FILE separated by commas`},
		{"kernels and ramdisks of other architectures", "[conductor]\nrescue_kernel_by_arch = aarch64:/k,x86_64:/l\nrescue_ramdisk_by_arch = aarch64:http://h:80/r\n", `rescue_kernel_by_arch and rescue_ramdisk_by_arch: name the same architectures`},
		{"half a pair", "[conductor]\nrescue_kernel = /k\n", `rescue_kernel and rescue_ramdisk: set both or neither`},
		{"database", "[database]\nconnection = mysql+pymysql://root:hunter2@db/ironic\n", `[database]connection: the value is not allowed; allowed: sqlite:PATH or postgres://`},
		{"direct connection to a file", "[database]\nconnection = postgres://pool/x\ndirect_connection = sqlite:/x.db\n", `[database]direct_connection: the value is not allowed; allowed: postgres://`},
		{"direct connection without a pooler", "[database]\nconnection = sqlite:/x.db\ndirect_connection = postgres://db/x\n", `[database]direct_connection: it names the PostgreSQL behind a pooler`},
		{"default not enabled", "[DEFAULT]\nenabled_boot_interfaces = ipxe\ndefault_boot_interface = pxe\n", `pxe is not among enabled_boot_interfaces: ipxe`},
		{"open to all", "[api]\nhost_ip = 0.0.0.0\n", `0.0.0.0 is no loopback address`},
		{"roles", "[DEFAULT]\nroles = api,worker\n", `api, conductor and netboot`},
		{"no role", "[DEFAULT]\nroles =\n", `at least one`},
		{"sqlite apart", "[DEFAULT]\nroles = api\n", `SQLite serves one process`},
		{"site with all roles", "[site]\ncentre = https://c\ntoken_file = /t\n[ramdisk]\nlisten = 127.0.0.1:1\n", `has the role netboot alone`},
		{"site without a token", "[DEFAULT]\nroles = netboot\n[site]\ncentre = https://c\n[ramdisk]\nlisten = 127.0.0.1:1\n", `[site]token_file: empty`},
		{"site without a door", "[DEFAULT]\nroles = netboot\n[site]\ncentre = https://c\ntoken_file = /t\n", `[ramdisk]listen: empty`},
		{"site with a database", "[DEFAULT]\nroles = netboot\n[site]\ncentre = https://c\ntoken_file = /t\n[ramdisk]\nlisten = 127.0.0.1:1\n[database]\nconnection = postgres://db/x\n", `a site knows no database`},
		{"cipher", "[ipmi]\ncipher = 1\n", `auto, 2, 3`},
		{"no form", "[api]\nport = 1\nhunter2\n", `salvor.conf:3: the line is neither`},
		{"open section", "[api\nport = 1\n", `not an INI file`},
		{"a word for proxies", "[limits]\ntrusted_proxies = default\n", `[limits]trusted_proxies: the value "default" is not allowed; allowed: networks (ADDRESS/BITS) and addresses`},
		{"a word among proxies", "[limits]\ntrusted_proxies = 192.0.2.1, default\n", `[limits]trusted_proxies`},
		{"binary", "[api]\nport = \x00\n", `not a text file`},
		{"netboot mode", "[netboot]\ninterfaces = br:maybe\n", `br: mode "maybe"`},
		{"netboot no range", "[netboot]\ninterfaces = br:authoritative\n", `needs a range`},
		{"netboot range", "[netboot]\ninterfaces = br:authoritative:10.0.0.9-10.0.0.1\n", `FIRST-LAST`},
		{"netboot prefix", "[netboot]\ninterfaces = br:authoritative:10.0.0.1-10.0.1.1/24\n", `not in one network`},
		{"netboot proxy", "[netboot]\ninterfaces = br:proxy:guests\n", `proxy takes nothing`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := load(t, c.file)
			if !problem.Is(err, problem.Invalid) {
				t.Fatalf("error %v, want Invalid", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error:\n%v\nlacks\n%s", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error shows a secret: %v", err)
			}
		})
	}
}

func TestEveryProblemIsTold(t *testing.T) {
	_, _, err := Load(Source{
		File:  write(t, "[api]\nport = x\nmax_limit = 0\n"),
		Env:   []string{"SALVOR_CONDUCTOR_NODE_HISTORY=maybe", "SALVOR_IPMI_CIFER=3"},
		Flags: []Setting{{"ramdisk", "listen", "nowhere", "--ramdisk-listen"}},
	})
	for _, want := range []string{"[api]port", "[api]max_limit", "variable SALVOR_CONDUCTOR_NODE_HISTORY: [conductor]node_history", "did you mean cipher?", "--ramdisk-listen: [ramdisk]listen"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	_, warnings, err := load(t, `
[DEFAULT]
transport_url = rabbit://u:hunter2@mq
[swift]
region_name = k
[condutor]
node_history = false
[pxe]
tftp_server = 10.0.0.1
[conductor]
[bridge]
rescuing_network = br-a
cleaning_network = br-a
`)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(warnings, "\n")
	for _, want := range []string{"[DEFAULT]transport_url does nothing", "section [swift] is not known", "[condutor] is not known and does nothing; did you mean [conductor]?", "[pxe]tftp_server is not known", "cleaning network br-a too"} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings lack %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "hunter2") {
		t.Errorf("a secret in the warnings: %s", all)
	}
}

func TestLaterSourcesWin(t *testing.T) {
	s := Source{
		File: write(t, "[conductor]\nrescue_callback_timeout = 1\nsoft_power_off_timeout = 2\n[api]\nport = 1\n"),
		Env: []string{"HOME=/h", "SALVOR_CONDUCTOR_RESCUE_CALLBACK_TIMEOUT=10", "SALVOR_API_PORT=10", "SALVOR_URL=http://x", "SALVOR_DEFAULT_DEBUG=1",
			"SALVOR_SERVICE_CATALOG_ENDPOINT_OVERRIDE=http://127.0.0.1:80/"},
		Flags: []Setting{{"api", "port", "100", "--listen"}},
	}
	c, _, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(c.Conductor.RescueCallbackTimeout, c.Conductor.SoftPowerOffTimeout, c.API.Port, c.Default.Debug, c.ServiceCatalog.EndpointOverride)
	if got != "10s 2s 100 true http://127.0.0.1:80\n" {
		t.Errorf("got %s", got)
	}
	if c.Origin("api", "port") != "--listen" || c.Origin("DEFAULT", "debug") != "variable SALVOR_DEFAULT_DEBUG" {
		t.Errorf("origins %q %q", c.Origin("api", "port"), c.Origin("DEFAULT", "debug"))
	}
}

func TestNoauthOffLoopbackMustBeWritten(t *testing.T) {
	if c := mustLoad(t, "[DEFAULT]\nauth_strategy = noauth\n[api]\nhost_ip = 0.0.0.0\n"); c.Default.AuthStrategy != NoAuth {
		t.Error(c.Default.AuthStrategy)
	}
	mustLoad(t, "[DEFAULT]\nauth_strategy = http_basic\n[api]\nhost_ip = ::\n")
	mustLoad(t, "[api]\nhost_ip = ::1\n")
	// A URL that other machines use is as open as an address that they reach.
	for _, option := range []string{"[api]\npublic_endpoint", "[service_catalog]\nendpoint_override"} {
		for url, own := range map[string]bool{"https://metal.example.org/": false, "http://192.0.2.9:6385": false, "http://localhost.example.org": false,
			"http://127.0.0.1:6385": true, "http://[::1]:6385": true, "http://localhost:6385": true} {
			for strategy, open := range map[string]bool{"": own, "auth_strategy = noauth\n": true, "auth_strategy = token\n": true} {
				_, _, err := load(t, "[DEFAULT]\n"+strategy+option+" = "+url+"\n")
				if open != (err == nil) || !open && !strings.Contains(err.Error(), "is reached from other machines") {
					t.Errorf("%q with %s = %s: %v", strategy, option, url, err)
				}
			}
		}
	}
}

func TestNetbootInterfaces(t *testing.T) {
	c := mustLoad(t, "[netboot]\ninterfaces = br-prov:authoritative:10.77.0.50-10.77.0.99, br-a:proxy\n"+
		"  br-b:authoritative:10.0.8.2-10.0.9.9/22:gateway=10.0.8.1:dns=10.0.8.1+9.9.9.9:guests:advertise\n")
	got := fmt.Sprintf("%+v", c.Netboot.Interfaces)
	want := "[{Name:br-prov Mode:authoritative From:10.77.0.50 To:10.77.0.99 Bits:0 Gateway:invalid IP DNS:[] Guests:false Advertise:false} " +
		"{Name:br-a Mode:proxy From:invalid IP To:invalid IP Bits:0 Gateway:invalid IP DNS:[] Guests:false Advertise:false} " +
		"{Name:br-b Mode:authoritative From:10.0.8.2 To:10.0.9.9 Bits:22 Gateway:10.0.8.1 DNS:[10.0.8.1 9.9.9.9] Guests:true Advertise:true}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestSample proves that the sample file is the defaults: read with every comment sign
// before an option taken away, it changes nothing.
func TestSample(t *testing.T) {
	var b bytes.Buffer
	must.OK(t, WriteSample(&b))
	live := regexp.MustCompile(`(?m)^#([a-z_]+ =)`).ReplaceAllString(b.String(), "$1")
	got, want := mustLoad(t, live), mustLoad(t, "")
	if len(got.origin) != len(Options()) {
		t.Errorf("the sample sets %d of %d options", len(got.origin), len(Options()))
	}
	got.origin, want.origin = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for n, line := range strings.Split(b.String(), "\n") {
		if len(line) > 110 {
			t.Errorf("line %d of the sample has %d characters", n+1, len(line))
		}
	}
}

func TestOptionsAreWellFormed(t *testing.T) {
	seen, fields := map[string]bool{}, reflect.TypeFor[Config]()
	for _, o := range Options() {
		key := o.Section + "." + o.Name
		if seen[key] {
			t.Errorf("%s stands twice", key)
		}
		seen[key] = true
		if o.Allowed == "" || len(o.Doc) < 15 {
			t.Errorf("%s is not explained", key)
		}
		if strings.Contains(" "+strings.Join(strings.Fields(ignored[o.Section]), " ")+" ", " "+o.Name+" ") {
			t.Errorf("%s is both an option and ignored", key)
		}
	}
	for section := range ignored {
		if buildSections()[section] == nil {
			t.Errorf("ignored options of [%s], which does not exist", section)
		}
	}
	if fields.NumField() != len(sampleOrder())+1 {
		t.Errorf("Config has %d sections, the table %d", fields.NumField()-1, len(sampleOrder()))
	}
}

func TestUnreadableFile(t *testing.T) {
	if _, _, err := Load(Source{File: "/nonexistent/salvor.conf"}); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "/nonexistent/salvor.conf") {
		t.Error(err)
	}
	if _, _, err := load(t, strings.Repeat("#", maxFile+1)); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("[api]\nport = 1\n"))
	f.Add([]byte("[DEFAULT]\nenabled_rescue_interfaces = a,\n  b\n[conductor]\nx"))
	f.Add([]byte("[netboot]\ninterfaces = a:authoritative:1.2.3.4-1.2.3.5/24:dns=1.1.1.1+:guests"))
	f.Add([]byte("a = \"\"\"x\n[b]\n`c` = '"))
	f.Add([]byte("[database]\nconnection=postgres://a:b@[::1/\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		l := newLoader()
		l.file("f", content)
		c, warnings, err := l.finish([]string{"HOME=/h"})
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", c, err)
		}
		if err != nil && !problem.Is(err, problem.Invalid) {
			t.Fatalf("error without its kind: %v", err)
		}
		for _, w := range warnings {
			if strings.ContainsAny(w, "\n\r") {
				t.Fatalf("warning of several lines: %q", w)
			}
		}
	})
}
