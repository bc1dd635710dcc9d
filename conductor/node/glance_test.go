package node

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

const glanceID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"

// glanceStub is a Glance with one image.
type glanceStub struct {
	mu    sync.Mutex
	image metal.GlanceImage
	err   error
	away  func() bool // it does not answer; nil: it does
	slow  bool        // it answers after the question's context has ended
}

func newGlanceStub() *glanceStub {
	return &glanceStub{image: metal.GlanceImage{
		ID: glanceID, Status: "active", Visibility: "public", DiskFormat: "qcow2", ContainerFormat: "bare", HashAlgo: "sha256", HashValue: strings.Repeat("0a", 32), Size: 7,
	}}
}

func (g *glanceStub) Image(ctx context.Context, id string) (metal.GlanceImage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slow {
		<-ctx.Done()
		return metal.GlanceImage{}, problem.Unavailablef("Glance: %w", ctx.Err())
	}
	if g.away != nil && g.away() {
		return metal.GlanceImage{}, problem.Unavailablef("Glance answers 503")
	}
	if id != glanceID {
		return metal.GlanceImage{}, problem.NotFoundf("asked for %s", id)
	}
	return g.image, g.err
}

// fail has the next questions fail.
func (g *glanceStub) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// glanceBench has a node whose image_source is an image of Glance.
func glanceBench(t *testing.T, b *bench) (*bench, *glanceStub) {
	t.Helper()
	g := newGlanceStub()
	b.con.Glance = g
	b.agent.image = true
	b.con.drivers["bench"].Info.Interfaces["deploy"].Enabled[0].ImageFormats = []string{"raw", "qcow2"}
	change(t, b, func(n *metal.Node) { n.InstanceInfo = metal.Object{"image_source": glanceID} })
	return b, g
}

// TestDeployFromGlance: what Glance said before the machine was switched off goes with the boot of the ramdisk, even if Glance is away from
// then on.
func TestDeployFromGlance(t *testing.T) {
	t.Parallel()
	b, g := glanceBench(t, benched(t, metal.Available))
	wasOff := false
	g.away = func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		wasOff = wasOff || b.power == metal.PowerOff
		return wasOff
	}
	b.run(t)
	b.withSteps(t, metal.Deploy, "")
	b.pokes(t, metal.Active)
	want := metal.Image{Source: "glance://" + glanceID, Format: "qcow2", Algorithm: "sha256", Sum: strings.Repeat("0a", 32), Size: 7}
	if p := b.agent.plan; p == nil || p.Image != want.Source || p.System == nil || *p.System != want {
		t.Errorf("the plan of the ramdisk: %+v", p)
	}
}

// TestGlanceRefusesFirst: an image that cannot be given to the machine fails the operation before the machine is touched.
func TestGlanceRefusesFirst(t *testing.T) {
	t.Parallel()
	rebuild := ramdiskOperations[1]
	for name, c := range map[string]struct {
		spoil func(*bench, *glanceStub)
		want  string
	}{
		"none configured": {func(b *bench, _ *glanceStub) { b.con.Glance = nil }, "set [glance]auth_url"},
		"missing":         {func(_ *bench, g *glanceStub) { g.err = problem.NotFoundf("404") }, "Glance has no image " + glanceID + " that this machine may be given"},
		"another's": {func(b *bench, g *glanceStub) {
			g.image.Visibility, g.image.Status = "private", "queued"
			change(t, b, func(n *metal.Node) { n.Owner = "p1" })
		}, "Glance has no image " + glanceID + " that this machine may be given"},
		"queued":  {func(_ *bench, g *glanceStub) { g.image.Status = "queued" }, "is queued"},
		"format":  {func(_ *bench, g *glanceStub) { g.image.DiskFormat = "vmdk" }, "vmdk"},
		"away":    {func(_ *bench, g *glanceStub) { g.err = problem.Unavailablef("Glance answers 503") }, "Glance answers 503"},
		"refused": {func(_ *bench, g *glanceStub) { g.err = problem.Invalidf("check [glance]username") }, "check [glance]username"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := glanceBench(t, workingBench(t, rebuild))
			c.spoil(b, g)
			booted := b.systemOn
			b.run(t)
			rebuild.ask(t, b)
			b.asFound(t, rebuild)
			if n := must.Get(b.store.Node(t.Context(), nil, b.node))(t); !strings.Contains(n.LastError, c.want) || b.systemOn != booted {
				t.Errorf("booted %d times: %s", b.systemOn-booted, n.LastError)
			}
		})
	}
}

