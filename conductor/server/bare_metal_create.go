package server

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/secret"
)

// createBareMetal gives a server a machine and deploys it. What failed keeps its machine: a deletion clears both.
func (c bareMetalOperations) createBareMetal() job.Definition {
	const kept = "a failed server keeps its machine, so that its deletion clears it"
	return job.Definition{
		Kind: compute.JobMetalCreate, Version: 1, Class: job.Operation, Failed: c.serverFailed("created", nil),
		Actions: []job.Action{
			{Name: "place", Do: c.withGuest(c.place), NoUndo: kept},
			{Name: "claim a machine", Do: c.withBareMetal(c.claimNode), NoUndo: kept, Deadline: bareMetalRetryTime},
			{Name: "give it its volumes", Do: c.withBareMetal(c.giveVolumes), Undo: c.withBareMetal(c.takeVolumes), Deadline: bareMetalRetryTime},
			{Name: "describe its system", Do: c.withBareMetal(c.describeSystem), NoUndo: kept, Deadline: bareMetalRetryTime},
			{Name: "deploy", Do: c.withBareMetal(c.askDeployment(deployment)), NoUndo: kept, Deadline: bareMetalRetryTime},
			{Name: "wait for the deployment", Do: c.withBareMetal(c.awaitDeployment(deployment)), NoUndo: kept, Deadline: bareMetalRetryTime},
			{Name: "power on", Do: c.withBareMetal(c.powerAfterDeployment), NoUndo: kept, Deadline: bareMetalRetryTime},
			{Name: "settle", Do: c.withGuest(c.settleNew), NoUndo: "there is nothing left to fail"},
		},
	}
}

// rebuildBareMetal deploys a server's machine anew, from the image that its row names by now.
func (c bareMetalOperations) rebuildBareMetal() job.Definition {
	const again = "the former system is gone; a rebuild may be asked again"
	return job.Definition{
		Kind: compute.JobMetalRebuild, Version: 1, Class: job.Operation, Failed: c.serverFailed("rebuilt", nil),
		Actions: []job.Action{
			{Name: "describe its system", Do: c.withBareMetal(c.describeSystem), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "rebuild", Do: c.withBareMetal(c.askDeployment(redeployment)), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "wait for the rebuild", Do: c.withBareMetal(c.awaitDeployment(redeployment)), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "power", Do: c.withBareMetal(c.powerAfterDeployment), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "settle", Do: c.withGuest(c.settleNew), NoUndo: "there is nothing left to fail"},
		},
	}
}

// nodeFitsNeeds tells whether a machine has what a flavor asks for.
func nodeFitsNeeds(m *hypervisor.Node, n compute.MetalNeeds) bool {
	if !m.Free() || m.Class != n.Class {
		return false
	}
	for _, t := range n.Traits {
		if !slices.Contains(m.Traits, t) {
			return false
		}
	}
	for key, value := range n.Capabilities {
		if have, ok := m.Capabilities[key]; ok && have != value || !ok && !settable[key] {
			return false
		}
	}
	return true
}

// settable capabilities are chosen at deployment: a machine that says nothing of them can take any value.
var settable = map[string]bool{"boot_option": true, "boot_mode": true, "secure_boot": true}

// claimNode takes one that is free. Who claims it first at the endpoint has it; others take the next.
func (c bareMetalOperations) claimNode(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	if g.api == nil {
		return job.Fail(problem.Conflictf("it has no endpoint"))
	}
	if g.node != nil {
		return c.claimed(ctx, r, g)
	}
	all, err := g.api.Nodes(ctx)
	if err != nil {
		return job.From(err)
	}
	needs, _ := g.server.Flavor.Metal()
	free := slices.DeleteFunc(slices.Clone(all), func(m hypervisor.Node) bool { return !nodeFitsNeeds(&m, needs) })
	if len(free) == 0 {
		return job.Fail(problem.Conflictf("No valid host was found: endpoint %s has no free machine of class %s%s", g.host.Name, needs.Class, describeNeeds(needs)))
	}
	slices.SortFunc(free, func(a, b hypervisor.Node) int { return strings.Compare(a.ID, b.ID) })
	// Servers that are made at once begin at different machines.
	h := fnv.New32a()
	_, _ = h.Write([]byte(g.server.ID)) // never fails
	first := int(h.Sum32() % uint32(len(free)))
	for i := range free {
		m := &free[(first+i)%len(free)]
		if err = g.api.Claim(ctx, m.ID, g.server.ID); err == nil {
			g.node = m
			return c.claimed(ctx, r, g)
		}
		if !problem.Is(err, problem.Conflict) && !problem.Is(err, problem.NotFound) {
			return job.From(err)
		}
	}
	return c.pollAgain(r, "a machine that nobody else takes", lockPatience, problem.Conflictf("No valid host was found: every machine of class %s is taken: %w", needs.Class, err))
}

