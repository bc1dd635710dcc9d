package nova

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
)

// serverView is a server with what its answer shows beside the record.
type serverView struct {
	*compute.Server
	c    *novaCall
	dir  *nameSnapshot
	host hostName
	one  bool // shown alone, not in a list
	// changed: it answers an update or a rebuild, which showed less of it before.
	changed bool
	// rebuilt: it answers a rebuild, which tells user_data under another name.
	rebuilt bool
}

// serverField is one field of a server.
type serverField struct {
	name         string
	since, until int
	admin        bool // shown to administrators only
	one          bool // shown where a server is shown alone
	whole        int  // before this microversion not in the answer of a change; 0: always there
	// when tells whether the field is there; nil: always.
	when  func(*serverView) bool
	write func([]byte, *serverView) []byte
}

func (f *serverField) shown(v *serverView) bool {
	return v.c.Minor >= f.since && (f.until == 0 || v.c.Minor <= f.until) && (!f.admin || v.c.admin) && (!f.one || v.one) && (!v.changed || v.c.Minor >= f.whole) && (f.when == nil || f.when(v))
}

// tellsUserData: what a server was given may hold secrets, so it is for who administers servers, and not for who only looks at them.
func tellsUserData(v *serverView) bool {
	return !v.rebuilt && v.c.Principal.Rank(false) == access.Oversight
}

// serverFields are in the order of answers; a list that is brief shows the first briefFields.
var serverFields = []serverField{
	{name: "id", write: textField(func(v *serverView) string { return v.ID })},
	{name: "name", write: textField(func(v *serverView) string { return v.Name })},
	{name: "links", write: func(b []byte, v *serverView) []byte { return appendLinks(b, v.c, "/servers/"+v.ID) }},
	{name: "status", write: textField(func(v *serverView) string { return statusOf(v.Server) })},
	{name: "tenant_id", write: textField(func(v *serverView) string { return v.Project })},
	{name: "user_id", write: textField(func(v *serverView) string { return v.User })},
	{name: "metadata", write: func(b []byte, v *serverView) []byte { return appendTexts(b, v.Metadata) }},
	{name: "hostId", write: textField(hostID)},
	{name: "image", write: appendImage},
	{name: "flavor", until: 46, write: func(b []byte, v *serverView) []byte {
		b = api.AppendString(append(b, `{"id":`...), v.Flavor.Ref)
		return append(appendBookmark(append(b, `,"links":`...), v.c, "/flavors/"+v.Flavor.Ref), '}')
	}},
	{name: "flavor", since: 47, write: appendFlavor},
	{name: "created", write: func(b []byte, v *serverView) []byte { return appendZulu(b, v.CreatedAt) }},
	{name: "updated", write: func(b []byte, v *serverView) []byte {
		if v.UpdatedAt.IsZero() {
			return appendZulu(b, v.CreatedAt)
		}
		return appendZulu(b, v.UpdatedAt)
	}},
	{name: "addresses", write: func(b []byte, v *serverView) []byte { return api.AppendAny(b, addressesOf(v)) }},
	{name: "accessIPv4", write: noText}, {name: "accessIPv6", write: noText},
	{name: "OS-DCF:diskConfig", write: textField(func(*serverView) string { return "MANUAL" })},
	{name: "progress", when: func(v *serverView) bool { _, ok := inProgress[statusOf(v.Server)]; return ok },
		write: func(b []byte, v *serverView) []byte {
			return strconv.AppendInt(b, int64(inProgress[statusOf(v.Server)]), 10)
		}},
	{name: "OS-EXT-AZ:availability_zone", whole: 75, write: textField(func(v *serverView) string {
		if v.Zone != "" {
			return v.Zone
		}
		return v.host.zone
	})},
	{name: "config_drive", whole: 75, write: textField(func(v *serverView) string {
		if v.ConfigDrive {
			return "True"
		}
		return ""
	})},
	{name: "key_name", whole: 75, write: orNull(func(v *serverView) string { return v.KeyName })},
	{name: "OS-SRV-USG:launched_at", whole: 75, write: func(b []byte, v *serverView) []byte { return appendNaive(b, v.LaunchedAt) }},
	{name: "OS-SRV-USG:terminated_at", whole: 75, write: func(b []byte, v *serverView) []byte { return appendNaive(b, v.TerminatedAt) }},
	{name: "security_groups", whole: 75, when: func(v *serverView) bool { return len(v.SecurityGroups) > 0 }, write: appendGroups},
	{name: "OS-EXT-SRV-ATTR:host", whole: 75, admin: true, write: orNull(func(v *serverView) string { return v.host.name })},
	{name: "OS-EXT-SRV-ATTR:instance_name", whole: 75, admin: true, write: textField(func(v *serverView) string { return v.GuestName })},
	{name: "OS-EXT-SRV-ATTR:hypervisor_hostname", whole: 75, admin: true, write: orNull(func(v *serverView) string { return v.host.name })},
	{name: "OS-EXT-SRV-ATTR:reservation_id", whole: 75, since: 3, admin: true, write: textField(func(v *serverView) string { return reservationID(v.ID) })},
	{name: "OS-EXT-SRV-ATTR:launch_index", whole: 75, since: 3, admin: true, write: func(b []byte, _ *serverView) []byte { return append(b, '0') }},
	{name: "OS-EXT-SRV-ATTR:hostname", whole: 75, since: 3, admin: true, write: textField(func(v *serverView) string { return sanitizeHostname(v.Name) })},
	{name: "OS-EXT-SRV-ATTR:kernel_id", whole: 75, since: 3, admin: true, write: noText}, {name: "OS-EXT-SRV-ATTR:ramdisk_id", whole: 75, since: 3, admin: true, write: noText},
	{name: "OS-EXT-SRV-ATTR:root_device_name", whole: 75, since: 3, admin: true, write: orNull(rootDevice)},
	{name: "OS-EXT-SRV-ATTR:user_data", whole: 75, since: 3, admin: true, when: tellsUserData, write: orNull(func(v *serverView) string { return v.UserData.Reveal() })},
	{name: "OS-EXT-STS:task_state", whole: 75, write: orNull(func(v *serverView) string {
		if hiddenTasks[v.Task] {
			return ""
		}
		return string(v.Task)
	})},
	{name: "OS-EXT-STS:vm_state", whole: 75, write: textField(func(v *serverView) string { return string(v.State) })},
	{name: "OS-EXT-STS:power_state", whole: 75, write: func(b []byte, v *serverView) []byte { return strconv.AppendInt(b, int64(powerNumbers[v.Power]), 10) }},
	{name: "os-extended-volumes:volumes_attached", whole: 75, write: appendVolumes},
	{name: "fault", when: func(v *serverView) bool {
		return v.Fault != nil && (v.State == compute.Errored || v.State == compute.Deleted)
	}, write: appendFault},
	{name: "locked", since: 9, write: func(b []byte, v *serverView) []byte { return strconv.AppendBool(b, v.Locked) }},
	{name: "host_status", whole: 75, since: 16, admin: true, write: textField(func(v *serverView) string { return v.host.status })},
	{name: "description", since: 19, write: orNull(func(v *serverView) string { return v.Description })},
	{name: "tags", since: 26, write: func(b []byte, v *serverView) []byte { return appendWords(b, v.Tags) }},
	{name: "trusted_image_certificates", since: 63, write: func(b []byte, _ *serverView) []byte { return append(b, "null"...) }},
	{name: "server_groups", since: 71, one: true, write: func(b []byte, _ *serverView) []byte { return append(b, "[]"...) }},
	{name: "locked_reason", since: 73, write: orNull(func(v *serverView) string { return v.LockedReason })},
}

