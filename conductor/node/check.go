package node

import (
	"context"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/networkdata"
	"salvor/problem"
)

// What an operation needs is checked before anything is touched: by the API, by validate, by the doctor, and by the
// operation's first action.

// Preflight gives every reason of the drivers why the operation cannot succeed. It asks no machine: what a BMC offers is taken
// from the node's description of it. Web servers are asked for images until ctx ends, for at most 10 s.
func (c *Conductor) Preflight(ctx context.Context, n *metal.Node, ports []*metal.Port, op metal.Operation) metal.Preflight {
	ctx, cancel := context.WithTimeout(ctx, webTimeout)
	defer cancel()
	m, err := c.assemble(n, ports)
	if err != nil {
		return metal.Preflight{}
	}
	p := &nodePreflight{ctx: ctx, c: c, m: m, op: op}
	if op.Kind != "manage" && op.Kind != "adopt" { // these end with the BMC's answer as the node's error, as Ironic's do
		p.power()
	}
	switch op.Kind {
	case "rescue":
		p.rescue()
	case "unrescue":
		p.networks(driver.Tenant)
		p.ownSystem()
		p.volumes()
	case "deploy":
		p.deploy()
	case "provide", "clean":
		if p.Preflight.NeedsRamdisk = c.cleansByRamdisk(m, op); p.NeedsRamdisk {
			p.ramdisk("boot", c.deployRamdisk(m))
			p.networks(driver.CleaningNet)
		}
	case "service":
		if p.NeedsRamdisk = n.HoldsRamdisk() || m.heedsAgents() && !op.DisableRamdisk && op.HasSteps; p.NeedsRamdisk {
			p.ramdisk("boot", c.deployRamdisk(m))
			p.networks(driver.CleaningNet, driver.Tenant)
			p.ownSystem()
		}
	case "inspect":
		p.inspect()
	}
	p.steps()
	return p.Preflight
}

// CheckSettings gives the reasons why interfaces of the node refuse its driver_info. It asks nobody.
func (c *Conductor) CheckSettings(n *metal.Node) (out []metal.Reason) {
	hw, ok := c.drivers[n.Driver]
	if !ok {
		return nil
	}
	for _, kind := range metal.InterfaceKinds {
		i, ok := hw.Info.Find(n, kind)
		checks, reads := hw.Part(kind, i.Name).(driver.SettingsChecker)
		if !ok || !reads {
			continue
		}
		if err := checks.CheckSettings(n, c.FilesElsewhere); err != nil {
			out = append(out, metal.Reason{Interface: kind, Text: err.Error()})
		}
	}
	return out
}

// webTimeout is how long one check waits for web servers, for all of its images together.
const webTimeout = 10 * time.Second

// steps tells which steps the node does not have. Those that its agent may have are not judged: which it has is known when it runs.
func (p *nodePreflight) steps() {
	if len(p.op.Steps) == 0 {
		return
	}
	offered, err := p.c.steps().driverSteps(p.ctx, p.op.Kind, p.m)
	if err != nil {
		return
	}
	for _, list := range p.op.Steps {
		for _, s := range list.Steps {
			if p.NeedsRamdisk && !list.DisableRamdisk && p.m.agentHasSteps(s.Interface) {
				continue
			}
			found, err := resolveStep(offered, s)
			if err == nil && (p.op.Kind != "deploy" || s.Priority > 0) {
				err = found.checkArgs()
			}
			if err != nil && (list.DisableRamdisk || p.op.DisableRamdisk) && p.m.heedsAgents() && p.m.agentHasSteps(s.Interface) {
				err = problem.Invalidf("%w; the ramdisk may have it: leave disable_ramdisk out", err)
			}
			if err != nil && list.Of != "" {
				err = problem.Invalidf("%s: %w", list.Of, err)
			}
			kind := s.Interface
			if p.op.Kind == "deploy" {
				kind = "deploy"
			}
			p.add(kind, err)
		}
	}
}

// nodePreflight collects reasons.
type nodePreflight struct {
	metal.Preflight
	ctx context.Context // of the questions to web servers
	c   *Conductor
	m   *managedNode
	op  metal.Operation
}

