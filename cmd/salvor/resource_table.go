package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"salvor/client"
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
	uuidField  = resourceField{flag: "uuid", usage: "the UUID; one is made if left out", birth: true}
	extraField = resourceField{flag: "extra", form: objectForm}
)

var portResource = baremetalResource{
	at: client.Ports, words: []string{"port"}, ident: "PORT", title: "port", plural: "ports", columns: []string{"uuid", "address"}, lookUp: "address",
	first: &resourceField{flag: "address", usage: "the MAC address", kept: true, filter: "address"},
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, kept: true, filter: "node"},
		uuidField,
		{flag: "name", usage: "a name"},
		{flag: "description", usage: "a description"},
		{flag: "port-group", name: "portgroup_uuid", usage: "the port group, by UUID", filter: "portgroup"},
		{flag: "physical-network", usage: "the physical network"},
		{flag: "pxe-enabled", form: boolForm, usage: "whether the machine boots from this port", kept: true, bare: true},
		{flag: "pxe-disabled", name: "pxe_enabled", form: offForm, usage: "the machine does not boot from this port"},
		{flag: "is-smartnic", form: switchForm, usage: "the port is a smart NIC's"},
		{flag: "local-link-connection", letter: "l", form: objectForm}, extraField,
	},
	example: `  salvor port create 52:54:00:12:34:56 --node rack1-7 --local-link-connection port_id=tap0
  salvor port list --node rack1-7`,
}

var portgroupResource = baremetalResource{
	at: client.Portgroups, words: []string{"port", "group"}, ident: "PORT_GROUP", title: "port group", plural: "port groups", columns: []string{"uuid", "address", "name"}, lookUp: "address",
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, kept: true, filter: "node"},
		{flag: "address", usage: "the MAC address of the bond", filter: "address"},
		{flag: "name", usage: "a name"}, uuidField, extraField,
		{flag: "mode", usage: "the mode of the bond, such as active-backup or 802.3ad", kept: true},
		{flag: "property", name: "properties", form: objectForm},
		{flag: "physical-network", usage: "the physical network"},
		{flag: "support-standalone-ports", name: "standalone_ports_supported", form: switchForm, usage: "its ports may be used alone", kept: true},
		{flag: "unsupport-standalone-ports", name: "standalone_ports_supported", form: offForm, usage: "its ports may not be used alone"},
	},
	example: "  salvor port group create --node rack1-7 --name bond0 --mode 802.3ad --property miimon=100",
}

var chassisResource = baremetalResource{
	at: client.Chassis, words: []string{"chassis"}, ident: "CHASSIS", title: "chassis", plural: "chassis", columns: []string{"uuid", "description"},
	fields:  []resourceField{{flag: "description", usage: "a description"}, uuidField, extraField},
	example: "  salvor chassis create --description 'rack 1, lower half'",
}

var connectorResource = baremetalResource{
	at: client.VolumeConnectors, words: []string{"volume", "connector"}, ident: "CONNECTOR", title: "volume connector", plural: "volume connectors",
	columns: []string{"uuid", "node_uuid", "type", "connector_id"},
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, kept: true, filter: "node"},
		{flag: "type", usage: "iqn, ip, mac, wwnn, wwpn, net-id, port or portgroup", required: true, kept: true, filter: "type"},
		{flag: "connector-id", usage: "the name by which a storage system knows the node, such as its initiator's IQN", required: true, kept: true, filter: "connector_id"},
		uuidField, extraField,
	},
	example: "  salvor volume connector create --node rack1-7 --type iqn --connector-id iqn.2026-11.com.example:rack1-7",
}

var targetResource = baremetalResource{
	at: client.VolumeTargets, words: []string{"volume", "target"}, ident: "TARGET", title: "volume target", plural: "volume targets",
	columns: []string{"uuid", "node_uuid", "volume_type", "boot_index", "volume_id"},
	fields: []resourceField{
		{flag: "node", name: "node_uuid", form: nodeForm, usage: "the node, by UUID or name", required: true, kept: true, filter: "node"},
		{flag: "type", name: "volume_type", usage: "iscsi or fibre_channel", required: true, kept: true, filter: "volume_type"},
		{flag: "volume-id", usage: "the volume's name in its storage system", required: true, kept: true, filter: "volume_id"},
		{flag: "boot-index", form: numberForm, usage: "0 is the root volume", required: true, filter: "boot_index"},
		{flag: "property", name: "properties", form: objectForm}, uuidField, extraField,
	},
	example: `  salvor volume target create --node rack1-7 --type iscsi --volume-id vol-7 --boot-index 0 \
      --property target_portal=10.0.0.9:3260 --property target_iqn=iqn.2026-11.com.example:vol-7 --property target_lun=1`,
}

