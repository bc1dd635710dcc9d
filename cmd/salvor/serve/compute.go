package serve

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"salvor/api"
	"salvor/api/console"
	"salvor/api/cyclades"
	"salvor/api/host"
	"salvor/api/identity"
	"salvor/api/image"
	"salvor/api/native"
	"salvor/api/nova"
	"salvor/api/volume"
	"salvor/blob"
	"salvor/boot/ramdisk"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/conductor/server"
	"salvor/config"
	"salvor/hypervisor/ganeti"
	"salvor/hypervisor/ironic"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/restored"
	"salvor/secret"
	"salvor/wire/agent"
)

// What servers need: their services, the bytes of images, the faces that show them.

// wireCompute makes the services of servers and opens the room of the images' bytes.
func (p *ControlPlane) wireCompute(ctx context.Context) error {
	c := p.cfg.Compute
	p.services = service.New(p.Store, p.queue(), service.Options{
		RescueTimeout: c.RescueTimeout, SoftOffTimeout: c.ShutdownTimeout, PasswordLength: c.PasswordLength, QuarantineDays: c.QuarantineDays,
		HashAlgorithm: p.cfg.Conductor.RescuePasswordHashAlgorithm, RescueImagePath: p.cfg.Rescue.ImagePath, HeadURL: headURL(p.web()),
		ReleaseNode: p.nodes.UnlockPower, FindFilesWithin: 5 * time.Second, Held: p.Store.Held,
		Incarnation: func() string { return p.Store.Known().ID },
	}, time.Now)
	var err error
	if p.has(config.RoleConductor) {
		if p.storage, err = openStorage(p.cfg.Storage); err != nil {
			return err
		}
	}
	if err := p.warnOfUnshared(ctx); err != nil {
		return err
	}
	if p.blobs, err = blob.Open(imageDirectory(p.cfg)); err != nil || p.cfg.Hosts.Listen == "" || !p.has(config.RoleAPI) {
		return err
	}
	p.authority, err = host.OpenAuthority(ctx, p.Store, time.Now)
	return err
}

// operating is the configuration of operations on servers.
func (p *ControlPlane) operating() server.Config {
	find := func(ctx context.Context, id string) (*compute.Cluster, error) {
		return p.services.Clusters.Get(ctx, id)
	}
	clusters := &ganeti.Clusters{Find: find}
	return server.Config{
		Store: p.Store, Nodes: p.nodes, Log: p.log, Now: p.Store.Now, SoftOffTimeout: p.cfg.Conductor.SoftPowerOffTimeout,
		Compute: p.services, Hypervisors: clusters, Clusters: clusters, RescueImagePath: p.cfg.Rescue.ImagePath, Storage: p.storage,
		BareMetal: &ironic.Endpoints{Find: find, Self: func() string { return p.self }},
		LendImage: p.imageURL, NodeTimeout: p.cfg.Compute.NodeTimeout,
	}
}

// hostsDoor is the listener for VM hosts.
func (p *ControlPlane) hostsDoor() (listenerSpec, error) {
	names, err := host.Names(p.cfg.Hosts.Listen, p.cfg.Hosts.Names, p.cfg.Default.Host)
	if err != nil {
		return listenerSpec{}, err
	}
	return listenerSpec{hostsListener, p.cfg.Hosts.Listen, host.NewServer(p.limits.Guard(api.WhileHeld(p.hostHandler(), p.Store.Held)), p.log), p.authority.TLS(names)}, nil
}

// hostHandler is the API for VM hosts.
func (p *ControlPlane) hostHandler() http.Handler {
	p.hostWitnesses = &hostWitnesses{program: p, former: map[string]bool{}}
	return host.New(host.Config{Hosts: p.services.Hosts, Leases: p.services.Leases, Orders: p.Store, Jobs: p.Store, Authority: p.authority, Images: p.blobs, Log: p.log,
		Witnesses: p.hostWitnesses})
}

// restored decides about a restored database.
func (p *ControlPlane) restored() *restored.Service {
	s := restored.New(p.Store, p.services, time.Now)
	s.Witnesses = p.readWitnesses
	return s
}

// joinToken adds to a join token by what a host knows this control plane; nil: no host can join.
func (p *ControlPlane) joinToken() func(secret.Value) secret.Value {
	if p.authority == nil {
		return nil
	}
	return p.authority.JoinToken
}

// headTimeout bounds the look at a rescue image's URL.
const headTimeout = 10 * time.Second

// headURL tells whether a rescue image can be had where somebody says that it lies.
func headURL(web *http.Client) func(url string) error {
	return func(url string) error { return probeURL(web, url) }
}

func probeURL(web *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), headTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return problem.Invalidf("location %.200q is no URL", url)
	}
	answer, err := web.Do(request)
	if err != nil {
		return problem.Invalidf("location %s cannot be asked: %w", request.URL.Redacted(), stripErrorURL(err))
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return problem.Invalidf("location %s answers HEAD with %d; it must be 200", request.URL.Redacted(), answer.StatusCode)
	}
	return nil
}

