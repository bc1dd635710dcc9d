package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/wire/answer"
	wire "salvor/wire/host"
	"salvor/wire/loose"
)

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
	// The renewals of leases do not wait for the answers of other machines, and reports do.
	share := answer.NewShare()
	defer share.End()
	body, err := api.ReadBody(w, r, maxReport)
	if err != nil {
		return err
	}
	if err := answer.Admit(r.Context(), share, body, loose.MaxValues); err != nil {
		return err
	}
	var in wire.Report
	if err := unmarshalObject(body, &in); err != nil {
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
		if err := d.Orders.OrderProgress(tx, r.PathValue("id"), p.id, problem.Abridge(in.Text, maxWord)); err != nil {
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

// image gives the bytes of an image that an open order of the host names, by range. A host that an intruder controls gets the images of no other
// project. A transfer lasts as long as it moves.
func (d *hostAPI) image(w http.ResponseWriter, r *http.Request, p certifiedPeer) error {
	if d.Images == nil {
		return problem.NotFoundf("This control plane keeps no images.")
	}
	digest := r.PathValue("digest")
	if named, err := d.namesImage(r.Context(), p.id, digest); err != nil || !named {
		return cmp.Or(err, problem.NotFoundf("No open order of this host names the image %.80q.", digest))
	}
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

// namesImage tells whether an open order of a host has the host fetch an image.
func (d *hostAPI) namesImage(ctx context.Context, hostID, digest string) (bool, error) {
	if !compute.DigestForm.MatchString(digest) {
		return false, nil
	}
	found, err := d.Orders.OrdersNaming(ctx, hostID, digest)
	if err != nil {
		return false, err
	}
	for i := range found {
		var a compute.Args
		if json.Unmarshal(found[i].Args, &a) == nil && slices.Contains(a.Images(), digest) {
			return true, nil
		}
	}
	return false, nil
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
