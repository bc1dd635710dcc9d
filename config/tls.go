package config

import (
	"strings"

	"salvor/problem"
)

// TLS are the options of [api] about the API's own TLS.
type TLS struct {
	Enabled                   bool
	CertFile, KeyFile, CAFile string
	// ClientRoles are roles over the whole system by the common name of a client's certificate; "*" is any other name.
	ClientRoles map[string]string
}

// clientRoles are NAME:ROLE by commas.
var clientRoles = valueSyntax[map[string]string]{many: true, allowed: "NAME:ROLE separated by commas, with the roles admin, member and reader; the name * is any other", parse: func(s string) (map[string]string, error) {
	out := map[string]string{}
	for _, one := range splitList(s) {
		at := strings.LastIndex(one, ":")
		if at <= 0 {
			return nil, errForm
		}
		name, role := strings.TrimSpace(one[:at]), strings.TrimSpace(one[at+1:])
		if name == "" || role != "admin" && role != "member" && role != "reader" {
			return nil, errForm
		}
		out[name] = role
	}
	return out, nil
}}

var tlsOptions = []Option{
	newOption("api", "enable_ssl_api", "false", boolean, func(c *Config) *bool { return &c.API.TLS.Enabled },
		"Serve the API over TLS, with cert_file and key_file. false: plain HTTP, for loopback or behind a proxy that terminates TLS."),
	newOption("api", "cert_file", "", path, func(c *Config) *string { return &c.API.TLS.CertFile },
		"The API's certificate with those of its issuers, in PEM. salvor reads this file, key_file and ca_file again when they change. If the new ones are broken, the former stay in use, and the log and /healthz say so."),
	newOption("api", "key_file", "", path, func(c *Config) *string { return &c.API.TLS.KeyFile },
		"The key of cert_file, in PEM."),
	newOption("api", "ca_file", "", path, func(c *Config) *string { return &c.API.TLS.CAFile },
		"Certificate authorities of clients, in PEM; they must have issued every certificate that a client shows. Empty: the API asks no client for a certificate."),
	newOption("api", "client_certificate_roles", "", clientRoles, func(c *Config) *map[string]string { return &c.API.TLS.ClientRoles },
		"The roles of clients that show a certificate and no other credential, by the certificate's common name: NAME:ROLE,... The role is admin, member or reader, for the whole system. Other clients must log in as well. Example: metal3:admin,monitoring:reader"),
}

// checkTLS refuses TLS that has nothing to stand on.
func (l *configLoader) checkTLS() {
	t := l.config.API.TLS
	switch {
	case !t.Enabled:
		if len(t.ClientRoles) > 0 || t.CAFile != "" {
			l.warn("[api]ca_file and client_certificate_roles do nothing while enable_ssl_api is false")
		}
	case t.CertFile == "" || t.KeyFile == "":
		l.fail(problem.Invalidf("[api]cert_file and key_file: empty, but enable_ssl_api needs both"))
	case len(t.ClientRoles) > 0 && t.CAFile == "":
		l.fail(problem.Invalidf("[api]client_certificate_roles: without ca_file no client's certificate is proved"))
	}
}
