package netboot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/loose"
	wire "salvor/wire/native"
)

const (
	askTimeout  = 2 * time.Second  // a machine asks again after about that long
	syncEvery   = 5 * time.Second  // all plans are read
	syncTimeout = 20 * time.Second // of one reading
	reportEvery = time.Second
	maxWords    = 1000
	// freshFor is how long a boot's plan counts without asking: a BMC reads its virtual CD in thousands of requests.
	freshFor  = 3 * time.Second
	maxAnswer = 64 << 20 // bytes of all plans
	maxValues = 2 << 20  // of all plans
)

// SiteConfig is what a Site is made of.
type SiteConfig struct {
	// Centre is the URL of an API process, without a trailing slash.
	Centre string
	Token  secret.Value
	// Client speaks to it; it must not follow redirects.
	Client *http.Client
	// Dir is where the last known plans and the centre's boot files are kept.
	Dir string
	// Lifetime is how long a plan counts that the centre confirmed last.
	Lifetime time.Duration
	Log      *slog.Logger
}

// Site is a source of boot plans that has no database: it asks the centre, and while that is away answers
// what it was told last. A machine of which it knows nothing has nothing to boot.
type Site struct {
	cfg   SiteConfig
	files *siteFiles
	now   func() time.Time

	mu      sync.Mutex
	cached  cachedPlans
	mark    string // of all plans, as the centre gave it
	away    bool   // the last word to the centre was not answered
	reports []wire.SiteReport
	saved   time.Time
	// learned are the nodes of which the centre said something since the reading of all plans began that is under way; nil: none is.
	learned map[string]bool
}

// cachedPlans are the last known plans, by node.
type cachedPlans struct {
	Plans map[string]cachedPlan `json:"plans"`
}

// cachedPlan is a plan with when the centre confirmed it last. The wall clock counts: it has to last over a restart.
type cachedPlan struct {
	wire.SitePlan
	ConfirmedAt time.Time `json:"confirmed_at"`
}

// NewSite opens the directory and reads the plans that were known last.
func NewSite(c SiteConfig) (*Site, error) {
	s := &Site{cfg: c, now: time.Now, cached: cachedPlans{map[string]cachedPlan{}}}
	var err error
	if s.files, err = openSiteFiles(c.Dir, s.open); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		c.Log.Warn("the last known boot plans cannot be read: they are asked for anew", "error", err)
	}
	return s, nil
}

// errAway says that the centre did not answer.
var errAway = problem.Unavailablef("the centre does not answer")

// open sends a request to the centre; the answer has a status below 300, or is 304.
func (s *Site) open(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.cfg.Centre+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Authorization", "Bearer "+s.cfg.Token.Reveal())
	resp, err := s.cfg.Client.Do(r)
	if err != nil {
		return nil, problem.Unavailablef("%w: %v", errAway, err)
	}
	switch {
	case resp.StatusCode < http.StatusMultipleChoices, resp.StatusCode == http.StatusNotModified:
		return resp, nil
	case resp.StatusCode == http.StatusNotFound:
		err = errNoPlan
	case resp.StatusCode == http.StatusUnauthorized:
		err = problem.Forbiddenf("the centre does not take the site token: it was revoked, or is of another centre")
	default:
		err = problem.Unavailablef("%w: it answers %d", errAway, resp.StatusCode)
	}
	resp.Body.Close()
	return nil, err
}

// ask reads a JSON answer.
func (s *Site) ask(ctx context.Context, path string, out any) error {
	resp, err := s.open(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return decodeAnswer(resp.Body, out)
}

// decodeAnswer reads a JSON answer of the centre, which is bounded in bytes and values.
func decodeAnswer(from io.Reader, out any) error {
	text, err := io.ReadAll(io.LimitReader(from, maxAnswer))
	if err == nil && loose.CountValues(text, maxValues) > maxValues {
		err = problem.Unavailablef("the answer holds more than %d values", maxValues)
	}
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return problem.Unavailablef("%w: %v", errAway, err)
	}
	return nil
}

// NodeByMAC is Plans's.
func (s *Site) NodeByMAC(ctx context.Context, mac string) (*metal.Node, error) {
	mac = strings.ToLower(mac)
	return s.node(ctx, "mac", mac, func(p wire.SitePlan) bool { return slices.Contains(p.MACs, mac) })
}

// NodeByBootPath is Plans's.
func (s *Site) NodeByBootPath(ctx context.Context, path string) (*metal.Node, error) {
	return s.node(ctx, "path", path, func(p wire.SitePlan) bool { return p.Path == path })
}

