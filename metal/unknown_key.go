package metal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Keys of properties and instance_info that salvor, Nova or Ironic's inspection read. Clients may store other keys.
var (
	knownProperties = []string{
		"capabilities", "cpu_arch", "cpus", "hw_rescue_bus", "hw_rescue_device", "local_gb", "memory_mb", "os_type", "root_device", "skip_block_devices", "vendor",
	}
	knownInstanceInfo = []string{
		AppendKey, "boot_iso", "bootloader", "capabilities", "configdrive", "display_name", "ephemeral_gb", "fixed_ips", "image_checksum", "image_disk_format", "image_os_hash_algo",
		"image_os_hash_value", "image_password", "image_pull_secret", "image_request_authorization", "image_source", "image_type", "image_url", "kernel", "memory_mb", "nova_host_id",
		"ramdisk", "rescue_password", "root_device", "root_gb", "swap_mb", "traits", "vcpus", "local_gb",
	}
)

// maxKeyHints bounds how many misspelt keys of one node are told.
const maxKeyHints = 8

// KeyHint is a key that nothing reads and that is nearly one which is read.
type KeyHint struct {
	Field, Key, Near string
}

func (h KeyHint) String() string {
	return fmt.Sprintf("%s has %s, which nothing reads; did you mean %s?", h.Field, h.Key, h.Near)
}

// KeyHints tells which keys of a node's driver_info, properties and instance_info are probably misspelt.
func (s *Nodes) KeyHints(ctx context.Context, n *Node) ([]KeyHint, error) {
	d, err := s.directory.Driver(ctx, n)
	if err != nil {
		return nil, err
	}
	return d.keyHints(n), nil
}

// warnOfKeys writes into the history which keys that a change brings are probably misspelt.
func (s *Nodes) warnOfKeys(ctx context.Context, tx job.Tx, n, old *Node, asker record.Asker) error {
	d, err := s.directory.Driver(ctx, n)
	if err != nil {
		return nil // the change is taken without a conductor too
	}
	before := d.keyHints(old)
	for _, h := range d.keyHints(n) {
		if slices.Contains(before, h) {
			continue
		}
		e := job.Event{Subject: job.Node(n.ID), At: s.now(), Type: "request", Text: h.String(), Severity: "warning", RequestID: asker.RequestID, User: asker.User}
		if err := s.jobs.Append(tx, e); err != nil {
			return err
		}
	}
	return nil
}

func (d DriverInfo) keyHints(n *Node) (out []KeyHint) {
	known := slices.Sorted(maps.Keys(d.Properties))
	slices.SortStableFunc(known, func(a, b string) int { return boolRank(ownKey(d, b)) - boolRank(ownKey(d, a)) })
	for _, f := range []struct {
		name  string
		has   Object
		known []string
	}{{"driver_info", n.DriverInfo, known}, {"properties", n.Properties, knownProperties}, {"instance_info", n.InstanceInfo, knownInstanceInfo}} {
		for _, key := range slices.Sorted(maps.Keys(f.has)) {
			if near := nearKey(key, f.known); near != "" && len(out) < maxKeyHints {
				out = append(out, KeyHint{f.name, key, near})
			}
		}
	}
	return out
}

// ownKey tells whether a key begins with the name of the hardware type, so that password means redfish_password before ipmi_password.
func ownKey(d DriverInfo, key string) bool { return strings.HasPrefix(key, d.Name+"_") }

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxNearKey bounds the keys that are compared, in bytes: any client may send one.
const maxNearKey = 64

// nearKey is the known key that another one probably stands for: it has one or two wrong letters, other case or hyphens, or lacks the prefix
// before the first underscore. Empty: the key is known, or near none. The bound is tight because keys of Ironic that salvor does not read,
// such as ipmi_local_address, are spelt right.
func nearKey(key string, known []string) string {
	if slices.Contains(known, key) || len(key) > maxNearKey {
		return ""
	}
	plain := strings.ReplaceAll(strings.ToLower(key), "-", "_")
	best, least := "", 3
	for _, k := range known {
		if most := 2 - boolRank(len(k) < 8); problem.Distance(plain, k) <= most && problem.Distance(plain, k) < least {
			best, least = k, problem.Distance(plain, k)
		}
	}
	for _, k := range known {
		if _, bare, ok := strings.Cut(k, "_"); ok && best == "" && len(bare) >= 4 && problem.Distance(plain, bare) <= boolRank(len(bare) >= 6) {
			best = k
		}
	}
	return best
}
