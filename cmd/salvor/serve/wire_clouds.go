package serve

import (
	"fmt"
	"os"

	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver"
	"salvor/driver/network"
	"salvor/openstack"
	"salvor/openstack/glance"
	"salvor/openstack/nova"
)

// newNeutronClient is the client of Neutron; nil if the configuration names none.
func newNeutronClient(c config.Neutron) (*network.Cloud, error) {
	client, err := newOpenStackClient(openstack.Network, "neutron", c.Credentials)
	if client == nil || err != nil {
		return nil, err
	}
	return network.NewCloud(client), nil
}

// wireNova has the conductor send Nova changes of power, if the configuration says how Nova is reached.
func (p *ControlPlane) wireNova(settings *node.Config) error {
	if !p.cfg.Nova.SendsPower() {
		return nil
	}
	client, err := newOpenStackClient(openstack.Compute, "nova", p.cfg.Nova.Credentials)
	if err == nil {
		settings.PowerEvents = nova.New(client)
	}
	return err
}

// newOpenStackClient is the client of the service that a section of the configuration names; nil if it names none.
func newOpenStackClient(s openstack.Service, section string, c config.Credentials) (*openstack.Client, error) {
	if !c.Reachable() {
		return nil, nil
	}
	a := openstack.Access{
		Section: section, Endpoint: c.EndpointOverride, AuthURL: c.AuthURL, Region: c.RegionName, Interfaces: c.ValidInterfaces,
		Username: c.Username, UserDomainID: c.UserDomainID, UserDomainName: c.UserDomainName, Password: c.Password,
		ProjectName: c.ProjectName, ProjectDomainID: c.ProjectDomainID, ProjectDomainName: c.ProjectDomainName,
		Insecure: c.Insecure, Timeout: c.Timeout,
	}
	if c.AuthType == "none" {
		a.AuthURL = ""
	}
	if c.CAFile != "" {
		var err error
		if a.CA, err = os.ReadFile(c.CAFile); err != nil {
			return nil, fmt.Errorf("[%s]cafile: %w", section, err)
		}
	}
	return openstack.New(s, a)
}

// newGlanceClient is the client of Glance; nil if the configuration names none.
func newGlanceClient(c config.Glance) (*glance.Client, error) {
	client, err := newOpenStackClient(openstack.Image, "glance", c.Credentials)
	if client == nil || err != nil {
		return nil, err
	}
	return glance.New(client), nil
}

// imageService is Glance for operations on machines; nil if the configuration names none.
func (p *ControlPlane) imageService() node.ImageService {
	if p.glance == nil {
		return nil
	}
	return p.glance
}

func neutronNetworkConfig(c config.Neutron) network.Networks {
	return network.Networks{
		Of: map[driver.Net]string{
			driver.CleaningNet: c.CleaningNetwork, driver.Provisioning: c.ProvisioningNetwork, driver.Rescuing: c.RescuingNetwork, driver.Inspection: c.InspectionNetwork,
		},
		SecurityGroups: map[driver.Net][]string{
			driver.CleaningNet: c.CleaningSecurityGroups, driver.Provisioning: c.ProvisioningSecurityGroups,
			driver.Rescuing: c.RescuingSecurityGroups, driver.Inspection: c.InspectionSecurityGroups,
		},
	}
}

// bridgeNetworks are the networks by role; none configured: the bridge interface is not offered.
func bridgeNetworks(c config.Bridge) network.Bridges {
	out := network.Bridges{}
	for net, name := range map[driver.Net]string{
		driver.Provisioning: c.ProvisioningNetwork, driver.CleaningNet: c.CleaningNetwork, driver.Inspection: c.InspectionNetwork,
		driver.Rescuing: c.RescuingNetwork, driver.Tenant: c.TenantNetwork,
	} {
		if name != "" {
			out[net] = name
		}
	}
	return out
}
