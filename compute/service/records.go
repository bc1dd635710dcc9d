package service

import (
	"context"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

func newFlavors(c *serviceCore) *Flavors {
	s := record.NewCollection("flavor", c.store.Flavors(), c.jobs, c.now)
	s.Check = checkFlavor
	return s
}

// most bounds sizes, so that sums of them stay numbers.
const most = 1<<31 - 1

func checkFlavor(f *compute.Flavor) error {
	if f.Ref == "" {
		f.Ref = f.ID
	}
	if f.Name = strings.TrimSpace(f.Name); f.Name == "" || len(f.Name) > 255 || len(f.Ref) > 255 {
		return problem.Invalidf("a flavor's name and id have 1 to 255 characters")
	}
	for field, v := range map[string]int{"vcpus": f.VCPUs, "ram": f.RAM, "disk": f.Disk + 1, "ephemeral": f.Ephemeral + 1, "swap": f.Swap + 1} {
		if v < 1 || v > most {
			return problem.Invalidf("flavor %s: %s is out of range", f.Name, field)
		}
	}
	return nil
}

func newImages(c *serviceCore) *Images {
	s := record.NewCollection("image", c.store.Images(), c.jobs, c.now)
	s.Check = func(i *compute.Image) error {
		if i.Status == "" {
			i.Status = compute.ImageQueued
		}
		if len(i.Name) > 255 || i.MinDisk < 0 || i.MinRAM < 0 || i.MinDisk > most || i.MinRAM > most {
			return problem.Invalidf("image %s: a name has at most 255 characters, min_disk and min_ram are no less than 0", i.ID)
		}
		if i.Digest != "" && !compute.DigestForm.MatchString(i.Digest) {
			return problem.Invalidf("image %s: its digest is none", i.ID)
		}
		return nil
	}
	s.Admit = c.admitImage
	return s
}

// admitImage holds an image to the road of its status: once it is active its bytes stay what they are.
func (c *serviceCore) admitImage(ctx context.Context, tx job.Tx, ch record.Change[compute.Image]) error {
	old, img := ch.Old, ch.New
	switch {
	case img == nil:
		return c.freeImage(ctx, tx, old)
	case old == nil:
		return nil
	case old.Status != img.Status && !slices.Contains(compute.ImageTransports[old.Status], img.Status):
		return problem.Conflictf("image %s is %s: it cannot become %s", old.ID, old.Status, img.Status)
	case (old.Status == compute.ImageActive || old.Status == compute.ImageDeactivated) && (old.Digest != img.Digest || old.Size != img.Size || old.DiskFormat != img.DiskFormat):
		return problem.Forbiddenf("image %s is %s: its bytes and their format stay what they are", old.ID, old.Status)
	}
	return nil
}

// freeImage holds an image back that is protected, or that a rescue needs.
func (c *serviceCore) freeImage(ctx context.Context, tx job.Tx, img *compute.Image) error {
	if img.Protected {
		return problem.Forbiddenf("Image %s is protected and cannot be deleted.", img.ID)
	}
	images, err := c.store.RescueImages().List(ctx, tx, rescue.ImageFilter{}, record.Page{})
	if err != nil {
		return err
	}
	for _, r := range images {
		if r.Source.ImageUUID == img.ID {
			return problem.Conflictf("image %s is in use: rescue image %d points at it", img.ID, r.Num)
		}
	}
	open, err := c.store.Servers().List(ctx, tx, compute.ServerFilter{InRescue: true}, record.Page{})
	if err != nil {
		return err
	}
	for _, srv := range open {
		if srv.InSession() && srv.Rescue.Source != nil && srv.Rescue.Source.ImageUUID == img.ID {
			return problem.Conflictf("image %s is in use: server %s is rescued with it", img.ID, srv.ID)
		}
	}
	return nil
}

func newKeypairs(c *serviceCore) *Keypairs {
	s := record.NewCollection("keypair", c.store.Keypairs(), c.jobs, c.now)
	s.Check = func(k *compute.Keypair) (err error) {
		if k.Name == "" || len(k.Name) > 255 {
			return problem.Invalidf("Keypair data is invalid: a name has 1 to 255 characters")
		}
		if k.Type == "" {
			k.Type = "ssh"
		}
		k.PublicKey = strings.TrimSpace(k.PublicKey)
		k.Fingerprint, err = compute.KeyFingerprint(k.PublicKey)
		return err
	}
	return s
}
