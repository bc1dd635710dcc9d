package config

import (
	"strings"
	"time"
)

// Compute is [compute]: servers.
type Compute struct {
	// RescueTimeout ends rescue sessions of servers; 0: they last.
	RescueTimeout time.Duration
	// ShutdownTimeout bounds how long a server's own system is asked to power off.
	ShutdownTimeout time.Duration
	// NodeTimeout bounds what a machine of an endpoint is asked for.
	NodeTimeout       time.Duration
	PasswordLength    int
	InstancePasswords bool
	// QuarantineDays is after how many days VM hosts remove quarantined disks; 0: never.
	QuarantineDays int
	// Region of the catalog.
	Region string
}

// Rescue is [rescue]: rescue images.
type Rescue struct {
	// ImagePath is the directory on every VM host.
	ImagePath string
}

// Image is [image]: the bytes of images.
type Image struct {
	Path string
	// MaxGiB is the largest image that is taken.
	MaxGiB int
	// ImportHosts are those that images may be fetched from, as HOST or HOST:PORT; "*": every host.
	ImportHosts []string
}

// Cyclades is [cyclades]: the face for Cyclades' clients.
type Cyclades struct{ RescueEnabled bool }

var computeOptions = []Option{
	newOption("compute", "rescue_timeout", "0", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Compute.RescueTimeout },
		"How long a rescued server stays in rescue before salvor ends the rescue. 0: for ever."),
	newOption("compute", "shutdown_timeout", "60", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Compute.ShutdownTimeout },
		"How long a server's own system may take to power off before it is forced."),
	newOption("compute", "node_timeout", "3600", secondsSyntax(60), func(c *Config) *time.Duration { return &c.Compute.NodeTimeout },
		"How long a machine of a bare metal endpoint may take to be deployed, rescued, put back or given back before its server is in error."),
	newOption("compute", "password_length", "12", integerSyntax(8, 128), func(c *Config) *int { return &c.Compute.PasswordLength },
		"The length of the passwords that are made for servers."),
	newOption("compute", "enable_instance_password", "true", boolean, func(c *Config) *bool { return &c.Compute.InstancePasswords },
		"Put the password, made or given, into the answer to a rescue. Without it the answer is empty."),
	newOption("compute", "quarantine_days", "14", integerSyntax(0, 3650), func(c *Config) *int { return &c.Compute.QuarantineDays },
		"After how many days a VM host removes disks that a rebuild or an evacuation replaced. Until then they count as used space. 0: an operator removes them."),
	newOption("compute", "region_name", "RegionOne", nameSyntax, func(c *Config) *string { return &c.Compute.Region },
		"The region in the catalog of salvor's own identity service."),
	newOption("rescue", "image_path", "/usr/share/salvor/rescue-images", path, func(c *Config) *string { return &c.Rescue.ImagePath },
		"The directory on the nodes of Ganeti clusters below which rescue images of the type file lie. VM hosts have the same default: salvor host --rescue-images names another."),
	newOption("image", "path", "", path, func(c *Config) *string { return &c.Image.Path },
		"The directory of image files; all salvor processes of one database must share it. By default the directory images in the state directory."),
	newOption("image", "max_size", "64", integerSyntax(1, 65536), func(c *Config) *int { return &c.Image.MaxGiB },
		"The largest image that salvor accepts, in GiB."),
	newOption("image", "import_hosts", "", hosts, func(c *Config) *[]string { return &c.Image.ImportHosts },
		"The hosts, as HOST or HOST:PORT, that salvor may fetch images from when asked to (web-download); * is every host. By default it fetches from none."),
	newOption("cyclades", "rescue_enabled", "true", boolean, func(c *Config) *bool { return &c.Cyclades.RescueEnabled },
		"Offer rescue and unrescue to Cyclades' clients."),
}

// hosts are of URLs, by commas or lines.
var hosts = valueSyntax[[]string]{many: true, allowed: "HOST or HOST:PORT, separated by commas, or *", parse: func(s string) ([]string, error) {
	all := splitList(s)
	for _, h := range all {
		name := strings.NewReplacer(":", "", "[", "", "]", "").Replace(h)
		if h != "*" && !isWord(name) {
			return nil, errForm
		}
	}
	return all, nil
}}
