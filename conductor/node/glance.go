package node

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// ImageService tells of the images of Glance.
type ImageService interface {
	// Image gives what Glance says of an image. NotFound: it has none that salvor's user may see. Unavailable: it does not answer.
	// Invalid: it refuses the credentials.
	Image(ctx context.Context, id string) (metal.GlanceImage, error)
}

// glanceImages judge the images of Glance that records name.
type glanceImages struct{ *Conductor }

// find asks Glance for an image that a record of the node names. what is the record's key. project must see the image; empty: it is
// enough that salvor's user sees it. Both images that are missing and images of other projects are Invalid, in the same words.
func (c glanceImages) find(ctx context.Context, n *metal.Node, what, id, project string) (metal.GlanceImage, error) {
	if c.Glance == nil {
		return metal.GlanceImage{}, problem.Invalidf("the %s of node %s is the image %s of Glance, and no image service is configured: set [glance]auth_url and its credentials, or give a URL", what, n.ID, id)
	}
	img, err := c.Glance.Image(ctx, id)
	switch {
	case problem.Is(err, problem.NotFound) || err == nil && project != "" && !img.VisibleTo(project):
		where := "[glance]project_name"
		if project != "" {
			where += " and the project " + project
		}
		return metal.GlanceImage{}, problem.Invalidf("the %s of node %s: Glance has no image %s that this machine may be given: correct the UUID, share the image with %s, or make it public", what, n.ID, id, where)
	case err != nil:
		return metal.GlanceImage{}, problem.New(problem.KindOf(err), "the %s of node %s: %w", what, n.ID, err)
	}
	return img, nil
}

// system asks Glance for the system image that the node is to get; nil if that is no image of Glance.
func (c glanceImages) system(ctx context.Context, m *managedNode) (*metal.Image, error) {
	i, _ := m.info.Find(m.node, "deploy")
	img, err := metal.ImageOf(m.node, i.ImageFormats)
	id := metal.GlanceID(img.Source)
	switch {
	case id == "": // the deploy interface judges it
		return nil, nil
	case err != nil:
		return nil, err
	}
	found, err := c.find(ctx, m.node, "image_source", id, m.node.InstanceReader())
	if err != nil {
		return nil, err
	}
	img, err = found.System(m.node, i.ImageFormats)
	return &img, err
}

// systemMemo holds what Glance said of the system image when the deployment decided to boot a ramdisk, before it touched the machine.
const systemMemo = "image of Glance"

// note asks Glance once for the system image, so that Glance may be away while the ramdisk boots.
func (c glanceImages) note(ctx context.Context, r *job.Run, m *managedNode) error {
	system, err := c.system(ctx, m)
	if err != nil || system == nil {
		return err
	}
	text, err := json.Marshal(system)
	if err == nil {
		r.Note(systemMemo, string(text))
	}
	return err
}

// plan has the boot of the ramdisk serve the system image, if that lies here or in Glance.
func (c glanceImages) plan(ctx context.Context, r *job.Run, m *managedNode, imager driver.Imager, plan *metal.BootPlan) error {
	file, err := imager.LocalImage(m.node)
	if err != nil || file != "" {
		plan.Image = file
		return err
	}
	if text := r.Memo[systemMemo]; text != "" {
		err = json.Unmarshal([]byte(text), &plan.System)
	} else { // a job of the release before
		plan.System, err = c.system(ctx, m)
	}
	if err == nil && plan.System != nil {
		plan.Image = plan.System.Source
	}
	return err
}

// cause adds to the failure of an agent why Glance no longer gives the image: the agent sees only that its download ended.
func (c glanceImages) cause(ctx context.Context, n *metal.Node, err error) error {
	if err == nil || n.Plan == nil || n.Plan.System == nil {
		return err
	}
	img, cause := c.find(ctx, n, "image_source", metal.GlanceID(n.Plan.System.Source), n.InstanceReader())
	if cause == nil {
		cause = img.CheckReadable()
	}
	if cause == nil {
		return err
	}
	return problem.New(problem.KindOf(err), "%w; %w", err, cause)
}

// checkBootFile checks a boot file of a plan that is an image of Glance: the machine is given only what the project that names the image
// may read. Others are no concern of it. what the file is.
func (c glanceImages) checkBootFile(ctx context.Context, n *metal.Node, plan *metal.BootPlan, what, ref string) error {
	id := metal.GlanceID(ref)
	if id == "" || c.GlanceElsewhere {
		return nil
	}
	img, err := c.find(ctx, n, what, id, c.readerOf(n, plan, id))
	if err != nil {
		return err
	}
	if err := img.CheckReadable(); err != nil {
		return problem.Invalidf("the %s of node %s: %w", what, n.ID, err)
	}
	return nil
}

// checkPlan checks the images of Glance that a boot plan names, when the plan is made: records may have changed since the operation was
// checked. Invalid, or the errors of ImageService.
func (c glanceImages) checkPlan(ctx context.Context, n *metal.Node, plan *metal.BootPlan) error {
	for _, f := range [][2]string{{"kernel", plan.Kernel}, {"ramdisk", plan.Ramdisk}, {"ISO image", plan.ISO}} {
		if err := c.checkBootFile(ctx, n, plan, f[0], f[1]); err != nil {
			return err
		}
	}
	return nil
}

// bootPlan plans a boot and checks what it gives to the machine. Nothing is touched.
func (c glanceImages) bootPlan(ctx context.Context, m *managedNode, r driver.Ramdisk) (*metal.BootPlan, error) {
	plan, err := m.boot.Plan(m.node, r)
	if err != nil {
		return nil, err
	}
	return plan, c.checkPlan(ctx, m.node, plan)
}

// readerOf is the project that must see an image of Glance that a plan names; empty: it is enough that salvor's user sees it. Systems
// are named by instance_info, ramdisks of ours by driver_info, which the owner writes, or by the configuration, which holds for all nodes.
func (c glanceImages) readerOf(n *metal.Node, plan *metal.BootPlan, id string) string {
	switch {
	case plan.Persistent:
		return n.InstanceReader()
	case c.configured(id):
		return ""
	}
	return n.Owner
}

// configured tells whether the configuration has machines boot an image of Glance.
func (c glanceImages) configured(id string) bool {
	all := []Images{{c.RescueKernel, c.RescueRamdisk}, {c.DeployKernel, c.DeployRamdisk}}
	all = slices.AppendSeq(all, maps.Values(c.RescueByArch))
	all = slices.AppendSeq(all, maps.Values(c.DeployByArch))
	return slices.ContainsFunc(all, func(i Images) bool { return metal.GlanceID(i.Kernel) == id || metal.GlanceID(i.Ramdisk) == id })
}
