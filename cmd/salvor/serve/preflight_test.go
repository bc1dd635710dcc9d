package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/boot/netboot"
	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver"
	"salvor/driver/network"
	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// TestDoctorOfRamdisks: a kernel without a ramdisk is told, and one by a file URL anywhere is an allowed one.
func TestDoctorOfRamdisks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"k", "r"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	for text, want := range map[string]struct{ check, level, says string }{
		"rescue_kernel = " + dir + "/k":                                                                       {"configuration", LevelFail, "rescue_ramdisk"},
		"rescue_kernel = file://" + dir + "/k\nrescue_ramdisk = file://" + dir + "/r":                         {"ramdisk", LevelOK, "can be read"},
		"rescue_kernel = file://" + dir + "/k\nrescue_ramdisk = file://" + dir + "/nothing":                   {"ramdisk", LevelFail, "no such file"},
		"rescue_kernel_by_arch = aarch64:" + dir + "/k\nrescue_ramdisk_by_arch = aarch64:" + dir + "/r":       {"ramdisk", LevelOK, "the ramdisks of aarch64 can be read"},
		"rescue_kernel_by_arch = aarch64:" + dir + "/k\nrescue_ramdisk_by_arch = aarch64:" + dir + "/nothing": {"ramdisk", LevelFail, "rescue_ramdisk_by_arch of aarch64"},
	} {
		by := examined(t, "[DEFAULT]\nstate_path = $DIR/state\n[conductor]\n"+text+"\n")
		level(t, by, want.check, want.level, want.says)
	}
}

// TestPublishedCheck: a process that is no conductor checks by what a conductor published, and looks at none of its files.
func TestPublishedCheck(t *testing.T) {
	d := driverConfig{
		Files: driver.BootFiles{URL: "http://10.0.0.1", APIURL: "http://10.0.0.1", Dirs: []string{"/srv/elsewhere"}}, Bridges: network.Bridges{driver.Tenant: "br0"},
	}
	raw := must.Get(encodePublishedConfig(d, node.Config{RescueKernel: "/srv/elsewhere/k", RescueRamdisk: "/srv/elsewhere/r"}))(t)
	var p publishedConfig
	must.OK(t, json.Unmarshal(raw, &p))
	n := &metal.Node{ID: "n", Driver: "redfish", Interfaces: map[string]string{"network": "noop"}, DriverInfo: metal.Object{"redfish_address": "https://192.0.2.1"}}
	check := func() string {
		return metal.ReasonTexts(p.checker(nil).Preflight(t.Context(), n, []*metal.Port{{Address: "52:54:00:00:00:01"}}, metal.Operation{Kind: "rescue"}).Reasons)
	}
	if got := check(); got != "" {
		t.Errorf("files of another machine: %s", got)
	}
	raw = must.Get(encodePublishedConfig(d, node.Config{RescueKernel: "/etc/shadow", RescueRamdisk: "/etc/shadow", RescueByArch: map[string]node.Images{"aarch64": {Kernel: "/srv/elsewhere/ka", Ramdisk: "/srv/elsewhere/ra"}}}))(t)
	p = publishedConfig{}
	must.OK(t, json.Unmarshal(raw, &p))
	if got := check(); !strings.Contains(got, "/etc/shadow lies outside") {
		t.Errorf("a node without an architecture: %s", got)
	}
	n.Properties = metal.Object{"cpu_arch": "aarch64"}
	if got := check(); got != "" {
		t.Errorf("images of the node's architecture: %s", got)
	}
	n.DriverInfo["rescue_kernel"], n.Interfaces["network"] = "/etc/shadow", "bridge"
	if got := check(); !strings.Contains(got, "/etc/shadow lies outside") || !strings.Contains(got, "no ramdisk is known") || !strings.Contains(got, "has no port_id") {
		t.Errorf("reasons: %s", got)
	}
}

// TestKernelsAreReadByTheBootServer: the conductor is made before the server of boot files that its checks of kernels ask.
func TestKernelsAreReadByTheBootServer(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "k"), []byte("no kernel"), 0o600))
	p := &ControlPlane{cfg: &config.Config{}}
	p.cfg.Default.Roles = []string{config.RoleAPI}
	checkPlan, arch := p.checkPlan(), p.kernelArch()
	p.boot = must.Get(netboot.New(netboot.Config{Plans: struct{ netboot.Plans }{}, Roots: []string{dir}, Loaders: netboot.Loaders{Shim: filepath.Join(dir, "none"), Grub: filepath.Join(dir, "none")}}))(t)
	plan := &metal.BootPlan{Method: metal.BootMedia, Kernel: filepath.Join(dir, "k"), Ramdisk: filepath.Join(dir, "k"), SecureBoot: true}
	const want = "install the Debian packages shim-signed and grub-efi-amd64-signed"
	if err := checkPlan(t.Context(), plan, ""); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("check of a plan: %v", err)
	}
	remote := (&conductorChecker{p: p}).of(metal.LiveConductor{Conductor: job.Conductor{ID: "other"}, Catalog: metal.Catalog{Preflight: []byte("{}")}})
	if err := remote.CheckPlan(t.Context(), plan, ""); err == nil || !strings.Contains(err.Error(), want) || remote.KernelArch == nil {
		t.Errorf("checked for a conductor elsewhere: %v", err)
	}
	if got := arch(filepath.Join(dir, "k")); got != "" {
		t.Errorf("architecture %q", got)
	}
}
