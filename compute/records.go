package compute

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

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

func checkFlavor(f *Flavor) error {
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
	s.Check = func(i *Image) error {
		if i.Status == "" {
			i.Status = ImageQueued
		}
		if len(i.Name) > 255 || i.MinDisk < 0 || i.MinRAM < 0 || i.MinDisk > most || i.MinRAM > most {
			return problem.Invalidf("image %s: a name has at most 255 characters, min_disk and min_ram are no less than 0", i.ID)
		}
		if i.Digest != "" && !digestForm.MatchString(i.Digest) {
			return problem.Invalidf("image %s: its digest is none", i.ID)
		}
		return nil
	}
	s.Admit = c.admitImage
	return s
}

// imageRoads is which status follows which.
var imageRoads = map[ImageStatus][]ImageStatus{
	ImageQueued:      {ImageSaving, ImageActive, ImageKilled},
	ImageSaving:      {ImageActive, ImageQueued, ImageKilled},
	ImageActive:      {ImageDeactivated},
	ImageDeactivated: {ImageActive},
}

// admitImage holds an image to the road of its status: once it is active its bytes stay what they are.
func (c *serviceCore) admitImage(ctx context.Context, tx job.Tx, ch record.Change[Image]) error {
	old, img := ch.Old, ch.New
	switch {
	case img == nil:
		return c.freeImage(ctx, tx, old)
	case old == nil:
		return nil
	case old.Status != img.Status && !slices.Contains(imageRoads[old.Status], img.Status):
		return problem.Conflictf("image %s is %s: it cannot become %s", old.ID, old.Status, img.Status)
	case (old.Status == ImageActive || old.Status == ImageDeactivated) && (old.Digest != img.Digest || old.Size != img.Size || old.DiskFormat != img.DiskFormat):
		return problem.Forbiddenf("image %s is %s: its bytes and their format stay what they are", old.ID, old.Status)
	}
	return nil
}

// freeImage holds an image back that is protected, or that a rescue needs.
func (c *serviceCore) freeImage(ctx context.Context, tx job.Tx, img *Image) error {
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
	open, err := c.store.Servers().List(ctx, tx, ServerFilter{InRescue: true}, record.Page{})
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
	s.Check = func(k *Keypair) (err error) {
		if k.Name == "" || len(k.Name) > 255 {
			return problem.Invalidf("Keypair data is invalid: a name has 1 to 255 characters")
		}
		if k.Type == "" {
			k.Type = "ssh"
		}
		k.PublicKey = strings.TrimSpace(k.PublicKey)
		k.Fingerprint, err = KeyFingerprint(k.PublicKey)
		return err
	}
	return s
}

const maxKey = 16384

// KeyFingerprint is that of an ssh public key as Nova tells it: MD5, for it only names the key. What is no single ssh
// public key is Invalid.
func KeyFingerprint(public string) (string, error) {
	if len(public) > maxKey || strings.ContainsAny(public, "\n\r\x00") {
		return "", problem.Invalidf("Keypair data is invalid: want one ssh public key on one line")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(public))
	if err != nil || len(rest) > 0 || len(options) > 0 {
		return "", problem.Invalidf("Keypair data is invalid: failed to generate fingerprint")
	}
	sum := md5.Sum(key.Marshal())
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = hex.EncodeToString([]byte{b})
	}
	return strings.Join(parts, ":"), nil
}
