package metal

import (
	"strings"
	"testing"
)

const glanceID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"

func TestGlanceID(t *testing.T) {
	for ref, want := range map[string]string{
		glanceID: glanceID, strings.ToUpper(glanceID): glanceID, " glance://" + glanceID + " ": glanceID, "glance://host/" + glanceID: glanceID,
		"glance://": "", "glance://x": "", "glance:" + glanceID: "", "http://h/" + glanceID: "", "/srv/" + glanceID: "", glanceID + "x": "", "": "",
	} {
		if got := GlanceID(ref); got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}

// TestGlanceSystem: each reason why an image of Glance cannot be the system of a node has a sentence of its own.
func TestGlanceSystem(t *testing.T) {
	for name, c := range map[string]struct {
		image func(*GlanceImage)
		node  func(*Node)
		want  string // of the error; empty: none
	}{
		"good": {},
		"raw, sha256": {image: func(g *GlanceImage) {
			g.DiskFormat, g.HashAlgo, g.HashValue = "raw", "sha256", strings.Repeat("0a", 32)
		}},
		"queued":             {image: func(g *GlanceImage) { g.Status, g.Size = "queued", 0 }, want: "is queued: its bytes are not uploaded"},
		"deactivated":        {image: func(g *GlanceImage) { g.Status = "deactivated" }, want: "openstack image set --activate"},
		"killed":             {image: func(g *GlanceImage) { g.Status = "killed" }, want: `status "killed"`},
		"empty":              {image: func(g *GlanceImage) { g.Size = 0 }, want: "has 0 bytes"},
		"huge":               {image: func(g *GlanceImage) { g.Size = 1 << 60 }, want: "64 TiB"},
		"format":             {image: func(g *GlanceImage) { g.DiskFormat = "vmdk" }, want: `disk format "vmdk": use one of raw, qcow2`},
		"not permitted here": {image: func(g *GlanceImage) { g.DiskFormat = "gpt" }, want: `disk format "gpt"`},
		"container":          {image: func(g *GlanceImage) { g.ContainerFormat = "docker" }, want: `container format "docker"`},
		"md5":                {image: func(g *GlanceImage) { g.HashAlgo, g.HashValue = "md5", strings.Repeat("0", 32) }, want: "no usable checksum"},
		"no checksum":        {image: func(g *GlanceImage) { g.HashAlgo, g.HashValue = "", "" }, want: "no usable checksum"},
		"odd checksum":       {image: func(g *GlanceImage) { g.HashValue = strings.Repeat("zz", 64) }, want: "no usable checksum"},
		"short checksum":     {image: func(g *GlanceImage) { g.HashAlgo = "sha256" }, want: "no usable checksum"},
		"partition":          {image: func(g *GlanceImage) { g.KernelID = glanceID }, want: "partition image"},
		"img_type":           {image: func(g *GlanceImage) { g.Type = "partition" }, want: "partition image"},
		"image_type wins":    {image: func(g *GlanceImage) { g.KernelID = glanceID }, node: func(n *Node) { n.InstanceInfo["image_type"] = "whole-disk" }},
		"min_disk":           {node: func(n *Node) { n.Properties["local_gb"] = float64(8) }, want: "min_disk"},
		"min_disk fits":      {node: func(n *Node) { n.Properties["local_gb"] = "9" }},
		"no local_gb":        {node: func(n *Node) { n.Properties["local_gb"] = "many" }},
	} {
		t.Run(name, func(t *testing.T) {
			g := GlanceImage{
				ID: glanceID, Status: "active", Visibility: "private", Owner: "p1", DiskFormat: "qcow2", ContainerFormat: "bare",
				HashAlgo: "sha512", HashValue: strings.Repeat("0A", 64), Size: 5, MinDisk: 10,
			}
			n := &Node{ID: "n", InstanceInfo: Object{"image_source": glanceID, "image_checksum": "of another image"}, Properties: Object{}}
			if c.image != nil {
				c.image(&g)
			}
			if c.node != nil {
				c.node(n)
			}
			img, err := g.System(n, []string{"raw", "qcow2"})
			if c.want == "" {
				if err != nil || img.Source != "glance://"+glanceID || img.Size != 5 || img.Sum != strings.ToLower(g.HashValue) || img.Algorithm != g.HashAlgo || img.Format != g.DiskFormat {
					t.Errorf("%+v, %v", img, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), glanceID) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestGlanceVisibility: a project sees its own images, public and community ones, and those that it accepted as a member.
func TestGlanceVisibility(t *testing.T) {
	for _, c := range []struct {
		image   GlanceImage
		project string
		want    bool
	}{
		{GlanceImage{Visibility: "private", Owner: "p1"}, "p1", true},
		{GlanceImage{Visibility: "private", Owner: "p1"}, "p2", false},
		{GlanceImage{Visibility: "public", Owner: "p1"}, "p2", true},
		{GlanceImage{Visibility: "community", Owner: "p1"}, "p2", true},
		{GlanceImage{Visibility: "shared", Owner: "p1", Members: []string{"p2"}}, "p2", true},
		{GlanceImage{Visibility: "shared", Owner: "p1", Members: []string{"p3"}}, "p2", false},
		{GlanceImage{Visibility: "private", Owner: "p1", Members: []string{"p2"}}, "p2", false},
		{GlanceImage{Visibility: "private"}, "", false},
	} {
		if got := c.image.VisibleTo(c.project); got != c.want {
			t.Errorf("%+v to %q: %t", c.image, c.project, got)
		}
	}
}

// TestImageOfGlance: instance_info needs neither a format nor a checksum, and its placement is checked all the same.
func TestImageOfGlance(t *testing.T) {
	n := &Node{InstanceInfo: Object{"image_source": glanceID}}
	if img, err := ImageOf(n, []string{"raw"}); err != nil || img.Source != "glance://"+glanceID {
		t.Errorf("%+v, %v", img, err)
	}
	n.InstanceInfo["capabilities"] = "boot_option:netboot"
	if img, err := ImageOf(n, []string{"raw"}); err == nil || img.Source != "glance://"+glanceID {
		t.Errorf("%+v, %v", img, err)
	}
	p := &BootPlan{URL: "http://h", Path: "p", ISO: "glance://" + glanceID}
	if got := p.ISOURL(); got != "http://h/boot/p/boot.iso" {
		t.Errorf("the ISO image is at %s", got)
	}
}
