package metal

import "salvor/record"

// nodeFields says how the API calls the fields of a Node.
var nodeFields = record.FieldNames{
	Unnamed: []string{"ID", "Version", "InternalInfo", "CreatedAt", "UpdatedAt", "Reservation", "Conductor", "BootNumber", "Plan", "Rescue"},
	Names: map[string]string{"TargetRAID": "target_raid_config", "ProvisionedAt": "provision_updated_at", "AllocationID": "allocation_uuid",
		"TargetPower": "target_power_state", "TargetProvision": "target_provision_state"},
	Keys: map[string]string{"Interfaces": "%s_interface"},
}

// updatedText is the event of a change.
func updatedText(old, now *Node) string { return "record " + nodeFields.Updated(old, now) }
