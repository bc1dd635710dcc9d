package compute

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"salvor/problem"
	"salvor/rescue"
)

const maxLocation = 2048

var DigestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// RescueSource is the rescue system that an image of the image API is, as its format and its properties say.
func (i *Image) RescueSource() (rescue.Source, error) {
	src := rescue.Source{ImageUUID: i.ID, Name: i.Name, Digest: i.Digest, Bus: i.Properties["hw_rescue_bus"], Device: i.Properties["hw_rescue_device"]}
	switch i.DiskFormat {
	case "iso":
		src.Kind, src.Access = rescue.ISO, rescue.NoAccess
	case "raw", "qcow2":
		src.Kind, src.Access = rescue.Disk, rescue.ByConfigDrive
	default:
		return src, problem.Invalidf("image %s has format %s: only iso, raw and qcow2 can be booted for a rescue", i.ID, OrNone(i.DiskFormat))
	}
	switch access := rescue.Access(i.Properties[AccessProperty]); access {
	case "":
	case rescue.ByChannel, rescue.ByConfigDrive, rescue.NoAccess:
		src.Access = access
	default:
		return src, problem.Invalidf("image %s: property %s is %q; want %s, %s or %s", i.ID, AccessProperty, TruncateText(string(access)), rescue.ByChannel, rescue.ByConfigDrive, rescue.NoAccess)
	}
	return src, nil
}

// SettleSource fills in what a rescue image that points at an image does not say itself.
func SettleSource(src *rescue.Source, held *Image) error {
	is, err := held.RescueSource()
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

func CheckSource(src *rescue.Source) error {
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
		if d != "" && !DigestForm.MatchString(d) {
			return problem.Invalidf(`digest %.80q: want "sha256:" and 64 hexadecimal digits`, d)
		}
	}
	return nil
}

// CheckRescueLocation checks location and type, which is found out where it is not said.
func CheckRescueLocation(src *rescue.Source) error {
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
