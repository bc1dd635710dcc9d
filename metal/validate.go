package metal

import (
	"context"
	"fmt"
	"strings"

	"salvor/job"
)

// Validity is whether an interface of a node can work, and why not.
type Validity struct {
	OK     bool
	Known  bool // false: the driver has no such interface; clients show None
	Reason string
}

// Validate tells for each kind of interface whether it can work. It asks no machine:
// it compares the record with what the conductors published, and checks the operations that belong to each interface.
func (s *Nodes) Validate(ctx context.Context, ident string) (map[string]Validity, error) {
	n, all, err := s.CheckAll(ctx, ident, RunbookFilter{})
	if err != nil {
		return nil, err
	}
	g, err := s.gather(ctx, n)
	if err != nil {
		return nil, err
	}
	rescues := n.Interfaces["rescue"] != "no-rescue"
	out := make(map[string]Validity, len(InterfaceKinds))
	for _, kind := range InterfaceKinds {
		if kind == "vendor" {
			continue
		}
		out[kind] = interfaceValidity(n, g.driver, kind, len(g.ports), kind == "rescue" || kind == "boot" && rescues)
	}
	if s.opts.Checker != nil {
		for _, r := range s.opts.Checker.CheckSettings(n) {
			if v, shown := out[r.Interface]; shown {
				out[r.Interface] = v.with(r.Text)
			}
		}
	}
	for _, h := range g.driver.keyHints(n) {
		kind := "deploy" // what reads properties and instance_info
		if h.Field == "driver_info" {
			kind = "power"
		}
		if v := out[kind]; v.Known {
			out[kind] = v.warn(h.String())
		}
	}
	if out["storage"].OK {
		out["storage"] = g.volumes
	}
	if err := n.checkInstanceTraits(); err != nil {
		out["deploy"] = out["deploy"].with(err.Error())
	}
	for _, one := range all {
		for _, r := range one.preflight {
			for _, kind := range shownAt(one.Kind, r.Interface, out["rescue"].Known) {
				out[kind] = out[kind].with(r.Text)
			}
		}
		for _, r := range one.Warnings {
			if v := out[r.Interface]; v.Known {
				out[r.Interface] = v.warn(r.Text)
			}
		}
	}
	return out, nil
}

// shownAt tells at which interfaces validate shows a reason of an operation. The boot interface is judged by rescue where the
// node can be rescued, as Ironic does, and by deploy elsewhere.
func shownAt(op job.Kind, kind string, rescues bool) []string {
	switch {
	case op == "rescue" && rescues:
		return []string{"rescue", kind}
	case op == "deploy" && (kind != "boot" || !rescues), op == "provide" && kind == "network":
		return []string{"deploy", kind}
	case op == "deploy", op == "provide":
		return []string{"deploy"}
	case op == "inspect":
		return []string{"inspect"}
	}
	return nil
}

// warn adds a remark that leaves an interface as able as it is.
func (v Validity) warn(text string) Validity {
	if v.Reason != "" {
		text = v.Reason + "; " + text
	}
	v.Reason = text
	return v
}

// with adds a reason why an interface cannot work; one that does not exist or is not supported keeps its own.
func (v Validity) with(reason string) Validity {
	switch {
	case !v.Known || strings.Contains(v.Reason, reason):
		return v
	case v.Reason == "":
		return Validity{Known: true, Reason: reason}
	}
	v.OK = false
	v.Reason += "; " + reason
	return v
}

func interfaceValidity(n *Node, d DriverInfo, kind string, ports int, forRescue bool) Validity {
	i, ok := d.Find(n, kind)
	if !ok {
		return Validity{Reason: fmt.Sprintf("the driver %s has no %s interface %q", n.Driver, kind, n.Interfaces[kind])}
	}
	if i.Unsupported {
		return Validity{Reason: "not supported", Known: false}
	}
	if i.Broken != "" {
		return Validity{Known: true, Reason: i.Broken}
	}
	var missing []string
	for _, key := range i.Required {
		if n.lacks(key) {
			missing = append(missing, key)
		}
	}
	if forRescue {
		for _, key := range i.RequiredForRescue {
			if n.lacks(key) {
				missing = append(missing, key)
			}
		}
	}
	if len(missing) > 0 {
		return Validity{Known: true, Reason: fmt.Sprintf("driver_info lacks %s", strings.Join(missing, ", "))}
	}
	if i.NeedsHeartbeat {
		if deploy, ok := d.Find(n, "deploy"); ok && deploy.Heartbeat == "" {
			return Validity{Known: true, Reason: fmt.Sprintf("the %s interface %s needs heartbeats, which the deploy interface %s does not take: set deploy_interface to one that does, such as custom-agent", kind, i.Name, deploy.Name)}
		}
	}
	if len(i.ImageFormats) > 0 && !d.FromVolumes(n) {
		if _, err := ImageOf(n, i.ImageFormats); err != nil {
			return Validity{Known: true, Reason: err.Error()}
		}
	}
	if i.NeedsPorts && ports == 0 {
		return Validity{Known: true, Reason: "the node has no port: create one with the MAC of its NIC"}
	}
	return Validity{OK: true, Known: true}
}

// missingInstance lists what instance_info lacks for a deployment. Where one key replaces the others, the text names it too.
func (i InterfaceInfo) missingInstance(n *Node) (keys []string) {
	given := func(key string) bool { return strings.TrimSpace(formatScalar(n.InstanceInfo[key])) != "" }
	if i.InsteadInstance != "" && given(i.InsteadInstance) {
		return nil
	}
	for _, key := range i.RequiredInstance {
		switch {
		case given(key):
		case i.InsteadInstance != "":
			keys = append(keys, key+", or "+i.InsteadInstance+",")
		default:
			keys = append(keys, key)
		}
	}
	return keys
}

// lacks tells whether driver_info misses a key. A ready-made ISO image (deploy_iso, rescue_iso) replaces kernel and ramdisk.
func (n *Node) lacks(key string) bool {
	for _, part := range []string{"_kernel", "_ramdisk"} {
		if use, ok := strings.CutSuffix(key, part); ok && n.has(use+"_iso") {
			return false
		}
	}
	return !n.has(key)
}

// has tells whether driver_info holds a non-empty scalar under the key.
func (n *Node) has(key string) bool { return strings.TrimSpace(n.Info(key)) != "" }