var allocationResource = baremetalResource{
	at: client.Allocations, words: []string{"allocation"}, ident: "ALLOCATION", title: "allocation", plural: "allocations",
	columns: []string{"uuid", "name", "resource_class", "state", "node_uuid"},
	fields: []resourceField{
		{flag: "resource-class", usage: "the resource class that the node must have", birth: true, filter: "resource_class"},
		{flag: "trait", name: "traits", form: listForm, usage: "a trait that the node must have", birth: true},
		{flag: "candidate-node", name: "candidate_nodes", form: listForm, usage: "a node that may be taken", birth: true},
		{flag: "node", usage: "the node that is in use already", birth: true, filter: "node"},
		{flag: "owner", usage: "the project that owns the allocation", birth: true, filter: "owner"},
		{flag: "name", usage: "a name"}, uuidField, extraField,
	},
	filters: []resourceField{{flag: "state", filter: "state", usage: "allocating, active or error"}},
	example: "  salvor allocation create --resource-class baremetal --trait CUSTOM_GOLD --name web1",
}

var deployTemplateResource = baremetalResource{
	at: client.DeployTemplates, words: []string{"deploy", "template"}, ident: "TEMPLATE", title: "deploy template", plural: "deploy templates", columns: []string{"uuid", "name"},
	first: &resourceField{flag: "name", usage: "the trait that chooses it", kept: true},
	fields: []resourceField{
		{flag: "steps", form: documentForm, usage: "the deploy steps", required: true, kept: true}, uuidField, extraField,
	},
	example: `  salvor deploy template create CUSTOM_UEFI --steps '[{"interface": "bios", "step": "apply_configuration", "args": {"settings": []}, "priority": 150}]'`,
}

var runbookResource = baremetalResource{
	at: client.Runbooks, words: []string{"runbook"}, ident: "RUNBOOK", title: "runbook", plural: "runbooks", columns: []string{"uuid", "name"},
	fields: []resourceField{
		{flag: "name", usage: "the name, a trait that nodes must have", required: true, kept: true},
		{flag: "steps", form: documentForm, usage: "the steps", required: true, kept: true},
		{flag: "public", form: boolForm, usage: "whether every project may run it"},
		{flag: "owner", usage: "the project that owns it"},
		{flag: "description", usage: "a description"}, uuidField, extraField,
	},
	example: `  salvor runbook create --name CUSTOM_WIPE --steps '[{"interface": "deploy", "step": "erase_devices_metadata", "args": {}, "order": 1}]'`,
}

var ruleResource = baremetalResource{
	at: client.InspectionRules, words: []string{"inspection", "rule"}, ident: "RULE", title: "inspection rule", plural: "inspection rules",
	columns: []string{"uuid", "priority", "phase", "description"},
	fields: []resourceField{
		{flag: "actions", form: documentForm, usage: "the actions of the rule", required: true, kept: true},
		{flag: "conditions", form: documentForm, usage: "the conditions of the rule; if left out, the actions always run"},
		{flag: "description", usage: "a description"},
		{flag: "priority", form: numberForm, usage: "rules of a higher priority come first"},
		{flag: "phase", usage: "main"},
		{flag: "sensitive", form: boolForm, usage: "show its actions to nobody"}, uuidField,
	},
	example: `  salvor inspection rule create --actions '[{"op": "set-attribute", "args": {"path": "/resource_class", "value": "gold"}}]'`,
}

// newResourceCommands are the commands of all kinds beside nodes.
func newResourceCommands() []*cobra.Command {
	top := func(use, short string, add ...func(*apiEndpoint) *cobra.Command) *cobra.Command {
		e := &apiEndpoint{}
		cmd := &cobra.Command{Use: use, Short: short}
		e.flags(cmd)
		for _, a := range add {
			cmd.AddCommand(a(e))
		}
		return cmd
	}
	of := func(r *baremetalResource, short string) *cobra.Command {
		e := &apiEndpoint{}
		cmd := r.command(e, short)
		e.flags(cmd)
		return cmd
	}
	below := func(r *baremetalResource, short string) func(*apiEndpoint) *cobra.Command {
		return func(e *apiEndpoint) *cobra.Command { return r.command(e, short) }
	}
	port := &apiEndpoint{}
	ports := portResource.command(port, "Manage ports: the NICs of machines")
	port.flags(ports)
	ports.AddCommand(portgroupResource.command(port, "Manage port groups: NICs that are bonded to one"))
	return []*cobra.Command{
		ports,
		of(&chassisResource, "Manage chassis: cases that nodes share"),
		of(&allocationResource, "Manage allocations: claims on any node that fits"),
		of(&runbookResource, "Manage runbooks: lists of steps that users run by name"),
		top("volume", "Manage disks that machines and servers reach over a network",
			below(&connectorResource, "Manage the initiator's side: how a storage system knows a node"),
			below(&targetResource, "Manage the disk's side: where a node finds it"),
			newVolumeAttach, newVolumeDetach, blockThing.list, blockThing.show),
		top("deploy", "Manage the steps that run while nodes are deployed", below(&deployTemplateResource, "Manage deploy templates: deploy steps that a trait chooses")),
		top("inspection", "Manage the actions on what an inspection finds", below(&ruleResource, "Manage the rules that act on what an inspection finds")),
	}
}
