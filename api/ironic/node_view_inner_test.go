package ironic

import (
	"testing"
	"time"

	"salvor/api"
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
		c := &ironicCall{Call: &api.Call{}, version: 115}
		a := string(f.write(nil, &nodeView{Node: &row}, c))
		b := string(f.write(nil, &nodeView{Node: &whole}, c))
		switch {
		case f.use&inRow != 0 && a != b:
			t.Errorf("%s is %s of the row and %s of the whole node", f.name, a, b)
		case f.use&inRow == 0 && a == b:
			t.Errorf("%s is %s of either: lists need not read JSON for it", f.name, a)
		}
		if f.use&inRow != 0 {
			checked++
		}
	}
	if checked != 38 {
		t.Errorf("%d fields are shown of a row alone, not 38", checked)
	}
	brief := nodeKind.shown(append(nodeKind.brief, "links"), MaxVersion)
	if len(brief) != len(nodeKind.brief)+1 || partOf(brief) != metal.NodeRow || partOf(append(brief, nodeKind.shown([]string{"extra"}, MaxVersion)...)) != metal.WholeNode {
		t.Error("a list that asks for no fields is to read rows alone, and one that shows JSON all")
	}
}
