package lab

import (
	"net/http"
	"sort"
)

// This file holds the resources that Redfish clients read.

const sessionsID = "/redfish/v1/SessionService/Sessions"

func odataLink(id string) jsonObject { return jsonObject{"@odata.id": id} }

// newRedfishResource begins a resource with the properties that all of them must have.
func newRedfishResource(id, kind, short, name string) jsonObject {
	return jsonObject{"@odata.id": id, "@odata.type": "#" + kind, "Id": short, "Name": name}
}

func serveCollection(name, kind, id string, members ...string) http.HandlerFunc {
	refs := make([]jsonObject, len(members))
	for i, m := range members {
		refs[i] = odataLink(m)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, jsonObject{
			"@odata.id": id, "@odata.type": "#" + kind + "." + kind, "Name": name,
			"Members": refs, "Members@odata.count": len(refs),
		})
	}
}

func (b *redfishBMC) versions(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, jsonObject{"v1": "/redfish/v1/"})
}

func (b *redfishBMC) root(w http.ResponseWriter, _ *http.Request) {
	r := newRedfishResource("/redfish/v1", "ServiceRoot.v1_5_0.ServiceRoot", "RootService", "salvor lab BMC")
	r["RedfishVersion"] = "1.6.0"
	r["UUID"] = b.spec.UUID
	r["Product"] = "salvor lab"
	r["Vendor"] = "salvor"
	r["Systems"] = odataLink("/redfish/v1/Systems")
	r["Managers"] = odataLink("/redfish/v1/Managers")
	r["Chassis"] = odataLink("/redfish/v1/Chassis")
	r["SessionService"] = odataLink("/redfish/v1/SessionService")
	r["Links"] = jsonObject{"Sessions": odataLink(sessionsID)}
	writeJSON(w, http.StatusOK, r)
}

var healthy = jsonObject{"State": "Enabled", "Health": "OK", "HealthRollup": "OK"}

func powerState(p Power) string {
	if p == PowerOn {
		return "On"
	}
	return "Off"
}

func (b *redfishBMC) getSystem(w http.ResponseWriter, _ *http.Request) {
	boot := b.bootObject()
	w.Header().Set("ETag", etagOf(boot))
	writeJSON(w, http.StatusOK, b.system(boot))
}

func (b *redfishBMC) system(boot jsonObject) jsonObject {
	id := b.systemID()
	s := newRedfishResource(id, "ComputerSystem.v1_10_0.ComputerSystem", b.spec.Name, b.spec.Name)
	s["@odata.etag"] = etagOf(boot)
	s["UUID"] = b.spec.UUID
	s["SystemType"] = "Physical"
	s["Manufacturer"] = "salvor"
	s["Model"] = "lab " + string(b.spec.Firmware)
	s["SerialNumber"] = b.spec.Name
	s["HostName"] = b.spec.Name
	s["PowerState"] = powerState(b.chassis.Power())
	s["Status"] = b.status()
	s["Boot"] = boot
	s["ProcessorSummary"] = jsonObject{"Count": 1, "Model": "QEMU", "Status": healthy}
	s["MemorySummary"] = jsonObject{"TotalSystemMemoryGiB": float64(b.spec.Memory) / 1024, "Status": healthy}
	s["EthernetInterfaces"] = odataLink(id + "/EthernetInterfaces")
	if b.initiator != nil {
		s["NetworkInterfaces"] = odataLink(id + "/NetworkInterfaces")
	}
	s["VirtualMedia"] = odataLink(managerID + "/VirtualMedia")
	s["Links"] = jsonObject{"ManagedBy": []jsonObject{odataLink(managerID)}, "Chassis": []jsonObject{odataLink(b.chassisID())}}
	s["Actions"] = jsonObject{"#ComputerSystem.Reset": jsonObject{
		"target": id + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": resetTypes(),
	}}
	return s
}

func resetTypes() []string {
	types := make([]string, 0, len(resetActions))
	for t := range resetActions {
		types = append(types, t)
	}
	sort.Strings(types)
	return types
}

func (b *redfishBMC) bootObject() jsonObject {
	o, mode := b.chassis.Override(), "Legacy"
	if b.firmware.Firmware() == UEFI {
		mode = "UEFI"
	}
	enabled := "Disabled"
	switch {
	case o.Device == DeviceDefault:
	case o.Persist:
		enabled = "Continuous"
	default:
		enabled = "Once"
	}
	boot := jsonObject{
		"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": bootTargets[o.Device], "BootSourceOverrideMode": mode,
		"BootSourceOverrideEnabled@Redfish.AllowableValues": []string{"Disabled", "Once", "Continuous"},
		"BootSourceOverrideMode@Redfish.AllowableValues":    []string{"Legacy", "UEFI"},
		"BootSourceOverrideTarget@Redfish.AllowableValues":  []string{"None", "Pxe", "Hdd", "Cd", "UefiHttp"},
	}
	if b.initiator != nil {
		boot["BootSourceOverrideTarget@Redfish.AllowableValues"] = []string{"None", "Pxe", "Hdd", "Cd", "UefiHttp", "RemoteDrive"}
	}
	if o.URI != "" {
		boot["HttpBootUri"] = o.URI
	} else {
		boot["HttpBootUri"] = nil
	}
	return boot
}

