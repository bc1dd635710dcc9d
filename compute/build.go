package compute

import (
	"context"
	"strings"
	"time"

	"salvor/problem"
	"salvor/rescue"
)

// Blueprint is all that a host must be told of a server: the spec, and what must not be shown.
type Blueprint struct {
	Spec   Spec
	Secret OrderSecret
}

// serverParts are what a server is made of, as they are in the store.
type serverParts struct {
	images   map[string]*Image
	volumes  map[string]*Volume
	networks map[string]*Network
}

// Blueprint puts together what the host of a server must know; what the server is made of is read from the store. Spec.Rescue is
// set while a session is open. The config drive's files are in it if it has one; hash is that of the system's first password, ""
// after it was set.
func (s *Servers) Blueprint(ctx context.Context, srv *Server, hash string) (*Blueprint, error) {
	p, err := s.parts(ctx, srv)
	if err != nil {
		return nil, err
	}
	b, err := specOf(srv, p)
	if err != nil {
		return nil, err
	}
	b.Spec.Incarnation = s.Incarnation()
	if srv.ConfigDrive {
		if b.Secret.Drive, err = configDrive(srv, p.networks, hash); err != nil {
			return nil, err
		}
	}
	if srv.InSession() && srv.Rescue.Source != nil {
		return b, s.addRescue(b, srv, p)
	}
	return b, nil
}

func (s *Servers) parts(ctx context.Context, srv *Server) (*serverParts, error) {
	p := &serverParts{images: map[string]*Image{}, volumes: map[string]*Volume{}, networks: map[string]*Network{}}
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
		p.volumes[v.ID] = v
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
			p.images[id] = img
		}
	}
	for _, nic := range srv.NICs {
		n, err := s.store.Networks().Get(ctx, nil, nic.NetworkID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err == nil {
			p.networks[n.ID] = n
		}
	}
	return p, nil
}

// machineWords are the properties of an image that a hypervisor understands.
func machineWords(properties map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range properties {
		if strings.HasPrefix(k, "hw_") || strings.HasPrefix(k, "os_") || strings.HasPrefix(k, "ganeti_") {
			out[k] = v
		}
	}
	return out
}

// specOf is pure: a server and what it is made of, as a host must know it.
func specOf(srv *Server, p *serverParts) (*Blueprint, error) {
	b := &Blueprint{Spec: Spec{
		ServerID: srv.ID, Name: srv.Name, GuestName: srv.GuestName, Epoch: srv.Epoch, VCPUs: srv.Flavor.VCPUs, RAM: srv.Flavor.RAM,
		Firmware: srv.Firmware, Initiator: GuestInitiator(srv.HostID, srv.ID), Machine: machineWords(srv.ImageProperties), NICs: srv.NICs, Drive: srv.ConfigDrive,
	}}
	for _, d := range srv.Disks {
		out := SpecDisk{Name: d.Name, BootIndex: d.BootIndex}
		if d.VolumeID == "" {
			out.Store, out.SizeGiB, out.File = d.Store, d.SizeGiB, srv.ID+"-"+d.Name
			if d.ImageID != "" {
				out.Image = specImage(d.ImageID, p.images[d.ImageID])
			}
			b.Spec.Disks = append(b.Spec.Disks, out)
			continue
		}
		v := p.volumes[d.VolumeID]
		if v == nil || v.Portal == "" || v.IQN == "" {
			return nil, problem.Conflictf("server %s: volume %s has no portal or no target", srv.ID, d.VolumeID)
		}
		out.VolumeID, out.Portal, out.IQN, out.LUN, out.CHAPUser = v.ID, v.Portal, v.IQN, v.LUN, v.CHAPUser
		if !v.CHAPPassword.Empty() {
			if b.Secret.CHAP == nil {
				b.Secret.CHAP = map[string]string{}
			}
			b.Secret.CHAP[v.ID] = v.CHAPPassword.Reveal()
		}
		b.Spec.Disks = append(b.Spec.Disks, out)
	}
	return b, nil
}

// specImage tells of an image; of one that is gone only its id is left, which a disk that is made already needs no more.
func specImage(id string, i *Image) *SpecImage {
	if i == nil {
		return &SpecImage{ID: id}
	}
	return &SpecImage{ID: i.ID, Digest: i.Digest, Size: i.Size, Format: i.DiskFormat, URL: i.URL}
}

// addRescue adds the rescue system of the open session, and its credential in the form that the system takes.
func (s *Servers) addRescue(b *Blueprint, srv *Server, p *serverParts) error {
	src := *srv.Rescue.Source
	r := &SpecRescue{Source: src, Session: srv.Rescue.StartedAt.UTC().Format(time.RFC3339Nano)}
	switch {
	case src.ImageUUID != "":
		if p.images[src.ImageUUID] == nil {
			return problem.NotFoundf("server %s: its rescue image %s is gone; name another one", srv.ID, src.ImageUUID)
		}
		r.Image = specImage(src.ImageUUID, p.images[src.ImageUUID])
	case src.Digest != "":
		r.Image = &SpecImage{ID: src.Digest, Digest: src.Digest, Format: rescueFormat(src.Kind), URL: webOnly(src)}
		if src.RamdiskDigest != "" {
			r.RamdiskImage = &SpecImage{ID: src.RamdiskDigest, Digest: src.RamdiskDigest, Format: "ari"}
		}
	}
	b.Spec.Rescue = r
	credential := srv.Rescue.Credential
	switch src.Access {
	case rescue.ByChannel:
		b.Secret.Hash, b.Secret.Keys = credential.Hash.Reveal(), credential.Keys
	case rescue.ByConfigDrive:
		var err error
		b.Secret.RescueDrive, err = rescueDrive(srv, p.networks, credential)
		return err
	}
	return nil
}

func rescueFormat(k rescue.Kind) string {
	switch k {
	case rescue.Kernel:
		return "aki"
	case rescue.Disk:
		return "raw"
	}
	return "iso"
}

func webOnly(src rescue.Source) string {
	if src.LocationType == rescue.LocationHTTP {
		return src.Location
	}
	return ""
}
