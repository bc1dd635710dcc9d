package service

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Hosts is the service of the records of hosts: how they join, are changed and removed.
type Hosts struct {
	*serviceCore
	records  *record.Collection[compute.Host, compute.HostFilter]
	cache    *hostCache
	liveness *Liveness
	reports  *GuestReports
	fences   *Fences
}

func newHosts(c *serviceCore, cache *hostCache, f *Fences) *Hosts {
	return &Hosts{serviceCore: c, records: record.NewCollection("host", c.store.Hosts(), c.jobs, c.now), cache: cache, liveness: f.liveness, reports: f.reports, fences: f}
}

// Host reads one by UUID or name; a name that several hosts have is Conflict.
func (s *Hosts) Host(ctx context.Context, ident string) (*compute.Host, error) {
	return s.host(ctx, ident)
}

func (s *serviceCore) host(ctx context.Context, ident string) (*compute.Host, error) {
	if record.IsUUID(ident) {
		return s.store.Hosts().Get(ctx, nil, strings.ToLower(ident))
	}
	found, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{Name: ident}, pageOf(2))
	switch {
	case err != nil:
		return nil, err
	case ident == "" || len(found) == 0:
		return nil, problem.NotFoundf("host %s could not be found", compute.TruncateText(ident))
	case len(found) > 1:
		return nil, problem.Conflictf("several hosts are named %s: name one by its UUID", compute.TruncateText(ident))
	}
	return found[0], nil
}

// List reads a page.
func (s *Hosts) List(ctx context.Context, f compute.HostFilter, p record.Page) ([]*compute.Host, error) {
	return s.records.List(ctx, f, p)
}

// Join lets a host in with a join token, which is used up; cert is the certificate that it is given, key the digest of
// its public key. A host that joins again (same UUID and key from its disk) keeps its row; with another key it needs a token that
// was made for it, and one that was revoked is let in by no token.
func (s *Hosts) Join(ctx context.Context, token secret.Value, hostID, name string, cert compute.Certificate, key string, who record.Asker) (*compute.Host, error) {
	if !record.IsUUID(hostID) {
		return nil, problem.Invalidf("join: %.100q is no UUID of a host", hostID)
	}
	if name == "" || len(name) > 255 || strings.ContainsAny(name, "\x00\n\r\t /") {
		return nil, problem.Invalidf("join: %.100q is no name of a host", name)
	}
	hostID = strings.ToLower(hostID)
	var out *compute.Host
	err := s.change(ctx, func(tx job.Tx) error {
		t, err := s.useToken(ctx, tx, token, hostID, key)
		if err != nil {
			return err
		}
		h, err := s.store.Hosts().Get(ctx, tx, hostID)
		if problem.Is(err, problem.NotFound) {
			out = &compute.Host{Record: record.Record{ID: hostID, CreatedAt: s.now()}, Name: name, Kind: compute.AgentHost, Serial: cert.Serial, CertificateEnds: cert.Ends, Key: key}
			if err := s.store.Hosts().Insert(tx, out); err != nil {
				return err
			}
			return s.noteHost(tx, hostID, who, "joined as "+name+" with join token "+t.ID)
		}
		if err != nil {
			return err
		}
		if h.Revoked || h.Kind != compute.AgentHost {
			return problem.Forbiddenf("join: host %s may not join: its certificate was revoked; an operator must restore it first", hostID)
		}
		if (key == "" || h.Key != key) && t.HostID != hostID {
			return problem.Forbiddenf("join: host %s is known with another key; make a token for it with: salvor host token create --host %s", hostID, hostID)
		}
		// A host that lives has a certificate: who shows a token in its name is somebody else.
		if up, err := s.liveness.snapshot(ctx, tx); err != nil || up.isUp(h) {
			return cmp.Or(err, problem.Conflictf("join: host %s is up with a certificate of its own; stop it first, or revoke it", hostID))
		}
		h.Name, h.Serial, h.CertificateEnds, h.Key = name, cert.Serial, cert.Ends, key
		out = h
		if err := s.saveHost(tx, h); err != nil {
			return err
		}
		return s.noteHost(tx, hostID, who, "joined again as "+name+" with join token "+t.ID)
	})
	if err == nil {
		s.cache.expireRow(hostID)
	}
	return out, err
}

func (c *serviceCore) saveHost(tx job.Tx, h *compute.Host) error {
	return conflictToChanged(c.store.Hosts().Save(tx, h))
}

func (c *serviceCore) noteHost(tx job.Tx, id string, who record.Asker, text string) error {
	return c.jobs.Append(tx, job.Event{Subject: compute.HostSubject(id), Type: "contact", Text: text, Severity: "info", RequestID: who.RequestID, User: who.User})
}

