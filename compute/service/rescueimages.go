package service

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// RescueImages is the service of rescue images.
type RescueImages struct {
	*serviceCore
	liveness *Liveness
	records  *record.Collection[rescue.Image, rescue.ImageFilter]
}

func newRescueImages(c *serviceCore, liveness *Liveness) *RescueImages {
	s := &RescueImages{serviceCore: c, liveness: liveness, records: record.NewCollection("rescue image", c.store.RescueImages(), c.jobs, c.now)}
	s.records.Check = checkRescueImage
	s.records.Admit = s.admit
	return s
}

func noRescueImage(ident string) error {
	return problem.NotFoundf("Rescue image %s not found", compute.TruncateText(ident))
}

// Get reads one by its number or UUID, a removed one too.
func (s *RescueImages) Get(ctx context.Context, ident string) (*rescue.Image, error) {
	return s.find(ctx, nil, ident)
}

func (s *RescueImages) find(ctx context.Context, tx job.Tx, ident string) (*rescue.Image, error) {
	if record.IsUUID(ident) {
		img, err := s.store.RescueImages().Get(ctx, tx, strings.ToLower(ident))
		if problem.Is(err, problem.NotFound) {
			return nil, noRescueImage(ident)
		}
		return img, err
	}
	num, err := strconv.ParseInt(ident, 10, 64)
	if err != nil || num < 1 {
		return nil, noRescueImage(ident)
	}
	found, err := s.store.RescueImages().List(ctx, tx, rescue.ImageFilter{Deleted: true, Num: num}, record.Page{})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, noRescueImage(ident)
	}
	return found[0], nil
}

// List reads a page.
func (s *RescueImages) List(ctx context.Context, f rescue.ImageFilter, p record.Page) ([]*rescue.Image, error) {
	return s.records.List(ctx, f, p)
}

// Use counts the servers whose open session uses each image, by number, in one query.
func (s *RescueImages) Use(ctx context.Context) (map[int64]int, error) {
	return s.store.RescueImageUse(ctx, nil)
}

// Create adds an image; an empty name is chosen, an empty location type found out.
func (s *RescueImages) Create(ctx context.Context, img *rescue.Image, who record.Asker) error {
	if img.Name == "" {
		img.Name = "rescue-image-" + uuid.NewString()
	}
	if err := s.reachable(img, ""); err != nil {
		return err
	}
	return s.records.Create(ctx, img, who)
}

// Update changes an image by its number or UUID. The bytes of one that is in use stay; Default moves from another one and is never
// taken away alone. A change that names an image of the image API takes the location away, and the other way round. The
// edit may be called twice.
func (s *RescueImages) Update(ctx context.Context, ident string, who record.Asker, edit func(*rescue.Image) error) (*rescue.Image, error) {
	old, err := s.find(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	return s.records.Update(ctx, old.ID, who, func(img *rescue.Image) error {
		was := *img
		if err := edit(img); err != nil {
			return err
		}
		if img.Source.ImageUUID != was.Source.ImageUUID || was.Source.ImageUUID != "" && img.Source.Location != "" {
			img.Source = rescue.Source{} // other bytes: all that is said of them is said anew
			if err := edit(img); err != nil {
				return err
			}
		}
		img.Num, img.ID, img.DeletedAt = was.Num, was.ID, was.DeletedAt
		if was.Source.Location != img.Source.Location && img.Source.LocationType == was.Source.LocationType {
			img.Source.LocationType = "" // of the new one
		}
		return s.reachable(img, was.Source.Location)
	})
}

// reachable asks for a new URL whether it answers, before any transaction.
func (s *RescueImages) reachable(img *rescue.Image, was string) error {
	if err := checkRescueImage(img); err != nil {
		return err
	}
	if img.Source.LocationType != rescue.LocationHTTP || img.Source.Location == was || s.opts.HeadURL == nil {
		return nil
	}
	if err := s.opts.HeadURL(img.Source.Location); err != nil {
		return problem.Invalidf("location %s does not answer HEAD with 200: %w", img.Source.Location, err)
	}
	return nil
}

// admit holds an image to the others, in the transaction that writes it.
func (s *RescueImages) admit(ctx context.Context, tx job.Tx, c record.Change[rescue.Image]) error {
	img := c.New
	if c.Old != nil {
		if err := s.admitChange(ctx, tx, c); err != nil {
			return err
		}
	}
	if img.Source.ImageUUID != "" {
		held, err := s.store.Images().Get(ctx, tx, img.Source.ImageUUID)
		if err != nil {
			return invalidReferenceError(err, "image", img.Source.ImageUUID)
		}
		if err := compute.SettleSource(&img.Source, held); err != nil {
			return err
		}
	}
	all, err := s.store.RescueImages().List(ctx, tx, rescue.ImageFilter{}, record.Page{})
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.ID == img.ID {
			continue
		}
		if img.Source.Location != "" && other.Source.Location == img.Source.Location {
			return problem.Conflictf("Rescue image %d (%s) has location %s already", other.Num, other.Name, img.Source.Location)
		}
		if !img.Default || !other.Default {
			continue
		}
		other.Default = false // it moves
		if err := s.store.RescueImages().Save(tx, other); err != nil {
			return err
		}
	}
	return nil
}

