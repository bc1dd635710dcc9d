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
	hints := d.keyHints(n)
	if len(hints) == 0 {
		return nil
	}
	before := d.keyHints(old)
	for _, h := range hints {
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
	hint := func(field, key string, known []string) {
		if near := nearKey(key, known); near != "" && len(out) < maxKeyHints {
			out = append(out, KeyHint{field, key, near})
		}
	}
	var read []string // the keys that the driver reads, sorted for the first key that is none of them: most nodes have no such key
	for _, key := range slices.Sorted(maps.Keys(n.DriverInfo)) {
		if _, ok := d.Properties[key]; ok {
			continue
		}
		if read == nil {
			read = slices.Sorted(maps.Keys(d.Properties))
			slices.SortStableFunc(read, func(a, b string) int { return boolRank(ownKey(d, b)) - boolRank(ownKey(d, a)) })
		}
		hint("driver_info", key, read)
	}
	for _, key := range slices.Sorted(maps.Keys(n.Properties)) {
		hint("properties", key, knownProperties)
	}
	for _, key := range slices.Sorted(maps.Keys(n.InstanceInfo)) {
		hint("instance_info", key, knownInstanceInfo)
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
		if d := distanceUpTo(2-boolRank(len(k) < 8), plain, k); d < least {
			best, least = k, d
		}
	}
	for _, k := range known {
		if _, bare, ok := strings.Cut(k, "_"); ok && best == "" && len(bare) >= 4 && distanceUpTo(boolRank(len(bare) >= 6), plain, bare) < farKey {
			best = k
		}
	}
	return best
}

// farKey is the distance of keys that do not stand for each other.
const farKey = 1000

// distanceUpTo gives the distance of two keys, or farKey where that is above most. Most keys differ too much in length to be compared at all.
func distanceUpTo(most int, a, b string) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return farKey
	}
	if d := problem.Distance(a, b); d <= most {
		return d
	}
	return farKey
}
