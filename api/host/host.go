// Package host is the API for VM hosts: JSON over TLS on a listener of its own. A host
// joins with a token, once, and is known by its client certificate from then on; it renews
// its lease, waits for orders and tells their results. The package knows no order's meaning:
// rows are compute's and the store's.
package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/host"
)

// Hosts is what the API needs of service.Hosts, whose words these are.
type Hosts interface {
	Join(ctx context.Context, token secret.Value, hostID, name string, cert compute.Certificate, key string) (*compute.Host, error)
	Certified(ctx context.Context, hostID string, cert compute.Certificate) error
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
		return problem.NotFoundf("The hosts' door has no such path.")
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
	h, err := d.Hosts.Join(r.Context(), secret.New(in.Token), in.HostID, in.Name, d.Authority.noted(serial), digest)
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
	if err := d.Hosts.Certified(r.Context(), p.id, d.Authority.noted(serial)); err != nil {
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

// poll gives the host's orders, or waits until there are some. With all=1 those that were
// sent before are given at once too: a host that starts, or that missed an answer, asks so.
// A host that may not act waits in vain, though it has orders.
func (d *hostAPI) poll(w http.ResponseWriter, r *http.Request, p certifiedPeer) error {
	query := r.URL.Query()
	seconds, err := strconv.Atoi(query.Get("wait"))
	if err != nil && query.Get("wait") != "" || seconds < 0 {
		return problem.Invalidf("wait: want whole seconds")
	}
	come, leave := d.waiters.wait(p.id)
	defer leave()
	if query.Get("all") == "1" {
		found, err := d.open(r.Context(), p.id)
		if err != nil || len(found) > 0 {
			return d.orders(w, found, err)
		}
	}
	t := time.NewTimer(min(time.Duration(min(seconds, 60))*time.Second, maxWait))
	defer t.Stop()
	select {
	case <-come:
		// It may have been revoked while it waited.
		if err := d.allow(r.Context(), p); err != nil {
			return err
		}
		found, err := d.open(r.Context(), p.id)
		if err != nil || found != nil {
			return d.orders(w, found, err)
		}
		t.Reset(heldFor) // it has orders, and may not have them: it must not ask again at once
		select {
		case <-t.C:
		case <-r.Context().Done():
		}
	case <-t.C:
	case <-r.Context().Done():
	}
	return d.orders(w, []wire.Order{}, nil)
}

func (d *hostAPI) orders(w http.ResponseWriter, found []wire.Order, err error) error {
	if err == nil {
		writeJSON(w, http.StatusOK, wire.Orders{Orders: found})
	}
	return err
}

// heldFor is how long the poll of a host lasts that has orders and may not act.
const heldFor = 2 * time.Second

// open lists the orders that a host is given; nil: it may not act.
func (d *hostAPI) open(ctx context.Context, hostID string) ([]wire.Order, error) {
	if may, err := d.Leases.MayAct(ctx, hostID); err != nil || !may {
		return nil, unknownHostError(err)
	}
	found, err := d.Orders.OpenOrders(ctx, hostID)
	if err != nil {
		return nil, err
	}
	out := []wire.Order{}
	for i := range found {
		b, err := json.Marshal(&found[i])
		if err != nil {
			return nil, err
		}
		// The secret goes to its host in clear, inside of TLS.
		out = append(out, wire.Order{Order: b, Secret: json.RawMessage(found[i].Secret.Reveal())})
	}
	return out, nil
}

// result takes what came of an order, and has the server's job look, in one transaction.
func (d *hostAPI) result(w http.ResponseWriter, r *http.Request, p certifiedPeer) error {
	var in wire.Report
	if err := decodeBody(w, r, maxReport, &in); err != nil {
		return err
	}
	result, err := resultOf(in)
	if err != nil {
		return err
	}
	err = d.Jobs.Do(r.Context(), func(tx job.Tx) error {
		o, err := d.Orders.FinishOrder(tx, r.PathValue("id"), p.id, in.BootID, in.Epoch, result)
		if err != nil {
			return err
		}
		return d.Jobs.Signal(tx, compute.Subject(o.ServerID))
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func resultOf(in wire.Report) (compute.Result, error) {
	var out compute.Result
	if !hasJSONValue(in.Result) {
		return out, problem.Invalidf("result: it is missing")
	}
	if err := json.Unmarshal(in.Result, &out); err != nil {
		return out, problem.Invalidf("result: %w", err)
	}
	if out.ErrorKind == "" && out.Error != "" {
		out.ErrorKind = problem.Internal.String()
	}
	if out.ErrorKind != "" {
		out.ErrorKind = problem.ParseKind(out.ErrorKind).String()
	}
	return out, nil
}

func (d *hostAPI) progress(w http.ResponseWriter, r *http.Request, p certifiedPeer) error {
	var in wire.Progress
	if err := decodeBody(w, r, maxJoin, &in); err != nil {
		return err
	}
	err := d.Jobs.Do(r.Context(), func(tx job.Tx) error {
		if err := d.Orders.OrderProgress(tx, r.PathValue("id"), p.id, truncateText(in.Text)); err != nil {
			return err
		}
		o, err := d.Orders.Order(r.Context(), tx, r.PathValue("id"))
		if err != nil {
			return err
		}
		return d.Jobs.Signal(tx, compute.Subject(o.ServerID)) // whose job tells it on the timeline
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// image gives an image's bytes, by range. A transfer lasts as long as it moves.
func (d *hostAPI) image(w http.ResponseWriter, r *http.Request, _ certifiedPeer) error {
	if d.Images == nil {
		return problem.NotFoundf("This control plane keeps no images.")
	}
	digest := r.PathValue("digest")
	body, err := d.Images.Open(r.Context(), digest)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Etag", `"`+strings.TrimPrefix(digest, "sha256:")+`"`)
	http.ServeContent(&deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r, "", time.Time{}, body)
	return nil
}

// deadlineWriter puts the end of a transfer off with each write.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

const moveTimeout = 30 * time.Second

func (m *deadlineWriter) Write(b []byte) (int, error) {
	if err := m.control.SetWriteDeadline(time.Now().Add(moveTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return m.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (m *deadlineWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }
