package config

import (
	"time"

	"salvor/secret"
)

// Credentials say how a service of OpenStack is reached, and by whom, with the option names of keystoneauth.
type Credentials struct {
	// AuthType is password, v3password, or none: the service asks for no credentials.
	AuthType, AuthURL, EndpointOverride             string
	Username, UserDomainID, UserDomainName          string
	ProjectName, ProjectDomainID, ProjectDomainName string
	Password                                        secret.Value
	RegionName, CAFile                              string
	ValidInterfaces                                 []string
	Insecure                                        bool
	Timeout                                         time.Duration
}

// Reachable tells whether enough is said to reach the service.
func (c Credentials) Reachable() bool { return c.AuthURL != "" || c.EndpointOverride != "" }

// credentialOptions are the options of a section that says how a service is reached. timeout is the name of the option that bounds one
// request; unset says what salvor does if the section names no service.
func credentialOptions(section, service, timeout, unset string, of func(*Config) *Credentials) []Option {
	word := func(name, def, doc string, field func(*Credentials) *string) Option {
		return newOption(section, name, def, text, func(c *Config) *string { return field(of(c)) }, doc)
	}
	return []Option{
		newOption(section, "auth_type", "password", oneOf("password", "v3password", "none"), func(c *Config) *string { return &of(c).AuthType },
			"How salvor logs in to Keystone. none: "+service+" asks for no credentials, and endpoint_override names it."),
		newOption(section, "auth_url", "", webURL, func(c *Config) *string { return &of(c).AuthURL },
			"Keystone's URL (.../v3), by which salvor logs in to use "+service+". Empty: "+service+" asks for no credentials and endpoint_override names it; neither: "+unset+"."),
		newOption(section, "endpoint_override", "", webURL, func(c *Config) *string { return &of(c).EndpointOverride },
			service+"'s URL. Empty: as Keystone's catalog says."),
		newOption(section, "valid_interfaces", "internal,public", list, func(c *Config) *[]string { return &of(c).ValidInterfaces },
			"Which endpoint of the catalog is used: the first of these interfaces that it has."),
		word("region_name", "", "The region whose "+service+" is used. Empty: the first one of the catalog.", func(c *Credentials) *string { return &c.RegionName }),
		word("username", "", "The user that salvor is to Keystone.", func(c *Credentials) *string { return &c.Username }),
		markSecret(newOption(section, "password", "", hiddenText, func(c *Config) *secret.Value { return &of(c).Password }, "The user's password.")),
		word("user_domain_name", "Default", "The user's domain.", func(c *Credentials) *string { return &c.UserDomainName }),
		word("user_domain_id", "", "The user's domain by id, over user_domain_name.", func(c *Credentials) *string { return &c.UserDomainID }),
		word("project_name", "service", "The project that the user acts in.", func(c *Credentials) *string { return &c.ProjectName }),
		word("project_domain_name", "Default", "The project's domain.", func(c *Credentials) *string { return &c.ProjectDomainName }),
		word("project_domain_id", "", "The project's domain by id, over project_domain_name.", func(c *Credentials) *string { return &c.ProjectDomainID }),
		newOption(section, "cafile", "", path, func(c *Config) *string { return &of(c).CAFile }, "Certificates, in PEM, that are trusted beside the system's."),
		newOption(section, "insecure", "false", boolean, func(c *Config) *bool { return &of(c).Insecure }, "Take any certificate for Keystone's and "+service+"'s."),
		newOption(section, timeout, "45", secondsSyntax(1), func(c *Config) *time.Duration { return &of(c).Timeout }, "How long one request may take."),
	}
}
