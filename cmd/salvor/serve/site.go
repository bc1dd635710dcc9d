package serve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"salvor/api"
	"salvor/api/ironic"
	"salvor/api/native"
	"salvor/boot/netboot"
	"salvor/config"
	"salvor/fetch"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/agent"
	wire "salvor/wire/native"
)

const (
	// handTimeout bounds a ramdisk's request that is handed on, maxHanded its body and its answer in bytes.
	handTimeout = 60 * time.Second
	maxHanded   = 16 << 20
)

// serveSite is salvor serve for a site.
func serveSite(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	token, err := readSiteToken(cfg.Site.TokenFile)
	if err != nil {
		return err
	}
	state, err := openStateDir(cfg.Default.StatePath)
	if err != nil {
		return err
	}
	defer state.Close()
	s, err := newSiteDoor(cfg, state.path, token, log)
	if err != nil {
		return err
	}
	wants := []listenerSpec{{"ramdisk", cfg.Ramdisk.Listen, api.NewServer(newLimits(cfg.Limits).Guard(s), log), nil}}
	if at := cfg.Health.Listen; at != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /healthz", s.health)
		wants = append(wants, listenerSpec{"health", at, api.NewServer(mux, log), nil})
	}
	wants[0].server.MaxHeaderBytes = api.StrangerHeaders
	doors, err := openDoors(wants, newConnections(cfg.Limits, log))
	if err != nil {
		return err
	}
	return runAll(ctx, log, cfg, s.liveness, []backgroundTask{{"plans", s.site.Run}, {"boot services", s.boot.Run}}, doors, func() startMessage { return s.startMessage(doors) })
}

func readSiteToken(path string) (secret.Value, error) {
	info, err := os.Stat(path)
	if err != nil {
		return secret.Value{}, problem.Invalidf("[site]token_file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return secret.Value{}, problem.Invalidf("[site]token_file %s can be read by others: chmod 600 it", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return secret.Value{}, problem.Invalidf("[site]token_file: %w", err)
	}
	token := secret.New(strings.TrimSpace(string(b)))
	if !strings.HasPrefix(token.Reveal(), metal.SiteTokenMark) || strings.ContainsAny(token.Reveal(), " \t\r\n") {
		return secret.Value{}, problem.Invalidf("[site]token_file %s holds no site token: salvor site create prints one", path)
	}
	return token, nil
}

// siteDoor is what machines of a site reach: their boot files, and a ramdisk's words, handed on to the centre.
type siteDoor struct {
	cfg    config.Site
	token  secret.Value
	client *http.Client
	site   *netboot.Site
	boot   *netboot.Server
	files  http.Handler
	log    *slog.Logger
}

func newSiteDoor(cfg *config.Config, dir string, token secret.Value, log *slog.Logger) (*siteDoor, error) {
	s := &siteDoor{cfg: cfg.Site, token: token, log: log}
	s.cfg.Centre = strings.TrimRight(s.cfg.Centre, "/")
	var err error
	if s.client, err = centreClient(s.cfg); err != nil {
		return nil, err
	}
	s.site, err = netboot.NewSite(netboot.SiteConfig{
		Centre: s.cfg.Centre, Token: token, Client: s.client, Dir: filepath.Join(dir, "site"), Lifetime: s.cfg.PlanLifetime, Log: log,
	})
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(cfg.Ramdisk.Listen)
	if err != nil {
		return nil, problem.Invalidf("[ramdisk]listen: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, problem.Invalidf("[ramdisk]listen: %w", err)
	}
	c := netboot.Config{
		Plans: s.site, Roots: []string{s.site.Dir()}, TFTPDir: cfg.Netboot.TFTPRoot, HTTPPort: number, CacheDir: filepath.Join(dir, cacheFolder), Client: fetch.Client(guardOf(cfg, cfg.Fetch.Networks)), Log: log,
		Token: s.site.Token, RecordProgress: s.site.RecordBootProgress, Volumes: s.site.Volumes, ConfigDrive: s.site.ConfigDrive, Failed: s.site.Failed, Refused: s.site.Refused, SignedLoaders: s.site.SignedLoaders,
	}
	for _, i := range cfg.Netboot.Interfaces {
		c.Interfaces = append(c.Interfaces, bootInterface(i, cfg.Netboot.Lease))
	}
	if s.boot, err = netboot.New(c); err != nil {
		return nil, err
	}
	s.files = admitByPath(s.site.Handler(s.boot.Handler()))
	return s, nil
}

// centreClient speaks to the centre and to nobody else: it follows no redirect.
func centreClient(c config.Site) (*http.Client, error) {
	at, err := url.Parse(c.Centre)
	if err != nil {
		return nil, problem.Invalidf("[site]centre: %w", err)
	}
	if at.Scheme != "https" && !isLoopback(at.Hostname()) {
		return nil, problem.Invalidf("[site]centre: %s: the site token and what it opens would go over the network in clear; use https", at.Redacted())
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout, t.MaxIdleConnsPerHost, t.DisableCompression = handTimeout, 16, true
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, problem.Invalidf("[site]ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, problem.Invalidf("[site]ca_file %s holds no certificate", c.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// ServeHTTP answers machines. For what no machine asks there is silence.
func (s *siteDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	get, post := r.Method == http.MethodGet || r.Method == http.MethodHead, r.Method == http.MethodPost
	switch {
	case strings.HasPrefix(path, metal.FilePrefix):
		s.files.ServeHTTP(w, r)
	case get && strings.HasPrefix(path, lendPrefix) && !strings.Contains(path, "/."):
		admitByPath(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handOn(w, r, path, nil, lendWithin) })).ServeHTTP(w, r)
	case get && (path == "/" || path == "/v1" || path == "/v1/" || path == "/v1/lookup"), post && path == "/v1/continue_inspection":
		s.admitted(w, r, "")
	case post && isHeartbeatPath(path):
		s.admitted(w, r, path) // whose token was right is heard while its neighbours are not
	default:
		panic(http.ErrAbortHandler)
	}
}

// isHeartbeatPath tells the path of a heartbeat: it goes on with our token, so it must lead nowhere else.
func isHeartbeatPath(path string) bool {
	node, ok := strings.CutPrefix(path, "/v1/heartbeat/")
	return ok && node != "" && !strings.ContainsAny(node, "/\\") && strings.Trim(node, ".") != ""
}

// admitted hands on what a ramdisk asks, unless it was refused too often. The centre knows us, and counts no refusals of ours.
func (s *siteDoor) admitted(w http.ResponseWriter, r *http.Request, proof string) {
	if err := api.Admit(r, proof); err != nil {
		api.Faults(s.log, nil, "error")(w, r, err)
		return
	}
	s.handOn(w, r, wire.SiteRamdiskPath+r.URL.Path, &s.token, handTimeout)
}

// askedHeaders go with a request to the centre, answeredHeaders come back with its answer.
var (
	askedHeaders    = []string{"Accept", "Content-Type", "Range", "X-Openstack-Ironic-Api-Version", agent.TokenHeader}
	answeredHeaders = []string{"Content-Type", "X-Openstack-Ironic-Api-Version", "X-Openstack-Ironic-Api-Minimum-Version", "X-Openstack-Ironic-Api-Maximum-Version",
		"Openstack-Request-Id", "Content-Length", "Content-Range", "Accept-Ranges", "Cache-Control", "Retry-After", "Vary"}
)

// handOn lets the centre answer. While it is away the machine is told to come again.
func (s *siteDoor) handOn(w http.ResponseWriter, r *http.Request, path string, token *secret.Value, within time.Duration) {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	target := s.cfg.Centre + (&url.URL{Path: path}).EscapedPath()
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	out, err := http.NewRequestWithContext(ctx, r.Method, target, http.MaxBytesReader(w, r.Body, maxHanded))
	if err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
		return
	}
	for _, name := range askedHeaders {
		if v := r.Header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	out.ContentLength = r.ContentLength
	if token != nil {
		out.Header.Set("Authorization", "Bearer "+token.Reveal())
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			out.Header.Set(wire.SiteForHeader, host)
		}
	}
	resp, err := s.client.Do(out)
	if err == nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode >= 300 && resp.StatusCode < 400) {
		err = fmt.Errorf("it answers %d", resp.StatusCode)
		resp.Body.Close()
	}
	if err != nil {
		s.log.Warn("the centre did not take a ramdisk's request", "method", r.Method, "path", strings.SplitAfterN(r.URL.Path, "/", 4)[1], "error", err)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "the centre does not answer", http.StatusServiceUnavailable)
		return
	}
	defer resp.Body.Close()
	for _, name := range answeredHeaders {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	if token == nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within))
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

func (s *siteDoor) health(w http.ResponseWriter, _ *http.Request) {
	if s.site.Away() {
		fmt.Fprintln(w, "ok; the centre does not answer, what it said last counts")
		return
	}
	fmt.Fprintln(w, "ok")
}

// sitesDoor is what sites speak to.
func (p *ControlPlane) sitesDoor(ramdisks ironic.Config) http.Handler {
	sites := p.sites()
	return native.NewSite(native.SiteConfig{
		Sites: sites, Auth: p.limits.Auth(native.SiteAuth{Sites: sites}, true), Nodes: siteNodes{p.nodes, bootPlans{p.Store}},
		Token: func(n *metal.Node) secret.Value { return n.AgentToken(p.key) },
		Held:  p.Store.Held, Version: fileVersion, SignedLoaders: p.boot.SignedLoaders, Files: p.boot.Handler(), Ramdisk: ironic.NewRamdisk(ramdisks), RecordProgress: p.nodes.RecordBootProgress, Log: p.log,
	})
}

func (p *ControlPlane) sites() *metal.Sites { return metal.NewSites(p.Store, p.Store, time.Now) }

// siteNodes are the machines that sites serve.
type siteNodes struct {
	*metal.Nodes
	netboot.Plans
}

// fileVersion names the bytes of a file, unless they were changed in place within the same nanosecond. Those of an image of Glance never
// change.
func fileVersion(path string) string {
	if metal.GlanceID(path) != "" {
		sum := sha256.Sum256([]byte(path))
		return hex.EncodeToString(sum[:])
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", path, info.Size(), info.ModTime().UnixNano()))
	return hex.EncodeToString(sum[:])
}
