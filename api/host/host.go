// Package host is the API for VM hosts: JSON over TLS on a listener of its own. A host
// joins with a token, once, and is known by its client certificate from then on; it renews
// its lease, waits for orders and tells their results. The package knows no order's meaning:
// rows are compute's and the store's.
package host

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	wire "salvor/wire/host"
)

// Hosts is what the API needs of service.Hosts, whose words these are.
type Hosts interface {
	Join(ctx context.Context, token secret.Value, hostID, name string, cert compute.Certificate, key string, who record.Asker) (*compute.Host, error)
	Certified(ctx context.Context, hostID string, cert compute.Certificate, who record.Asker) error
}

// Leases is what the door needs of service.Leases, whose words these are.
type Leases interface {
	Allow(ctx context.Context, hostID, serial string, issued time.Time) error
	Renew(ctx context.Context, hostID, serial string, r compute.Renewal) (compute.Renewed, error)
	MayAct(ctx context.Context, hostID string) (bool, error)
}

// Witnesses compares the witnesses of hosts with the database.
type Witnesses interface {
	// RecordWitness gets the witness of a host before the renewal is answered.
	RecordWitness(ctx context.Context, hostID string, w wire.Witness) error
	// CurrentWitness is the witness that hosts must keep; nil: they keep the one that they have.
	CurrentWitness() *wire.Witness
}

// Images gives the bytes of an image by its digest ("sha256:..."); problem.NotFound if it is not here.
type Images interface {
	Open(ctx context.Context, digest string) (io.ReadSeekCloser, error)
}

// Jobs is what the API needs of the job store.
type Jobs interface {
	job.Transactor
	Signal(tx job.Tx, s job.Subject) error
}

// Config is what the API is made of.
type Config struct {
	Hosts     Hosts
	Leases    Leases
	Orders    compute.OrderStore
	Jobs      Jobs
	Authority *Authority
	Images    Images
	Log       *slog.Logger
	// Witnesses may be nil: then nothing is compared.
	Witnesses Witnesses
}

// Limits of bodies, in bytes, and of polls.
const (
	maxJoin    = 64 << 10
	maxRenewal = 8 << 20
	maxReport  = 2 << 20
	maxWait    = 25 * time.Second
)

type hostAPI struct {
	Config
	waiters *orderWaiters
}

// New makes the handler. It must be served with the authority's TLS: who asks is told by the connection.
func New(c Config) http.Handler {
	d := &hostAPI{Config: c, waiters: newOrderWaiters(c.Orders, c.Log)}
	mux := http.NewServeMux()
	var endpoints []api.Endpoint
	list := func(pattern string) {
		if method, path, ok := strings.Cut(pattern, " "); ok {
			endpoints = append(endpoints, api.Endpoint{Method: method, Path: path, Open: path == wire.JoinPath})
		}
	}
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		list(pattern)
		mux.Handle(pattern, api.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				writeError(w, r, err)
			}
		}), writeError, c.Log))
	}
	handle("POST "+wire.JoinPath, d.join)
	handle("POST "+wire.CertPath, d.known(d.recertify))
	handle("GET "+wire.OrdersPath, d.known(d.poll))
	handle("POST "+wire.OrdersPath+"/{id}/result", d.known(d.result))
	handle("POST "+wire.OrdersPath+"/{id}/progress", d.known(d.progress))
	handle("GET "+wire.ImagePath+"{digest}", d.known(d.image))
	handle("/", func(http.ResponseWriter, *http.Request) error {
		return problem.NotFoundf("This listener has no such path.")
	})
	// Thousands of renewals each second are no lines in a log.
	list("POST " + wire.RenewPath)
	mux.HandleFunc("POST "+wire.RenewPath, func(w http.ResponseWriter, r *http.Request) {
		if err := d.renew(w, r); err != nil {
			if api.Status(err) == http.StatusInternalServerError {
				c.Log.Error("renew a lease", "error", err)
			}
			writeError(w, r, err)
		}
	})
	return api.RouteLister{Handler: mux, Endpoints: endpoints}
}

// NewServer makes the server of the listener: a stop ends polls at once.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	s := api.NewServer(h, log)
	ctx, stop := context.WithCancel(context.Background())
	s.BaseContext = func(net.Listener) context.Context { return ctx }
	s.RegisterOnShutdown(stop)
	return s
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	status, message := api.Explain(w, r, err)
	writeJSON(w, status, map[string]string{"error": message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error": "internal error"}`)
	}
	api.WriteJSON(w, status, b)
}

// decodeBody reads a JSON object of bounded size and depth that a database can keep.
func decodeBody(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	b, err := api.ReadBody(w, r, limit)
	if err != nil {
		return err
	}
	return unmarshalObject(b, v)
}

