package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
)

// examined gives the findings by check.
func examined(t *testing.T, text string) (map[string][]doctorFinding, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "salvor.conf")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "$DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	failed := runDoctor(t.Context(), config.Source{File: file}, "json", &out)
	var all []doctorFinding
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	by := map[string][]doctorFinding{}
	for _, f := range all {
		if f.Level != levelOK && f.Do == "" {
			t.Errorf("%+v does not say what to do", f)
		}
		by[f.Check] = append(by[f.Check], f)
	}
	return by, failed
}

func level(t *testing.T, by map[string][]doctorFinding, check, want, says string) {
	t.Helper()
	for _, f := range by[check] {
		if f.Level == want && strings.Contains(f.Text, says) {
			return
		}
	}
	t.Errorf("%s is not %s (%q): %+v", check, want, says, by[check])
}

func TestDoctor(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	by, err := examined(t, "[DEFAULT]\nstate_path = $DIR/state\n[api]\nport = "+strings.TrimPrefix(taken.Addr().String(), "127.0.0.1:")+
		"\n[netboot]\ninterfaces = nowhere0:proxy\ntftp_root = $DIR\n[service_catalog]\nendpoint_override = http://127.0.0.1:6385\n[ramdisk]\nlisten = 192.0.2.77:8089\n")
	var status *statusError
	if !errors.As(err, &status) || status.status != statusFailed {
		t.Errorf("%v", err)
	}
	level(t, by, "configuration", levelOK, "understood")
	level(t, by, "state directory", levelWarn, "not there yet")
	level(t, by, "key", levelWarn, "not there yet")
	level(t, by, "database", levelWarn, "")
	level(t, by, "port of the api door", levelFail, "in use")
	level(t, by, "port of the ramdisk door", levelFail, "192.0.2.77")
	level(t, by, "boot network", levelFail, "nowhere0")
	level(t, by, "boot loaders", levelFail, "undionly.kpxe")
	level(t, by, "ramdisk", levelWarn, "there is none")
	level(t, by, "address for ramdisks", levelWarn, "no other reaches it")
	if _, err := examined(t, "[api]\nport = many\n"); err == nil {
		t.Error("a configuration that cannot be read passes")
	}
}

func TestDoctorOfFiles(t *testing.T) {
	d := &doctor{cfg: &config.Config{}}
	d.cfg.Default.StatePath = t.TempDir()
	key := filepath.Join(d.cfg.Default.StatePath, "secrets.key")
	if err := os.WriteFile(key, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d.cfg.Secrets.KeyFile = key
	d.keyFile(t.Context())
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	d.keyFile(t.Context())
	if err := os.Chmod(d.cfg.Default.StatePath, 0o755); err != nil {
		t.Fatal(err)
	}
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

// TestDoctorOfRoles: a process is judged by what it does.
func TestDoctorOfRoles(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	api := "[api]\nport = " + strings.TrimPrefix(taken.Addr().String(), "127.0.0.1:") + "\nenable_ssl_api = true\ncert_file = $DIR/none\nkey_file = $DIR/none\n"
	by, _ := examined(t, "[DEFAULT]\nstate_path = $DIR/state\nroles = conductor\n[database]\nconnection = postgres://nobody@127.0.0.1:1/none\n[netboot]\ninterfaces = nowhere0:proxy\n"+api)
	for _, check := range []string{"port of the api door", "certificate", "boot network", "boot loaders"} {
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
	by, err = examined(t, site)
	if err == nil {
		t.Error("a site without a token passes")
	}
	level(t, by, "centre", levelFail, "holds no site token")
	level(t, by, "centre", levelOK, "answers")
	level(t, by, "port of the ramdisk door", levelOK, "")
	for _, check := range []string{"key", "database", "images", "port of the api door", "certificate"} {
		if len(by[check]) > 0 {
			t.Errorf("a site is judged by %+v", by[check])
		}
	}
	centre.Close()
	by, _ = examined(t, site)
	level(t, by, "centre", levelFail, "does not answer")
}

// TestDoctorAsksDoors: a site's door knows no /healthz, and is well.
func TestDoctorAsksDoors(t *testing.T) {
	door := httptest.NewServer(&siteDoor{client: http.DefaultClient, log: slog.New(slog.DiscardHandler)})
	defer door.Close()
	d := &doctor{cfg: &config.Config{}}
	d.asks(t.Context(), door.Client(), "door", "nothing", door.URL, levelFail)
	if len(d.findings) != 1 || !strings.Contains(d.findings[0].Text, "/v1 answers 503") {
		t.Errorf("%+v", d.findings)
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
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := web.Addr().String()
	bmc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	for _, info := range []metal.Object{{"redfish_address": "http://" + gone}, {"redfish_address": gone}, {"ipmi_address": "127.0.0.1", "ipmi_port": port}, {}} {
		if at, err := reachController(t.Context(), info); err != nil {
			t.Errorf("%v: %s %v", info, at, err)
		}
	}
	web.Close()
	if _, err := reachController(context.Background(), metal.Object{"redfish_address": "http://" + gone}); err == nil {
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
	key, err := secret.NewKey(secret.GenerateKey())
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), url, key, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Do(t.Context(), func(tx job.Tx) error {
		return s.InsertNode(tx, &metal.Node{ID: uuid.NewString(), Name: "m1", Driver: "redfish", ProvisionState: metal.Enroll, DriverInfo: metal.Object{"redfish_address": "http://127.0.0.1:1"}})
	}); err != nil {
		t.Fatal(err)
	}
	d := &doctor{cfg: &config.Config{}}
	d.cfg.Database.Connection = secret.New(url)
	d.controllers(t.Context())
	d.database(t.Context())
	if len(d.findings) != 2 || d.findings[0].Level != levelWarn || !strings.Contains(d.findings[0].Text, "127.0.0.1:1 of node m1") || d.findings[1].Level != levelOK {
		t.Errorf("%+v", d.findings)
	}
}
