package serve

import (
	"context"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/api/identity"
	"salvor/config"
)

// authenticator finds out who asks, by the configured strategy. Where no Keystone keeps the users, tokens of the API are taken too.
func (p *ControlPlane) authenticator() (api.Authenticator, error) {
	if err := p.readPolicy(); err != nil {
		return nil, err
	}
	if p.cfg.Default.AuthStrategy == config.KeystoneAuth {
		return api.NewKeystone(p.keystone())
	}
	p.tokens = access.NewTokens(p.Store, time.Now)
	p.tokenAuth = api.NewTokenAuth(p.tokens, time.Now, p.log)
	var users api.Authenticator
	switch p.cfg.Default.AuthStrategy {
	case config.TokenAuth:
		users = p.tokenAuth
	case config.BasicAuth:
		file, err := api.NewHTTPBasic(p.cfg.Default.HTTPBasicAuthUserFile)
		if err != nil {
			return nil, err
		}
		users = file
	default:
		users = api.NoAuth{}
	}
	return identity.NewTokens(p.key, users, p.tokenAuth, p.tokens, time.Now), nil
}

// noteTokens writes when tokens were used, as long as the process lives.
func (p *ControlPlane) noteTokens(ctx context.Context) error {
	if p.tokenAuth != nil {
		p.tokenAuth.RunUse(ctx)
	}
	return nil
}
