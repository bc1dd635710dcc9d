package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/config"
	"salvor/job"
	"salvor/metal"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// examined gives the findings by check.
func examined(t *testing.T, text string) map[string][]Finding {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "salvor.conf")
	must.OK(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "$DIR", dir)), 0o600))
	by := map[string][]Finding{}
	for _, f := range Examine(t.Context(), config.Source{File: file}) {
		if f.Level != LevelOK && f.Do == "" {
			t.Errorf("%+v does not say what to do", f)
		}
		by[f.Check] = append(by[f.Check], f)
	}
	return by
}

func level(t *testing.T, by map[string][]Finding, check, want, says string) {
	t.Helper()
	for _, f := range by[check] {
		if f.Level == want && strings.Contains(f.Text, says) {
			return
		}
	}
	t.Errorf("%s is not %s (%q): %+v", check, want, says, by[check])
}

func TestDoctor(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	by := examined(t, "[DEFAULT]\nstate_path = $DIR/state\n[api]\nport = "+strings.TrimPrefix(taken.Addr().String(), "127.0.0.1:")+
		"\n[netboot]\ninterfaces = nowhere0:proxy\ntftp_root = $DIR\n[service_catalog]\nendpoint_override = http://127.0.0.1:6385\n[ramdisk]\nlisten = 192.0.2.77:8089\n")
	level(t, by, "configuration", LevelOK, "understood")
	level(t, by, "state directory", LevelWarn, "not there yet")
	level(t, by, "key", LevelWarn, "not there yet")
	level(t, by, "database", LevelWarn, "")
	level(t, by, "port of the api listener", LevelFail, "in use")
	level(t, by, "port of the ramdisk listener", LevelFail, "192.0.2.77")
	level(t, by, "boot network", LevelFail, "nowhere0")
	level(t, by, "boot loaders", LevelFail, "undionly.kpxe")
	level(t, by, "ramdisk", LevelWarn, "there is none")
	level(t, by, "address for ramdisks", LevelWarn, "no other reaches it")
	level(t, examined(t, "[api]\nport = many\n"), "configuration", LevelFail, "many")
}

func TestDoctorOfFiles(t *testing.T) {
	d := &doctor{cfg: &config.Config{}}
	d.cfg.Default.StatePath = t.TempDir()
	key := filepath.Join(d.cfg.Default.StatePath, "secrets.key")
	must.OK(t, os.WriteFile(key, nil, 0o644))
	d.cfg.Secrets.KeyFile = key
	d.keyFile(t.Context())
	must.OK(t, os.Chmod(key, 0o600))
	d.keyFile(t.Context())
	must.OK(t, os.Chmod(d.cfg.Default.StatePath, 0o755))
	d.stateDirectory(t.Context())
	// A database that lies elsewhere, and has lost its key.
	d.cfg.Secrets.KeyFile += ".lost"
	d.cfg.Database.Connection = secret.New("sqlite:" + key)
	d.keyFile(t.Context())
	var got []string
	for _, f := range d.findings {
		got = append(got, f.Level)
	}
	if strings.Join(got, " ") != "fail ok warn fail" {
		t.Errorf("%+v", d.findings)
	}
}

// TestDoctorOfALinkedDatabase: a SQLite file with a second name is named, with what to do, before salvor serve refuses it.
func TestDoctorOfALinkedDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "salvor.db")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	must.OK(t, os.Link(file, file+".other"))
	d := &doctor{cfg: &config.Config{}}
	d.cfg.Database.Connection = secret.New("sqlite:" + file)
	d.database(t.Context())
	if len(d.findings) != 1 || d.findings[0].Level != LevelFail || !strings.Contains(d.findings[0].Text, "2 names") || !strings.Contains(d.findings[0].Text, "-samefile "+file) {
		t.Errorf("a database file with two names: %+v, want one failure that says so and how to find the names", d.findings)
	}
}

// TestDoctorOfRoles: a process is judged by what it does.
func TestDoctorOfRoles(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	api := "[api]\nport = " + strings.TrimPrefix(taken.Addr().String(), "127.0.0.1:") + "\nenable_ssl_api = true\ncert_file = $DIR/none\nkey_file = $DIR/none\n"
	by := examined(t, "[DEFAULT]\nstate_path = $DIR/state\nroles = conductor\n[database]\nconnection = postgres://nobody@127.0.0.1:1/none\n[netboot]\ninterfaces = nowhere0:proxy\n"+api)
	for _, check := range []string{"port of the api listener", "certificate", "boot network", "boot loaders"} {
		if len(by[check]) > 0 {
			t.Errorf("a conductor is judged by %+v", by[check])
		}
	}
	centre := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1" || r.Header.Get("Authorization") != "" {
			panic(http.ErrAbortHandler)
		}
	}))
	site := "[DEFAULT]\nstate_path = $DIR/state\nroles = netboot\n[ramdisk]\nlisten = 127.0.0.1:0\n[site]\ncentre = " + centre.URL + "\ntoken_file = $DIR/salvor.conf\n" + api
	by = examined(t, site)
	level(t, by, "centre", LevelFail, "holds no site token")
	level(t, by, "centre", LevelOK, "answers")
	level(t, by, "port of the ramdisk listener", LevelOK, "")
	for _, check := range []string{"key", "database", "images", "port of the api listener", "certificate"} {
		if len(by[check]) > 0 {
			t.Errorf("a site is judged by %+v", by[check])
		}
	}
	centre.Close()
	by = examined(t, site)
	level(t, by, "centre", LevelFail, "does not answer")
}