// node asks the centre, unless it is known to be away, and goes by what is kept where it does not answer.
func (s *Site) node(ctx context.Context, key, value string, is func(wire.SitePlan) bool) (*metal.Node, error) {
	s.mu.Lock()
	away := s.away
	if p, ok := s.find(is); ok && key == "path" && s.now().Sub(p.ConfirmedAt) < freshFor {
		s.mu.Unlock()
		return s.materialize(p.SitePlan), nil
	}
	s.mu.Unlock()
	if !away {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var plan wire.SitePlan
		err := s.ask(bounded, wire.SitePlanPath+"?"+url.Values{key: {value}}.Encode(), &plan)
		if err == nil && !is(plan) {
			err = errNoPlan
		}
		if ctx.Err() != nil {
			return nil, err // the machine is gone: that says nothing about the centre
		}
		s.recordAnswer(plan, err, is)
		if err == nil {
			return s.materialize(plan), nil
		}
		if !errors.Is(err, errAway) {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.find(is); ok && s.now().Sub(p.ConfirmedAt) < s.cfg.Lifetime {
		return s.materialize(p.SitePlan), nil
	}
	return nil, errNoPlan
}

// find looks among the kept plans; s.mu is held.
func (s *Site) find(is func(wire.SitePlan) bool) (cachedPlan, bool) {
	for _, p := range s.cached.Plans {
		if is(p.SitePlan) {
			return p, true
		}
	}
	return cachedPlan{}, false
}

// recordAnswer keeps what the centre said to a single question.
func (s *Site) recordAnswer(plan wire.SitePlan, err error, is func(wire.SitePlan) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setAway(err)
	if s.away {
		return
	}
	before := len(s.cached.Plans)
	maps.DeleteFunc(s.cached.Plans, func(id string, p cachedPlan) bool {
		if !is(p.SitePlan) {
			return false
		}
		s.note(id)
		return true
	})
	if err != nil && len(s.cached.Plans) == before {
		return // a guess changes nothing
	}
	if err == nil {
		s.cached.Plans[plan.NodeID] = cachedPlan{plan, s.now()}
		s.note(plan.NodeID)
		s.files.prefetch(plan)
	}
	// What all plans are is not known any more, so the next reading must give them.
	s.mark = ""
}

// note remembers that a node's plan is newer than what the reading under way will give; s.mu is held.
func (s *Site) note(id string) {
	if s.learned != nil {
		s.learned[id] = true
	}
}

// setAway tells once that the centre went and that it came back.
func (s *Site) setAway(err error) {
	away := errors.Is(err, errAway)
	if away && !s.away {
		s.cfg.Log.Warn("the centre is away: what it said last counts", "error", err)
	} else if !away && s.away {
		s.cfg.Log.Info("the centre is back")
	}
	s.away = away
}

// materialize makes the node of a plan, as far as booting it needs one.
func (s *Site) materialize(p wire.SitePlan) *metal.Node {
	return &metal.Node{ID: p.NodeID, BootNumber: p.BootNumber, Plan: &metal.BootPlan{
		Method: metal.BootMethod(p.BootMethod), Path: p.Path, URL: p.URL, MACs: p.MACs, Params: p.Params, BootNumber: p.BootNumber,
		Kernel: s.files.ref(p.Kernel), Ramdisk: s.files.ref(p.Ramdisk), Image: s.files.ref(p.Image), ISO: s.files.ref(p.ISO), ConfigDrive: p.Drive,
		CarryToken: p.CarryToken, Persistent: p.Persistent, Volumes: p.Volumes != nil, SecureBoot: p.SecureBoot, FirmwareMode: p.Firmware,
	}}
}

// known is the kept plan of a node's boot.
func (s *Site) known(n *metal.Node) (wire.SitePlan, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.cached.Plans[n.ID]
	return p.SitePlan, ok && p.BootNumber == n.BootNumber
}

// Token is Config.Token's.
func (s *Site) Token(n *metal.Node) secret.Value {
	p, _ := s.known(n)
	return p.Token.Value
}

// maxConfigDrive bounds the image of a config drive, in bytes.
const maxConfigDrive = 64 << 20

// ConfigDrive is Config.ConfigDrive's. The image holds secrets, so the site asks the centre for it each time and stores nothing.
func (s *Site) ConfigDrive(ctx context.Context, n *metal.Node) ([]byte, error) {
	p, ok := s.known(n)
	if !ok {
		return nil, errNoPlan
	}
	resp, err := s.open(ctx, http.MethodGet, wire.SiteBootPath+p.Path+"/"+metal.BootConfigDrive, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	image, err := io.ReadAll(io.LimitReader(resp.Body, maxConfigDrive+1))
	if err != nil {
		return nil, problem.Unavailablef("%w: %v", errAway, err)
	}
	if len(image) > maxConfigDrive {
		return nil, problem.Unavailablef("the centre gave a config drive of more than %d bytes", maxConfigDrive)
	}
	return image, nil
}

// Volumes is Config.Volumes's.
func (s *Site) Volumes(_ context.Context, n *metal.Node) (metal.VolumePlan, error) {
	p, ok := s.known(n)
	if !ok || p.Volumes == nil {
		return metal.VolumePlan{}, errNoPlan
	}
	if p.Volumes.Problem != "" {
		return metal.VolumePlan{}, problem.Unavailablef("%s", p.Volumes.Problem)
	}
	out := metal.VolumePlan{Initiator: p.Volumes.Initiator}
	if p.Volumes.Root != nil {
		root := toldVolume(*p.Volumes.Root)
		out.Root = &root
	}
	for _, o := range p.Volumes.Others {
		out.Others = append(out.Others, toldVolume(o))
	}
	return out, nil
}

func toldVolume(v wire.SiteVolume) metal.Volume {
	login := func(l wire.SiteLogin) metal.Login {
		return metal.Login{Username: l.Username, Password: l.Password.Value}
	}
	out := metal.Volume{TargetID: v.TargetID, BootIndex: v.BootIndex, Type: metal.VolumeType(v.Type), Login: login(v.Login), Mutual: login(v.Mutual), WWNs: v.WWNs, LUN: v.LUN}
	for _, p := range v.Paths {
		out.Paths = append(out.Paths, metal.VolumePath(p))
	}
	return out
}
