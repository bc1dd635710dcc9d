package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// normalizeFlagName takes the underscores of older commands, and the one plural that the
// specification of volumes writes.
func normalizeFlagName(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if name == "properties" {
		name = "property"
	}
	return pflag.NormalizedName(name)
}

// Fields that most kinds have.
var (
	uuidField  = resourceField{flag: "uuid", usage: "the UUID; one is made if left out", createOnly: true}
	extraField = resourceField{flag: "extra", form: objectForm}
)

var portResource = resourceSpec{
	at: client.Ports, words: []string{"port"}, ident: "PORT", title: "port", plural: "ports", columns: []string{"uuid", "address"}, lookUp: "address",
	first: &resourceField{flag: "address", usage: "the MAC address", alwaysSet: true, filter: "address"},
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, alwaysSet: true, filter: "node", named: nameOf(&nodeResource)},
		uuidField,
		{flag: "name", usage: "a name"},
		{flag: "description", usage: "a description"},
		{flag: "port-group", name: "portgroup_uuid", usage: "the port group, by UUID", filter: "portgroup", named: nameOf(&portgroupResource)},
		{flag: "physical-network", usage: "the physical network"},
		{flag: "pxe-enabled", form: boolForm, usage: "whether the machine boots from this port", alwaysSet: true, bare: true},
		{flag: "pxe-disabled", name: "pxe_enabled", form: offForm, usage: "the machine does not boot from this port"},
		{flag: "is-smartnic", form: switchForm, usage: "the port is a smart NIC's"},
		{flag: "local-link-connection", letter: "l", form: objectForm}, extraField,
	},
	example: `  salvor port create 52:54:00:12:34:56 --node rack1-7 --local-link-connection port_id=tap0
  salvor port list --node rack1-7`,
}

var portgroupResource = resourceSpec{
	at: client.Portgroups, words: []string{"port", "group"}, ident: "PORT_GROUP", title: "port group", plural: "port groups", columns: []string{"uuid", "address", "name"}, lookUp: "address",
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, alwaysSet: true, filter: "node", named: nameOf(&nodeResource)},
		{flag: "address", usage: "the MAC address of the bond", filter: "address"},
		{flag: "name", usage: "a name"}, uuidField, extraField,
		{flag: "mode", usage: "the mode of the bond, such as active-backup or 802.3ad", alwaysSet: true},
		{flag: "property", name: "properties", form: objectForm},
		{flag: "physical-network", usage: "the physical network"},
		{flag: "support-standalone-ports", name: "standalone_ports_supported", form: switchForm, usage: "its ports may be used alone", alwaysSet: true},
		{flag: "unsupport-standalone-ports", name: "standalone_ports_supported", form: offForm, usage: "its ports may not be used alone"},
	},
	example: "  salvor port group create --node rack1-7 --name bond0 --mode 802.3ad --property miimon=100",
}

var chassisResource = resourceSpec{
	at: client.Chassis, words: []string{"chassis"}, ident: "CHASSIS", title: "chassis", plural: "chassis", columns: []string{"uuid", "description"},
	fields:  []resourceField{{flag: "description", usage: "a description"}, uuidField, extraField},
	example: "  salvor chassis create --description 'rack 1, lower half'",
}

var connectorResource = resourceSpec{
	at: client.VolumeConnectors, words: []string{"volume", "connector"}, ident: "CONNECTOR", title: "volume connector", plural: "volume connectors",
	columns: []string{"uuid", "node_uuid", "type", "connector_id"},
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, alwaysSet: true, filter: "node", named: nameOf(&nodeResource)},
		{flag: "type", usage: "iqn, ip, mac, wwnn, wwpn, net-id, port or portgroup", required: true, alwaysSet: true, filter: "type"},
		{flag: "connector-id", usage: "the name by which a storage system knows the node, such as its initiator's IQN", required: true, alwaysSet: true, filter: "connector_id"},
		uuidField, extraField,
	},
	example: "  salvor volume connector create --node rack1-7 --type iqn --connector-id iqn.2026-11.com.example:rack1-7",
}

