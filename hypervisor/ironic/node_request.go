package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"salvor/boot/media"
	"salvor/client"
	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/wire/ironic"
)

// Describe is hypervisor.BareMetal's.
func (e *Endpoint) Describe(ctx context.Context, id string, s hypervisor.System) error {
	info := map[string]any{"display_name": s.Name}
	if s.URL != "" {
		info["image_source"], info["image_type"], info["image_disk_format"] = s.URL, "whole-disk", s.Format
		if sum, ok := strings.CutPrefix(s.Digest, "sha256:"); ok {
			info["image_os_hash_algo"], info["image_os_hash_value"] = "sha256", sum
		}
	}
	if s.Disk > 0 {
		info["root_gb"] = s.Disk
	}
	if len(s.Capabilities) > 0 {
		info["capabilities"] = s.Capabilities
	}
	_, err := e.api.PatchNode(ctx, id, []ironic.PatchOperation{newValuePatch("/instance_info", info)}, false)
	return err
}

// Ask is hypervisor.BareMetal's.
func (e *Endpoint) Ask(ctx context.Context, id string, v hypervisor.Verb, w hypervisor.NodeRequest) error {
	request := ironic.ProvisionRequest{Target: string(v), RescuePassword: w.Password.Reveal()}
	if len(w.Drive) > 0 {
		drive, err := packConfigDrive(w.Drive)
		if err != nil {
			return err
		}
		request.ConfigDrive = drive
	}
	return retryWhenBusy(e.api.Provision(ctx, id, request))
}

// retryWhenBusy marks the refusal of an endpoint whose workers are all busy, or that already deploys or cleans as many nodes as it may. A 503 without
// a reason is that of a proxy whose endpoint does not answer.
func retryWhenBusy(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable && refused.Message != http.StatusText(refused.Status) {
		return problem.RetryAfter(time.Second, err)
	}
	return err
}

// packConfigDrive makes the form of a config drive that every endpoint takes.
func packConfigDrive(files map[string][]byte) (json.RawMessage, error) {
	text, err := media.PackConfigDrive(files)
	if err != nil {
		return nil, problem.Invalidf("make the config drive: %w", err)
	}
	return json.Marshal(text)
}

// Switch is hypervisor.BareMetal's.
func (e *Endpoint) Switch(ctx context.Context, id string, to compute.Power, soft bool, within time.Duration) error {
	r := ironic.PowerRequest{Target: "power off"}
	switch {
	case to == compute.PowerOn:
		r.Target = "power on"
	case to != compute.PowerOff:
		return problem.Unsupportedf("a machine is on or off, and cannot be %s", to)
	case soft:
		seconds := max(1, int(within/time.Second))
		r.Target, r.Timeout = "soft power off", &seconds
	}
	return retryWhenBusy(e.api.SetPower(ctx, id, r))
}

// Validate is hypervisor.BareMetal's.
func (e *Endpoint) Validate(ctx context.Context, id string, volumes bool) error {
	results, err := e.api.Validate(ctx, id)
	if err != nil {
		return err
	}
	needed := []string{"deploy", "power"}
	if volumes {
		needed = append(needed, "storage")
	}
	var lacks []string
	for _, name := range needed {
		if v, ok := results[name]; ok && v.Result != nil && !*v.Result {
			lacks = append(lacks, name+": "+v.Reason)
		}
	}
	if len(lacks) > 0 {
		return problem.Invalidf("node %s cannot be deployed: %s", id, strings.Join(lacks, "; "))
	}
	return nil
}

func ofNode(id string, detail bool) client.Query {
	return client.Query{Filter: url.Values{"node": {id}}, Detail: detail}
}

// Connectors is hypervisor.BareMetal's.
func (e *Endpoint) Connectors(ctx context.Context, id string) ([]hypervisor.Connector, error) {
	rows, err := e.api.List(ctx, client.VolumeConnectors, ofNode(id, true))
	if err != nil {
		return nil, err
	}
	var out []hypervisor.Connector
	for _, r := range rows {
		out = append(out, hypervisor.Connector{Type: r.Text("type"), ID: r.Text("connector_id")})
	}
	return out, nil
}

// SetTargets is hypervisor.BareMetal's. Those that are there are made anew: what their properties say is hidden where it matters.
func (e *Endpoint) SetTargets(ctx context.Context, id string, targets []hypervisor.Target) error {
	var volumes []string
	for _, t := range targets {
		volumes = append(volumes, t.VolumeID)
	}
	if err := e.ClearTargets(ctx, id, volumes); err != nil {
		return err
	}
	for _, t := range targets {
		properties := map[string]any{
			"target_portal": t.Portal, "target_iqn": t.IQN, "target_lun": t.LUN, "volume_id": t.VolumeID,
			"target_discovered": false, "encrypted": false, "access_mode": "rw",
		}
		if t.User != "" {
			properties["auth_method"], properties["auth_username"], properties["auth_password"] = "CHAP", t.User, t.Password.Reveal()
		}
		_, err := e.api.Create(ctx, client.VolumeTargets, client.Record{
			"node_uuid": id, "volume_type": "iscsi", "volume_id": t.VolumeID, "boot_index": t.BootIndex, "properties": properties,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ClearTargets is hypervisor.BareMetal's.
func (e *Endpoint) ClearTargets(ctx context.Context, id string, volumes []string) error {
	rows, err := e.api.List(ctx, client.VolumeTargets, ofNode(id, false))
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		if !slices.Contains(volumes, r.Text("volume_id")) {
			continue
		}
		if err := e.api.Delete(ctx, client.VolumeTargets, r.Text("uuid")); err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
	}
	return nil
}
