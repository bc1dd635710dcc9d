package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	wire "salvor/wire/native"
)

// SiteConfig is what the endpoint of sites stands on.
type SiteConfig struct {
	Sites *metal.Sites
	Nodes SiteNodes
	// Auth is SiteAuth, or what bounds it.
	Auth api.Authenticator
	// Token derives the agent token of the node's present boot.
	Token func(*metal.Node) secret.Value
	// Version names the bytes of a boot file; empty: they cannot be read.
	Version func(path string) string
	// SignedLoaders are the paths of the signed boot loaders for the plan of a node; empty: there are none.
	SignedLoaders func(n *metal.Node) (shim, grub string)
	// Held gives the cause of the hold of the database; nil: it is not held.
	Held func() *record.Held
	// Files serves boot files below metal.FilePrefix, Ramdisk what ramdisks ask of the bare metal API.
	Files, Ramdisk http.Handler
	// RecordProgress hears what sites saw of machines.
	RecordProgress func(nodeID, what string)
	Log            *slog.Logger
}

// SiteNodes are the machines that sites serve.
type SiteNodes interface {
	Node(ctx context.Context, ident string) (*metal.Node, error)
	NodeByMAC(ctx context.Context, mac string) (*metal.Node, error)
	NodeByBootPath(ctx context.Context, path string) (*metal.Node, error)
	VolumePlan(ctx context.Context, n *metal.Node) (metal.VolumePlan, error)
	BootFailed(ctx context.Context, id string, boot int64, why string) error
	RecordBootRefusal(ctx context.Context, id string, boot int64, r metal.BootRefusal) error
}

type siteServer struct{ SiteConfig }

// NewSite makes the endpoint of sites, all below wire.SitePath.
func NewSite(c SiteConfig) api.RouteLister {
	s := &siteServer{c}
	return api.Router{
		Routes: []api.Route{
			{Method: http.MethodGet, Path: wire.SitePlanPath, Do: s.at(s.plan)},
			{Method: http.MethodGet, Path: wire.SitePlansPath, Do: s.at(s.plans)},
			{Method: http.MethodPost, Path: wire.SiteReportsPath, Do: s.at(s.reportContacts)},
			{Method: http.MethodGet, Path: wire.SiteBootPath + "{path}/{name}", Do: s.at(s.file)},
			{Method: http.MethodGet, Path: wire.SiteRamdiskPath, Do: s.at(s.handOn)},
			{Method: http.MethodGet, Path: wire.SiteRamdiskPath + "/v1", Do: s.at(s.handOn)},
			{Method: http.MethodGet, Path: wire.SiteRamdiskPath + "/v1/lookup", Do: s.at(s.handOn)},
			{Method: http.MethodPost, Path: wire.SiteRamdiskPath + "/v1/heartbeat/{node}", Do: s.at(s.handOn)},
			{Method: http.MethodPost, Path: wire.SiteRamdiskPath + "/v1/continue_inspection", Do: s.at(s.handOn)},
		},
		Auth: c.Auth, Fail: api.Faults(c.Log, nil, "error"), Log: c.Log, Machines: true,
	}.Handler()
}

// SiteAuth proves sites by their tokens.
type SiteAuth struct{ Sites *metal.Sites }

// Authenticate is api.Authenticator's. A site may use every endpoint of its own; no other takes its token.
func (a SiteAuth) Authenticate(r *http.Request) (access.Principal, error) {
	site, err := a.site(r)
	if problem.Is(err, problem.Forbidden) {
		err = &api.Error{Status: http.StatusUnauthorized, Text: err.Error(), Header: http.Header{"Www-Authenticate": {"Bearer"}}}
	}
	if err != nil {
		return access.Principal{}, err
	}
	return access.Principal{User: "site:" + site.Name, Role: access.Admin}, nil
}

func (a SiteAuth) site(r *http.Request) (*metal.Site, error) {
	return a.Sites.Known(r.Context(), secret.New(api.TokenText(r)))
}