func describeNeeds(n compute.MetalNeeds) string {
	var words []string
	words = append(words, n.Traits...)
	for key, value := range n.Capabilities {
		words = append(words, key+"="+value)
	}
	if len(words) == 0 {
		return ""
	}
	slices.Sort(words)
	return " with " + strings.Join(words, ", ")
}

// claimed notes whose machine it is, and by which MACs the server is on its networks.
func (c bareMetalOperations) claimed(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	macs, err := g.api.MACs(ctx, g.node.ID)
	if err != nil {
		return job.From(err)
	}
	if len(macs) < len(g.server.NICs) {
		return job.Fail(problem.Conflictf("its node %s has %d ports, and the server %d interfaces", g.node.ID, len(macs), len(g.server.NICs)))
	}
	id := g.node.ID
	return job.Done(c.editServer(ctx, g.server.ID, func(s *compute.Server) {
		s.GuestName = id
		s.NICs = slices.Clone(s.NICs)
		for i := range s.NICs {
			s.NICs[i].MAC = macs[i]
		}
	}))
}

// vifs are what the server's interfaces are plugged into.
func (g *bareMetalServer) vifs() []string {
	var out []string
	for _, nic := range g.server.NICs {
		if nic.Bridge != "" {
			out = append(out, nic.Bridge)
		} else {
			out = append(out, nic.ID)
		}
	}
	return out
}

// describeSystem says what the machine is to run, plugs it in and asks what it lacks.
func (c bareMetalOperations) describeSystem(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	if err := g.lost(); err != nil {
		return job.Fail(err)
	}
	s, err := c.system(ctx, g.server)
	if err != nil {
		return job.From(err)
	}
	if err := g.api.Describe(ctx, g.node.ID, s); err != nil {
		return c.fromNode(r, g, err)
	}
	if g.node.TakesVIFs {
		if err := g.api.Plug(ctx, g.node.ID, g.vifs()); err != nil {
			return c.fromNode(r, g, err)
		}
	}
	return c.fromNode(r, g, g.api.Validate(ctx, g.node.ID, s.URL == ""))
}

// system is what a server's row asks its machine to run.
func (c bareMetalOperations) system(ctx context.Context, srv *compute.Server) (hypervisor.System, error) {
	needs, _ := srv.Flavor.Metal()
	s := hypervisor.System{Name: srv.Name, Capabilities: needs.Capabilities}
	i := slices.IndexFunc(srv.Disks, func(d compute.Disk) bool { return d.BootIndex == 0 })
	if i < 0 || srv.Disks[i].VolumeID != "" {
		return s, nil
	}
	img, err := c.Store.Images().Get(ctx, nil, srv.Disks[i].ImageID)
	if err != nil {
		return s, err
	}
	s.Disk, s.Digest, s.Format, s.URL = srv.Flavor.Disk, img.Digest, img.DiskFormat, img.URL
	if s.Format != "raw" && s.Format != "qcow2" {
		return s, problem.Invalidf("image %s is a %s: a machine's disk is written from raw or qcow2", img.ID, img.DiskFormat)
	}
	if s.URL == "" && c.LendImage != nil {
		s.URL = c.LendImage(img.Digest)
	}
	if s.URL == "" {
		return s, problem.Conflictf("image %s lies with this control plane, which has no address at which a machine could fetch it: set [ramdisk]listen or [service_catalog]endpoint_override", img.ID)
	}
	return s, nil
}

// askDeployment hands the config drive over with the wish; the first password is forgotten with that.
func (c bareMetalOperations) askDeployment(p bareMetalPoll) bareMetalAction {
	return func(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
		return c.ask(ctx, r, g, p, func() (w hypervisor.NodeRequest, err error) {
			hash, err := firstPassword(r.Secret)
			if err != nil {
				return w, err
			}
			bare := *g.server // its disks are not those of a guest
			bare.Disks, bare.Rescue = nil, nil
			b, err := c.Compute.Servers.Blueprint(ctx, &bare, hash)
			if err == nil {
				w.Drive = b.Secret.Drive
			}
			return w, err
		})
	}
}

func (c bareMetalOperations) awaitDeployment(p bareMetalPoll) bareMetalAction {
	return func(_ context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
		r.Secret = secret.Value{}
		return c.arrive(r, g, p)
	}
}

// powerAfterDeployment leaves a new system running, and a rebuilt one as it was. Who deploys turns machines on: most have nothing to do.
func (c bareMetalOperations) powerAfterDeployment(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	to := compute.PowerOn
	if r.Kind == compute.JobMetalRebuild {
		a, err := parseJobArgs[compute.RebuildArgs](r)
		if err != nil {
			return job.Fail(err)
		}
		to = a.Power
	}
	return c.switchNode(ctx, r, g, to, false, 0)
}
