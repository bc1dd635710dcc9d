package compute

import (
	"context"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

const maxLocation = 2048

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

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
		return checkSource(src) // what is not said is as the image says
	}
	if src.Kind == "" {
		src.Kind = rescue.ISO
	}
	if src.Access == "" {
		src.Access = rescue.NoAccess
	}
	if err := checkSource(src); err != nil {
		return err
	}
	return checkRescueLocation(src)
}

// rescueSource is the rescue system that an image of the image API is, as its format and its properties say.
func (i *Image) rescueSource() (rescue.Source, error) {
	src := rescue.Source{ImageUUID: i.ID, Name: i.Name, Digest: i.Digest, Bus: i.Properties["hw_rescue_bus"], Device: i.Properties["hw_rescue_device"]}
	switch i.DiskFormat {
	case "iso":
		src.Kind, src.Access = rescue.ISO, rescue.NoAccess
	case "raw", "qcow2":
		src.Kind, src.Access = rescue.Disk, rescue.ByConfigDrive
	default:
		return src, problem.Invalidf("image %s has format %s: only iso, raw and qcow2 can be booted for a rescue", i.ID, orNone(i.DiskFormat))
	}
	switch access := rescue.Access(i.Properties[AccessProperty]); access {
	case "":
	case rescue.ByChannel, rescue.ByConfigDrive, rescue.NoAccess:
		src.Access = access
	default:
		return src, problem.Invalidf("image %s: property %s is %q; want %s, %s or %s", i.ID, AccessProperty, truncateText(string(access)), rescue.ByChannel, rescue.ByConfigDrive, rescue.NoAccess)
	}
	return src, nil
}

// settleSource fills in what a rescue image that points at an image does not say itself.
func settleSource(src *rescue.Source, held *Image) error {
	is, err := held.rescueSource()
	if err != nil {
		return err
	}
	if src.Kind != "" && src.Kind != is.Kind {
		return problem.Invalidf("image %s has format %s: it is booted as %s, not as %s", held.ID, held.DiskFormat, is.Kind, src.Kind)
	}
	if src.Kind = is.Kind; src.Access == "" {
		src.Access = is.Access
	}
	return nil
}

func checkSource(src *rescue.Source) error {
	switch src.Kind {
	case "", rescue.ISO, rescue.Disk, rescue.Kernel:
	default:
		return problem.Invalidf("kind %.50q: want %s, %s or %s", src.Kind, rescue.ISO, rescue.Disk, rescue.Kernel)
	}
	switch src.Access {
	case "", rescue.ByChannel, rescue.ByConfigDrive, rescue.NoAccess:
	default:
		return problem.Invalidf("access %.50q: want %s, %s or %s", src.Access, rescue.ByChannel, rescue.ByConfigDrive, rescue.NoAccess)
	}
	if src.Kind == rescue.Kernel && src.Ramdisk == "" && src.ImageUUID == "" {
		return problem.Invalidf("a kernel needs a ramdisk")
	}
	if src.Kind != rescue.Kernel && (src.Ramdisk != "" || src.RamdiskDigest != "" || src.Append != "") {
		return problem.Invalidf("only a kernel has a ramdisk and a command line")
	}
	for _, d := range []string{src.Digest, src.RamdiskDigest} {
		if d != "" && !digestForm.MatchString(d) {
			return problem.Invalidf(`digest %.80q: want "sha256:" and 64 hexadecimal digits`, d)
		}
	}
	return nil
}

// checkRescueLocation checks location and type, which is found out where it is not said.
func checkRescueLocation(src *rescue.Source) error {
	if src.Location == "" {
		return problem.Invalidf("a rescue image needs a location, or an image that it points at")
	}
	web := isURL(src.Location)
	if src.LocationType == "" {
		src.LocationType = rescue.LocationFile
		if web {
			src.LocationType = rescue.LocationHTTP
		}
	}
	for _, l := range []*string{&src.Location, &src.Ramdisk} {
		if *l == "" {
			continue
		}
		var err error
		switch {
		case len(*l) > maxLocation || strings.ContainsAny(*l, "\x00\n\r"):
			err = problem.Invalidf("a location is one line of at most %d characters", maxLocation)
		case src.LocationType == rescue.LocationHTTP:
			err = checkURL(*l)
		case src.LocationType == rescue.LocationFile:
			*l, err = insideDirectory(*l)
		default:
			err = problem.Invalidf("location type %.50q: want %s or %s", src.LocationType, rescue.LocationFile, rescue.LocationHTTP)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isURL(s string) bool {
	low := strings.ToLower(s)
	return strings.HasPrefix(low, "http://") || strings.HasPrefix(low, "https://")
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || !isURL(s) || u.Host == "" || u.User != nil {
		return problem.Invalidf("location %.100q: want http:// or https:// with a host, and without a password", s)
	}
	return nil
}

// insideDirectory brings a file's location, relative to the directory of rescue images, into its usual form. One that would
// leave the directory is Invalid.
func insideDirectory(location string) (string, error) {
	if path.IsAbs(location) || isURL(location) || strings.Contains(location, `\`) {
		return "", problem.Invalidf("location %.100q: a file's location is relative to the directory of rescue images", location)
	}
	for part := range strings.SplitSeq(location, "/") {
		if part == ".." {
			return "", problem.Invalidf("location %.100q would leave the directory of rescue images", location)
		}
	}
	clean := path.Clean(location)
	if clean == "." {
		return "", problem.Invalidf("location %.100q names no file", location)
	}
	return clean, nil
}

// ResolvePath is where a file's location lies on a VM host: below the directory, which it cannot leave.
func ResolvePath(directory, location string) (string, error) {
	if !path.IsAbs(directory) {
		return "", problem.Invalidf("the directory of rescue images is %q: want an absolute path", directory)
	}
	rel, err := insideDirectory(location)
	if err != nil {
		return "", err
	}
	return path.Join(directory, rel), nil
}

// BuiltIn is salvor's own rescue ramdisk: digests ("sha256:...") under which the control plane hands the bytes out.
type BuiltIn struct {
	KernelDigest, RamdiskDigest string
	Append                      string
}

// builtInID is the same at every start and in every database.
var builtInID = uuid.NewSHA1(uuid.NameSpaceURL, []byte("salvor:rescue-image:built-in")).String()

// EnsureBuiltIn adds salvor's own rescue image, the default if there is none, or brings its digests up to date. One that an
// operator removed stays removed.
func (s *RescueImages) EnsureBuiltIn(ctx context.Context, b BuiltIn) error {
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
