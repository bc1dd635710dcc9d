package serve

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"salvor/boot/ramdisk"
	"salvor/config"
)

// rescueImages are the kernel and ramdisk for nodes that name none: configured, or
// built by "salvor ramdisk build" into the state directory.
func rescueImages(cfg *config.Config) (kernel, image string) {
	if c := cfg.Conductor; c.RescueKernel != "" || c.RescueRamdisk != "" {
		return c.RescueKernel, c.RescueRamdisk
	}
	dir := ramdiskDir(cfg)
	kernel, image = filepath.Join(dir, ramdisk.FileKernel), filepath.Join(dir, ramdisk.FileInitramfs)
	for _, f := range []string{kernel, image} {
		if _, err := os.Stat(f); err != nil {
			return "", ""
		}
	}
	return kernel, image
}

func ramdiskDir(c *config.Config) string { return filepath.Join(c.Default.StatePath, "ramdisk") }

// imageRoots are the directories whose files machines may be given: those that are configured, and those of the configured
// kernels and ramdisks themselves.
func (p *ControlPlane) imageRoots(files ...string) []string { return imageRoots(p.cfg, files...) }

func imageRoots(cfg *config.Config, files ...string) []string {
	roots := append([]string{ramdiskDir(cfg)}, cfg.Conductor.FileURLAllowedPaths...)
	files = append(files, cfg.Conductor.DeployKernel, cfg.Conductor.DeployRamdisk)
	c := cfg.Conductor
	for _, byArch := range []map[string]string{c.RescueKernelByArch, c.RescueRamdiskByArch, c.DeployKernelByArch, c.DeployRamdiskByArch} {
		files = slices.AppendSeq(files, maps.Values(byArch))
	}
	for _, f := range files {
		if f = localPath(f); filepath.IsAbs(f) {
			roots = append(roots, filepath.Dir(f))
		}
	}
	return roots
}

// ramdiskURL is where ramdisks reach us: as configured, or the ramdisk door unless it is a wildcard.
func ramdiskURL(c *config.Config) string {
	if url := c.ServiceCatalog.EndpointOverride; url != "" {
		return strings.TrimRight(url, "/")
	}
	host, _, err := net.SplitHostPort(c.Ramdisk.Listen)
	if err != nil {
		return ""
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		return ""
	}
	return "http://" + c.Ramdisk.Listen
}
