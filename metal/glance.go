package metal

import (
	"cmp"
	"slices"
	"strings"

	"salvor/problem"
	"salvor/record"
)

// glanceScheme begins what boot plans name an image of Glance by: glance://UUID.
const glanceScheme = "glance://"

// GlanceID is the UUID of the image of Glance that a record or a plan names: a UUID, or a URL glance://UUID, as in Ironic's
// glance_service.service_utils. It is empty for anything else.
func GlanceID(ref string) string {
	ref = strings.TrimSpace(ref)
	if rest, ok := strings.CutPrefix(ref, glanceScheme); ok {
		ref = rest[strings.LastIndexByte(rest, '/')+1:]
	}
	if !record.IsUUID(ref) {
		return ""
	}
	return strings.ToLower(ref)
}

// GlanceRef is the name of an image of Glance in a boot plan.
func GlanceRef(id string) string { return glanceScheme + id }

// maxGlanceImage bounds an image in bytes: no disk is larger.
const maxGlanceImage = 1 << 46

// GlanceImage is what Glance says of an image.
type GlanceImage struct {
	ID, Name string
	// Status is queued, saving, active, deactivated and the like; only the bytes of an active image can be read.
	Status string
	// Visibility is public, community, shared or private. Owner is the id of its project, and Members those it is shared with.
	Visibility, Owner           string
	Members                     []string
	DiskFormat, ContainerFormat string
	HashAlgo, HashValue         string // of the bytes: os_hash_algo and os_hash_value
	Size                        int64  // bytes
	MinDisk                     int    // GB of the disk that it needs
	Type                        string // the property img_type: whole-disk or partition; empty: not said
	KernelID, RamdiskID         string // properties of a partition image
}

// CheckReadable tells why the bytes cannot be read, whoever asks. Invalid.
func (g GlanceImage) CheckReadable() error {
	switch {
	case g.Status == "queued" || g.Status == "saving" || g.Status == "uploading" || g.Status == "importing":
		return problem.Invalidf("the image %s of Glance is %s: its bytes are not uploaded yet; upload them and try again", g.ID, g.Status)
	case g.Status == "deactivated":
		return problem.Invalidf("the image %s of Glance is deactivated: activate it (openstack image set --activate %s), or name another image", g.ID, g.ID)
	case g.Status != "active":
		return problem.Invalidf("the image %s of Glance has the status %.20q: only an active image can be given to a machine", g.ID, g.Status)
	case g.Size <= 0 || g.Size > maxGlanceImage:
		return problem.Invalidf("the image %s of Glance has %d bytes: it must have between 1 byte and 64 TiB", g.ID, g.Size)
	}
	return nil
}

// VisibleTo tells whether members of a project may read the image, as Glance decides. salvor's own user may see more than they do.
func (g GlanceImage) VisibleTo(project string) bool {
	return g.Visibility == "public" || g.Visibility == "community" || project != "" && project == g.Owner ||
		g.Visibility == "shared" && slices.Contains(g.Members, project)
}

// InstanceReader is the project that must see the images of Glance in instance_info, which the members of the lessee may write. It is
// empty for a node of no project: only administrators and services write its records, and salvor's own user decides.
func (n *Node) InstanceReader() string { return cmp.Or(n.Lessee, n.Owner) }

// System gives the image as the system of a node that an agent writes to its disk. permitted are the formats that may be deployed here.
// Invalid tells why it cannot be. Callers check first that InstanceReader sees it.
func (g GlanceImage) System(n *Node, permitted []string) (Image, error) {
	img := Image{Source: GlanceRef(g.ID), Format: strings.ToLower(g.DiskFormat), Algorithm: strings.ToLower(g.HashAlgo), Sum: strings.ToLower(g.HashValue), Size: g.Size}
	if err := g.CheckReadable(); err != nil {
		return img, err
	}
	kind := strings.TrimSpace(formatScalar(n.InstanceInfo["image_type"])) // it wins, as in Ironic
	if kind == "" {
		kind = g.Type
	}
	local := n.diskGB()
	switch {
	case kind == "partition" || kind == "" && (g.KernelID != "" || g.RamdiskID != ""):
		return img, problem.Invalidf("the image %s of Glance is a partition image (img_type, kernel_id or ramdisk_id): only whole-disk images are written; name another one, or set instance_info image_type to whole-disk", g.ID)
	case g.ContainerFormat != "bare":
		return img, problem.Invalidf("the image %s of Glance has the container format %.20q: only bare images are written", g.ID, g.ContainerFormat)
	case !slices.Contains(diskFormats, img.Format) || !slices.Contains(permitted, img.Format):
		return img, problem.Invalidf("the image %s of Glance has the disk format %.20q: use one of %s", g.ID, g.DiskFormat, strings.Join(permittedDisks(permitted), ", "))
	case digits[img.Algorithm] == 0 || len(img.Sum) != digits[img.Algorithm] || strings.Trim(img.Sum, hexDigits) != "":
		return img, problem.Invalidf("the image %s of Glance has no usable checksum (os_hash_algo %.20q): want sha256 or sha512; set [DEFAULT]hashing_algorithm of Glance and upload it again", g.ID, g.HashAlgo)
	case local > 0 && g.MinDisk > local+1: // local_gb leaves 1 GB out for partitioning
		return img, problem.Invalidf("the image %s of Glance needs a disk of %d GB (min_disk), and the node's local_gb is %d", g.ID, g.MinDisk, local)
	}
	return img, nil
}

// diskGB is the property local_gb; 0: not known.
func (n *Node) diskGB() int {
	var size int
	for _, c := range strings.TrimSpace(formatScalar(n.Properties["local_gb"])) {
		if c < '0' || c > '9' || size > 1<<30 {
			return 0
		}
		size = size*10 + int(c-'0')
	}
	return size
}