var targetResource = resourceSpec{
	at: client.VolumeTargets, words: []string{"volume", "target"}, ident: "TARGET", title: "volume target", plural: "volume targets",
	columns: []string{"uuid", "node_uuid", "volume_type", "boot_index", "volume_id"},
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, alwaysSet: true, filter: "node", named: nameOf(&nodeResource)},
		{flag: "type", name: "volume_type", usage: "iscsi or fibre_channel", required: true, alwaysSet: true, filter: "volume_type"},
		{flag: "volume-id", usage: "the volume's name in its storage system", required: true, alwaysSet: true, filter: "volume_id"},
		{flag: "boot-index", form: numberForm, usage: "0 is the root volume", required: true, filter: "boot_index"},
		{flag: "property", name: "properties", form: objectForm}, uuidField, extraField,
	},
	example: `  salvor volume target create --node rack1-7 --type iscsi --volume-id vol-7 --boot-index 0 \
      --property target_portal=10.0.0.9:3260 --property target_iqn=iqn.2026-11.com.example:vol-7 --property target_lun=1`,
}

var allocationResource = resourceSpec{
	at: client.Allocations, words: []string{"allocation"}, ident: "ALLOCATION", title: "allocation", plural: "allocations",
	columns: []string{"uuid", "name", "resource_class", "state", "node_uuid"},
	fields: []resourceField{
		{flag: "resource-class", usage: "the resource class that the node must have", createOnly: true, filter: "resource_class"},
		{flag: "trait", name: "traits", form: listForm, usage: "a trait that the node must have", createOnly: true},
		{flag: "candidate-node", name: "candidate_nodes", form: listForm, usage: "a node that may be taken", createOnly: true},
		{flag: "node", usage: "the node that is in use already", createOnly: true, filter: "node", named: nameOf(&nodeResource)},
		{flag: "owner", usage: "the project that owns the allocation", createOnly: true, filter: "owner"},
		{flag: "name", usage: "a name"}, uuidField, extraField,
	},
	filters: []resourceField{{flag: "state", allowed: []string{"allocating", "active", "error"}, usage: "only allocations with this: allocating, active or error"}},
	example: "  salvor allocation create --resource-class baremetal --trait CUSTOM_GOLD --name web1",
}

var deployTemplateResource = resourceSpec{
	at: client.DeployTemplates, words: []string{"deploy", "template"}, ident: "TEMPLATE", title: "deploy template", plural: "deploy templates", columns: []string{"uuid", "name"},
	first: &resourceField{flag: "name", usage: "the trait that chooses it", alwaysSet: true},
	fields: []resourceField{
		{flag: "steps", form: documentForm, usage: "the deploy steps", required: true, alwaysSet: true}, uuidField, extraField,
	},
	example: `  salvor deploy template create CUSTOM_UEFI --steps '[{"interface": "bios", "step": "apply_configuration", "args": {"settings": []}, "priority": 150}]'`,
}

var runbookResource = resourceSpec{
	at: client.Runbooks, words: []string{"runbook"}, ident: "RUNBOOK", title: "runbook", plural: "runbooks", columns: []string{"uuid", "name"},
	fields: []resourceField{
		{flag: "name", usage: "the name, a trait that nodes must have", required: true, alwaysSet: true},
		{flag: "steps", form: documentForm, usage: "the steps", required: true, alwaysSet: true},
		{flag: "public", form: boolForm, usage: "whether every project may run it"},
		{flag: "owner", usage: "the project that owns it"},
		{flag: "description", usage: "a description"}, uuidField, extraField,
	},
	example: `  salvor runbook create --name CUSTOM_WIPE --steps '[{"interface": "deploy", "step": "erase_devices_metadata", "args": {}, "order": 1}]'`,
}

var ruleResource = resourceSpec{
	at: client.InspectionRules, words: []string{"inspection", "rule"}, ident: "RULE", title: "inspection rule", plural: "inspection rules",
	columns: []string{"uuid", "priority", "phase", "description"},
	fields: []resourceField{
		{flag: "actions", form: documentForm, usage: "the actions of the rule", required: true, alwaysSet: true},
		{flag: "conditions", form: documentForm, usage: "the conditions of the rule; if left out, the actions always run"},
		{flag: "description", usage: "a description"},
		{flag: "priority", form: numberForm, usage: "rules of a higher priority come first"},
		{flag: "phase", usage: "main"},
		{flag: "sensitive", form: boolForm, usage: "show its actions to nobody"}, uuidField,
	},
	example: `  salvor inspection rule create --actions '[{"op": "set-attribute", "args": {"path": "/resource_class", "value": "gold"}}]'`,
}