func (p *nodePreflight) add(kind string, err error) {
	if err != nil {
		p.Reasons = append(p.Reasons, metal.Reason{Interface: kind, Text: err.Error()})
	}
}

// power tells what is wrong with the settings by which the machine's power is reached.
func (p *nodePreflight) power() {
	for _, r := range p.c.CheckSettings(p.m.node) {
		if r.Interface == "power" {
			p.Reasons = append(p.Reasons, r)
		}
	}
}

func (p *nodePreflight) rescue() {
	if p.m.rescue == nil || !p.m.rescue.NeedsRamdisk() {
		return
	}
	p.NeedsRamdisk = true
	p.ramdisk("boot", p.c.rescueRamdisk(p.m))
	p.networks(driver.Rescuing, driver.Tenant)
	_, err := p.m.sshInterfaces()
	p.add("rescue", err)
	p.networkData()
}

// networkData warns of what the agent will leave out of the network data, by the code that the agent reads them with.
func (p *nodePreflight) networkData() {
	text, err := networkData(p.m.node)
	if err != nil || text == nil {
		return
	}
	data, err := networkdata.Parse(text)
	if err != nil {
		data = &networkdata.Data{LeftOut: []string{err.Error()}}
	}
	left := data.LeftOut
	if err != nil || len(data.Networks) == 0 && data.AsksForNetworks() {
		left = append(left, networkdata.AllLeftOut)
	}
	for _, one := range left {
		p.Warnings = append(p.Warnings, metal.Reason{Interface: "rescue", Text: "the rescue system will leave out of the network: " + one})
	}
}

func (p *nodePreflight) deploy() {
	m := p.m
	writes := m.writesImage() && !p.op.FromVolumes
	if p.NeedsRamdisk = writes || !p.op.FromVolumes && m.heedsAgents() && p.op.HasSteps; p.NeedsRamdisk {
		p.ramdisk("boot", p.c.deployRamdisk(m))
		p.networks(driver.Provisioning)
	}
	p.networks(driver.Tenant)
	p.volumes()
	if imager, ok := m.deploy.(driver.Imager); ok && writes {
		p.image(imager)
	}
	p.add("management", checkSecureBoot(m))
	if m.deploy != nil && m.deploy.BootsRamdisk() && !p.op.FromVolumes {
		if wantsSecureBoot(m.node) { // by then it is on
			found := m.node
			defer func() { m.node = found }()
			m.node = found.Clone()
			m.node.SecureBoot = new(true)
		}
		r, err := m.systemRamdisk(p.ctx, p.c.Nodes)
		p.add("deploy", err)
		if r.ISO != "" || r.Kernel != "" && r.Image != "" { // what is missing is told by the deploy interface's own needs
			p.ramdisk("deploy", r)
		}
	}
}

// ownSystem checks the images of Glance that an operation boots again at its end: instance_info may have changed since the deployment.
func (p *nodePreflight) ownSystem() {
	m := p.m
	if m.boot == nil || m.deploy == nil || !m.deploy.BootsRamdisk() || p.op.FromVolumes {
		return
	}
	r, err := m.systemRamdisk(p.ctx, p.c.Nodes)
	if err != nil {
		return // planSystem tells it
	}
	// As the drivers plan it: they prefer the ISO image, or take the others.
	if plan, err := m.boot.Plan(m.node, r); err == nil {
		p.addOfGlance("deploy", glanceImages{p.c}.checkPlan(p.ctx, m.node, plan))
	}
}

// volumes checks what the firmware asks us for on its way to the node's volumes.
func (p *nodePreflight) volumes() {
	boots, ok := p.m.boot.(driver.VolumeBoot)
	if !ok || !p.op.FromVolumes {
		return
	}
	plan, err := boots.PlanVolumes(p.m.node, p.m.bootPorts(), p.op.Volumes, 0)
	p.add("boot", err)
	if err == nil && plan != nil {
		p.servable("boot", plan)
	}
}

func (p *nodePreflight) inspect() {
	looks, ok := p.m.inspect.(driver.RamdiskInspect)
	if !ok || !looks.CallsBack() {
		return
	}
	p.NeedsRamdisk = true
	if p.c.InspectionURL == "" {
		p.add("inspect", problem.Invalidf("%s", driver.NoRamdiskURL))
		return
	}
	r := p.c.deployRamdisk(p.m)
	r.Params = p.c.inspections().inspectionParams()
	p.ramdisk("boot", r)
	p.networks(driver.Inspection)
}

