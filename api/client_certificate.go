package api

import (
	"crypto/x509"
	"net/http"

	"salvor/access"
)

// Certified lets in who shows a client's certificate whose name is in Roles, in that role over the whole system. The connection has
// proved the certificate. Requests that bring another credential, or no such certificate, go to Below.
type Certified struct {
	// Roles by the common name of the certificate's subject; "*" is for every other name.
	Roles map[string]access.Role
	// Trusts tells whether what the connection proved when it began is good now, as Certificates does.
	Trusts func(chains [][]*x509.Certificate) bool
	Below  Authenticator
}

// Authenticate is Authenticator's.
func (c Certified) Authenticate(r *http.Request) (access.Principal, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || TokenText(r) != "" || r.Header.Get("Authorization") != "" {
		return c.Below.Authenticate(r)
	}
	name := r.TLS.VerifiedChains[0][0].Subject.CommonName
	role, ok := c.Roles[name]
	if !ok {
		role, ok = c.Roles["*"]
	}
	if !ok || name == "" || !c.Trusts(r.TLS.VerifiedChains) {
		return c.Below.Authenticate(r)
	}
	p := (&access.Token{Name: name, Role: role}).Principal()
	p.UserID = "certificate:" + name
	return p, nil
}
