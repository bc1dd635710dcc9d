package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// Direct is the deploy interface direct: the agent fetches the image, proves its
// checksum and writes it to the disk.
type Direct struct {
	// Formats are the image formats that may be deployed.
	Formats []string
	// Dirs hold the files of the conductor that may be deployed; none: images come from URLs only.
	Dirs []string
	// Remote marks files of another machine, as driver.BootFiles does.
	Remote bool
}

var _ driver.Imager = Direct{}

// Heartbeats is wait.
func (Direct) Heartbeats() string { return "wait" }

// NeedsImage is true.
func (Direct) NeedsImage() bool { return true }

// BootsRamdisk is false.
func (Direct) BootsRamdisk() bool { return false }

// LocalImage is the path of a file image; of one of Glance it is empty.
func (d Direct) LocalImage(n *metal.Node) (string, error) {
	img, err := metal.ImageOf(n, d.Formats)
	if err != nil {
		return "", problem.Invalidf("deploy node %s: %w", n.ID, err)
	}
	if !strings.HasPrefix(img.Source, "file:") {
		return "", nil
	}
	file, err := driver.LocalFile("image_source", img.Source, driver.BootFiles{Dirs: d.Dirs, Remote: d.Remote})
	if err != nil {
		return "", problem.Invalidf("deploy node %s: %w", n.ID, err)
	}
	return file, nil
}

// Prepare makes the command that writes the image.
func (d Direct) Prepare(n *metal.Node, drive json.RawMessage) (wire.PrepareParams, error) {
	img, err := metal.ImageOf(n, d.Formats)
	if err != nil {
		return wire.PrepareParams{}, problem.Invalidf("deploy node %s: %w", n.ID, err)
	}
	source := img.Source
	switch id := metal.GlanceID(source); {
	case id != "":
		if n.Plan == nil || n.Plan.System == nil || n.Plan.System.Source != img.Source {
			return wire.PrepareParams{}, problem.Conflictf("deploy node %s: the boot of its ramdisk serves no image %s of Glance; ask for the deployment again", n.ID, id)
		}
		img = *n.Plan.System
		source = n.Plan.FileURL(metal.BootImage)
	case strings.HasPrefix(source, "file:"):
		if n.Plan == nil || n.Plan.Image == "" {
			return wire.PrepareParams{}, problem.Conflictf("deploy node %s: the boot of its ramdisk serves no image; ask for the deployment again", n.ID)
		}
		source = n.Plan.FileURL(metal.BootImage)
	}
	format := img.Format
	if format == "gpt" { // a raw image with a partition table
		format = "raw"
	}
	info := wire.Image{
		ID: imageName(img), URLs: []string{source}, DiskFormat: format, ContainerFormat: "bare", StreamRaw: format == "raw",
		Type: "whole-disk", NodeUUID: n.ID, BootMode: driver.BootMode(n), BootOption: "local",
		DiskLabel: metal.Capability(n.InstanceInfo["capabilities"], "disk_label"),
	}
	if img.Algorithm != "" {
		info.HashAlgo, info.HashValue = img.Algorithm, img.Sum
	} else {
		info.Checksum = img.Sum
	}
	text, err := configDrive(n.ID, drive)
	if err != nil {
		return wire.PrepareParams{}, problem.New(problem.KindOf(err), "config drive of node %s: %w", n.ID, err)
	}
	return wire.PrepareParams{ImageInfo: info, ConfigDrive: text}, nil
}

// imageName names an image in messages, and apart from another one of the same name.
func imageName(img metal.Image) string {
	name := cmp.Or(metal.GlanceID(img.Source), "image")
	if u, err := url.Parse(img.Source); err == nil && u.Path != "" {
		name = path.Base(u.Path)
	}
	if !strings.Contains(img.Sum, "://") {
		name += "@" + img.Sum[:12]
	}
	return name
}

// Inspect is the inspect interface agent: a ramdisk looks and calls back.
type Inspect struct{}

var _ driver.RamdiskInspect = Inspect{}

// CallsBack is true.
func (Inspect) CallsBack() bool { return true }

// Inspect is Unsupported: nothing is read without a ramdisk.
func (Inspect) Inspect(_ context.Context, n *metal.Node) (driver.Inspected, error) {
	return driver.Inspected{}, problem.Unsupportedf("inspect node %s: its inspect interface reads nothing without a ramdisk", n.ID)
}