var flavorResource = resourceSpec{
	api: client.Compute, path: "/flavors", detail: "/flavors/detail", one: "flavor", many: "flavors", change: "-",
	words: []string{"flavor"}, ident: "FLAVOR", keyed: true, title: "flavor", plural: "flavors", columns: []string{"id", "name", "ram", "disk", "vcpus"},
	first: &resourceField{flag: "name", usage: "the name"},
	fields: []resourceField{
		{flag: "ram", form: numberForm, usage: "memory in MiB", required: true},
		{flag: "disk", form: numberForm, usage: "the root disk in GiB; 0: as large as the image", required: true},
		{flag: "vcpus", form: numberForm, usage: "virtual CPUs", required: true},
		{flag: "id", usage: "the id; one is made if left out"},
	},
	example: "  salvor flavor create small --ram 512 --disk 2 --vcpus 1",
}

var keypairResource = resourceSpec{
	api: client.Compute, path: "/os-keypairs", one: "keypair", many: "keypairs", change: "-",
	words: []string{"keypair"}, ident: "KEYPAIR", keyed: true, title: "key pair", plural: "key pairs", columns: []string{"name", "fingerprint", "type"},
	first:   &resourceField{flag: "name", usage: "the name"},
	fields:  []resourceField{{flag: "public-key", form: fileForm, usage: "a file with the public key; without it the control plane makes a key and shows it once"}},
	example: "  salvor keypair create me --public-key ~/.ssh/id_ed25519.pub",
}

var networkResource = resourceSpec{
	api: client.Native, path: "/networks", many: "networks",
	words: []string{"network"}, ident: "NETWORK", named: byName, title: "network", plural: "networks", columns: []string{"id", "name", "bridge", "cidr"},
	first: &resourceField{flag: "name", usage: "the name"},
	fields: []resourceField{
		{flag: "bridge", usage: "the bridge that every host of it has", required: true},
		{flag: "cidr", usage: "the subnet, such as 192.0.2.0/24; without one no addresses are given"},
		{flag: "gateway", usage: "the gateway's address"},
		{flag: "first", usage: "the first address of the pool"},
		{flag: "last", usage: "the last address of the pool"},
		{flag: "dns", form: listForm, usage: "a name server"},
		{flag: "mtu", form: numberForm, usage: "the MTU in bytes"},
		{flag: "project", usage: "the project that owns it"},
		{flag: "shared", form: switchForm, usage: "every project may use it"},
	},
	example: "  salvor network create lan --bridge br0 --cidr 192.0.2.0/24 --gateway 192.0.2.1 --first 192.0.2.100 --last 192.0.2.199",
}

// usableNetworkResource is a network as those see it who may use it: the native list is for administrators.
var usableNetworkResource = resourceSpec{
	api: client.Compute, path: "/os-networks", one: "network", many: "networks", called: "label", named: byLabel,
	words: networkResource.words, ident: networkResource.ident, title: networkResource.title, plural: networkResource.plural,
}

var rescueImageResource = resourceSpec{
	api: client.Native, path: "/rescue-images", many: "rescue_images", make: "add", change: "modify", drop: "remove",
	words: []string{"rescue-image"}, ident: "RESCUE_IMAGE", named: byName, title: "rescue image", plural: "rescue images",
	columns: []string{"id", "name", "kind", "location", "location_type", "target_os_family", "target_os", "default", "servers"},
	fields: []resourceField{
		{flag: "name", usage: "the name; one is made if left out"},
		{flag: "location", usage: "a path below the directory of rescue images (salvor host --rescue-images; [rescue]image_path for Ganeti), or a URL"},
		{flag: "location-type", allowed: []string{"file", "http"}, usage: "file or http"},
		{flag: "image-id", usage: "an image of the image API that holds the bytes, by UUID"},
		{flag: "os", usage: "the rescue system itself"},
		{flag: "os-family", usage: "the family of the rescue system itself"},
		{flag: "target-os", usage: "the servers that it suits, by operating system"},
		{flag: "target-os-family", usage: "the servers that it suits, by family"},
		{flag: "default", form: boolForm, usage: "whether it serves where nothing suits better"},
		{flag: "kind", allowed: []string{"iso", "disk", "kernel"}, usage: "iso, disk or kernel"},
		{flag: "access", allowed: []string{"channel", "config-drive", "none"}, usage: "how it gets its password: channel, config-drive or none"},
		{flag: "ramdisk", usage: "the ramdisk of a kernel, a path or URL as of --location"},
		{flag: "append", usage: "the command line of a kernel"},
		{flag: "digest", usage: "sha256:DIGITS of the bytes"},
		{flag: "ramdisk-digest", usage: "sha256:DIGITS of the ramdisk"},
		{flag: "force", form: switchForm, usage: "even if no host has its file"},
	},
	dropWith: []resourceField{{flag: "force", form: switchForm, usage: "even if servers use it: their sessions go on"}},
	filters:  []resourceField{{flag: "deleted", form: switchForm, usage: "removed ones too"}},
	example: `  salvor rescue-image add --name debian-live --location live/debian-12.iso --location-type file --target-os-family linux
  salvor rescue-image add --name windows-pe --location https://images.example/winpe.iso --location-type http --target-os-family windows
  salvor rescue-image modify 3 --default True`,
}