// briefFields is the length of a server in a list without details: id, name and links.
const briefFields = 3

func (v *serverView) append(b []byte, fields []serverField) []byte {
	b = append(b, '{')
	for i := range fields {
		if f := &fields[i]; f.shown(v) {
			b = f.write(api.AppendKey(b, f.name), v)
		}
	}
	return append(b, '}')
}

func textField(get func(*serverView) string) func([]byte, *serverView) []byte {
	return func(b []byte, v *serverView) []byte { return api.AppendString(b, get(v)) }
}

func orNull(get func(*serverView) string) func([]byte, *serverView) []byte {
	return func(b []byte, v *serverView) []byte {
		if s := get(v); s != "" {
			return api.AppendString(b, s)
		}
		return append(b, "null"...)
	}
}

func noText(b []byte, _ *serverView) []byte { return append(b, `""`...) }

// hostID names the host to its users without telling its name: another name in each project.
func hostID(v *serverView) string {
	if v.HostID == "" {
		return ""
	}
	sum := sha256.Sum224([]byte(v.Project + v.HostID))
	return hex.EncodeToString(sum[:])
}

// reservationID is the id of a request for servers, which each server has for itself.
func reservationID(id string) string { return "r-" + id[:8] }

// sanitizeHostname makes a DNS label of a server's name.
func sanitizeHostname(name string) string {
	name = strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r == ' ', r == '_':
			return '-'
		}
		return -1
	}, strings.ToLower(name)), "-.")
	return name[:min(len(name), 63)]
}

