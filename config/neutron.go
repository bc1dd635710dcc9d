package config

import (
	"time"

	"salvor/secret"
)

// Neutron is [neutron]: OpenStack Networking, for the network interfaces neutron and flat.
type Neutron struct {
	AuthURL, EndpointOverride, Username, ProjectName, UserDomainName, ProjectDomainName, RegionName, CAFile string
	Password                                                                                                secret.Value
	Insecure                                                                                                bool
	RequestTimeout                                                                                          time.Duration
	CleaningNetwork, ProvisioningNetwork, RescuingNetwork, InspectionNetwork                                string
	CleaningSecurityGroups, ProvisioningSecurityGroups, RescuingSecurityGroups, InspectionSecurityGroups    []string
}

// Reachable tells whether enough is said to reach Neutron.
func (n Neutron) Reachable() bool { return n.AuthURL != "" || n.EndpointOverride != "" }

var neutronOptions = []Option{
	newOption("neutron", "auth_url", "", webURL, func(c *Config) *string { return &c.Neutron.AuthURL },
		"Keystone's URL (.../v3), by which salvor logs in to use Neutron. Empty: Neutron asks for no credentials and endpoint_override names it; neither: the network interfaces neutron and flat are not offered."),
	newOption("neutron", "endpoint_override", "", webURL, func(c *Config) *string { return &c.Neutron.EndpointOverride },
		"Neutron's URL. Empty: as Keystone's catalog says."),
	newOption("neutron", "username", "", text, func(c *Config) *string { return &c.Neutron.Username }, "The user that salvor is to Keystone."),
	markSecret(newOption("neutron", "password", "", hiddenText, func(c *Config) *secret.Value { return &c.Neutron.Password }, "The user's password.")),
	newOption("neutron", "project_name", "service", text, func(c *Config) *string { return &c.Neutron.ProjectName }, "The project that the user acts in."),
	newOption("neutron", "user_domain_name", "Default", text, func(c *Config) *string { return &c.Neutron.UserDomainName }, "The user's domain."),
	newOption("neutron", "project_domain_name", "Default", text, func(c *Config) *string { return &c.Neutron.ProjectDomainName }, "The project's domain."),
	newOption("neutron", "region_name", "", text, func(c *Config) *string { return &c.Neutron.RegionName }, "The region whose Neutron is used. Empty: the only one."),
	newOption("neutron", "cafile", "", path, func(c *Config) *string { return &c.Neutron.CAFile }, "Certificates, in PEM, that are trusted beside the system's."),
	newOption("neutron", "insecure", "false", boolean, func(c *Config) *bool { return &c.Neutron.Insecure }, "Take any certificate for Keystone's and Neutron's."),
	newOption("neutron", "request_timeout", "45", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Neutron.RequestTimeout }, "How long one request may take."),
	neutronNetwork("cleaning", func(c *Config) *string { return &c.Neutron.CleaningNetwork }),
	neutronNetwork("provisioning", func(c *Config) *string { return &c.Neutron.ProvisioningNetwork }),
	neutronNetwork("rescuing", func(c *Config) *string { return &c.Neutron.RescuingNetwork }),
	neutronNetwork("inspection", func(c *Config) *string { return &c.Neutron.InspectionNetwork }),
	neutronGroups("cleaning", func(c *Config) *[]string { return &c.Neutron.CleaningSecurityGroups }),
	neutronGroups("provisioning", func(c *Config) *[]string { return &c.Neutron.ProvisioningSecurityGroups }),
	neutronGroups("rescuing", func(c *Config) *[]string { return &c.Neutron.RescuingSecurityGroups }),
	neutronGroups("inspection", func(c *Config) *[]string { return &c.Neutron.InspectionSecurityGroups }),
}

func neutronNetwork(name string, field func(*Config) *string) Option {
	return newOption("neutron", name+"_network", "", text, field, "The "+name+" network, by UUID or name, unless driver_info's "+name+"_network says.")
}

func neutronGroups(name string, field func(*Config) *[]string) Option {
	return newOption("neutron", name+"_network_security_groups", "", list, field, "The security groups, by UUID, of the ports on the "+name+" network.")
}
