package netboot

import (
	"context"
	"io"

	"salvor/metal"
	"salvor/problem"
)

// ImageService gives the bytes of images of Glance.
type ImageService interface {
	// Open gives the bytes of an image until ctx ends. size is how many there must be; 0: as many as the image has. NotFound: there is
	// no such image. Unavailable: the service does not answer.
	Open(ctx context.Context, id string, size int64) (io.ReadSeekCloser, error)
}

// openImage opens an image of Glance that a plan names. Machines see no difference between one that was deleted and a Glance that is away.
func (s *Server) openImage(ctx context.Context, plan *metal.BootPlan, ref string) (io.ReadSeekCloser, error) {
	var size int64
	if plan.System != nil && plan.System.Source == ref {
		size = plan.System.Size
	}
	return openImage(ctx, s.cfg.Glance, ref, size)
}

func openImage(ctx context.Context, service ImageService, ref string, size int64) (io.ReadSeekCloser, error) {
	if service == nil {
		return nil, problem.Unsupportedf("serve %s: [glance] names no image service", ref)
	}
	image, err := service.Open(ctx, metal.GlanceID(ref), size)
	if problem.Is(err, problem.NotFound) { // the plan is there: NotFound would deny that
		err = problem.Invalidf("%w", err)
	}
	return image, err
}

// isFetched tells a reference whose bytes lie elsewhere, at a URL or in Glance, from a file path.
func isFetched(ref string) bool { return metal.IsURL(ref) || metal.GlanceID(ref) != "" }