var sessionResource = resourceSpec{
	api: client.Native, path: "/rescue-sessions", many: "rescue_sessions", make: "-", change: "-", drop: "-",
	words: []string{"rescue-session"}, ident: "SERVER|NODE", keyed: true, title: "rescue session", plural: "rescue sessions of machines and servers",
	columns: []string{"kind", "id", "name", "state", "started_at", "expires_at", "fingerprint", "addresses"},
	filters: []resourceField{{flag: "kind", allowed: []string{"server", "node"}, usage: "only those of this kind: server or node"}},
}

var hostResource = resourceSpec{
	api: client.Native, path: "/hosts", many: "hosts", make: "-", change: "set", drop: "remove",
	words: []string{"host"}, ident: "HOST", keyed: true, title: "host", plural: "hosts", columns: []string{"id", "name", "kind", "state", "status", "fenced", "suspected", "servers", "misplaced", "drifted"},
	fields: []resourceField{
		{flag: "disable", name: "disabled", form: switchForm, usage: "it takes no new servers"},
		{flag: "enable", name: "disabled", form: offForm, usage: "it takes new servers"},
		{flag: "disable-reason", name: "disabled_reason", usage: "why it is disabled"},
		{flag: "revoke", name: "revoked", form: switchForm, usage: "refuse its certificate from now on"},
		{flag: "zone", usage: "its availability zone"},
		{flag: "node", usage: "the node of the bare metal inventory that it is, whose BMC fences it, by UUID or name; empty: none"},
		{flag: "group", usage: "its host group; empty: none"},
		{flag: "lost", form: switchForm, usage: "whether it is lost (--lost=false if it was found again)"},
		{flag: "forced-down", form: switchForm, usage: "say that it is down: a live host stops its guests; once its lease has lapsed this counts as an attestation (withdraw it: --forced-down=false)"},
	},
	filters:  []resourceField{{flag: "lost", form: switchForm, usage: "only those that were removed as lost"}},
	dropWith: []resourceField{{flag: "lost", usage: "why it is lost for good: it is hidden although moves, clean-ups or its fence are open; if it speaks again it starts nothing and cleans up"}},
	example:  "  salvor host set vm7 --disable --disable-reason 'new memory on Friday'\n  salvor host set vm7 --node rack1-7 --group racks-a-c",
}

var joinTokenResource = resourceSpec{
	api: client.Native, path: "/join-tokens", many: "join_tokens", change: "-",
	words: []string{"host", "token"}, ident: "TOKEN", title: "join token", plural: "join tokens", columns: []string{"id", "note", "expires_at", "used_by"},
	fields: []resourceField{
		{flag: "note", usage: "what it is for"},
		{flag: "host", usage: "the host for which it is, by UUID or name: one that is known and comes with a new key"},
		{flag: "expires-in", form: durationForm, usage: "how long it may be used, as 30m, 12h or seconds"},
	},
	example: `  salvor host token create --note vm7 -f value -c token
  salvor host --controller https://salvor.example:6386 --join TOKEN      # on the host, once`,
}

