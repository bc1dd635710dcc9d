package driver

import (
	"crypto/rand"
	"encoding/base64"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"salvor/metal"
	"salvor/problem"
)

// BootFiles is what every boot interface knows of the doors that a ramdisk uses.
type BootFiles struct {
	// URL is the base URL under which machines reach our boot files.
	URL string
	// APIURL is the kernel parameter ipa-api-url.
	APIURL string
	// Append are kernel parameters for every ramdisk; %default% in a node's kernel_append_params stands for them.
	Append string
	// Dirs hold the kernels and ramdisks that may be given to machines; empty: any file.
	Dirs []string
	// Remote marks files of another machine: their paths are compared as they are written.
	Remote bool
}

// Check tells every cause why the kernel and the ramdisk cannot be given to machines.
func (f BootFiles) Check(r Ramdisk) error {
	_, err := f.compose(&metal.Node{}, r, "")
	return err
}

// composed is what a plan is made of.
type composed struct {
	kernel, ramdisk, iso string
	params               []string
}

// Plan makes the boot plan of a node with a fresh random path, as Boot.Plan says. What cannot be booted (no kernel, parameters
// that would break a boot script) is Invalid; the error names every cause.
func (f BootFiles) Plan(n *metal.Node, r Ramdisk, method metal.BootMethod) (*metal.BootPlan, error) {
	c, err := f.compose(n, r, method)
	if err != nil {
		return nil, problem.Invalidf("boot plan of node %s: %w", n.ID, err)
	}
	plan := &metal.BootPlan{
		Method: method, Path: bootPath(), Kernel: c.kernel, Ramdisk: c.ramdisk, ISO: c.iso, Params: c.params,
		BootNumber: r.BootNumber, CarryToken: r.CarryToken && c.iso == "", Persistent: r.Persistent, URL: strings.TrimRight(f.URL, "/"),
		ConfigDrive: r.ConfigDrive && method == metal.BootMedia,
		SecureBoot:  SecureBoot(n), FirmwareMode: BootMode(n),
	}
	plan.MACs = macsOf(r.Ports)
	return plan, nil
}

func (f BootFiles) compose(n *metal.Node, r Ramdisk, method metal.BootMethod) (composed, error) {
	var causes []string
	note := func(err error) {
		if err != nil {
			causes = append(causes, err.Error())
		}
	}
	var c composed
	var err error
	switch {
	case r.ISO != "" && method == metal.BootMedia:
		c.iso, err = f.file("ISO image", r.ISO)
		note(err)
	case r.ISO != "" && r.Kernel == "" && r.Image == "":
		causes = append(causes, "a network boot cannot show the machine an ISO image, which its system reads after the start: set boot_interface to redfish-virtual-media")
	default:
		c.kernel, err = f.file("kernel", r.Kernel)
		note(err)
		c.ramdisk, err = f.file("ramdisk", r.Image)
		note(err)
	}
	if f.URL == "" || f.APIURL == "" {
		causes = append(causes, NoRamdiskURL)
	}
	if c.iso == "" {
		c.params, err = f.params(n, r.Params)
		note(err)
	}
	if len(causes) > 0 {
		return c, problem.Invalidf("%s", strings.Join(causes, "; "))
	}
	return c, nil
}

// NoRamdiskURL says that ramdisks would have nobody to call.
const NoRamdiskURL = "this conductor has no address that a ramdisk can call: set [ramdisk]listen or [service_catalog]endpoint_override"

// macsOf are the addresses by which a machine's request is told from others.
func macsOf(ports []*metal.Port) []string {
	var out []string
	for _, p := range ports {
		if mac := strings.ToLower(p.Address); mac != "" && !slices.Contains(out, mac) {
			out = append(out, mac)
		}
	}
	return out
}

// bootPath has 192 bits in 32 characters that need no escaping.
func bootPath() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// file checks where a kernel or ramdisk lies. A path outside of the directories for
// them is refused: whoever may write driver_info would read our files through a boot.
func (f BootFiles) file(what, where string) (string, error) {
	if where == "" {
		return "", problem.Invalidf("no %s is known: set it in driver_info or in the configuration", what)
	}
	if id := metal.GlanceID(where); id != "" {
		return metal.GlanceRef(id), nil
	}
	u, err := url.Parse(where)
	if err != nil {
		return "", problem.Invalidf("the %s is neither a path, a URL nor the UUID of an image of Glance", what)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" {
			return "", problem.Invalidf("the URL of the %s names no host", what)
		}
		return where, nil
	case "file":
		where = u.Path
	case "":
	default:
		return "", problem.Invalidf("the %s has scheme %q; want http, https, file or a path", what, Sanitize(u.Scheme))
	}
	if !filepath.IsAbs(where) {
		return "", problem.Invalidf("the path of the %s is not absolute", what)
	}
	where = filepath.Clean(where)
	if len(f.Dirs) > 0 && !slices.ContainsFunc(f.Dirs, func(dir string) bool { return f.within(dir, where) }) {
		return "", problem.Invalidf("the %s %s lies outside of the directories for boot images: add its directory to [conductor]file_url_allowed_paths, or copy the file into one of them", what, Sanitize(where))
	}
	return where, nil
}

// LocalFile checks a file of the conductor that a node's record names, a path or a file URL: it must lie in one of the directories.
func LocalFile(what, where string, files BootFiles) (string, error) {
	if len(files.Dirs) == 0 {
		return "", problem.Invalidf("the %s is a file of the conductor, and [conductor]file_url_allowed_paths names no directory for those", what)
	}
	if strings.HasPrefix(where, "http:") || strings.HasPrefix(where, "https:") {
		return "", problem.Invalidf("the %s is not a file", what)
	}
	return files.file(what, where)
}

// within follows symbolic links as far as the file exists, so that a link cannot lead out.
func (f BootFiles) within(dir, path string) bool {
	if f.Remote {
		rel, err := filepath.Rel(filepath.Clean(dir), path)
		return err == nil && filepath.IsLocal(rel)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(parent, filepath.Base(path))
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