// offerRescue makes the ramdisk that was built here the rescue image of servers that have no other. Without it servers are served all
// the same, and a rescue says what it lacks.
func (p *ControlPlane) offerRescue(ctx context.Context) {
	kernel, image := rescueImages(p.cfg)
	if !filepath.IsAbs(kernel) || !filepath.IsAbs(image) {
		return
	}
	built := compute.BuiltIn{Append: "console=ttyS0 " + agent.ChannelWord}
	var err error
	if built.KernelDigest, err = p.keepFile(ctx, kernel); err == nil {
		built.RamdiskDigest, err = p.keepFile(ctx, image)
	}
	if err == nil {
		err = p.services.RescueImages.EnsureBuiltIn(ctx, built)
	}
	if err != nil && ctx.Err() == nil {
		p.log.Error("offer the ramdisk as a rescue image of servers", "kernel", kernel, "ramdisk", image, "error", err)
	}
}

// keepFile puts a file among the images' bytes, unless the manifest beside it says that it is there.
func (p *ControlPlane) keepFile(ctx context.Context, file string) (string, error) {
	if m, err := ramdisk.ReadManifest(filepath.Dir(file)); err == nil {
		digest := "sha256:" + m.Files[filepath.Base(file)].SHA256
		if r, err := p.blobs.Open(ctx, digest); err == nil {
			return digest, r.Close()
		}
	}
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	digest, _, err := p.blobs.Put(ctx, io.Reader(in))
	return digest, err
}

// rescueHolds tells whether a rescue image is made of these bytes.
func (p *ControlPlane) rescueHolds(ctx context.Context, digest string) (bool, error) {
	all, err := p.services.RescueImages.List(ctx, rescue.ImageFilter{}, record.Page{})
	return slices.ContainsFunc(all, func(i *rescue.Image) bool {
		return i.Source.Digest == digest || i.Source.RamdiskDigest == digest
	}), err
}

// faces are the APIs beside Ironic's, by the beginning of their paths.
func (p *ControlPlane) faces(auth api.Authenticator) map[string]http.Handler {
	at, limit := p.cfg.API.PublicEndpoint, p.cfg.API.MaxLimit
	tokens, own := auth.(*identity.Tokens)
	if own {
		auth = tokens.AtHome()
	}
	auth = p.counted(auth)
	faces := map[string]http.Handler{
		"/compute": nova.New(nova.Config{
			Services: p.services, Timeline: p.Store, Policy: p.policy(), Auth: auth, Log: p.log, PublicEndpoint: at, MaxLimit: limit,
			NoPasswords: !p.cfg.Compute.InstancePasswords,
		}),
		"/cyclades": cyclades.New(cyclades.Config{
			Services: p.services, Policy: p.policy(), Auth: auth, Log: p.log, PublicEndpoint: at, NoRescue: !p.cfg.Cyclades.RescueEnabled,
		}),
		"/image": image.New(image.Config{
			Images: p.services.Images, Blobs: p.blobs, Auth: auth, Policy: p.policy(), PublicEndpoint: at, MaxLimit: limit, MaxBytes: int64(p.cfg.Image.MaxGiB) << 30, Log: p.log, Now: time.Now,
			ImportHosts: p.cfg.Image.ImportHosts, Web: p.web(), Held: p.rescueHolds,
		}),
		"/volume": volume.New(volume.Config{Volumes: p.services.Volumes, Policy: p.policy(), Exports: canExportVolumes(p.cfg.Storage), Auth: auth, PublicEndpoint: at, MaxLimit: limit, Log: p.log, Now: time.Now}),
		"/salvor": native.New(native.Config{Services: p.services, Seal: p.rotation, Restored: p.restored(), Nodes: p.nodes, Repairs: metal.NewNodeRepairs(p.nodes), Fleet: p.Store, PowerReadSince: p.nodes.PowerReadSince, Policy: p.policy(), Jobs: p.Store, Conductors: p.Directory, Feed: p.feed, Stalled: p.unchangeable, JoinToken: p.joinToken(), Tokens: p.tokens, Sites: p.sites(), Auth: auth, PublicEndpoint: at, Log: p.log, Now: time.Now}),
	}
	faces["/console"] = console.New()
	faces["/metrics"] = p.guardedMetrics(auth)
	if own {
		faces["/identity"] = identity.New(identity.Config{Tokens: tokens, Auth: p.counted(tokens), PublicEndpoint: at, Region: p.cfg.Compute.Region, Log: p.log, Now: time.Now})
	}
	return faces
}

// findAPIHandler finds the API that a path belongs to; nil: Ironic's.
func findAPIHandler(faces map[string]http.Handler, path string) http.Handler {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return faces["/"+first]
}