func (b *redfishBMC) getNIC(w http.ResponseWriter, _ *http.Request) {
	n := newRedfishResource(b.systemID()+"/EthernetInterfaces/1", "EthernetInterface.v1_5_0.EthernetInterface", "1", "NIC 1")
	n["MACAddress"], n["PermanentMACAddress"] = b.spec.MAC, b.spec.MAC
	n["InterfaceEnabled"], n["LinkStatus"], n["SpeedMbps"] = true, "LinkUp", 1000
	n["Status"] = healthy
	writeJSON(w, http.StatusOK, n)
}

func (b *redfishBMC) getManager(w http.ResponseWriter, _ *http.Request) {
	m := newRedfishResource(managerID, "Manager.v1_5_0.Manager", "bmc", "BMC of "+b.spec.Name)
	m["ManagerType"], m["FirmwareVersion"], m["Status"], m["PowerState"] = "BMC", "1.0", healthy, "On"
	m["ServiceEntryPointUUID"], m["UUID"] = b.spec.UUID, b.spec.UUID
	m["VirtualMedia"] = odataLink(managerID + "/VirtualMedia")
	m["LogServices"] = odataLink(logsID)
	m["Links"] = jsonObject{"ManagerForServers": []jsonObject{odataLink(b.systemID())}, "ManagerForChassis": []jsonObject{odataLink(b.chassisID())}}
	writeJSON(w, http.StatusOK, m)
}

func (b *redfishBMC) getMedia(w http.ResponseWriter, _ *http.Request) {
	id, image := managerID+"/VirtualMedia/Cd", b.drive.Image()
	m := newRedfishResource(id, "VirtualMedia.v1_3_0.VirtualMedia", "Cd", "Virtual CD")
	m["MediaTypes"] = []string{"CD", "DVD"}
	m["Inserted"], m["WriteProtected"], m["ConnectedVia"] = image != "", true, "NotConnected"
	m["Image"], m["ImageName"] = nil, nil
	if image != "" {
		m["ConnectedVia"], m["Image"], m["ImageName"] = "URI", image, image
	}
	m["TransferMethod"], m["TransferProtocolType"] = "Upload", nil
	m["Actions"] = jsonObject{
		"#VirtualMedia.InsertMedia": jsonObject{"target": id + "/Actions/VirtualMedia.InsertMedia"},
		"#VirtualMedia.EjectMedia":  jsonObject{"target": id + "/Actions/VirtualMedia.EjectMedia"},
	}
	w.Header().Set("ETag", etagOf(image))
	writeJSON(w, http.StatusOK, m)
}

func (b *redfishBMC) getChassis(w http.ResponseWriter, _ *http.Request) {
	c := newRedfishResource(b.chassisID(), "Chassis.v1_10_0.Chassis", b.spec.Name, "Chassis of "+b.spec.Name)
	c["ChassisType"], c["Manufacturer"], c["Status"] = "RackMount", "salvor", healthy
	c["PowerState"] = powerState(b.chassis.Power())
	c["Links"] = jsonObject{"ComputerSystems": []jsonObject{odataLink(b.systemID())}, "ManagedBy": []jsonObject{odataLink(managerID)}}
	writeJSON(w, http.StatusOK, c)
}

func (b *redfishBMC) getSessionService(w http.ResponseWriter, _ *http.Request) {
	s := newRedfishResource("/redfish/v1/SessionService", "SessionService.v1_1_6.SessionService", "SessionService", "Session Service")
	s["ServiceEnabled"], s["SessionTimeout"], s["Status"] = true, 3600, healthy
	s["Sessions"] = odataLink(sessionsID)
	writeJSON(w, http.StatusOK, s)
}

func (b *redfishBMC) getSessions(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	ids := make([]string, 0, len(b.sessions))
	for id := range b.sessions {
		ids = append(ids, sessionsID+"/"+id)
	}
	b.mu.Unlock()
	sort.Strings(ids)
	serveCollection("Session Collection", "SessionCollection", sessionsID, ids...)(w, r)
}

func (b *redfishBMC) getSession(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	_, found := b.sessions[r.PathValue("id")]
	b.mu.Unlock()
	if !found {
		redfishError(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "no such session")
		return
	}
	writeJSON(w, http.StatusOK, b.session(r.PathValue("id")))
}

func (b *redfishBMC) session(id string) jsonObject {
	s := newRedfishResource(sessionsID+"/"+id, "Session.v1_0_0.Session", id, "User Session")
	s["UserName"] = b.spec.User
	return s
}