// edit changes a host's row.
func (s *Hosts) edit(ctx context.Context, id string, change func(tx job.Tx, h *compute.Host) error) (*compute.Host, error) {
	var out *compute.Host
	err := s.change(ctx, func(tx job.Tx) error {
		h, err := s.store.Hosts().Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := change(tx, h); err != nil {
			return err
		}
		out = h
		return s.saveHost(tx, h)
	})
	if err == nil {
		s.cache.expireRow(id) // what was read of the row before
	}
	return out, err
}

// Certified notes a host's next certificate.
func (s *Hosts) Certified(ctx context.Context, hostID string, cert compute.Certificate, who record.Asker) error {
	_, err := s.edit(ctx, hostID, func(tx job.Tx, h *compute.Host) error {
		if h.Revoked {
			return revokedCertificateError(hostID)
		}
		h.Serial, h.CertificateEnds = cert.Serial, cert.Ends
		return s.noteHost(tx, hostID, who, "has a new certificate, which ends on "+record.Moment(cert.Ends))
	})
	return err
}

func revokedCertificateError(hostID string) error {
	return problem.Forbiddenf("the certificate of host %s was revoked", hostID)
}

// SetService changes what operators say of a host.
func (s *Hosts) SetService(ctx context.Context, ident string, v compute.Service, who record.Asker) (*compute.Host, error) {
	h, err := s.Host(ctx, ident)
	if err != nil {
		return nil, err
	}
	return s.edit(ctx, h.ID, func(tx job.Tx, h *compute.Host) error {
		var said []string
		set := func(field *bool, to *bool, yes, no string) {
			if to != nil && *field != *to {
				*field = *to
				said = append(said, map[bool]string{true: yes, false: no}[*to])
			}
		}
		set(&h.Disabled, v.Disabled, "disabled", "enabled")
		if err := s.forceDown(ctx, tx, h, v.ForcedDown, who); err != nil {
			return err
		}
		set(&h.ForcedDown, v.ForcedDown, "forced down", "no longer forced down")
		if err := s.follow(ctx, tx, h, v, &said); err != nil {
			return err
		}
		if v.Revoked != nil && *v.Revoked && !h.Revoked {
			h.RevokedAt, h.Serial = s.now(), ""
		}
		if v.Found && h.Lost {
			h.Lost, h.LostReason, h.LostBy, h.LostAt = false, "", "", time.Time{}
			said = append(said, "is no longer lost")
		}
		set(&h.Revoked, v.Revoked, "certificate revoked", "may join again")
		if !h.Disabled {
			h.DisabledReason = ""
		}
		if v.Reason != nil {
			if len(*v.Reason) > 255 || strings.ContainsAny(*v.Reason, "\x00\n\r") {
				return problem.Invalidf("a reason is one line of at most 255 characters")
			}
			if h.DisabledReason != *v.Reason {
				said = append(said, "disabled_reason changed")
			}
			h.DisabledReason = *v.Reason
		}
		if v.Zone != nil {
			if len(*v.Zone) > 255 || strings.ContainsAny(*v.Zone, "\x00\n\r:") {
				return problem.Invalidf("zone %.100q: want a word without a colon", *v.Zone)
			}
			if h.Zone != *v.Zone {
				said = append(said, "zone changed")
			}
			h.Zone = *v.Zone
		}
		if len(said) == 0 {
			return nil
		}
		return s.noteHost(tx, h.ID, who, strings.Join(said, ", "))
	})
}

// Ensure writes the row of a cluster's node: found by cluster and name, made if there is none.
func (s *Hosts) Ensure(ctx context.Context, clusterID, name string, inv compute.Inventory) (*compute.Host, error) {
	var out *compute.Host
	err := s.change(ctx, func(tx job.Tx) error {
		found, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{ClusterID: clusterID, Name: name, WithLost: true}, pageOf(1))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			out = &compute.Host{Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, Name: name, Kind: compute.GanetiHost, ClusterID: clusterID, Inventory: inv}
			if cl, err := s.store.Clusters().Get(ctx, tx, clusterID); err == nil && cl.Kind == compute.IronicCluster {
				out.Kind = compute.IronicHost
			}
			return s.store.Hosts().Insert(tx, out)
		}
		out = found[0]
		if compute.SameInventory(out.Inventory, inv) && !out.Lost {
			return nil
		}
		out.Inventory, out.Lost = inv, false
		return s.saveHost(tx, out)
	})
	return out, err
}