func unmarshalObject(b []byte, v any) error {
	if _, err := api.DecodeObject(b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return problem.Invalidf("The request body is not understood: %w", err)
	}
	return nil
}

// certifiedPeer is who asks, by the certificate of the connection.
type certifiedPeer struct {
	id, serial string
	issued     time.Time
}

var errNobody = &api.Error{Status: http.StatusUnauthorized, Text: "A client certificate of a host is needed; join first."}

func (d *hostAPI) peerOf(r *http.Request) (certifiedPeer, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return certifiedPeer{}, errNobody
	}
	c := r.TLS.PeerCertificates[0]
	// A connection may outlive its certificate.
	if d.Authority.now().After(c.NotAfter) {
		return certifiedPeer{}, &api.Error{Status: http.StatusUnauthorized, Text: "The client certificate has ended; join again."}
	}
	return certifiedPeer{c.Subject.CommonName, c.SerialNumber.Text(16), c.NotBefore.Add(skew)}, nil
}

// unknownHostError makes 401 of a host that is not there: its certificate proves a row that is gone.
func unknownHostError(err error) error {
	if problem.Is(err, problem.NotFound) {
		return &api.Error{Status: http.StatusUnauthorized, Text: "This host is not known here any more; join again."}
	}
	return err
}

// known lets hosts in whose row says that they may.
func (d *hostAPI) known(h func(http.ResponseWriter, *http.Request, certifiedPeer) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		p, err := d.peerOf(r)
		if err != nil {
			return cmp.Or(api.Admit(r, ""), err)
		}
		if err := d.allow(r.Context(), p); err != nil {
			return err
		}
		api.Prove(r)
		return h(w, r, p)
	}
}

func (d *hostAPI) allow(ctx context.Context, p certifiedPeer) error {
	return unknownHostError(d.Leases.Allow(ctx, p.id, p.serial, p.issued))
}

// askerOf is a host as it stands in events: a host is no user, and its request has an id.
func askerOf(r *http.Request) record.Asker { return record.Asker{RequestID: api.Of(r.Context()).ID} }

func (d *hostAPI) join(w http.ResponseWriter, r *http.Request) error {
	if err := api.AdmitLogin(r, ""); err != nil {
		return err
	}
	var in wire.Join
	if err := decodeBody(w, r, maxJoin, &in); err != nil {
		return err
	}
	key, err := parseSigningRequest(in.CSR)
	if err != nil {
		return err
	}
	digest, err := keyDigest(key)
	if err != nil {
		return err
	}
	serial := newSerial()
	h, err := d.Hosts.Join(r.Context(), secret.New(in.Token), in.HostID, in.Name, d.Authority.noted(serial), digest, askerOf(r))
	if err != nil {
		return err
	}
	cert, err := d.Authority.sign(key, h.ID, serial)
	if err != nil {
		return err
	}
	d.Log.Info("a host has joined", "host", h.ID, "name", h.Name)
	writeJSON(w, http.StatusOK, wire.Certificate{Certificate: cert, CA: d.Authority.certificate(), HostID: h.ID})
	return nil
}

func (d *hostAPI) recertify(w http.ResponseWriter, r *http.Request, p certifiedPeer) error {
	var in wire.CertificateRequest
	if err := decodeBody(w, r, maxJoin, &in); err != nil {
		return err
	}
	key, err := parseSigningRequest(in.CSR)
	if err != nil {
		return err
	}
	serial := newSerial()
	if err := d.Hosts.Certified(r.Context(), p.id, d.Authority.noted(serial), askerOf(r)); err != nil {
		return unknownHostError(err)
	}
	cert, err := d.Authority.sign(key, p.id, serial)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, wire.Certificate{Certificate: cert, CA: d.Authority.certificate(), HostID: p.id})
	return nil
}

func (d *hostAPI) renew(w http.ResponseWriter, r *http.Request) error {
	p, err := d.peerOf(r)
	if err != nil {
		return cmp.Or(api.Admit(r, ""), err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	if err := d.allow(ctx, p); err != nil {
		return err
	}
	api.Prove(r)
	var in wire.Renewal
	if err := decodeBody(w, r, maxRenewal, &in); err != nil {
		return err
	}
	renewal, err := renewalOf(in)
	if err != nil {
		return err
	}
	if d.Witnesses != nil && in.Witness != nil {
		if err := d.Witnesses.RecordWitness(ctx, p.id, *in.Witness); err != nil {
			return err
		}
	}
	got, err := d.Leases.Renew(ctx, p.id, p.serial, renewal)
	if err != nil {
		return unknownHostError(err)
	}
	out, err := renewedOf(got)
	if err != nil {
		return err
	}
	if d.Witnesses != nil {
		out.Witness = d.Witnesses.CurrentWitness()
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