// admitChange holds a change to what the image is to others.
func (s *RescueImages) admitChange(ctx context.Context, tx job.Tx, c record.Change[rescue.Image]) error {
	old, img := c.Old, c.New
	if old.Deleted() {
		return noRescueImage(strconv.FormatInt(old.Num, 10))
	}
	if old.Default && !img.Default {
		return problem.Conflictf("Rescue image %d is the default: make another one the default instead", old.Num)
	}
	if bytesOf(old.Source) == bytesOf(img.Source) {
		return nil
	}
	if err := s.store.UseRescueImage(tx, old.Num); err != nil {
		return err
	}
	return s.unused(ctx, tx, old)
}

// bytesOf is where the bytes of a source lie.
func bytesOf(s rescue.Source) [6]string {
	return [6]string{s.ImageUUID, s.LocationType, s.Location, s.Ramdisk, s.Digest, s.RamdiskDigest}
}

// unused fails while an open session references the image; whoever holds its row knows that none comes meanwhile.
func (s *RescueImages) unused(ctx context.Context, tx job.Tx, img *rescue.Image) error {
	use, err := s.store.RescueImageUse(ctx, tx)
	if err != nil {
		return err
	}
	if n := use[img.Num]; n > 0 {
		return problem.Conflictf("%d or more servers are currently using rescue image %d", n, img.Num)
	}
	return nil
}

// Remove marks an image as deleted; one that is the default, or in use unless force is set, is Conflict. An open session
// goes on with its own copy of where the bytes lie.
func (s *RescueImages) Remove(ctx context.Context, ident string, force bool, who record.Asker) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		img, err := s.find(ctx, tx, ident)
		if err != nil {
			return err
		}
		if img.Deleted() {
			return noRescueImage(ident)
		}
		if err := s.store.UseRescueImage(tx, img.Num); err != nil {
			return err
		}
		if img.Default {
			return problem.Conflictf("Rescue image %d is marked as default and therefore can not be deleted", img.Num)
		}
		if err := s.unused(ctx, tx, img); err != nil && (!force || !problem.Is(err, problem.Conflict)) {
			return err
		}
		img.DeletedAt = s.now()
		if err := s.store.RescueImages().Save(tx, img); err != nil {
			return err
		}
		return s.records.Tell(tx, record.Change[rescue.Image]{Old: img, Asker: who})
	})
}

// Select finds the image for a server's rescue and locks its row until the transaction ends: the one that is asked for; else
// by the server's operating system and family; else by its family; else the default. What was removed is never chosen; of
// several the lowest number wins.
func (s *RescueImages) Select(ctx context.Context, tx job.Tx, req rescue.Request, srv *compute.Server, who compute.Who) (*rescue.Source, error) {
	bootsCDOnly, err := s.onCluster(ctx, tx, srv)
	if err != nil {
		return nil, err
	}
	if req.Image == 0 && req.ImageUUID == "" {
		return s.best(ctx, tx, srv, bootsCDOnly)
	}
	src, err := s.asked(ctx, tx, req, srv, who)
	if err == nil && bootsCDOnly {
		err = s.bootsOnCluster(ctx, tx, src, srv)
	}
	return src, err
}

// bootsOnCluster holds an image to what a cluster boots; nothing is fetched from here for it.
func (s *RescueImages) bootsOnCluster(ctx context.Context, tx job.Tx, src *rescue.Source, srv *compute.Server) error {
	if src.Kind != rescue.ISO {
		return problem.Invalidf("rescue image %q is a %s: server %s is on a Ganeti cluster, which boots rescue systems from CD only; name an ISO image", src.Name, src.Kind, srv.ID)
	}
	if src.ImageUUID == "" {
		return nil
	}
	img, err := s.store.Images().Get(ctx, tx, src.ImageUUID)
	if err != nil {
		return invalidReferenceError(err, "image", src.ImageUUID)
	}
	if img.URL == "" {
		return problem.Invalidf("image %q was uploaded: server %s is on a Ganeti cluster, which boots files of its nodes and URLs only; name a rescue image that lies there (salvor rescue-image add)", src.Name, srv.ID)
	}
	return nil
}

// onCluster tells whether a server is on a host that boots rescue systems from CD only.
func (s *RescueImages) onCluster(ctx context.Context, tx job.Tx, srv *compute.Server) (bool, error) {
	if srv.HostID == "" {
		return false, nil
	}
	h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	return err == nil && h.Kind == compute.GanetiHost, ignoreNotFound(err)
}

