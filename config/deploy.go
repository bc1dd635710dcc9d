package config

import "time"

// Deploy is [deploy].
type Deploy struct {
	// ErasePriority and EraseMetadataPriority are 0 where the step does not run unasked.
	ErasePriority, EraseMetadataPriority int
}

// Inspector is [inspector].
type Inspector struct {
	AddPorts, KeepPorts string
}

// deployOptions are those of operations that boot a ramdisk to work on a machine.
var deployOptions = []Option{
	newOption("conductor", "deploy_kernel", "", bootFile, func(c *Config) *string { return &c.Conductor.DeployKernel },
		"The kernel of the ramdisk that cleans, inspects and deploys, unless driver_info names one. Empty: the rescue kernel."),
	newOption("conductor", "deploy_ramdisk", "", bootFile, func(c *Config) *string { return &c.Conductor.DeployRamdisk },
		"The ramdisk that cleans, inspects and deploys, unless driver_info names one. Empty: the rescue ramdisk."),
	newOption("conductor", "deploy_kernel_by_arch", "", bootFilesByArch, func(c *Config) *map[string]string { return &c.Conductor.DeployKernelByArch },
		"The kernels of that ramdisk by the node's property cpu_arch. An architecture that is not here has deploy_kernel, or where that is empty too, that of rescue_kernel_by_arch."),
	newOption("conductor", "deploy_ramdisk_by_arch", "", bootFilesByArch, func(c *Config) *map[string]string { return &c.Conductor.DeployRamdiskByArch },
		"The ramdisks for the same architectures as deploy_kernel_by_arch."),
	newOption("conductor", "deploy_callback_timeout", "1800", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.DeployCallbackTimeout },
		"How long the ramdisk of a deployment may be silent; 0: for ever."),
	newOption("conductor", "clean_callback_timeout", "1800", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.CleanCallbackTimeout },
		"How long the ramdisk of a cleaning may be silent; 0: for ever."),
	newOption("conductor", "service_callback_timeout", "1800", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.ServiceCallbackTimeout },
		"How long the ramdisk of a service may be silent; 0: for ever."),
	newOption("conductor", "inspect_wait_timeout", "1800", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.InspectWaitTimeout },
		"How long an inspection waits for the data of its ramdisk; 0: for ever."),
	newOption("conductor", "automated_clean", "true", boolean, func(c *Config) *bool { return &c.Conductor.AutomatedClean },
		"Clean nodes between two uses if their deploy interface writes images; a node can override this. Other nodes are cleaned only if they ask for it themselves."),
	newOption("conductor", "permitted_image_formats", "raw,gpt,qcow2,iso", list, func(c *Config) *[]string { return &c.Conductor.PermittedImageFormats },
		"The formats of images that may be deployed."),
	newOption("deploy", "erase_devices_priority", "0", integerSyntax(0, 1000), func(c *Config) *int { return &c.Deploy.ErasePriority },
		"The priority of erase_devices, which erases whole disks and takes hours, in automated cleaning: the highest runs first. 0: it does not run."),
	newOption("deploy", "erase_devices_metadata_priority", "99", integerSyntax(0, 1000), func(c *Config) *int { return &c.Deploy.EraseMetadataPriority },
		"The priority of erase_devices_metadata, which removes partition tables and file systems, in automated cleaning. 0: it does not run."),
	newOption("inspector", "add_ports", "pxe", oneOf("all", "active", "pxe", "disabled"), func(c *Config) *string { return &c.Inspector.AddPorts },
		"The NICs for which an inspection by a ramdisk creates ports: all, those with a link, those that boot, none."),
	newOption("inspector", "keep_ports", "all", oneOf("all", "present", "added"), func(c *Config) *string { return &c.Inspector.KeepPorts },
		"The ports that an inspection by a ramdisk keeps: all, those whose NIC was found, those that add_ports would create."),
}