// TestASlowGlanceIsNoReason of a check: Nova gives up a server whose node does not validate, and the deployment asks again. A Glance that
// does not answer at all is a reason.
func TestASlowGlanceIsNoReason(t *testing.T) {
	t.Parallel()
	b, g := glanceBench(t, benched(t, metal.Available))
	validity := func(ctx context.Context) string {
		return metal.ReasonTexts(b.con.Preflight(ctx, b.stored(t), []*metal.Port{{Address: "52:54:00:00:00:01"}}, metal.Operation{Kind: "deploy"}).Reasons)
	}
	g.slow = true
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if got := validity(ctx); strings.Contains(got, "Glance") {
		t.Errorf("a slow Glance: %s", got)
	}
	g.slow = false
	g.fail(problem.Unavailablef("Glance answers 503"))
	if got := validity(t.Context()); !strings.Contains(got, "Glance answers 503") {
		t.Errorf("a Glance that is away: %q", got)
	}
}

// TestGlanceProjects: an image is answered as a missing one, whatever its status is, if the project that writes the record cannot see it.
// The lessee writes instance_info and the owner driver_info.
func TestGlanceProjects(t *testing.T) {
	t.Parallel()
	b, g := glanceBench(t, benched(t, metal.Available))
	g.image.Visibility, g.image.Owner = "private", "images"
	judge := func(plan *metal.BootPlan, owner, lessee string) string {
		n := b.stored(t)
		n.Owner, n.Lessee = owner, lessee
		p := &nodePreflight{ctx: t.Context(), c: b.con, m: must.Get(b.con.assemble(n, nil))(t)}
		if plan == nil {
			p.image(nil)
		} else {
			p.bootFile("boot", "kernel", plan, glanceID, FetchedByUs)
		}
		return metal.ReasonTexts(p.Reasons)
	}
	system, ours := &metal.BootPlan{Persistent: true}, &metal.BootPlan{}
	for _, c := range []struct {
		what          string
		plan          *metal.BootPlan
		owner, lessee string
		configured    bool
		allowed       bool
	}{
		{"image_source", nil, "", "", false, true},
		{"image_source", nil, "images", "", false, true},
		{"image_source", nil, "other", "images", false, true},
		{"image_source", nil, "other", "", false, false},
		{"image_source of the lessee", nil, "images", "tenant", false, false},
		{"kernel of instance_info", system, "other", "images", false, true},
		{"kernel of instance_info", system, "images", "tenant", true, false},
		{"kernel of driver_info", ours, "images", "tenant", false, true},
		{"kernel of driver_info", ours, "other", "images", false, false},
		{"kernel of driver_info", ours, "", "tenant", false, true},
		{"kernel of the configuration", ours, "other", "tenant", true, true},
	} {
		b.con.DeployKernel = ""
		if c.configured {
			b.con.DeployKernel = "glance://" + glanceID
		}
		g.image.Status, g.err = "active", nil
		if got := judge(c.plan, c.owner, c.lessee); (got == "") != c.allowed {
			t.Errorf("%s, owner %q, lessee %q: %q", c.what, c.owner, c.lessee, got)
		}
		if c.allowed {
			continue
		}
		g.image.Status, g.image.Size = "queued", 0
		foreign := judge(c.plan, c.owner, c.lessee)
		g.err = problem.NotFoundf("404")
		if missing := judge(c.plan, c.owner, c.lessee); foreign != missing || !strings.Contains(foreign, "Glance has no image") {
			t.Errorf("%s, owner %q, lessee %q: %q, and a missing one %q", c.what, c.owner, c.lessee, foreign, missing)
		}
		g.image.Size = 7
	}
}

// TestPlansKeepToTheProject: a plan of a system or of a restarted ramdisk is refused if its image is one of another project, and the
// machine stays on.
func TestPlansKeepToTheProject(t *testing.T) {
	t.Parallel()
	b, g := glanceBench(t, benched(t, metal.Active))
	g.image.Visibility, g.image.Owner = "private", "images"
	change(t, b, func(n *metal.Node) {
		n.Owner, n.InstanceInfo = "other", metal.Object{"boot_iso": glanceID}
		n.Plan = &metal.BootPlan{Method: metal.BootMedia, ISO: glanceID}
	})
	b.ramdiskSystem = true
	m := must.Get(b.con.assemble(b.stored(t), nil))(t)
	_, system := b.con.planSystem(t.Context(), m)
	for name, err := range map[string]error{"the system": system, "the ramdisk again": b.con.steps().planAgain(t.Context(), &job.Run{}, m)} {
		if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "Glance has no image "+glanceID) || b.power != metal.PowerOn {
			t.Errorf("%s: %v; the power is %s", name, err, b.power)
		}
	}
}

