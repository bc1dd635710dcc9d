package compute

import (
	"strings"

	"salvor/problem"
	"salvor/rescue"
)

// Blueprint is all that a host must be told of a server: the spec, and what must not be shown.
type Blueprint struct {
	Spec   Spec
	Secret OrderSecret
}

// ServerParts are what a server is made of, as they are in the store.
type ServerParts struct {
	Images   map[string]*Image
	Volumes  map[string]*Volume
	Networks map[string]*Network
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

// SpecOf is pure: a server and what it is made of, as a host must know it.
func SpecOf(srv *Server, p *ServerParts) (*Blueprint, error) {
	b := &Blueprint{Spec: Spec{
		ServerID: srv.ID, Name: srv.Name, GuestName: srv.GuestName, Epoch: srv.Epoch, VCPUs: srv.Flavor.VCPUs, RAM: srv.Flavor.RAM,
		Firmware: srv.Firmware, Initiator: GuestInitiator(srv.HostID, srv.ID), Machine: machineWords(srv.ImageProperties), NICs: srv.NICs, Drive: srv.ConfigDrive,
	}}
	for _, d := range srv.Disks {
		out := SpecDisk{Name: d.Name, BootIndex: d.BootIndex}
		if d.VolumeID == "" {
			out.Store, out.SizeGiB, out.File = d.Store, d.SizeGiB, srv.ID+"-"+d.Name
			if d.ImageID != "" {
				out.Image = NewSpecImage(d.ImageID, p.Images[d.ImageID])
			}
			b.Spec.Disks = append(b.Spec.Disks, out)
			continue
		}
		v := p.Volumes[d.VolumeID]
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

// NewSpecImage tells of an image; of one that is gone only its id is left, which a disk that is made already needs no more.
func NewSpecImage(id string, i *Image) *SpecImage {
	if i == nil {
		return &SpecImage{ID: id}
	}
	return &SpecImage{ID: i.ID, Digest: i.Digest, Size: i.Size, Format: i.DiskFormat, URL: i.URL}
}

func RescueFormat(k rescue.Kind) string {
	switch k {
	case rescue.Kernel:
		return "aki"
	case rescue.Disk:
		return "raw"
	}
	return "iso"
}

func LocationOnWeb(src rescue.Source) string {
	if src.LocationType == rescue.LocationHTTP {
		return src.Location
	}
	return ""
}
