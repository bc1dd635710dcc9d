package node

import (
	"context"
	"encoding/json"

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

// find asks Glance for an image that a record of the node names. what is the record's key.
func (c glanceImages) find(ctx context.Context, n *metal.Node, what, id string) (metal.GlanceImage, error) {
	if c.Glance == nil {
		return metal.GlanceImage{}, problem.Invalidf("the %s of node %s is the image %s of Glance, and no image service is configured: set [glance]auth_url and its credentials, or give a URL", what, n.ID, id)
	}
	img, err := c.Glance.Image(ctx, id)
	switch {
	case problem.Is(err, problem.NotFound):
		return img, problem.Invalidf("the %s of node %s: Glance has no image %s that salvor's user may see: correct the UUID, or share the image with [glance]project_name", what, n.ID, id)
	case err != nil:
		return img, problem.New(problem.KindOf(err), "the %s of node %s: %w", what, n.ID, err)
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
	said, err := c.find(ctx, m.node, "image_source", id)
	if err != nil {
		return nil, err
	}
	img, err = said.System(m.node, i.ImageFormats)
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
	said, cause := c.find(ctx, n, "image_source", metal.GlanceID(n.Plan.System.Source))
	if cause == nil {
		cause = said.CheckReadable(n)
	}
	if cause == nil {
		return err
	}
	return problem.New(problem.KindOf(err), "%w; %w", err, cause)
}

// inGlance checks an image of Glance that the machine boots or is given.
func (p *nodePreflight) inGlance(kind, what, id string) {
	if p.c.GlanceElsewhere {
		return
	}
	said, err := glanceImages{p.c}.find(p.ctx, p.m.node, what, id)
	if err == nil {
		if err = said.CheckReadable(p.m.node); err != nil {
			err = problem.Invalidf("the %s of node %s: %w", what, p.m.node.ID, err)
		}
	}
	p.add(kind, err)
}