// asked is the image that the request names.
func (s *RescueImages) asked(ctx context.Context, tx job.Tx, req rescue.Request, srv *compute.Server, who compute.Who) (*rescue.Source, error) {
	if req.Image != 0 {
		return s.named(ctx, tx, strconv.FormatInt(req.Image, 10))
	}
	src, err := s.apiImage(ctx, tx, req.ImageUUID, srv, who)
	if problem.Is(err, problem.NotFound) {
		return s.named(ctx, tx, req.ImageUUID)
	}
	return src, err
}

// best is the image that suits the server best, among those that can be booted where it is.
func (s *RescueImages) best(ctx context.Context, tx job.Tx, srv *compute.Server, bootsCDOnly bool) (*rescue.Source, error) {
	all, err := s.store.RescueImages().List(ctx, tx, rescue.ImageFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	hint := ""
	if bootsCDOnly {
		all = slices.DeleteFunc(all, func(i *rescue.Image) bool { return i.Source.Kind != rescue.ISO || i.Source.ImageUUID != "" })
		hint = ": its cluster boots ISO images only, from files of its nodes or URLs; add one (salvor rescue-image add), and make it the default or say which systems it suits"
	}
	img := chooseRescueImage(all, srv.OS, srv.OSFamily)
	if img == nil {
		return nil, problem.NotFoundf("Rescue image with properties: OS-Family %s and OS %s not found%s", compute.OrNone(srv.OSFamily), compute.OrNone(srv.OS), hint)
	}
	return s.use(ctx, tx, img)
}

// chooseRescueImage is the rule of choice among the images that are there.
func chooseRescueImage(all []*rescue.Image, system, family string) *rescue.Image {
	all = slices.DeleteFunc(slices.Clone(all), func(i *rescue.Image) bool { return i.Deleted() })
	slices.SortFunc(all, func(a, b *rescue.Image) int { return int(a.Num - b.Num) })
	same := func(target, is string) bool { return is != "" && strings.EqualFold(target, is) }
	for _, fits := range []func(*rescue.Image) bool{
		func(i *rescue.Image) bool { return same(i.TargetOSFamily, family) && same(i.TargetOS, system) },
		func(i *rescue.Image) bool { return same(i.TargetOSFamily, family) },
		func(i *rescue.Image) bool { return i.Default },
	} {
		if i := slices.IndexFunc(all, fits); i >= 0 {
			return all[i]
		}
	}
	return nil
}

func (s *RescueImages) named(ctx context.Context, tx job.Tx, ident string) (*rescue.Source, error) {
	img, err := s.find(ctx, tx, ident)
	if err != nil {
		return nil, err
	}
	if img.Deleted() {
		return nil, noRescueImage(ident)
	}
	return s.use(ctx, tx, img)
}

// use locks the row and copies what a session keeps of it.
func (s *RescueImages) use(ctx context.Context, tx job.Tx, img *rescue.Image) (*rescue.Source, error) {
	err := s.store.UseRescueImage(tx, img.Num)
	if problem.Is(err, problem.NotFound) {
		return nil, noRescueImage(strconv.FormatInt(img.Num, 10))
	}
	if err != nil {
		return nil, err
	}
	src := img.Source
	src.ImageID, src.Name = img.Num, img.Name
	if src.ImageUUID != "" {
		held, err := s.store.Images().Get(ctx, tx, src.ImageUUID)
		if err != nil || held.Status != compute.ImageActive {
			return nil, problem.Conflictf("rescue image %d: image %s that it points at cannot be used; point it at another one", img.Num, src.ImageUUID)
		}
		is, err := held.RescueSource()
		if err != nil {
			return nil, problem.Conflictf("rescue image %d: %w", img.Num, err)
		}
		src.Digest, src.Kind, src.Bus, src.Device = is.Digest, is.Kind, is.Bus, is.Device
	}
	return &src, nil
}

// apiImage makes a rescue system of an image of the image API, as its properties say. One that neither
// the asker nor the server's project may see is not there.
func (s *RescueImages) apiImage(ctx context.Context, tx job.Tx, id string, srv *compute.Server, who compute.Who) (*rescue.Source, error) {
	if !record.IsUUID(id) {
		return nil, noRescueImage(id)
	}
	img, err := s.store.Images().Get(ctx, tx, strings.ToLower(id))
	if err != nil || !img.Visible(who) && !img.Visible(compute.Who{Project: srv.Project}) {
		if err == nil || problem.Is(err, problem.NotFound) {
			err = noRescueImage(id)
		}
		return nil, err
	}
	if img.Status != compute.ImageActive {
		return nil, problem.Invalidf("image %s is not active: it is %s", img.ID, img.Status)
	}
	if size := img.SizeGiB(); size > compute.MaxImpliedDisk {
		return nil, problem.Invalidf("image %s is a disk of %d GiB; a rescue takes at most %d: rescue with a smaller image", img.ID, size, compute.MaxImpliedDisk)
	}
	src, err := img.RescueSource()
	if err != nil {
		return nil, err
	}
	return &src, nil
}
