package config

import (
	"time"

	"salvor/problem"
	"salvor/secret"
)

// Keystone is [keystone_authtoken]: how tokens of auth_strategy keystone are validated.
type Keystone struct {
	AuthURL, WWWAuthenticateURI, Username, ProjectName, CAFile                 string
	UserDomainID, UserDomainName, ProjectDomainID, ProjectDomainName, AuthType string
	Password                                                                   secret.Value
	Insecure                                                                   bool
	Timeout, TokenCacheTime, OutageCacheTime                                   time.Duration
}

// Policy is [oslo_policy], and the service project of [DEFAULT].
type Policy struct {
	EnforceScope, EnforceNewDefaults bool
	// ServiceElevated lets the role service in the project ServiceProject do what a member of the system may.
	ServiceElevated bool
	ServiceProject  string
	// File holds rules that go over the defaults; empty: none.
	File string
}

var keystoneOptions = []Option{
	newOption("keystone_authtoken", "auth_url", "", webURL, func(c *Config) *string { return &c.Keystone.AuthURL },
		"Keystone's URL (.../v3). Keystone validates tokens there if auth_strategy is keystone."),
	newOption("keystone_authtoken", "www_authenticate_uri", "", webURL, func(c *Config) *string { return &c.Keystone.WWWAuthenticateURI },
		"Keystone's URL as clients reach it; a client without a token gets it with the answer 401. Empty: auth_url."),
	newOption("keystone_authtoken", "auth_type", "password", oneOf("password", "v3password"), func(c *Config) *string { return &c.Keystone.AuthType },
		"How salvor logs in to Keystone."),
	newOption("keystone_authtoken", "username", "", text, func(c *Config) *string { return &c.Keystone.Username },
		"The user by which salvor logs in to Keystone; it needs a role that may validate tokens (service or admin)."),
	markSecret(newOption("keystone_authtoken", "password", "", hiddenText, func(c *Config) *secret.Value { return &c.Keystone.Password },
		"The user's password.")),
	newOption("keystone_authtoken", "project_name", "service", text, func(c *Config) *string { return &c.Keystone.ProjectName },
		"The project that the user acts in."),
	newOption("keystone_authtoken", "user_domain_name", "Default", text, func(c *Config) *string { return &c.Keystone.UserDomainName },
		"The user's domain."),
	newOption("keystone_authtoken", "user_domain_id", "", text, func(c *Config) *string { return &c.Keystone.UserDomainID },
		"The user's domain by id, over user_domain_name."),
	newOption("keystone_authtoken", "project_domain_name", "Default", text, func(c *Config) *string { return &c.Keystone.ProjectDomainName },
		"The project's domain."),
	newOption("keystone_authtoken", "project_domain_id", "", text, func(c *Config) *string { return &c.Keystone.ProjectDomainID },
		"The project's domain by id, over project_domain_name."),
	newOption("keystone_authtoken", "cafile", "", path, func(c *Config) *string { return &c.Keystone.CAFile },
		"Certificate authorities, in PEM, that verify Keystone's certificate. Empty: the system's."),
	newOption("keystone_authtoken", "insecure", "false", boolean, func(c *Config) *bool { return &c.Keystone.Insecure },
		"Do not verify Keystone's certificate. A man in the middle can then make any token valid."),
	newOption("keystone_authtoken", "timeout", "40", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Keystone.Timeout },
		"How long a request waits for Keystone before it gets the answer 503; keep it below the limit of a proxy before salvor. Keystone's late answer serves the next request."),
	newOption("keystone_authtoken", "token_cache_time", "300", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Keystone.TokenCacheTime },
		"How long salvor caches the validation of a token; a revoked token stays valid for that time. 0: it asks Keystone each time."),
	newOption("keystone_authtoken", "outage_cache_time", "600", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Keystone.OutageCacheTime },
		"How much longer than token_cache_time a cached validation counts while Keystone does not answer, but never past the token's expiry. 0: the API then answers 503."),
	newOption("oslo_policy", "enforce_scope", "true", boolean, func(c *Config) *bool { return &c.Policy.EnforceScope },
		"Refuse project-scoped tokens wherever a policy requires system scope, even if the deprecated rules allow them."),
	newOption("oslo_policy", "enforce_new_defaults", "true", boolean, func(c *Config) *bool { return &c.Policy.EnforceNewDefaults },
		"Apply only the secure RBAC rules. false: the deprecated rules apply as well, by which the role admin in any project may do everything."),
	newOption("oslo_policy", "policy_file", "", path, func(c *Config) *string { return &c.Policy.File },
		"A file of rules that replace defaults, in the form of oslo.policy, a rule a line: \"baremetal:node:get\": \"role:reader and project_id:%(node.owner)s\". Rules have the names of Ironic's, and those of the compute APIs the names of Nova's. salvor reads the file again when it changes; if it is invalid, the former rules stay. Empty: none."),
	newOption("DEFAULT", "rbac_service_role_elevated_access", "true", boolean, func(c *Config) *bool { return &c.Policy.ServiceElevated },
		"Give the role service in rbac_service_project_name the rights of a system member: Nova and Inspector need them to see nodes that their project does not own."),
	newOption("DEFAULT", "rbac_service_project_name", "service", text, func(c *Config) *string { return &c.Policy.ServiceProject },
		"The project of OpenStack's own services, in the domain of [keystone_authtoken]project_domain_id or project_domain_name."),
}

// checkKeystone refuses a keystone that cannot be asked.
func (l *configLoader) checkKeystone() {
	k := l.config.Keystone
	if l.config.Default.AuthStrategy != KeystoneAuth {
		return
	}
	for _, o := range []struct {
		name  string
		empty bool
	}{{"auth_url", k.AuthURL == ""}, {"username", k.Username == ""}, {"password", k.Password.Empty()}} {
		if o.empty {
			l.fail(problem.Invalidf("[keystone_authtoken]%s: empty, but auth_strategy %s needs it", o.name, KeystoneAuth))
		}
	}
	if !l.config.Policy.EnforceNewDefaults {
		l.warn("[oslo_policy]enforce_new_defaults is false: an admin of any project may do everything to every machine")
	}
}
