package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"time"

	"salvor/access"
	"salvor/api"
)

// certificateTurn is how often the end of the certificate is looked at where no client comes.
const certificateTurn = time.Hour

// apiTLS reads the API's certificate; nil: the API speaks plain HTTP.
func (p *ControlPlane) apiTLS() (*tls.Config, error) {
	t := p.cfg.API.TLS
	if !t.Enabled {
		return nil, nil
	}
	var err error
	p.certificates, err = api.NewCertificates(api.CertificateFiles{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile}, machineClock(), p.log)
	if err != nil {
		return nil, err
	}
	return p.certificates.TLS(), nil
}

// certified lets in by clients' certificates too, where the configuration gives roles to them.
func (p *ControlPlane) certified(below api.Authenticator) api.Authenticator {
	named := p.cfg.API.TLS.ClientRoles
	if len(named) == 0 {
		return below
	}
	roles := make(map[string]access.Role, len(named))
	for name, role := range named {
		roles[name] = access.Role(role)
	}
	return api.Certified{Roles: roles, Below: below, Trusts: func(chains [][]*x509.Certificate) bool {
		return p.certificates != nil && p.certificates.Trusts(chains)
	}}
}

// watchCertificate warns of the certificate's end.
func (p *ControlPlane) watchCertificate(ctx context.Context) error {
	ticker := time.NewTicker(certificateTurn)
	defer ticker.Stop()
	for {
		if p.certificates != nil {
			p.certificates.Nag()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// tellCertificate adds to the answer about our health what is to be known of the certificate.
func (p *ControlPlane) tellCertificate(w io.Writer, inside bool) {
	if p.certificates == nil {
		return
	}
	ends, outside, warning := p.certificates.State()
	if !inside {
		warning = outside
	}
	fmt.Fprintln(w, "certificate expires", ends.UTC().Format(time.RFC3339))
	if warning != "" {
		fmt.Fprintln(w, "warning:", warning)
	}
}
