package config

// Neutron is [neutron]: OpenStack Networking, for the network interfaces neutron and flat.
type Neutron struct {
	Credentials
	CleaningNetwork, ProvisioningNetwork, RescuingNetwork, InspectionNetwork                             string
	CleaningSecurityGroups, ProvisioningSecurityGroups, RescuingSecurityGroups, InspectionSecurityGroups []string
}

var neutronOptions = append(credentialOptions("neutron", "Neutron", "request_timeout", "the network interfaces neutron and flat are not offered",
	func(c *Config) *Credentials { return &c.Neutron.Credentials }),
	neutronNetwork("cleaning", func(c *Config) *string { return &c.Neutron.CleaningNetwork }),
	neutronNetwork("provisioning", func(c *Config) *string { return &c.Neutron.ProvisioningNetwork }),
	neutronNetwork("rescuing", func(c *Config) *string { return &c.Neutron.RescuingNetwork }),
	neutronNetwork("inspection", func(c *Config) *string { return &c.Neutron.InspectionNetwork }),
	neutronGroups("cleaning", func(c *Config) *[]string { return &c.Neutron.CleaningSecurityGroups }),
	neutronGroups("provisioning", func(c *Config) *[]string { return &c.Neutron.ProvisioningSecurityGroups }),
	neutronGroups("rescuing", func(c *Config) *[]string { return &c.Neutron.RescuingSecurityGroups }),
	neutronGroups("inspection", func(c *Config) *[]string { return &c.Neutron.InspectionSecurityGroups }),
)

func neutronNetwork(name string, field func(*Config) *string) Option {
	return newOption("neutron", name+"_network", "", text, field, "The "+name+" network, by UUID or name, unless driver_info's "+name+"_network says.")
}

func neutronGroups(name string, field func(*Config) *[]string) Option {
	return newOption("neutron", name+"_network_security_groups", "", list, field, "The security groups, by UUID, of the ports on the "+name+" network.")
}
