package serve

import (
	"testing"

	"salvor/config"
)

// TestImagesByArch: who names a ramdisk for deploying gets that one, and no rescue ramdisk of an architecture.
func TestImagesByArch(t *testing.T) {
	of := func(edit func(*config.Conductor)) string {
		c := &config.Config{}
		c.Conductor.RescueKernelByArch, c.Conductor.RescueRamdiskByArch = map[string]string{"x86_64": "/rescue"}, map[string]string{"x86_64": "/rescue.img"}
		if edit != nil {
			edit(&c.Conductor)
		}
		rescue, deploy := imagesByArch(c)
		if rescue["x86_64"].Kernel != "/rescue" {
			t.Errorf("rescues boot %+v", rescue)
		}
		return deploy["x86_64"].Kernel
	}
	if got := of(nil); got != "/rescue" {
		t.Errorf("without a ramdisk for deploying: %q", got)
	}
	if got := of(func(c *config.Conductor) { c.DeployKernel, c.DeployRamdisk = "/ipa", "/ipa.img" }); got != "" {
		t.Errorf("%q is deployed by, in place of deploy_kernel", got)
	}
	if got := of(func(c *config.Conductor) {
		c.DeployKernelByArch, c.DeployRamdiskByArch = map[string]string{"x86_64": "/arch"}, map[string]string{"x86_64": "/arch.img"}
	}); got != "/arch" {
		t.Errorf("%q in place of deploy_kernel_by_arch", got)
	}
}
