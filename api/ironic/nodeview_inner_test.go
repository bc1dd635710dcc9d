package ironic

import (
	"testing"
	"time"

	"salvor/metal"
)

// TestRowFieldsNeedNoJSON: what a list shows of a row alone is what it shows of the whole node.
func TestRowFieldsNeedNoJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	row := metal.Node{ID: "i", Name: "n", Driver: "d", InstanceUUID: "u", ChassisUUID: "c", ResourceClass: "r", Description: "words", Owner: "o", Lessee: "l",
		Shard: "s", ConductorGroup: "g", Maintenance: true, Fault: "f", Protected: true, Retired: true, ConsoleEnabled: true, PowerState: metal.PowerOn,
		TargetPower: metal.PowerOff, ProvisionState: metal.Active, TargetProvision: metal.Rescue, LastError: "e", ProvisionedAt: at, InspectionStart: at,
		InspectionEnd: at, CreatedAt: at, UpdatedAt: at, ParentNode: "p", AllocationID: "a", InstanceName: "in", DisablePowerOff: true, Health: "ok",
		Reservation: "h", Conductor: "x"}
	whole := row
	yes, some := true, metal.Object{"k": "v"}
	whole.DriverInfo, whole.Properties, whole.Extra, whole.InstanceInfo, whole.InternalInfo = some, some, some, some, some
	whole.RAIDConfig, whole.TargetRAID, whole.NetworkData, whole.CleanStep, whole.DeployStep, whole.ServiceStep = some, some, some, some, some, some
	whole.Traits, whole.AutomatedClean, whole.SecureBoot, whole.BootMode = []string{"T"}, &yes, &yes, "uefi"
	whole.MaintenanceReason, whole.ProtectedReason, whole.RetiredReason, whole.PowerLock = "m", "p", "r", "h"
	whole.Interfaces, whole.BootNumber = map[string]string{}, 3
	for _, f := range nodeFields {
		whole.Interfaces[f.name[:max(0, len(f.name)-len("_interface"))]] = "other"
	}
	checked := 0
	for i := range nodeFields {
		f := &nodeFields[i]
		a := string(f.write(nil, &nodeView{Node: &row, version: 115}))
		b := string(f.write(nil, &nodeView{Node: &whole, version: 115}))
		switch {
		case rowFields[f.name] && a != b:
			t.Errorf("%s is %s of the row and %s of the whole node", f.name, a, b)
		case !rowFields[f.name] && a == b:
			t.Errorf("%s is %s of either: lists need not read JSON for it", f.name, a)
		}
		if rowFields[f.name] {
			checked++
		}
	}
	if checked != len(rowFields) {
		t.Errorf("%d fields of %d are there", checked, len(rowFields))
	}
	brief := make([]*nodeField, 0, len(briefNodeFields))
	for _, name := range briefNodeFields {
		brief = append(brief, &nodeFields[nodeFieldIndex[name]])
	}
	if partOf(brief) != metal.NodeRow || partOf(append(brief, &nodeFields[nodeFieldIndex["extra"]])) != metal.WholeNode {
		t.Error("a list that asks for no fields is to read rows alone, and one that shows JSON all")
	}
}
