package serve

import (
	"salvor/api"
)

// keystone says how tokens are validated; an id wins over a name.
func (p *ControlPlane) keystone() api.KeystoneOptions {
	k := p.cfg.Keystone
	o := api.KeystoneOptions{
		URL: k.AuthURL, PublicURL: k.WWWAuthenticateURI, Username: k.Username, Password: k.Password,
		UserDomainID: k.UserDomainID, ProjectName: k.ProjectName, ProjectDomainID: k.ProjectDomainID,
		CAFile: k.CAFile, Insecure: k.Insecure, Timeout: k.Timeout, CacheTime: k.TokenCacheTime, OutageTime: k.OutageCacheTime, Log: p.log,
	}
	if o.UserDomainID == "" {
		o.UserDomainName = k.UserDomainName
	}
	if o.ProjectDomainID == "" {
		o.ProjectDomainName = k.ProjectDomainName
	}
	return o
}