// TestPlansHoldWhatTheCheckAllowed: an image that becomes one of another project between the check and the plan is not given to the machine,
// which is put back as it was.
func TestPlansHoldWhatTheCheckAllowed(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct {
		from, failed metal.State
		ask          func(t *testing.T, b *bench)
	}{
		"rescue_iso": {metal.Active, metal.RescueFailed, func(t *testing.T, b *bench) { b.start(t, metal.ToRescue) }},
		"deploy_iso": {metal.Manageable, metal.CleanFailed, func(t *testing.T, b *bench) {
			b.withSteps(t, metal.Clean, `[{"interface": "deploy", "step": "erase_devices"}]`)
		}},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b, g := glanceBench(t, benched(t, c.from))
			change(t, b, func(n *metal.Node) { n.Owner, n.DriverInfo = "p1", metal.Object{key: glanceID} })
			g.image.Visibility, g.image.Owner = "private", "p1"
			g.away = func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.power == metal.PowerOff {
					g.image.Owner = "images"
				}
				return false
			}
			b.run(t)
			c.ask(t, b)
			n := b.until(t, c.failed)
			if !strings.Contains(n.LastError, "Glance has no image "+glanceID) || n.Plan != nil || b.media != "" {
				t.Errorf("%s: plan %+v", n.LastError, n.Plan)
			}
		})
	}
}

// TestUnrescueIntoAnImageOfAnother is refused while the ramdisk of the rescue still runs.
func TestUnrescueIntoAnImageOfAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Available)
	g := newGlanceStub()
	b.con.Glance, b.ramdiskSystem = g, true
	change(t, b, func(n *metal.Node) {
		n.Owner, n.InstanceInfo = "p1", metal.Object{"boot_iso": "http://images/live.iso"}
	})
	b.run(t)
	b.start(t, metal.Deploy)
	b.until(t, metal.Active)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	b.poke()
	b.until(t, metal.Rescue)
	g.image.Visibility, g.image.Owner = "private", "images"
	change(t, b, func(n *metal.Node) { n.InstanceInfo["boot_iso"] = glanceID })
	if err := b.ask(t, metal.Unrescue); err == nil {
		b.until(t, metal.UnrescueFailed)
	} else if !strings.Contains(err.Error(), "Glance has no image "+glanceID) {
		t.Error(err)
	}
	n := b.stored(t)
	if n.ProvisionState == metal.UnrescueFailed && !strings.Contains(n.LastError, "Glance has no image "+glanceID) || b.power != metal.PowerOn || b.running != "ramdisk" {
		t.Errorf("%s, the power is %s, %q runs: %s", n.ProvisionState, b.power, b.running, n.LastError)
	}
}

// TestGlanceLosesTheImage: the agent only sees its download end, and last_error says why it did.
func TestGlanceLosesTheImage(t *testing.T) {
	t.Parallel()
	b, g := glanceBench(t, benched(t, metal.Available))
	b.agent.fails = "prepare_image"
	b.run(t)
	b.withSteps(t, metal.Deploy, "")
	b.until(t, metal.DeployWait)
	g.fail(problem.NotFoundf("404"))
	n := b.pokes(t, metal.DeployFailed)
	for _, want := range []string{"expected aa, found bb", "Glance has no image " + glanceID} {
		if !strings.Contains(n.LastError, want) {
			t.Errorf("last_error %q lacks %q", n.LastError, want)
		}
	}
	if n.Plan != nil {
		t.Error("the bytes are still offered")
	}
}

// TestGlanceKernels: kernels, ramdisks and ISO images of Glance are judged as well; where another process asks Glance, nothing is.
func TestGlanceKernels(t *testing.T) {
	t.Parallel()
	b, g := glanceBench(t, benched(t, metal.Available))
	g.image.Status = "deactivated"
	n := must.Get(b.store.Node(t.Context(), nil, b.node))(t)
	judge := func() string {
		p := &nodePreflight{ctx: t.Context(), c: b.con, m: must.Get(b.con.assemble(n, nil))(t)}
		p.bootFile("boot", "kernel", &metal.BootPlan{}, "glance://"+glanceID, FetchedByUs)
		return metal.ReasonTexts(p.Reasons)
	}
	if got := judge(); !strings.Contains(got, "the kernel of node "+n.ID) || !strings.Contains(got, "deactivated") {
		t.Errorf("judged %q", got)
	}
	b.con.GlanceElsewhere = true
	if got := judge(); got != "" {
		t.Errorf("judged %q", got)
	}
	if ref := must.Get(driver.BootFiles{URL: "http://h", APIURL: "http://h", Dirs: []string{"/srv"}}.Plan(n, driver.Ramdisk{Kernel: glanceID, Image: "glance://" + glanceID}, metal.BootMedia))(t); ref.Kernel != "glance://"+glanceID || ref.Ramdisk != ref.Kernel {
		t.Errorf("planned %+v", ref)
	}
}
