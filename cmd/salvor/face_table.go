package main

import (
	"github.com/spf13/cobra"

	"salvor/client"
)

var flavorThing = resourceSpec{
	face: client.Compute, path: "/flavors", detail: "/flavors/detail", one: "flavor", many: "flavors", change: "-",
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

var keypairThing = resourceSpec{
	face: client.Compute, path: "/os-keypairs", one: "keypair", many: "keypairs", change: "-",
	words: []string{"keypair"}, ident: "KEYPAIR", keyed: true, title: "key pair", plural: "key pairs", columns: []string{"name", "fingerprint", "type"},
	first:   &resourceField{flag: "name", usage: "the name"},
	fields:  []resourceField{{flag: "public-key", form: fileForm, usage: "a file with the public key; without it the control plane makes a key and shows it once"}},
	example: "  salvor keypair create me --public-key ~/.ssh/id_ed25519.pub",
}

var networkThing = resourceSpec{
	face: client.Native, path: "/networks", many: "networks",
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

// usableThing is a network as those see it who may use it: the native list is for administrators.
var usableThing = resourceSpec{
	face: client.Compute, path: "/os-networks", one: "network", many: "networks", called: "label", named: byLabel,
	words: networkThing.words, ident: networkThing.ident, title: networkThing.title, plural: networkThing.plural,
}

var rescueImageThing = resourceSpec{
	face: client.Native, path: "/rescue-images", many: "rescue_images", make: "add", change: "modify", drop: "remove",
	words: []string{"rescue-image"}, ident: "RESCUE_IMAGE", named: byName, title: "rescue image", plural: "rescue images",
	columns: []string{"id", "name", "kind", "location", "location_type", "target_os_family", "target_os", "default", "servers"},
	fields: []resourceField{
		{flag: "name", usage: "the name; one is made if left out"},
		{flag: "location", usage: "a path below the directory of rescue images (salvor host --rescue-images; [rescue]image_path for Ganeti), or a URL"},
		{flag: "location-type", usage: "file or http"},
		{flag: "image-id", usage: "an image of the image API that holds the bytes, by UUID"},
		{flag: "os", usage: "the rescue system itself"},
		{flag: "os-family", usage: "the family of the rescue system itself"},
		{flag: "target-os", usage: "the servers that it suits, by operating system"},
		{flag: "target-os-family", usage: "the servers that it suits, by family"},
		{flag: "default", form: boolForm, usage: "whether it serves where nothing suits better"},
		{flag: "kind", usage: "iso, disk or kernel"},
		{flag: "access", usage: "how it gets its password: channel, config-drive or none"},
		{flag: "ramdisk", usage: "the ramdisk of a kernel, a path or URL as of --location"},
		{flag: "append", usage: "the command line of a kernel"},
		{flag: "digest", usage: "sha256:DIGITS of the bytes"},
		{flag: "ramdisk-digest", usage: "sha256:DIGITS of the ramdisk"},
		{flag: "force", form: switchForm, usage: "even if no host has its file"},
	},
	dropWith: []resourceField{{flag: "force", form: switchForm, usage: "even if servers use it: their sessions go on"}},
	filters:  []resourceField{{flag: "deleted", form: switchForm, filter: "deleted", usage: "removed ones too"}},
	example: `  salvor rescue-image add --name debian-live --location live/debian-12.iso --location-type file --target-os-family linux
  salvor rescue-image add --name windows-pe --location https://images.example/winpe.iso --location-type http --target-os-family windows
  salvor rescue-image modify 3 --default True`,
}

var sessionThing = resourceSpec{
	face: client.Native, path: "/rescue-sessions", many: "rescue_sessions", make: "-", change: "-", drop: "-",
	words: []string{"rescue-session"}, ident: "SERVER|NODE", keyed: true, title: "rescue session", plural: "rescue sessions of machines and servers",
	columns: []string{"kind", "id", "name", "state", "started_at", "expires_at", "fingerprint"},
	filters: []resourceField{{flag: "kind", filter: "kind", usage: "only those of this kind: server or node"}},
}

var hostThing = resourceSpec{
	face: client.Native, path: "/hosts", many: "hosts", make: "-", change: "set", drop: "remove",
	words: []string{"host"}, ident: "HOST", keyed: true, title: "host", plural: "hosts", columns: []string{"id", "name", "kind", "state", "status", "fenced", "suspected", "servers", "misplaced"},
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
	filters:  []resourceField{{flag: "lost", form: switchForm, filter: "lost", usage: "only those that were removed as lost"}},
	dropWith: []resourceField{{flag: "lost", usage: "why it is lost for good: it is hidden although moves, clean-ups or its fence are open; if it speaks again it starts nothing and cleans up"}},
	example:  "  salvor host set vm7 --disable --disable-reason 'new memory on Friday'\n  salvor host set vm7 --node rack1-7 --group racks-a-c",
}

var joinTokenThing = resourceSpec{
	face: client.Native, path: "/join-tokens", many: "join_tokens", change: "-",
	words: []string{"host", "token"}, ident: "TOKEN", title: "join token", plural: "join tokens", columns: []string{"id", "note", "expires_at", "used_by"},
	fields: []resourceField{
		{flag: "note", usage: "what it is for"},
		{flag: "host", usage: "the host for which it is, by UUID or name: one that is known and comes with a new key"},
		{flag: "expires-in", form: durationForm, usage: "how long it may be used, as 30m, 12h or seconds"},
	},
	example: `  salvor host token create --note vm7 -f value -c token
  salvor host --controller https://salvor.example:6386 --join TOKEN      # on the host, once`,
}

var clusterThing = resourceSpec{
	face: client.Native, path: "/clusters", many: "clusters", make: "-", change: "-", drop: "remove",
	words: []string{"cluster"}, ident: "CLUSTER", title: "cluster", plural: "clusters", columns: []string{"id", "name", "kind", "url", "problem"},
	dropWith: []resourceField{{flag: "lost", usage: "why it is lost for good: it is removed although moves, clean-ups or fences of its nodes are open"}},
	example: "  salvor cluster add prod --rapi https://ganeti.example:5080 --user salvor --password-file rapi.password\n" +
		"  salvor cluster add metal --ironic self",
}

var blockThing = resourceSpec{
	face: client.Block, path: "/volumes", detail: "/volumes/detail", one: "volume", many: "volumes", make: "-", change: "-", drop: "-",
	words: []string{"volume"}, ident: "VOLUME", named: byName, title: "volume", plural: "volumes", columns: []string{"id", "name", "status", "size"},
}

var imageThing = resourceSpec{
	face: client.Image, path: "/images", many: "images", make: "-", change: "-",
	words: []string{"image"}, ident: "IMAGE", named: byImageName, title: "image", plural: "images", columns: []string{"id", "name", "status", "disk_format", "size"},
}

// newFaceCommands are the commands of servers and of what they are made of.
func newFaceCommands() []*cobra.Command {
	of := func(k *resourceSpec, short string, add ...func(*apiEndpoint) *cobra.Command) *cobra.Command {
		e := &apiEndpoint{}
		cmd := k.command(e, short)
		e.flags(cmd)
		for _, a := range add {
			cmd.AddCommand(a(e))
		}
		return cmd
	}
	return []*cobra.Command{
		newServerCommand(),
		of(&flavorThing, "Manage flavors: the sizes of servers"),
		of(&imageThing, "Manage the images that servers are made from", newImageCreate),
		of(&keypairThing, "Manage the public ssh keys that servers accept"),
		of(&networkThing, "Manage networks: bridges of the hosts, with their subnets"),
		of(&hostThing, "Manage VM hosts", newHostGroupCommand, newHostHistory, newHostQuarantine, newHostDrain, newHostRestore, func(e *apiEndpoint) *cobra.Command {
			return joinTokenThing.command(e, "Manage the tokens with which hosts join, once")
		}),
		newFenceCommand(), newEvacuateCommand(),
		of(&rescueImageThing, "Manage the images that servers are rescued with"),
		newSessionCommand(),
		of(&clusterThing, "Manage Ganeti clusters, and endpoints of the Bare Metal API", newClusterAdd),
		newReconcileCommand(), newConsoleCommand(),
	}
}

// newSessionCommand lists sessions and shows the one of a server or a node.
func newSessionCommand() *cobra.Command {
	e := &apiEndpoint{}
	cmd := &cobra.Command{Use: "rescue-session", Short: "Show the machines and servers that are in rescue"}
	cmd.AddCommand(sessionThing.list(e), sessionThing.show(e))
	e.flags(cmd)
	return cmd
}
