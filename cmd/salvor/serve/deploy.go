package serve

import (
	"context"
	"maps"

	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver"
	"salvor/driver/agent"
	"salvor/driver/hostkey"
)

// deployImages are the kernel and ramdisk that deploy, clean and inspect nodes that name none: those of rescue, unless configured.
func (p *ControlPlane) deployImages(rescueKernel, rescueImage string) (kernel, image string) {
	return deployImages(p.cfg, rescueKernel, rescueImage)
}

func deployImages(cfg *config.Config, rescueKernel, rescueImage string) (kernel, image string) {
	if c := cfg.Conductor; c.DeployKernel != "" || c.DeployRamdisk != "" {
		return c.DeployKernel, c.DeployRamdisk
	}
	return rescueKernel, rescueImage
}

// imagesByArch are the configured kernels and ramdisks by architecture; those of rescue deploy too where none at all are configured for that.
func imagesByArch(cfg *config.Config) (rescue, deploy map[string]node.Images) {
	c := cfg.Conductor
	rescue, deploy = map[string]node.Images{}, map[string]node.Images{}
	for arch, kernel := range c.RescueKernelByArch {
		rescue[arch] = node.Images{Kernel: kernel, Ramdisk: c.RescueRamdiskByArch[arch]}
	}
	if c.DeployKernel == "" && c.DeployRamdisk == "" {
		maps.Copy(deploy, rescue)
	}
	for arch, kernel := range c.DeployKernelByArch {
		deploy[arch] = node.Images{Kernel: kernel, Ramdisk: c.DeployRamdiskByArch[arch]}
	}
	return rescue, deploy
}

// inspectionURL is where the ramdisk of an inspection brings its findings; empty if nowhere.
func (p *ControlPlane) inspectionURL() string {
	if url := ramdiskURL(p.cfg); url != "" {
		return url + "/v1/continue_inspection"
	}
	return ""
}

// deploying adds what operations need that boot a ramdisk to work on a machine.
func (p *ControlPlane) deploying(d driverConfig, c node.Config) node.Config {
	c.Agents = agent.Orders{Locks: &driver.AddressLocks{}, Control: p.callbackGuard().Control, Timeout: p.cfg.Agent.CommandTimeout}
	c.ProjectUndoBytes = int64(p.cfg.Repair.UndoProjectMaxMiB) << 20
	c.UndoBytes, c.ProofTime = int64(p.cfg.Repair.UndoMaxMiB)<<20, p.cfg.Repair.ProofTimeout
	guard := p.callbackGuard().Control
	c.ProveSSH = func(ctx context.Context, address string, keys []string) error {
		return hostkey.Check(ctx, address, keys, guard)
	}
	c.DeployKernel, c.DeployRamdisk = d.DeployKernel, d.DeployRamdisk
	c.RescueByArch, c.DeployByArch = d.RescueByArch, d.DeployByArch
	c.DeployTimeout, c.CleanTimeout = p.cfg.Conductor.DeployCallbackTimeout, p.cfg.Conductor.CleanCallbackTimeout
	c.ServiceTimeout, c.InspectTimeout = p.cfg.Conductor.ServiceCallbackTimeout, p.cfg.Conductor.InspectWaitTimeout
	c.AutomatedClean = p.cfg.Conductor.AutomatedClean
	c.ErasePriority, c.EraseMetadataPriority = p.cfg.Deploy.ErasePriority, p.cfg.Deploy.EraseMetadataPriority
	c.InspectionURL, c.AddPorts, c.KeepPorts = p.inspectionURL(), p.cfg.Inspector.AddPorts, p.cfg.Inspector.KeepPorts
	return c
}