// TestDoctorAsksDoors: a site's door knows no /healthz, and is well.
func TestDoctorAsksDoors(t *testing.T) {
	door := httptest.NewServer(&siteDoor{client: http.DefaultClient, log: slog.New(slog.DiscardHandler)})
	defer door.Close()
	d := &doctor{cfg: &config.Config{}}
	d.asks(t.Context(), door.Client(), "door", "nothing", door.URL, LevelFail)
	if len(d.findings) != 1 || !strings.Contains(d.findings[0].Text, "/v1 answers 503") {
		t.Errorf("%+v", d.findings)
	}
}

// TestDoctorOfServices: Keystone and a service are asked with the credentials of the section, and no section is asked that names nothing.
func TestDoctorOfServices(t *testing.T) {
	status := http.StatusOK
	neutron := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer neutron.Close()
	conf := "[neutron]\nendpoint_override = " + neutron.URL + "\n[glance]\nauth_url = " + neutron.URL + "/v3\nusername = salvor\npassword = canary\n[nova]\nendpoint_override = " + neutron.URL + "\n"
	by := examined(t, conf)
	level(t, by, "neutron", LevelOK, "Neutron answers")
	level(t, by, "nova", LevelOK, "Nova answers")
	level(t, by, "glance", LevelFail, "log in to Keystone for Glance")
	status = http.StatusBadGateway
	level(t, examined(t, conf), "neutron", LevelFail, "Neutron answers 502")
	if by := examined(t, "[neutron]\ncleaning_network = c\n"); len(by["neutron"]) > 0 || len(by["glance"]) > 0 {
		t.Errorf("sections that name no service: %+v", by)
	}
}

func TestDoctorOfNetworks(t *testing.T) {
	prefix := netip.MustParsePrefix("10.1.0.1/24")
	for want, tt := range map[string]struct {
		has interfaceState
		i   config.BootInterface
	}{
		"is down":    {interfaceState{}, config.BootInterface{Mode: config.Proxy}},
		"no IPv4":    {interfaceState{up: true}, config.BootInterface{Mode: config.Proxy}},
		"is up":      {interfaceState{true, []netip.Prefix{prefix}}, config.BootInterface{Mode: config.Authoritative, From: netip.MustParseAddr("10.1.0.10"), To: netip.MustParseAddr("10.1.0.20")}},
		"outside of": {interfaceState{true, []netip.Prefix{prefix}}, config.BootInterface{Mode: config.Authoritative, From: netip.MustParseAddr("10.2.0.10"), To: netip.MustParseAddr("10.2.0.20")}},
	} {
		d := &doctor{cfg: &config.Config{}, addresses: func(string) (interfaceState, error) { return tt.has, nil }}
		d.bootInterface(tt.i)
		if len(d.findings) != 1 || !strings.Contains(d.findings[0].Text, want) {
			t.Errorf("%s: %+v", want, d.findings)
		}
	}
}

// TestReachController: something listens, nothing does, and a controller answers a ping.
func TestReachController(t *testing.T) {
	web := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone := web.Addr().String()
	bmc := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer bmc.Close()
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := bmc.ReadFrom(b)
			if err != nil {
				return
			}
			if n == 12 && b[8] == 0x80 {
				_, _ = bmc.WriteTo([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x40, 0, 0, 0x10}, from)
			}
		}
	}()
	_, port, _ := net.SplitHostPort(bmc.LocalAddr().String())
	host, webPort, _ := net.SplitHostPort(gone)
	ilo := metal.Object{"ilo_address": host, "client_port": webPort}
	if at, err := reachController(t.Context(), &metal.Node{Driver: "ilo", DriverInfo: ilo}); err != nil || at != gone {
		t.Errorf("ilo: %s %v", at, err)
	}
	for _, info := range []metal.Object{{"redfish_address": "http://" + gone}, {"redfish_address": gone}, {"ipmi_address": "127.0.0.1", "ipmi_port": port}, {}} {
		if at, err := reachController(t.Context(), &metal.Node{Driver: "redfish", DriverInfo: info}); err != nil {
			t.Errorf("%v: %s %v", info, at, err)
		}
	}
	web.Close()
	if _, err := reachController(context.Background(), &metal.Node{DriverInfo: metal.Object{"redfish_address": "http://" + gone}}); err == nil {
		t.Error("nothing listens, and it is there")
	}
	for address, want := range map[string]string{"bmc1": "bmc1:443", "http://bmc1": "bmc1:80", "https://bmc1:8443/x": "bmc1:8443", "[fe80::1]": "[fe80::1]:443"} {
		if got := webAddress(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestDoctorSamplesNodes: the nodes of a database that is being served are found.
func TestDoctorSamplesNodes(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "s.db")
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	s := must.Get(store.Open(t.Context(), url, key, store.Options{NoSync: true}))(t)
	defer s.Close()
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		return s.InsertNode(tx, &metal.Node{ID: uuid.NewString(), Name: "m1", Driver: "redfish", ProvisionState: metal.Enroll, DriverInfo: metal.Object{"redfish_address": "http://127.0.0.1:1"}})
	}))
	d := &doctor{cfg: &config.Config{}}
	d.cfg.Database.Connection = secret.New(url)
	d.controllers(t.Context())
	d.database(t.Context())
	if len(d.findings) != 2 || d.findings[0].Level != LevelWarn || !strings.Contains(d.findings[0].Text, "127.0.0.1:1 of node m1") || d.findings[1].Level != LevelOK {
		t.Errorf("%+v", d.findings)
	}
}
