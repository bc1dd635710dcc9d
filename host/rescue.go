package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"salvor/compute"
	"salvor/durable"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/rescue"
)

const (
	rescuePrefix = "rescue-"
	rescueDrive  = rescuePrefix + "drive.iso"
	// rescueSession says of which session the files are.
	rescueSession = rescuePrefix + "session"
	// maxRescue bounds a rescue image whose digest nobody told, in bytes.
	maxRescue = 64 << 30
)

func isRescueFile(name string) bool { return strings.HasPrefix(name, rescuePrefix) }

// rescueFile is one file of a rescue system: its image or kernel, or its ramdisk.
type rescueFile struct {
	location, digest string
	// fetch is set where the bytes are known by a digest; they come from a URL or the control plane.
	fetch  *compute.SpecImage
	remote bool // location is a URL
	local  bool // location is a path below the rescue image directory
	copied bool // the guest writes to it
	format string
}

// listRescueFiles are the files of a rescue system; the ramdisk is nil where there is none.
func listRescueFiles(r *compute.SpecRescue) (image, ramdisk *rescueFile) {
	image = pieceOf(r, r.Location, r.Digest, r.Image)
	image.copied = r.Kind == rescue.Disk
	if r.Kind == rescue.Kernel && (r.Ramdisk != "" || r.RamdiskImage != nil) {
		ramdisk = pieceOf(r, r.Ramdisk, r.RamdiskDigest, r.RamdiskImage)
	}
	return image, ramdisk
}

func pieceOf(r *compute.SpecRescue, location, digest string, fetch *compute.SpecImage) *rescueFile {
	p := &rescueFile{location: location, digest: digest}
	p.remote = r.LocationType == rescue.LocationHTTP && location != ""
	p.local = r.LocationType == rescue.LocationFile && location != ""
	if fetch != nil && fetch.Digest != "" {
		image := *fetch
		p.fetch, p.format = &image, image.Format
	} else if p.remote && digest != "" {
		p.fetch = &compute.SpecImage{Digest: digest}
	}
	if p.fetch != nil && p.remote && p.fetch.URL == "" {
		p.fetch.URL = location
	}
	// Of an image of the image API the format is recorded; of a rescue image only its name tells it.
	if r.ImageUUID == "" && strings.HasSuffix(strings.ToLower(location), ".qcow2") {
		p.format = "qcow2"
	}
	return p
}

// inPlace tells whether the guest can read the piece where it lies.
func (p *rescueFile) inPlace() bool { return !p.copied && p.format != "qcow2" }

// name is that of the piece's file beside the guest; each source has its own.
func (p *rescueFile) name(role string) string {
	source := p.location
	if p.fetch != nil {
		source = p.fetch.Digest
	}
	sum := sha256.Sum256([]byte(source))
	return rescuePrefix + role + "-" + hex.EncodeToString(sum[:6])
}

// prepareRescue has the rescue system's files and its config drive here.
func (w *orderExecution) prepareRescue(ctx context.Context, r *compute.SpecRescue) error {
	if err := w.beginRescue(r.Session); err != nil {
		return err
	}
	image, ramdisk := listRescueFiles(r)
	if err := w.placePiece(ctx, image, "image"); err != nil {
		return fmt.Errorf("rescue image %q: %w", r.Name, err)
	}
	if ramdisk != nil {
		if err := w.placePiece(ctx, ramdisk, "ramdisk"); err != nil {
			return fmt.Errorf("ramdisk of rescue image %q: %w", r.Name, err)
		}
	}
	if len(w.secret.RescueDrive) > 0 {
		return w.makeDrive(rescueDrive, w.secret.RescueDrive)
	}
	return nil
}

// beginRescue takes away what another session left: its disk was written to, and its config drive lets others in.
func (w *orderExecution) beginRescue(session string) error {
	stored, err := os.ReadFile(w.path(rescueSession))
	if err == nil && string(stored) == session {
		return nil
	}
	if _, err := w.release(context.Background()); err != nil {
		return fmt.Errorf("remove what a former rescue of server %s left: %w", w.order.ServerID, err)
	}
	return durable.Write(w.path(rescueSession), []byte(session), 0o600)
}

// placePiece has one piece here. What the guest only reads is a link, or stays where it lies.
func (w *orderExecution) placePiece(ctx context.Context, p *rescueFile, role string) error {
	to := w.path(p.name(role))
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	half := to + ".part"
	if err := os.Remove(half); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	path, err := "", error(nil)
	if p.local {
		path, err = w.rescuePath(ctx, p)
		if err == nil && p.inPlace() {
			return nil
		}
	}
	switch {
	case p.local && err == nil:
		err = toRaw(ctx, path, p.format, half, 0)
	case p.fetch != nil:
		err = w.fetchPiece(ctx, p, half)
	case p.remote:
		err = w.download(ctx, p, half)
	case err == nil:
		err = problem.Invalidf("neither a location nor a digest says where it is")
	}
	if err != nil {
		return err
	}
	return durable.Rename(half, to)
}