func (p *nodePreflight) networks(nets ...driver.Net) {
	if p.m.network == nil {
		return
	}
	for _, net := range nets {
		p.add("network", p.m.network.Validate(p.m.node, p.m.ports, net))
	}
}

// ramdisk checks that a ramdisk of ours can be booted.
func (p *nodePreflight) ramdisk(kind string, r driver.Ramdisk) {
	p.plan(kind, r)
	if needs, ok := p.m.boot.(driver.BMCNeeds); ok {
		p.add(kind, needs.CheckBMC(p.m.node, metal.BMCOf(p.m.node)))
	}
}

// plan makes the boot plan and throws it away. A boot interface that is not there, or broken, is told by the operation's needs.
func (p *nodePreflight) plan(kind string, r driver.Ramdisk) {
	if i, _ := p.m.info.Find(p.m.node, "boot"); p.m.boot == nil || i.Broken != "" {
		return
	}
	r.Ports = p.m.bootPorts()
	plan, err := p.m.boot.Plan(p.m.node, r)
	if err != nil {
		p.add(kind, err)
		return
	}
	by := FetchedByUs // to make the image that the machine boots
	if plan.Method == metal.BootIPXE {
		by = FetchedByFirmware
	}
	given := p.bootFile(kind, "kernel", plan, plan.Kernel, by)
	if given { // what it is, is for no other project to know
		p.add(kind, p.rightArch(plan.Kernel))
	}
	if p.bootFile(kind, "ramdisk", plan, plan.Ramdisk, by) && given {
		p.servable(kind, plan)
	}
	p.bootFile(kind, "ISO image", plan, plan.ISO, FetchedByFirmware)
	if p.c.FreeAddresses != nil && plan.Method != metal.BootMedia {
		p.add(kind, p.c.FreeAddresses(p.m.node, r.Ports))
	}
}

// rightArch refuses a kernel for another processor than the node's. What is known of neither refuses nothing.
func (p *nodePreflight) rightArch(kernel string) error {
	want, _ := p.m.node.Properties["cpu_arch"].(string)
	if p.c.KernelArch == nil || want != "x86_64" && want != "aarch64" {
		return nil
	}
	if is := p.c.KernelArch(kernel); is != "" && is != want {
		return problem.Invalidf("node %s: the kernel %s is for %s, but the node's cpu_arch is %s: set [conductor]rescue_kernel_by_arch and deploy_kernel_by_arch, or correct the property",
			p.m.node.ID, driver.Sanitize(kernel), is, want)
	}
	return nil
}

// servable tells why the firmware would not get what the plan gives it, or not start it.
func (p *nodePreflight) servable(kind string, plan *metal.BootPlan) {
	n := p.m.node
	if plan.SecureBoot && plan.ISO == "" && plan.Method == metal.BootIPXE {
		p.add(kind, problem.Invalidf("node %s: its firmware enforces Secure Boot, and iPXE is not signed: "+
			"set boot_interface to redfish-virtual-media or http, or turn Secure Boot off (salvor node secure boot off NODE)", n.ID))
		return
	}
	if p.c.CheckPlan == nil {
		return
	}
	err := p.c.CheckPlan(p.ctx, plan, metal.Text(n.Properties["cpu_arch"]))
	switch {
	case err == nil:
	case plan.SecureBoot:
		p.add(kind, problem.Invalidf("node %s: its firmware enforces Secure Boot and would refuse the boot image: %w", n.ID, err))
	default:
		p.add(kind, problem.Invalidf("node %s: its firmware would not get what it boots: %w", n.ID, err))
	}
}

// bootFile checks a file of a boot plan. It tells whether the machine can be given the file, as far as that is known.
func (p *nodePreflight) bootFile(kind, what string, plan *metal.BootPlan, ref string, by Fetcher) bool {
	if metal.GlanceID(ref) == "" {
		return p.readable(kind, what, ref, by)
	}
	return !p.addOfGlance(kind, glanceImages{p.c}.checkBootFile(p.ctx, p.m.node, plan, what, ref))
}
