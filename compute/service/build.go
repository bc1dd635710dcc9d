package service

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/rescue"
)

// Blueprint puts together what the host of a server must know; what the server is made of is read from the store. Spec.Rescue is
// set while a session is open. The config drive's files are in it if it has one; hash is that of the system's first password, ""
// after it was set.
func (s *Servers) Blueprint(ctx context.Context, srv *compute.Server, hash string) (*compute.Blueprint, error) {
	p, err := s.parts(ctx, srv)
	if err != nil {
		return nil, err
	}
	b, err := compute.SpecOf(srv, p)
	if err != nil {
		return nil, err
	}
	b.Spec.Incarnation = s.Incarnation()
	if srv.ConfigDrive {
		if b.Secret.Drive, err = compute.ConfigDrive(srv, p.Networks, hash); err != nil {
			return nil, err
		}
	}
	if srv.InSession() && srv.Rescue.Source != nil {
		return b, s.addRescue(b, srv, p)
	}
	return b, nil
}

func (s *Servers) parts(ctx context.Context, srv *compute.Server) (*compute.ServerParts, error) {
	p := &compute.ServerParts{Images: map[string]*compute.Image{}, Volumes: map[string]*compute.Volume{}, Networks: map[string]*compute.Network{}}
	ids := make([]string, 0, 2)
	for _, d := range srv.Disks {
		if d.ImageID != "" {
			ids = append(ids, d.ImageID)
		}
		if d.VolumeID == "" {
			continue
		}
		v, err := s.store.Volumes().Get(ctx, nil, d.VolumeID)
		if err != nil {
			return nil, err
		}
		p.Volumes[v.ID] = v
	}
	if srv.InSession() && srv.Rescue.Source != nil && srv.Rescue.Source.ImageUUID != "" {
		ids = append(ids, srv.Rescue.Source.ImageUUID)
	}
	for _, id := range ids {
		img, err := s.store.Images().Get(ctx, nil, id)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err == nil {
			p.Images[id] = img
		}
	}
	for _, nic := range srv.NICs {
		n, err := s.store.Networks().Get(ctx, nil, nic.NetworkID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err == nil {
			p.Networks[n.ID] = n
		}
	}
	return p, nil
}

// addRescue adds the rescue system of the open session, and its credential in the form that the system takes.
func (s *Servers) addRescue(b *compute.Blueprint, srv *compute.Server, p *compute.ServerParts) error {
	src := *srv.Rescue.Source
	r := &compute.SpecRescue{Source: src, Session: srv.Rescue.StartedAt.UTC().Format(time.RFC3339Nano)}
	switch {
	case src.ImageUUID != "":
		if p.Images[src.ImageUUID] == nil {
			return problem.NotFoundf("server %s: its rescue image %s is gone; name another one", srv.ID, src.ImageUUID)
		}
		r.Image = compute.NewSpecImage(src.ImageUUID, p.Images[src.ImageUUID])
	case src.Digest != "":
		r.Image = &compute.SpecImage{ID: src.Digest, Digest: src.Digest, Format: compute.RescueFormat(src.Kind), URL: compute.LocationOnWeb(src)}
		if src.RamdiskDigest != "" {
			r.RamdiskImage = &compute.SpecImage{ID: src.RamdiskDigest, Digest: src.RamdiskDigest, Format: "ari"}
		}
	}
	b.Spec.Rescue = r
	credential := srv.Rescue.Credential
	switch src.Access {
	case rescue.ByChannel:
		b.Secret.Hash, b.Secret.Keys = credential.Hash.Reveal(), credential.Keys
	case rescue.ByConfigDrive:
		var err error
		b.Secret.RescueDrive, err = compute.RescueDrive(srv, p.Networks, credential)
		return err
	}
	return nil
}
