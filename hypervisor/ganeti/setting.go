package ganeti

import (
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"salvor/hypervisor"
	"salvor/problem"
	"salvor/rescue"
)

// Names of the hypervisor parameters that a rescue replaces.
const (
	bootOrder  = "boot_order"
	cdPath     = "cdrom_image_path"
	kernelPath = "kernel_path"
)

// cdFirst is KVM's whole boot order for a CD: lists like "cdrom,disk" are refused by every version.
const cdFirst = "cdrom"

// byDefault is Ganeti's word for the value of a parameter that is not set on the instance itself: saved and sent alike.
const byDefault = "default"

var replaced = []string{bootOrder, cdPath, kernelPath}

// value is a parameter as it counts for the instance: its own, or the cluster's.
func (in *instance) value(name string) string { return decodeStringParam(in.HVParams[name]) }

// decodeStringParam is a parameter's text; null and what is no text are empty.
func decodeStringParam(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// settings are the replaced parameters as they are set on this instance; one that is not set says so.
func (in *instance) settings() map[string]string {
	out := make(map[string]string, len(replaced))
	for _, name := range replaced {
		out[name] = byDefault
		if raw, set := in.Custom[name]; set {
			out[name] = decodeStringParam(raw)
		}
	}
	return out
}

// bootsCD is the path or URL of the CD that the next start boots; empty: it boots no CD. A kernel goes before any boot order.
func (in *instance) bootsCD() string {
	if in.value(kernelPath) != "" || in.value(bootOrder) != cdFirst {
		return ""
	}
	return in.value(cdPath)
}

// changes are the parameters that must be set so that the instance boots as d says; none: it does. Where d says
// neither a rescue nor what to put back, how it boots is left alone: it may boot a CD of somebody's own.
func (in *instance) changes(d hypervisor.Domain) (map[string]string, error) {
	out := map[string]string{}
	if d.Rescue != nil {
		image, err := rescueCDImage(d)
		if err != nil {
			return nil, err
		}
		for name, want := range map[string]string{bootOrder: cdFirst, cdPath: image, kernelPath: ""} {
			if in.value(name) != want {
				out[name] = want
			}
		}
		return out, nil
	}
	if d.Restore == nil {
		return out, nil
	}
	now := in.settings()
	for _, name := range replaced {
		want, saved := d.Restore[name]
		if !saved {
			want = byDefault
		}
		if now[name] != want {
			out[name] = want
		}
	}
	return out, nil
}

// rescueCDImage is what the rescue boots from, if Ganeti can.
func rescueCDImage(d hypervisor.Domain) (string, error) {
	if d.Rescue.Kind != rescue.ISO {
		return "", problem.Unsupportedf("rescue image %q: Ganeti boots rescue systems from CD only, and this is a %s; add an ISO image (salvor rescue-image add) and name it",
			d.Rescue.Name, d.Rescue.Kind)
	}
	if u, err := url.Parse(d.RescueImage); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return d.RescueImage, nil
	}
	if !path.IsAbs(d.RescueImage) || path.Clean(d.RescueImage) != d.RescueImage || strings.ContainsRune(d.RescueImage, 0) {
		return "", problem.Invalidf("rescue image %q: Ganeti needs a URL or a clean absolute path that is a file on every node, not %q", d.Rescue.Name, sanitizeForeignText(d.RescueImage))
	}
	return d.RescueImage, nil
}