func rootDevice(v *serverView) string {
	for _, d := range v.Disks {
		if d.BootIndex == 0 {
			return "/dev/" + d.Name
		}
	}
	return ""
}

func appendImage(b []byte, v *serverView) []byte {
	if v.ImageID == "" {
		return append(b, `""`...)
	}
	b = api.AppendString(append(b, `{"id":`...), v.ImageID)
	return append(appendBookmark(append(b, `,"links":`...), v.c, "/images/"+v.ImageID), '}')
}

func appendFlavor(b []byte, v *serverView) []byte {
	f := v.Flavor
	b = append(b, '{')
	for _, n := range []struct {
		key   string
		value int
	}{{"vcpus", f.VCPUs}, {"ram", f.RAM}, {"disk", f.Disk}, {"ephemeral", f.Ephemeral}, {"swap", f.Swap}} {
		b = strconv.AppendInt(api.AppendKey(b, n.key), int64(n.value), 10)
	}
	b = api.AppendString(api.AppendKey(b, "original_name"), f.Name)
	return append(appendTexts(api.AppendKey(b, "extra_specs"), f.ExtraSpecs), '}')
}

// addressesOf gives the addresses of a server by the names of its networks.
func addressesOf(v *serverView) jsonObject {
	out := jsonObject{}
	for _, nic := range v.NICs {
		name := v.networkName(nic.NetworkID)
		for _, a := range nic.Addresses {
			version := 4.0
			if strings.Contains(a, ":") {
				version = 6
			}
			had, _ := out[name].([]any)
			out[name] = append(had, jsonObject{"addr": a, "version": version, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": nic.MAC})
		}
	}
	return out
}

// networkName is the network's name, or its id where it is gone.
func (v *serverView) networkName(id string) string {
	if name := v.dir.networks[id]; name != "" {
		return name
	}
	return id
}

func appendGroups(b []byte, v *serverView) []byte {
	b = append(b, '[')
	for i, g := range v.SecurityGroups {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(api.AppendString(append(b, `{"name":`...), g), '}')
	}
	return append(b, ']')
}

func appendVolumes(b []byte, v *serverView) []byte {
	b = append(b, '[')
	for _, d := range v.Disks {
		if d.VolumeID == "" {
			continue
		}
		if b[len(b)-1] == '}' {
			b = append(b, ',')
		}
		b = api.AppendString(append(b, `{"id":`...), d.VolumeID)
		if v.c.Minor >= 3 {
			b = strconv.AppendBool(append(b, `,"delete_on_termination":`...), d.DeleteOnTermination)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendFault(b []byte, v *serverView) []byte {
	f := v.Fault
	code := f.Code
	if code == 0 {
		code = 500
	}
	b = strconv.AppendInt(append(b, `{"code":`...), int64(code), 10)
	b = appendZulu(append(b, `,"created":`...), f.CreatedAt)
	b = api.AppendString(append(b, `,"message":`...), v.c.Principal.Redact(f.Message))
	if f.Details != "" && v.c.admin {
		b = api.AppendString(append(b, `,"details":`...), f.Details)
	}
	return append(b, '}')
}

func appendTexts(b []byte, m map[string]string) []byte {
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(api.AppendString(b, k), ':')
		b = api.AppendString(b, m[k])
	}
	return append(b, '}')
}

func appendWords(b []byte, values []string) []byte {
	b = append(b, '[')
	for i, w := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = api.AppendString(b, w)
	}
	return append(b, ']')
}

func appendLinks(b []byte, c *novaCall, path string) []byte {
	b = api.AppendString(append(b, `[{"rel":"self","href":`...), c.base+path)
	b = api.AppendString(append(b, `},{"rel":"bookmark","href":`...), c.Base+rootPath+path)
	return append(b, "}]"...)
}

func appendBookmark(b []byte, c *novaCall, path string) []byte {
	return append(api.AppendString(append(b, `[{"rel":"bookmark","href":`...), c.Base+rootPath+path), "}]"...)
}

// Times with a zone end in Z; those of some fields have none, and clients refuse the other form.
const (
	zuluLayout  = "2006-01-02T15:04:05Z"
	naiveLayout = "2006-01-02T15:04:05.000000"
)

func appendZulu(b []byte, t time.Time) []byte  { return appendMoment(b, t, zuluLayout) }
func appendNaive(b []byte, t time.Time) []byte { return appendMoment(b, t, naiveLayout) }

func appendMoment(b []byte, t time.Time, layout string) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return append(t.UTC().AppendFormat(append(b, '"'), layout), '"')
}

// timeOrNil is appendNaive for a struct; nil where there is none.
func timeOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(naiveLayout)
}