var clusterResource = resourceSpec{
	api: client.Native, path: "/clusters", many: "clusters", make: "-", change: "-", drop: "remove",
	words: []string{"cluster"}, ident: "CLUSTER", title: "cluster", plural: "clusters", columns: []string{"id", "name", "kind", "url", "problem"},
	dropWith: []resourceField{{flag: "lost", usage: "why it is lost for good: it is removed although moves, clean-ups or fences of its nodes are open"}},
	example: "  salvor cluster add prod --rapi https://ganeti.example:5080 --user salvor --password-file rapi.password\n" +
		"  salvor cluster add metal --ironic self",
}

var volumeResource = resourceSpec{
	api: client.Block, path: "/volumes", detail: "/volumes/detail", one: "volume", many: "volumes", make: "-", change: "-", drop: "-",
	words: []string{"volume"}, ident: "VOLUME", named: byName, title: "volume", plural: "volumes", columns: []string{"id", "name", "status", "size"},
}

var imageResource = resourceSpec{
	api: client.Image, path: "/images", many: "images", make: "-", change: "-",
	words: []string{"image"}, ident: "IMAGE", named: byImageName, title: "image", plural: "images", columns: []string{"id", "name", "status", "disk_format", "size"},
}

// resourceCommand is a family of commands with an endpoint of its own: those of a kind, and further ones.
func resourceCommand(r *resourceSpec, short string, add ...func(*kit.Endpoint) *cobra.Command) *cobra.Command {
	e := &kit.Endpoint{}
	return withSubcommands(e, r.command(e, short), add)
}

// commandGroup is a family of commands that is about no kind by itself.
func commandGroup(use, short string, add ...func(*kit.Endpoint) *cobra.Command) *cobra.Command {
	return withSubcommands(&kit.Endpoint{}, &cobra.Command{Use: use, Short: short}, add)
}

func withSubcommands(e *kit.Endpoint, cmd *cobra.Command, add []func(*kit.Endpoint) *cobra.Command) *cobra.Command {
	e.Flags(cmd)
	for _, a := range add {
		cmd.AddCommand(a(e))
	}
	return cmd
}

// below is a kind whose commands stand below those of another.
func below(r *resourceSpec, short string) func(*kit.Endpoint) *cobra.Command {
	return func(e *kit.Endpoint) *cobra.Command { return r.command(e, short) }
}

// newResourceCommands are the commands of all kinds beside nodes.
func newResourceCommands() []*cobra.Command {
	return []*cobra.Command{
		resourceCommand(&portResource, "Manage ports: the NICs of machines", below(&portgroupResource, "Manage port groups: NICs that are bonded to one")),
		resourceCommand(&chassisResource, "Manage chassis: cases that nodes share"),
		resourceCommand(&allocationResource, "Manage allocations: claims on any node that fits"),
		resourceCommand(&runbookResource, "Manage runbooks: lists of steps that users run by name"),
		commandGroup("volume", "Manage disks that machines and servers reach over a network",
			below(&connectorResource, "Manage the initiator's side: how a storage system knows a node"),
			below(&targetResource, "Manage the disk's side: where a node finds it"),
			newVolumeAttach, newVolumeDetach, volumeResource.list, volumeResource.show),
		commandGroup("deploy", "Manage the steps that run while nodes are deployed", below(&deployTemplateResource, "Manage deploy templates: deploy steps that a trait chooses")),
		commandGroup("inspection", "Manage the actions on what an inspection finds", below(&ruleResource, "Manage the rules that act on what an inspection finds")),
		newServerCommand(),
		resourceCommand(&flavorResource, "Manage flavors: the sizes of servers"),
		resourceCommand(&imageResource, "Manage the images that servers are made from", newImageCreate),
		resourceCommand(&keypairResource, "Manage the public ssh keys that servers accept"),
		resourceCommand(&networkResource, "Manage networks: bridges of the hosts, with their subnets"),
		resourceCommand(&hostResource, "Manage VM hosts", newHostGroupCommand, newHostHistory, newHostQuarantine, newHostDrain, newHostRestore,
			below(&joinTokenResource, "Manage the tokens with which hosts join, once")),
		newFenceCommand(), newEvacuateCommand(),
		resourceCommand(&rescueImageResource, "Manage the images that servers are rescued with"),
		resourceCommand(&sessionResource, "Show the machines and servers that are in rescue"),
		resourceCommand(&clusterResource, "Manage Ganeti clusters, and endpoints of the Bare Metal API", newClusterAdd),
		newReconcileCommand(), newConsoleCommand(),
	}
}
