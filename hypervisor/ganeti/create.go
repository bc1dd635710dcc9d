package ganeti

import (
	"context"
	"net/http"
	"strconv"

	"salvor/hypervisor"
	"salvor/problem"
)

// Properties of an image that say how an instance is created on Ganeti.
const (
	PropertySystem   = "ganeti_os"            // name of the OS definition on the cluster; required
	PropertyTemplate = "ganeti_disk_template" // the cluster's first that holds disks, if absent
)

// create makes the instance of a server that is on no node yet, off.
func (h Host) create(ctx context.Context, d hypervisor.Domain) (*instance, error) {
	there, err := h.instance(ctx, d.GuestName)
	if err == nil {
		return nil, problem.Conflictf("create instance %s: there is one of that name that is not server %s", there.Name, d.ServerID)
	}
	if !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	body, err := h.creation(ctx, d)
	if err != nil {
		return nil, err
	}
	if err := h.do(ctx, http.MethodPost, body, nil, "instances"); err != nil {
		// Whoever asked before us may have been cut off: then it is there, and ours.
		if in, lookErr := h.instance(ctx, d.GuestName); lookErr == nil && in.server() == d.ServerID {
			return in, nil
		}
		return nil, problem.New(problem.KindOf(err), "create instance %s: %w", d.GuestName, err)
	}
	return h.instance(ctx, d.GuestName)
}

// creation is the body of the request.
func (h Host) creation(ctx context.Context, d hypervisor.Domain) (map[string]any, error) {
	system := d.Machine[PropertySystem]
	if system == "" {
		return nil, problem.Unsupportedf("create instance %s: its image has no property %s, so Ganeti does not know what to install", d.GuestName, PropertySystem)
	}
	disks, template := []map[string]any{}, "diskless"
	for _, disk := range d.Disks {
		if disk.VolumeID != "" {
			return nil, problem.Unsupportedf("create instance %s: Ganeti attaches no volume of ours (%s)", d.GuestName, disk.VolumeID)
		}
		disks = append(disks, map[string]any{"size": disk.SizeGiB * 1024})
	}
	if len(disks) > 0 {
		var err error
		if template, err = h.template(ctx, d); err != nil {
			return nil, err
		}
	}
	nics := []map[string]any{}
	for _, n := range d.NICs {
		nic := map[string]any{"link": n.Bridge}
		if n.MAC != "" {
			nic["mac"] = n.MAC
		}
		nics = append(nics, nic)
	}
	return map[string]any{
		"__version__": 1, "mode": "create", "instance_name": d.GuestName, "hypervisor": "kvm", "os_type": system,
		"disk_template": template, "disks": disks, "nics": nics, "pnode": h.Node, "start": false,
		"ip_check": false, "name_check": false, "conflicts_check": false,
		"beparams": map[string]int{"minmem": d.RAM, "maxmem": d.RAM, "vcpus": d.VCPUs},
		"hvparams": map[string]string{kernelPath: ""},
		"tags":     []string{tagServer + d.ServerID, tagEpoch + strconv.FormatInt(d.Epoch, 10), tagMade},
	}, nil
}

func (h Host) template(ctx context.Context, d hypervisor.Domain) (string, error) {
	if asked := d.Machine[PropertyTemplate]; asked != "" {
		return asked, nil
	}
	var info struct {
		Templates []string `json:"enabled_disk_templates"`
	}
	if err := h.get(ctx, maxOne, &info, nil, "info"); err != nil {
		return "", err
	}
	for _, t := range info.Templates {
		if t != "diskless" && t != "drbd" { // drbd needs a second node, which is an operator's choice
			return t, nil
		}
	}
	return "", problem.Unsupportedf("create instance %s: no disk template of the cluster holds disks on one node; the image's property %s may name one", d.GuestName, PropertyTemplate)
}