// at hands an endpoint the site that asks.
func (s *siteServer) at(do func(*api.Call, *metal.Site) error) func(*api.Call) error {
	return func(c *api.Call) error {
		site, err := SiteAuth{s.Sites}.site(c.R)
		if err != nil {
			return err
		}
		c.W.Header().Set("Cache-Control", "no-store")
		return do(c, site)
	}
}

var nothingToBoot = problem.NotFoundf("nothing to boot")

// asked finds the node of a plan; one of another site is not there.
func (s *siteServer) asked(c *api.Call, site *metal.Site, mac, path string) (n *metal.Node, err error) {
	if mac != "" {
		if mac, err = metal.ParseMAC(mac); err != nil {
			return nil, err
		}
		n, err = s.Nodes.NodeByMAC(c.R.Context(), mac)
	} else {
		n, err = s.Nodes.NodeByBootPath(c.R.Context(), path)
	}
	if err == nil && !site.Serves(n) || problem.Is(err, problem.NotFound) {
		return nil, nothingToBoot
	}
	return n, err
}

func (s *siteServer) plan(c *api.Call, site *metal.Site) error {
	n, err := s.asked(c, site, c.Query.Get("mac"), c.Query.Get("path"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, s.view(c.R.Context(), n))
}

// plans gives all plans of the site, unless it has them already.
func (s *siteServer) plans(c *api.Call, site *metal.Site) error {
	var nodes []*metal.Node
	if s.Held() == nil { // a held database gives out no boot plans, and the site drops those that it has
		var err error
		if nodes, err = s.Sites.Planned(c.R.Context(), site); err != nil {
			return err
		}
	}
	out := wire.SitePlans{Group: site.Group, Plans: []wire.SitePlan{}}
	for _, n := range nodes {
		out.Plans = append(out.Plans, s.view(c.R.Context(), n))
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	mark := `"` + hex.EncodeToString(sum[:]) + `"`
	c.W.Header().Set("Etag", mark)
	if c.R.Header.Get("If-None-Match") == mark {
		return c.Empty(http.StatusNotModified)
	}
	return c.JSON(http.StatusOK, json.RawMessage(text))
}

func (s *siteServer) view(ctx context.Context, n *metal.Node) wire.SitePlan {
	p := n.Plan
	out := wire.SitePlan{
		NodeID: n.ID, BootNumber: n.BootNumber, BootMethod: string(p.Method), Path: p.Path, URL: p.URL, MACs: p.MACs, Params: p.Params,
		Kernel: s.source(p.Kernel), Ramdisk: s.source(p.Ramdisk), Image: s.source(p.Image), ISO: s.source(p.ISO), Drive: p.ConfigDrive, CarryToken: p.CarryToken, Persistent: p.Persistent, SecureBoot: p.SecureBoot, Firmware: p.FirmwareMode,
	}
	if p.SecureBoot {
		shim, grub := s.SignedLoaders(n)
		out.Shim, out.GRUB = s.source(shim), s.source(grub)
	}
	if p.CarryToken {
		out.Token = wire.RevealedSecret{Value: s.Token(n)}
	}
	if p.Volumes {
		v, err := s.Nodes.VolumePlan(ctx, n)
		out.Volumes = viewVolumes(v)
		if err != nil {
			out.Volumes.Problem = "the node's volumes cannot be told"
			s.Log.Warn("volumes for a site", "node", n.ID, "error", err)
		}
	}
	return out
}

func (s *siteServer) source(ref string) wire.SiteFile {
	switch {
	case ref == "":
		return wire.SiteFile{}
	case metal.IsURL(ref):
		return wire.SiteFile{URL: ref}
	}
	return wire.SiteFile{Version: s.Version(ref)}
}

func viewVolumes(v metal.VolumePlan) *wire.SiteVolumes {
	out := &wire.SiteVolumes{Initiator: v.Initiator}
	if v.Root != nil {
		root := viewVolume(*v.Root)
		out.Root = &root
	}
	for _, o := range v.Others {
		out.Others = append(out.Others, viewVolume(o))
	}
	return out
}

func viewVolume(v metal.Volume) wire.SiteVolume {
	login := func(l metal.Login) wire.SiteLogin {
		return wire.SiteLogin{Username: l.Username, Password: wire.RevealedSecret{Value: l.Password}}
	}
	out := wire.SiteVolume{TargetID: v.TargetID, BootIndex: v.BootIndex, Type: string(v.Type), Login: login(v.Login), Mutual: login(v.Mutual), WWNs: v.WWNs, LUN: v.LUN}
	for _, p := range v.Paths {
		out.Paths = append(out.Paths, wire.SiteVolumePath(p))
	}
	return out
}

// reportContacts takes what the site saw; of nodes that are not its own it has nothing to say.
func (s *siteServer) reportContacts(c *api.Call, site *metal.Site) error {
	var b wire.SiteReports
	if err := c.ReadInto(&b); err != nil {
		return err
	}
	if len(b.Reports) > 1000 {
		return problem.Invalidf("More than 1000 words.")
	}
	for _, w := range b.Reports {
		n, err := s.Nodes.Node(c.R.Context(), w.NodeID)
		if problem.Is(err, problem.NotFound) || err == nil && (!site.Has(n) || n.BootNumber != w.BootNumber) {
			continue
		}
		switch {
		case err != nil:
		case w.Failed != "":
			err = s.Nodes.BootFailed(c.R.Context(), n.ID, n.BootNumber, truncateLine(w.Failed))
		case w.Refused != "":
			err = s.Nodes.RecordBootRefusal(c.R.Context(), n.ID, n.BootNumber, metal.BootRefusal{File: truncateLine(w.Refused), Why: "at the site " + site.Name + ": " + truncateLine(w.RefusedWhy), Final: w.RefusedFinal})
		case w.Progress != "":
			s.RecordProgress(n.ID, truncateLine(w.Progress))
		}
		if err != nil {
			return err
		}
	}
	return c.Empty(http.StatusNoContent)
}

// truncateLine is one line of bounded length of what a site said.
func truncateLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	return text[:min(len(text), 500)]
}

// file gives the bytes of a boot file that lies here. What holds a node's parameters is made at the site.
func (s *siteServer) file(c *api.Call, site *metal.Site) error {
	name := c.Arg("name")
	if !slices.Contains([]string{metal.BootKernel, metal.BootRamdisk, metal.BootImage, metal.BootShim, metal.BootGRUB, metal.BootISO, metal.BootConfigDrive}, name) {
		return nothingToBoot
	}
	n, err := s.asked(c, site, "", c.Arg("path"))
	if err != nil {
		return err
	}
	if name == metal.BootISO && n.Plan.ISO == "" {
		return nothingToBoot
	}
	inner := c.R.Clone(c.R.Context())
	inner.URL.Path, inner.URL.RawQuery = metal.FilePrefix+n.Plan.Path+"/"+name, ""
	s.Files.ServeHTTP(c.W, inner)
	return nil
}

// handOn lets the endpoint of ramdisks answer, as if the machine itself had come to it; but it knows the site's nodes only.
func (s *siteServer) handOn(c *api.Call, site *metal.Site) error {
	inner := c.R.Clone(metal.WithinGroup(c.R.Context(), site.Group))
	inner.URL.Path = "/" + strings.Trim(strings.TrimPrefix(c.R.URL.Path, wire.SiteRamdiskPath), "/")
	inner.URL.RawPath = ""
	inner.URL.RawQuery = c.Query.Encode()
	inner.Header.Del("Authorization")
	if a, err := netip.ParseAddr(c.R.Header.Get(wire.SiteForHeader)); err == nil {
		inner.RemoteAddr = net.JoinHostPort(a.String(), "0")
	}
	s.Ramdisk.ServeHTTP(c.W, inner)
	return nil
}