// fetchPiece links a kept image, or copies what the guest writes to.
func (w *orderExecution) fetchPiece(ctx context.Context, p *rescueFile, to string) error {
	image, release, err := w.images.get(ctx, *p.fetch, func(text string) { w.progress(ctx, w.order, "%s", text) })
	if err != nil {
		return err
	}
	defer release()
	if p.inPlace() && os.Link(image, to) == nil {
		return nil
	}
	return toRaw(ctx, image, p.format, to, 0)
}

// download brings an image whose digest is not known; it is not kept for others.
func (w *orderExecution) download(ctx context.Context, p *rescueFile, to string) error {
	body, _, err := w.controlPlane.image(ctx, "", p.location, 0)
	if err != nil {
		return err
	}
	defer body.Close()
	raw := to
	if p.format == "qcow2" {
		raw = to + ".qcow2"
		defer os.Remove(raw)
	}
	f, err := os.OpenFile(raw, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	guard := newStall(body)
	defer guard.stop()
	n, err := io.Copy(f, io.LimitReader(guard, maxRescue+1))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return problem.Unavailablef("fetch %q: %w", p.location, unwrapURLError(err))
	}
	if n > maxRescue {
		return problem.Invalidf("%q has more than %d bytes", p.location, maxRescue)
	}
	if raw != to {
		return toRaw(ctx, raw, p.format, to, 0)
	}
	return nil
}

// rescuePath finds a file of the rescue image directory, which it cannot leave, be it by a link, and proves it where its digest is known.
func (w *orderExecution) rescuePath(ctx context.Context, p *rescueFile) (string, error) {
	dir, err := filepath.EvalSymlinks(w.RescueDir)
	if err != nil {
		return "", problem.NotFoundf("host %s has no rescue images: %w", w.Name, unwrapPathError(err))
	}
	name := p.location
	if rest, ok := strings.CutPrefix(name, w.RescueDir+"/"); ok {
		name = rest
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("rescue images of host %s: %w", w.Name, unwrapPathError(err))
	}
	defer root.Close()
	f, err := root.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", problem.NotFoundf("its file is not among the rescue images of host %s", w.Name)
	}
	if err != nil {
		return "", problem.Invalidf("its path leads to no regular file among the rescue images of host %s: %w", w.Name, unwrapPathError(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", problem.Invalidf("its path leads to no regular file among the rescue images of host %s", w.Name)
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || !strings.HasPrefix(path, dir+"/") {
		return "", problem.Invalidf("its path leads to no regular file among the rescue images of host %s", w.Name)
	}
	if p.digest != "" {
		err = w.prove(ctx, f, info, p.digest)
	}
	return path, err
}

// unwrapPathError takes the path out of an error: whoever may read the fault of a server need not know where its host keeps files.
func unwrapPathError(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// proofKey names a file as it was proven, so that none is read for each order.
type proofKey struct {
	inode        uint64
	size         int64
	changed      time.Time
	name, digest string
}

func (w *orderExecution) prove(ctx context.Context, f *os.File, info os.FileInfo, digest string) error {
	key := proofKey{inodeNumber(info), info.Size(), info.ModTime(), f.Name(), digest}
	if _, known := w.provenFiles.Load(key); known {
		return nil
	}
	sum := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(sum, f, 16<<20); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read its file on host %s: %w", w.Name, unwrapPathError(err))
		}
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return problem.Invalidf("its file on host %s is not the recorded image: it has %s", w.Name, got)
	}
	w.provenFiles.Store(key, true)
	return nil
}

// rescueFiles says where the rescue system's files lie; they must have been prepared.
func (w *orderExecution) rescueFiles(d *hypervisor.Domain) error {
	image, ramdisk := listRescueFiles(d.Rescue)
	var err error
	if d.RescueImage, err = w.pieceAt(image, "image"); err != nil {
		return err
	}
	d.RescueFormat = rawFormat
	if ramdisk != nil {
		if d.RescueRamdisk, err = w.pieceAt(ramdisk, "ramdisk"); err != nil {
			return err
		}
	}
	if path := w.path(rescueDrive); fileIsThere(path) {
		d.RescueDrivePath = path
	}
	return nil
}

func (w *orderExecution) pieceAt(p *rescueFile, role string) (string, error) {
	if path := w.path(p.name(role)); fileIsThere(path) {
		return path, nil
	}
	if p.local && p.inPlace() {
		if path, err := w.rescuePath(context.Background(), p); err == nil || p.fetch == nil {
			return path, err
		}
	}
	return "", problem.Conflictf("the rescue %s of server %s is not there; prepare it first", role, w.order.ServerID)
}

func fileIsThere(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
