package service

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// checkRescueImage holds a rescue image to the rules that it can be held to alone, and brings its location into its usual form.
func checkRescueImage(i *rescue.Image) error {
	for field, v := range map[string]string{"name": i.Name, "os": i.OS, "os_family": i.OSFamily, "target_os": i.TargetOS, "target_os_family": i.TargetOSFamily} {
		if len(v) > 256 || strings.ContainsAny(v, "\x00\n\r") {
			return problem.Invalidf("%s is one line of at most 256 characters", field)
		}
	}
	src := &i.Source
	if i.Name == "" {
		return problem.Invalidf("a rescue image needs a name")
	}
	if src.ImageUUID != "" {
		if src.Location != "" {
			return problem.Invalidf("a rescue image has a location, or points at an image, not both")
		}
		src.LocationType = ""
		return compute.CheckSource(src) // what is not said is as the image says
	}
	if src.Kind == "" {
		src.Kind = rescue.ISO
	}
	if src.Access == "" {
		src.Access = rescue.NoAccess
	}
	if err := compute.CheckSource(src); err != nil {
		return err
	}
	return compute.CheckRescueLocation(src)
}

// builtInID is the same at every start and in every database.
var builtInID = uuid.NewSHA1(uuid.NameSpaceURL, []byte("salvor:rescue-image:built-in")).String()

// EnsureBuiltIn adds salvor's own rescue image, the default if there is none, or brings its digests up to date. One that an
// operator removed stays removed.
func (s *RescueImages) EnsureBuiltIn(ctx context.Context, b compute.BuiltIn) error {
	want := rescue.Source{
		Kind: rescue.Kernel, Access: rescue.ByChannel, LocationType: rescue.LocationFile,
		Location: "salvor/rescue.kernel", Ramdisk: "salvor/rescue.ramdisk",
		Digest: b.KernelDigest, RamdiskDigest: b.RamdiskDigest, Append: b.Append,
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		img, err := s.store.RescueImages().Get(ctx, tx, builtInID)
		if err == nil {
			if img.Deleted() || img.Source == want {
				return nil
			}
			img.Source = want
			return s.store.RescueImages().Save(tx, img)
		}
		if !problem.Is(err, problem.NotFound) {
			return err
		}
		defaults, err := s.store.RescueImages().List(ctx, tx, rescue.ImageFilter{Default: true}, record.Page{})
		if err != nil {
			return err
		}
		img = &rescue.Image{Name: "salvor", OS: "salvor", OSFamily: "linux", Default: len(defaults) == 0, Source: want}
		img.ID = builtInID
		if err := s.records.Ready(img); err != nil {
			return err
		}
		return s.store.RescueImages().Insert(tx, img)
	})
}
