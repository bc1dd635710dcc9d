package netboot

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/native"
)

const (
	siteMAC     = "52:54:00:00:00:07"
	sitePath    = "abcdefgh-ijkl"
	chapSecret  = "chap-secret-of-a-volume"
	agentSecret = "agent-token-of-a-boot"
)

// centre is what a site speaks to.
type centre struct {
	mu      sync.Mutex
	status  int // other than 200: the answer to everything
	plans   []wire.SitePlan
	file    string            // what is told of each boot file
	length  int               // that it is said to have
	files   map[string]string // of these names in place of file
	reports []wire.SiteReport
	mark    string // of all plans
	late    func() // happens once between the reading of all plans and its answer
}

func (c *centre) set(change func(*centre)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *centre) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+metal.SiteTokenMark+"x" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if c.status != 0 {
		w.WriteHeader(c.status)
		return
	}
	switch {
	case r.URL.Path == wire.SitePlansPath:
		w.Header().Set("Etag", c.mark)
		plans := c.plans
		if late := c.late; late != nil {
			c.late = nil
			c.mu.Unlock()
			late()
			c.mu.Lock()
		}
		_ = json.NewEncoder(w).Encode(wire.SitePlans{Group: "oslo", Plans: plans})
	case r.URL.Path == wire.SitePlanPath:
		for _, p := range c.plans {
			if p.Path == r.URL.Query().Get("path") || strings.Contains(strings.Join(p.MACs, " ")+" ", r.URL.Query().Get("mac")+" ") && r.URL.Query().Get("mac") != "" {
				_ = json.NewEncoder(w).Encode(p)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Path == wire.SiteReportsPath:
		var b wire.SiteReports
		_ = json.NewDecoder(r.Body).Decode(&b)
		c.reports = append(c.reports, b.Reports...)
	case strings.HasPrefix(r.URL.Path, wire.SiteBootPath):
		text, length := c.file, c.length
		if own, ok := c.files[path.Base(r.URL.Path)]; ok {
			text, length = own, len(own)
		}
		w.Header().Set("Content-Length", strconv.Itoa(length))
		_, _ = w.Write([]byte(text))
	}
}

func openSite(t *testing.T, dir string, token string, c *centre) *Site {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	s, err := NewSite(SiteConfig{Centre: server.URL, Token: secret.New(token), Client: server.Client(), Dir: dir, Lifetime: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.files.close)
	return s
}

func volumePlan() wire.SitePlan {
	return wire.SitePlan{NodeID: "n1", BootNumber: 3, BootMethod: string(metal.BootIPXE), Path: sitePath, MACs: []string{siteMAC}, CarryToken: true,
		Token: wire.RevealedSecret{Value: secret.New(agentSecret)},
		Volumes: &wire.SiteVolumes{Initiator: "iqn.2026-01.example:n1", Root: &wire.SiteVolume{TargetID: "t1", Type: string(metal.ISCSI),
			Paths: []wire.SiteVolumePath{{Host: "192.0.2.1", Port: 3260, IQN: "iqn.2026-01.example:disk", LUN: 1}},
			Login: wire.SiteLogin{Username: "n1", Password: wire.RevealedSecret{Value: secret.New(chapSecret)}}}}}
}

const goodToken = metal.SiteTokenMark + "x"

// TestSiteKeepsAndForgets: the last known plan is answered without the centre and after a restart, for as long as it counts; its
// secrets are in no file; and whose token is taken no more forgets.
func TestSiteKeepsAndForgets(t *testing.T) {
	dir, c := t.TempDir(), &centre{plans: []wire.SitePlan{volumePlan()}}
	s := openSite(t, dir, goodToken, c)
	s.Sync(t.Context())
	c.set(func(c *centre) { c.status = http.StatusBadGateway })
	for name, s := range map[string]*Site{"in memory": s, "after a restart": openSite(t, dir, goodToken, c)} {
		n, err := s.NodeByMAC(t.Context(), strings.ToUpper(siteMAC))
		if err != nil || n.ID != "n1" || n.Plan.Path != sitePath || s.Token(n).Reveal() != agentSecret {
			t.Fatalf("%s: %+v, %v", name, n, err)
		}
		v, err := s.Volumes(t.Context(), n)
		if err != nil || v.Root.Login.Password.Reveal() != chapSecret || v.Root.Paths[0].Port != 3260 || v.Initiator == "" {
			t.Errorf("%s: volumes %+v, %v", name, v, err)
		}
		if _, err := s.NodeByMAC(t.Context(), "52:54:00:00:00:08"); !problem.Is(err, problem.NotFound) {
			t.Errorf("%s: a machine that is in no operation: %v", name, err)
		}
		if !s.Away() {
			t.Errorf("%s: the centre is not known to be away", name)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, keptName))
	if err != nil || bytes.Contains(text, []byte(chapSecret)) || bytes.Contains(text, []byte(agentSecret)) {
		t.Errorf("the plans on the disk are in clear: %v", err)
	}
	if _, err := openSite(t, dir, goodToken+"y", c).NodeByMAC(t.Context(), siteMAC); !problem.Is(err, problem.Forbidden) {
		t.Errorf("another token opens the plans: %v", err)
	}
	s.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if _, err := s.NodeByMAC(t.Context(), siteMAC); !problem.Is(err, problem.NotFound) {
		t.Errorf("a plan counts for ever: %v", err)
	}
	s.now = time.Now
	c.set(func(c *centre) { c.status = http.StatusUnauthorized })
	s.Sync(t.Context())
	c.set(func(c *centre) { c.status = http.StatusBadGateway })
	s.Sync(t.Context())
	if _, err := openSite(t, dir, goodToken, c).NodeByMAC(t.Context(), siteMAC); !problem.Is(err, problem.NotFound) {
		t.Errorf("what it was trusted with is kept: %v", err)
	}
}

// TestSiteLosesEnded: what the centre has no more is answered no more, whether it is asked or tells all.
func TestSiteLosesEnded(t *testing.T) {
	c := &centre{plans: []wire.SitePlan{volumePlan()}}
	for name, learn := range map[string]func(*Site){
		"asked": func(s *Site) { _, _ = s.NodeByMAC(t.Context(), siteMAC) },
		"told":  func(s *Site) { s.Sync(t.Context()) },
	} {
		c.set(func(c *centre) { c.status, c.plans = 0, []wire.SitePlan{volumePlan()} })
		s := openSite(t, t.TempDir(), goodToken, c)
		s.Sync(t.Context())
		c.set(func(c *centre) { c.plans = nil })
		learn(s)
		c.set(func(c *centre) { c.status = http.StatusBadGateway })
		for _, find := range []func() (*metal.Node, error){
			func() (*metal.Node, error) { return s.NodeByMAC(t.Context(), siteMAC) },
			func() (*metal.Node, error) { return s.NodeByBootPath(t.Context(), sitePath) },
		} {
			if n, err := find(); !problem.Is(err, problem.NotFound) {
				t.Errorf("%s: %+v, %v", name, n, err)
			}
		}
	}
}

// TestSiteBelievesTheNewest: an answer about all plans that comes late brings nothing back that the centre has said otherwise meanwhile.
func TestSiteBelievesTheNewest(t *testing.T) {
	c := &centre{mark: `"1"`}
	again, other := volumePlan(), volumePlan()
	again.BootNumber, again.Path = 4, "abcdefgh-next"
	other.NodeID, other.Path, other.MACs = "n2", "abcdefgh-two", []string{"52:54:00:00:00:09"}
	for name, now := range map[string][]wire.SitePlan{"withdrawn": {other}, "booted again": {again, other}} {
		c.set(func(c *centre) { c.status, c.plans = 0, []wire.SitePlan{volumePlan(), other} })
		s := openSite(t, t.TempDir(), goodToken, c)
		s.Sync(t.Context())
		s.mark = ""
		c.set(func(c *centre) {
			c.late = func() {
				c.set(func(c *centre) { c.plans = now })
				_, _ = s.NodeByMAC(t.Context(), siteMAC)
			}
		})
		s.Sync(t.Context())
		if s.mark != "" {
			t.Errorf("%s: it is not asked for all again", name)
		}
		c.set(func(c *centre) { c.status = http.StatusBadGateway })
		if n, err := s.NodeByBootPath(t.Context(), sitePath); !problem.Is(err, problem.NotFound) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
		n, err := s.NodeByMAC(t.Context(), siteMAC)
		if want := len(now) == 2; want != (err == nil) || want && n.BootNumber != 4 {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
		if _, err := s.NodeByMAC(t.Context(), other.MACs[0]); err != nil {
			t.Errorf("%s: another machine: %v", name, err)
		}
	}
}

// TestSiteFilesAreWhole: a transfer that breaks leaves nothing, and no version leads out of the directory.
func TestSiteFilesAreWhole(t *testing.T) {
	version := strings.Repeat("0a", 32)
	p := wire.SitePlan{NodeID: "n1", BootNumber: 1, BootMethod: string(metal.BootIPXE), Path: sitePath, MACs: []string{siteMAC},
		Kernel: wire.SiteFile{Version: version}, Ramdisk: wire.SiteFile{Version: "../../plans.sealed"}, Image: wire.SiteFile{URL: "http://images.example/x"}}
	c := &centre{plans: []wire.SitePlan{p}, file: "half a ker", length: 20}
	s := openSite(t, t.TempDir(), goodToken, c)
	server := httptest.NewServer(s.Handler(mustServer(t, s).Handler()))
	defer server.Close()
	get := func() (int, string) {
		resp := must.Get(http.Get(server.URL + metal.FilePrefix + sitePath + "/" + metal.BootKernel))(t)
		defer resp.Body.Close()
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		return resp.StatusCode, b.String()
	}
	if status, text := get(); status != http.StatusServiceUnavailable {
		t.Errorf("half a kernel was given: %d %s", status, text)
	}
	if here, err := os.ReadDir(s.Dir()); err != nil || len(here) != 0 {
		t.Errorf("left behind: %v, %v", here, err)
	}
	s.files.mu.Lock()
	s.files.fetches = map[string]*siteFetch{} // it is tried again after some seconds
	s.files.mu.Unlock()
	c.set(func(c *centre) { c.file = "a whole kernel of 20" })
	if status, text := get(); status != http.StatusOK || text != "a whole kernel of 20" {
		t.Errorf("the kernel is %d %q", status, text)
	}
	n, err := s.NodeByMAC(t.Context(), siteMAC)
	if err != nil || n.Plan.Kernel != filepath.Join(s.Dir(), version) || n.Plan.Ramdisk != "" || n.Plan.Image != "http://images.example/x" {
		t.Errorf("the plan is %+v, %v", n, err)
	}
	s.RecordBootProgress(n, "fetching kernel")
	s.sendContacts(t.Context())
	c.set(func(c *centre) {
		if len(c.reports) != 1 || c.reports[0].Progress != "fetching kernel" {
			t.Errorf("the centre was told %+v", c.reports)
		}
	})
}

func mustServer(t *testing.T, s *Site) *Server {
	t.Helper()
	none := filepath.Join(s.Dir(), "none")
	b := must.Get(New(Config{Plans: s, Roots: []string{s.Dir()}, Token: s.Token, SignedLoaders: s.SignedLoaders, Loaders: Loaders{Shim: none, Grub: none}}))(t)
	t.Cleanup(b.images.close)
	return b
}

// TestAGuessCostsNoReading: a question for what does not exist leaves what is known of all plans as it is.
func TestAGuessCostsNoReading(t *testing.T) {
	c := &centre{plans: []wire.SitePlan{volumePlan()}, mark: "\"m1\""}
	s := openSite(t, t.TempDir(), goodToken, c)
	s.Sync(t.Context())
	if s.mark == "" {
		t.Fatal("no mark after a reading")
	}
	if _, err := s.NodeByBootPath(t.Context(), "aaaaaaaa1"); !problem.Is(err, problem.NotFound) {
		t.Fatal(err)
	}
	if s.mark == "" {
		t.Error("a guess has all plans read anew")
	}
	c.set(func(c *centre) { c.plans = nil })
	if _, err := s.NodeByMAC(t.Context(), siteMAC); !problem.Is(err, problem.NotFound) || s.mark != "" {
		t.Errorf("a plan that is gone: %v, mark %q", err, s.mark)
	}
}

// TestASiteTakesTheSignedLoadersOfItsCentre: a site without the packages of the signed boot loaders makes the CD of a machine with Secure
// Boot, which the centre has checked.
func TestASiteTakesTheSignedLoadersOfItsCentre(t *testing.T) {
	needLoaders(t)
	version := func(digit string) wire.SiteFile { return wire.SiteFile{Version: strings.Repeat(digit, 64)} }
	plan := wire.SitePlan{NodeID: "n1", BootNumber: 3, BootMethod: string(metal.BootMedia), Path: sitePath, MACs: []string{siteMAC}, SecureBoot: true,
		Kernel: version("1"), Ramdisk: version("2"), Shim: version("3"), GRUB: version("4")}
	const shim, grub = "stand-in of the centre's shim", "stand-in of the centre's GRUB"
	c := &centre{plans: []wire.SitePlan{plan}, files: map[string]string{
		metal.BootKernel: strings.Repeat("kernel ", 500), metal.BootRamdisk: strings.Repeat("ramdisk", 900), metal.BootShim: shim, metal.BootGRUB: grub,
	}}
	s := openSite(t, t.TempDir(), goodToken, c)
	s.Sync(t.Context())
	server := httptest.NewServer(s.Handler(mustServer(t, s).Handler()))
	defer server.Close()
	resp := must.Get(http.Get(server.URL + metal.FilePrefix + sitePath + "/" + metal.BootISO))(t)
	defer resp.Body.Close()
	whole := must.Get(io.ReadAll(resp.Body))(t)
	for _, text := range []string{shim, grub} {
		if resp.StatusCode != http.StatusOK || !bytes.Contains(whole, []byte(text)) {
			t.Errorf("%d, the CD lacks %q", resp.StatusCode, text)
		}
	}
}
