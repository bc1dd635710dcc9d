package compute

import (
	"context"

	"salvor/job"
	"salvor/record"
	"salvor/rescue"
)

// RescueImages is the service of rescue images.
type RescueImages struct {
	*core
	records *record.Collection[rescue.Image, rescue.ImageFilter]
}

func newRescueImages(c *core) *RescueImages { return &RescueImages{core: c} }

// Get reads one by its number or UUID, a removed one too.
func (s *RescueImages) Get(ctx context.Context, ident string) (*rescue.Image, error) {
	return nil, errSoon
}

// List reads a page.
func (s *RescueImages) List(ctx context.Context, f rescue.ImageFilter, p record.Page) ([]*rescue.Image, error) {
	return nil, errSoon
}

// Use counts the servers whose open session uses each image, by number.
func (s *RescueImages) Use(ctx context.Context) (map[int64]int, error) { return nil, errSoon }

// Create adds an image; an empty name is chosen, an empty location type found out.
func (s *RescueImages) Create(ctx context.Context, img *rescue.Image, who record.Asker) error {
	return errSoon
}

// Update changes an image by its number or UUID. The bytes of one that is in use stay; Default moves from another one and is never taken away alone.
func (s *RescueImages) Update(ctx context.Context, ident string, who record.Asker, edit func(*rescue.Image) error) (*rescue.Image, error) {
	return nil, errSoon
}

// Remove marks an image as deleted; one that is the default, or in use unless force is set, is Conflict.
func (s *RescueImages) Remove(ctx context.Context, ident string, force bool, who record.Asker) error {
	return errSoon
}

// Select finds the image for a server's rescue and locks its row until the transaction ends.
func (s *RescueImages) Select(ctx context.Context, tx job.Tx, req rescue.Request, srv *Server) (*rescue.Source, error) {
	return nil, errSoon
}

// BuiltIn is salvor's own rescue ramdisk: digests ("sha256:...") under which the control plane hands the bytes out.
type BuiltIn struct {
	KernelDigest, RamdiskDigest string
	Append                      string
}

// EnsureBuiltIn adds salvor's own rescue image, the default if there is none, or brings its digests up to date.
func (s *RescueImages) EnsureBuiltIn(ctx context.Context, b BuiltIn) error { return errSoon }
