package drivertest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

func odataLink(path string) map[string]any { return map[string]any{"@odata.id": path} }

func odataCollection(paths ...string) map[string]any {
	list := []any{}
	for _, p := range paths {
		list = append(list, odataLink(p))
	}
	return map[string]any{"Members": list, "Members@odata.count": len(list)}
}

func writeJSON(w http.ResponseWriter, doc any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc)
}

func writeRedfishError(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"code": "Base.1.0.GeneralError", "message": "see ExtendedInfo",
		"@Message.ExtendedInfo": []any{map[string]any{"MessageId": "Base.1.0.GeneralError", "Message": text}},
	}})
}

func (b *BMC) root() map[string]any {
	return map[string]any{
		"@odata.id": "/redfish/v1/", "Id": "RootService", "RedfishVersion": "1.11.0",
		"Systems": odataLink(b.systemsPath()), "Managers": odataLink("/redfish/v1/Managers"),
		"SessionService": odataLink("/redfish/v1/SessionService"), "EventService": odataLink(eventPath), "JobService": odataLink(jobPath), "UpdateService": odataLink(updatePath),
		"Links": map[string]any{"Sessions": odataLink("/redfish/v1/SessionService/Sessions")},
	}
}

func (b *BMC) systemsPath() string {
	if b.SystemsPath != "" {
		return b.SystemsPath
	}
	return "/redfish/v1/Systems"
}

func (b *BMC) systems() map[string]any {
	paths := []string{SystemPath}
	for i := 2; i <= b.Systems; i++ {
		paths = append(paths, fmt.Sprintf("/redfish/v1/Systems/%d", i))
	}
	return odataCollection(paths...)
}

// tag gives the ETag of the system as it is now. A BMC of the quirky kind gives a weak
// one and then wants it without the mark.
func (b *BMC) tag(w http.ResponseWriter) {
	if !b.ETags {
		return
	}
	tag := b.currentTag()
	if b.WeakETags {
		tag = "W/" + tag
	}
	w.Header().Set("ETag", tag)
}

func (b *BMC) currentTag() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%q", fmt.Sprint(b.changes))
}

func (b *BMC) system() map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	power := "Off"
	if b.on {
		power = "On"
	}
	targets := []string{"None", "Pxe", "Cd", "Hdd", "BiosSetup", "UefiHttp"}
	if b.NoHTTPBoot {
		targets = targets[:5]
	}
	doc := map[string]any{
		"@odata.id": SystemPath, "Id": "1", "PowerState": power,
		"Boot": map[string]any{
			"BootSourceOverrideTarget": b.override.Target, "BootSourceOverrideEnabled": b.override.Enabled,
			"BootSourceOverrideMode": b.override.Mode, "HttpBootUri": b.override.HTTPBootURI,
			"BootSourceOverrideTarget@Redfish.AllowableValues": targets,
		},
		"Links":  map[string]any{"ManagedBy": []any{odataLink(managerPath)}, "Chassis": []any{odataLink(chassisPath)}},
		"Status": map[string]any{"State": "Enabled", "Health": "OK", "HealthRollup": b.extra.health},
		"Bios":   odataLink(biosPath), "SecureBoot": odataLink(secureBootPath), "Storage": odataLink(storagePath),
		"IndicatorLED": b.extra.led, "BiosVersion": b.extra.biosVersion, "Manufacturer": "Acme", "Model": "One", "SerialNumber": "S1",
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target":                            SystemPath + "/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart", "GracefulRestart", "Nmi"},
		}},
		"ProcessorSummary":   map[string]any{"Count": 1},
		"MemorySummary":      map[string]any{"TotalSystemMemoryGiB": 2},
		"Processors":         odataLink(SystemPath + "/Processors"),
		"SimpleStorage":      odataLink(SystemPath + "/SimpleStorage"),
		"EthernetInterfaces": odataLink(SystemPath + "/EthernetInterfaces"),
	}
	if b.MediaInSystem {
		doc["VirtualMedia"] = odataLink(SystemPath + "/VirtualMedia")
	}
	return doc
}

func (b *BMC) drive(path string, image *string, types ...string) map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	doc := map[string]any{
		"@odata.id": path, "MediaTypes": types, "Inserted": *image != "", "Image": nil,
		"Actions": map[string]any{
			"#VirtualMedia.InsertMedia": map[string]any{"target": path + "/Actions/VirtualMedia.InsertMedia"},
			"#VirtualMedia.EjectMedia":  map[string]any{"target": path + "/Actions/VirtualMedia.EjectMedia"},
		},
	}
	if *image != "" {
		doc["Image"] = *image
	}
	return doc
}

// parts is what the machine is made of.
var parts = map[string]any{
	SystemPath + "/Processors":           odataCollection(SystemPath + "/Processors/0"),
	SystemPath + "/Processors/0":         map[string]any{"ProcessorType": "CPU", "InstructionSet": "x86-64", "TotalCores": 2, "TotalThreads": 4, "Model": "Acme 4T", "MaxSpeedMHz": 2100},
	SystemPath + "/SimpleStorage":        odataCollection(SystemPath + "/SimpleStorage/0"),
	SystemPath + "/SimpleStorage/0":      map[string]any{"Devices": []any{map[string]any{"Name": "Disk 0", "Manufacturer": "Acme", "Model": "D20", "CapacityBytes": 20 << 30}, map[string]any{"CapacityBytes": nil}}},
	SystemPath + "/EthernetInterfaces":   odataCollection(SystemPath+"/EthernetInterfaces/0", SystemPath+"/EthernetInterfaces/1"),
	SystemPath + "/EthernetInterfaces/0": map[string]any{"Id": "NIC.1", "MACAddress": "52:54:00:AA:BB:01", "LinkStatus": "LinkUp", "SpeedMbps": 10000},
	SystemPath + "/EthernetInterfaces/1": map[string]any{"MACAddress": "rubbish"},
}
