package drivertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Paths of what not every BMC has.
const (
	biosPath       = SystemPath + "/Bios"
	biosNextPath   = biosPath + "/Settings"
	secureBootPath = SystemPath + "/SecureBoot"
	storagePath    = SystemPath + "/Storage"
	raidPath       = storagePath + "/RAID1"
	volumesPath    = raidPath + "/Volumes"
	chassisPath    = "/redfish/v1/Chassis/1"
	adaptersPath   = chassisPath + "/NetworkAdapters"
	registryPath   = "/redfish/v1/Registries/BiosRegistry"
	eventPath      = "/redfish/v1/EventService"
	subsPath       = eventPath + "/Subscriptions"
	jobPath        = "/redfish/v1/JobService"
	jobsPath       = jobPath + "/Jobs"
	updatePath     = "/redfish/v1/UpdateService"
	tasksPath      = "/redfish/v1/TaskService/Tasks"
	logsPath       = managerPath + "/LogServices"
	selPath        = logsPath + "/SEL"
	entriesPath    = selPath + "/Entries"
	thermalPath    = chassisPath + "/Thermal"
)

// extraState is the state of what not every BMC has.
type extraState struct {
	health, led    string
	chassisLamp    bool
	secure         bool
	bios, nextBIOS map[string]any
	dropsSettings  bool // the firmware drops pending settings
	volumes        map[string]map[string]any
	subscriptions  map[string]map[string]any
	jobs           []string
	nmis, restarts int
	softRestarts   int
	managerResets  int
	updates        []map[string]any // what SimpleUpdate was given
	foreignTasks   []map[string]any // of other clients
	taskFails      string           // why updates fail
	biosVersion    string
	bmcVersion     string
	entries        []map[string]any // of the event log
	logFormat      LogFormat
	temperature    map[string]any // of the only sensor
}

func factoryBIOSSettings() map[string]any {
	return map[string]any{"BootMode": "Uefi", "ProcTurbo": "Enabled", "Cores": 4.0, "Quiet": true, "AdminPassword": nil}
}

func newExtra() extraState {
	return extraState{
		health: "OK", led: "Off", bios: factoryBIOSSettings(), volumes: map[string]map[string]any{}, subscriptions: map[string]map[string]any{}, jobs: []string{"J1", "J2"},
		biosVersion: "2.1", bmcVersion: "7.0",
	}
}

// boot is the firmware taking what waits for it.
func (e *extraState) boot() {
	if !e.dropsSettings {
		maps.Copy(e.bios, e.nextBIOS)
	}
	e.nextBIOS = nil
	e.flash("bios")
}

// flash takes the newest image, if it is one of the part. Its name is PART-VERSION.
func (e *extraState) flash(part string) {
	if len(e.updates) == 0 || e.taskFails != "" {
		return
	}
	update := e.updates[len(e.updates)-1]
	image, _ := update["ImageURI"].(string)
	version, ok := strings.CutPrefix(image[strings.LastIndex(image, "/")+1:], part+"-")
	if !ok {
		return
	}
	update["done"] = true
	if part == "bmc" {
		e.bmcVersion = version
	} else {
		e.biosVersion = version
	}
}

// FailUpdates has the tasks of updates fail with a reason.
func (b *BMC) FailUpdates(why string) { b.mu.Lock(); defer b.mu.Unlock(); b.extra.taskFails = why }

// Updates are the images that SimpleUpdate was given, in order.
func (b *BMC) Updates() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.extra.updates {
		out = append(out, fmt.Sprint(u["ImageURI"]))
	}
	return out
}

// AddTask has the BMC show the task of another client.
func (b *BMC) AddTask(doc map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extra.foreignTasks = append(b.extra.foreignTasks, doc)
}

// taskPaths are those of all tasks; updates come last.
func (e *extraState) taskPaths() (paths []string) {
	for i := range e.foreignTasks {
		paths = append(paths, fmt.Sprint(tasksPath, "/F", i))
	}
	for i := range e.updates {
		paths = append(paths, fmt.Sprint(tasksPath, "/", i))
	}
	return paths
}

// task is the task of an update: an image of the BIOS waits for a start of the machine, one of the BMC does not.
func (e *extraState) task(i int) map[string]any {
	doc := map[string]any{"@odata.id": fmt.Sprint(tasksPath, "/", i), "@odata.type": "#Task.v1_4_3.Task", "TaskState": "Pending", "TaskStatus": "OK",
		"Name": fmt.Sprint("Task ", i), "Payload": map[string]any{"TargetUri": updatePath + "/Actions/UpdateService.SimpleUpdate"}}
	switch {
	case e.taskFails != "":
		doc["TaskState"], doc["Messages"] = "Exception", []any{map[string]any{"Message": e.taskFails}}
	case e.updates[i]["done"] == true:
		doc["TaskState"] = "Completed"
	}
	return doc
}

// SetHealth sets the health of the whole machine.
func (b *BMC) SetHealth(word string) { b.mu.Lock(); defer b.mu.Unlock(); b.extra.health = word }

// DropSettings has the firmware drop the settings that it is given.
func (b *BMC) DropSettings() { b.mu.Lock(); defer b.mu.Unlock(); b.extra.dropsSettings = true }

// Interrupts is how many NMIs the machine got; Restarts and SoftRestarts how many restarts; ManagerResets those of the BMC.
func (b *BMC) Interrupts() int    { b.mu.Lock(); defer b.mu.Unlock(); return b.extra.nmis }
func (b *BMC) Restarts() int      { b.mu.Lock(); defer b.mu.Unlock(); return b.extra.restarts }
func (b *BMC) SoftRestarts() int  { b.mu.Lock(); defer b.mu.Unlock(); return b.extra.softRestarts }
func (b *BMC) ManagerResets() int { b.mu.Lock(); defer b.mu.Unlock(); return b.extra.managerResets }

// Jobs is how many jobs the BMC keeps, Subscriptions how many of these, Volumes the same.
func (b *BMC) Jobs() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.extra.jobs) }
func (b *BMC) Subscriptions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.extra.subscriptions)
}
func (b *BMC) Volumes() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.extra.volumes) }

// Stick is the URL in the virtual USB drive.
func (b *BMC) Stick() string { b.mu.Lock(); defer b.mu.Unlock(); return b.usb }

// interrupt takes the reset types that leave the machine on.
func (b *BMC) interrupt(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case kind == "Nmi":
		b.extra.nmis++
	case kind == "GracefulRestart":
		b.extra.softRestarts++
		b.extra.boot()
	case kind == "ForceRestart":
		b.extra.restarts++
		b.extra.boot()
	default:
		return false
	}
	return true
}

func (b *BMC) manager() map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	return map[string]any{
		"@odata.id": managerPath, "LogServices": odataLink(logsPath), "FirmwareVersion": b.extra.bmcVersion, "Manufacturer": "Acme", "Model": "BMC",
		"Actions": map[string]any{"#Manager.Reset": map[string]any{
			"target": managerPath + "/Actions/Manager.Reset", "ResetType@Redfish.AllowableValues": []string{"ForceRestart", "GracefulRestart"},
		}},
	}
}

// serveExtra answers what lies below the paths above; false if nothing does.
func (b *BMC) serveExtra(w http.ResponseWriter, r *http.Request, path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Method == http.MethodGet {
		doc, ok := extraParts[path]
		if now := b.extraDoc(path); now != nil {
			doc, ok = now, true
		}
		if skip, err := strconv.Atoi(r.URL.Query().Get("$skip")); err == nil && path == entriesPath {
			doc = b.extra.entryPage(skip)
		}
		if ok {
			writeJSON(w, doc)
		}
		return ok
	}
	if b.fault == Liar {
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	e := &b.extra
	var in map[string]any
	if r.Method == http.MethodPost || r.Method == http.MethodPatch {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			writeRedfishError(w, http.StatusBadRequest, err.Error())
			return true
		}
	}
	switch r.Method + " " + path {
	case "PATCH " + secureBootPath:
		e.secure, _ = in["SecureBootEnable"].(bool)
	case "PATCH " + chassisPath:
		e.chassisLamp, _ = in["LocationIndicatorActive"].(bool)
	case "PATCH " + biosNextPath:
		next, _ := in["Attributes"].(map[string]any)
		e.nextBIOS = next
	case "POST " + biosPath + "/Actions/Bios.ResetBios":
		e.nextBIOS = factoryBIOSSettings()
	case "POST " + managerPath + "/Actions/Manager.Reset":
		e.managerResets++
	case "POST " + volumesPath:
		b.changes++
		e.volumes[fmt.Sprint("V", b.changes)] = in
		w.WriteHeader(http.StatusCreated)
		return true
	case "POST " + subsPath:
		b.subscribe(w, in)
		return true
	case "POST " + updatePath + "/Actions/UpdateService.SimpleUpdate":
		e.updates = append(e.updates, in)
		e.flash("bmc")
		w.Header().Set("Location", fmt.Sprint(tasksPath, "/", len(e.updates)-1))
		w.WriteHeader(http.StatusAccepted)
		return true
	default:
		return b.deleteExtra(w, r, path)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

func (b *BMC) subscribe(w http.ResponseWriter, in map[string]any) {
	if in["Protocol"] != "Redfish" {
		writeRedfishError(w, http.StatusBadRequest, fmt.Sprint("unknown protocol among ", in))
		return
	}
	b.changes++
	id := fmt.Sprint("E", b.changes)
	in["Id"] = id
	b.extra.subscriptions[id] = in
	w.Header().Set("Location", subsPath+"/"+id)
	w.WriteHeader(http.StatusCreated)
}

func (b *BMC) deleteExtra(w http.ResponseWriter, r *http.Request, path string) bool {
	if r.Method != http.MethodDelete || !strings.Contains(path, "/") {
		return false
	}
	at, id := path[:strings.LastIndex(path, "/")], path[strings.LastIndex(path, "/")+1:]
	switch at {
	case volumesPath:
		delete(b.extra.volumes, id)
	case subsPath:
		delete(b.extra.subscriptions, id)
	case jobsPath:
		b.extra.jobs = slices.DeleteFunc(b.extra.jobs, func(j string) bool { return j == id })
	default:
		return false
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

func childCollection[V any](path string, of map[string]V) map[string]any {
	var paths []string
	for _, id := range slices.Sorted(maps.Keys(of)) {
		paths = append(paths, path+"/"+id)
	}
	return odataCollection(paths...)
}

// extraDoc is the document at a path; nil if there is none.
func (b *BMC) extraDoc(path string) map[string]any {
	e := &b.extra
	switch path {
	case secureBootPath:
		return map[string]any{"SecureBootEnable": e.secure}
	case chassisPath:
		return map[string]any{"Id": "Case", "LocationIndicatorActive": e.chassisLamp, "NetworkAdapters": odataLink(adaptersPath), "Thermal": odataLink(thermalPath)}
	case entriesPath:
		return e.entryPage(0)
	case thermalPath:
		if e.temperature == nil {
			return map[string]any{"Temperatures": []any{}}
		}
		return map[string]any{"Temperatures": []any{e.temperature}}
	case biosPath:
		return map[string]any{
			"Attributes": e.bios, "AttributeRegistry": "BiosRegistry.1.0", "@Redfish.Settings": map[string]any{"SettingsObject": odataLink(biosNextPath)},
			"Actions": map[string]any{"#Bios.ResetBios": map[string]any{"target": biosPath + "/Actions/Bios.ResetBios"}},
		}
	case biosNextPath:
		next := maps.Clone(e.bios)
		maps.Copy(next, e.nextBIOS)
		return map[string]any{"Attributes": next}
	case volumesPath:
		return childCollection(path, e.volumes)
	case subsPath:
		return childCollection(path, e.subscriptions)
	case tasksPath:
		return odataCollection(e.taskPaths()...)
	case jobsPath:
		paths := []string{}
		for _, j := range e.jobs {
			paths = append(paths, path+"/"+j)
		}
		return odataCollection(paths...)
	}
	at := strings.LastIndex(path, "/")
	if at < 0 {
		return nil
	}
	switch id := path[at+1:]; path[:at] {
	case volumesPath:
		if v := e.volumes[id]; v != nil {
			v = maps.Clone(v)
			v["Id"] = id
			return v
		}
	case subsPath:
		return e.subscriptions[id]
	case entriesPath:
		if i, err := strconv.Atoi(id); err == nil && i > 0 && i <= len(e.entries) {
			return e.entries[i-1]
		}
	case tasksPath:
		foreign, isForeign := strings.CutPrefix(id, "F")
		i, err := strconv.Atoi(foreign)
		switch {
		case err == nil && isForeign && i >= 0 && i < len(e.foreignTasks):
			return e.foreignTasks[i]
		case err == nil && !isForeign && i >= 0 && i < len(e.updates):
			return e.task(i)
		}
	}
	return nil
}

func driveDocument(id string) map[string]any {
	return map[string]any{"Id": id, "CapacityBytes": 100 << 30, "MediaType": "SSD", "Protocol": "SAS"}
}

// extraParts is what never changes of it.
var extraParts = map[string]any{
	storagePath: odataCollection(raidPath),
	raidPath: map[string]any{
		"Id": "RAID1", "Volumes": odataLink(volumesPath), "Drives": []any{odataLink(raidPath + "/Drives/D1"), odataLink(raidPath + "/Drives/D2"), odataLink(raidPath + "/Drives/D3")},
	},
	raidPath + "/Drives/D1": driveDocument("D1"), raidPath + "/Drives/D2": driveDocument("D2"), raidPath + "/Drives/D3": driveDocument("D3"),
	adaptersPath:        odataCollection(adaptersPath + "/A"),
	adaptersPath + "/A": map[string]any{"Id": "A", "Model": "Ten", "Controllers": []any{map[string]any{"FirmwarePackageVersion": "14.2"}}},
	eventPath:           map[string]any{"Subscriptions": odataLink(subsPath)},
	logsPath:            odataCollection(logsPath+"/Audit", selPath),
	selPath:             map[string]any{"Id": "SEL", "Name": "System Event Log", "LogEntryType": "SEL", "Entries": odataLink(entriesPath)},
	updatePath: map[string]any{"ServiceEnabled": true, "Actions": map[string]any{
		"#UpdateService.SimpleUpdate": map[string]any{"target": updatePath + "/Actions/UpdateService.SimpleUpdate"},
	}},
	jobPath:                  map[string]any{"Jobs": odataLink(jobsPath)},
	"/redfish/v1/Registries": odataCollection(registryPath),
	registryPath:             map[string]any{"Location": []any{map[string]any{"Uri": registryPath + "/file"}}},
	registryPath + "/file": map[string]any{"RegistryEntries": map[string]any{"Attributes": []any{
		map[string]any{"AttributeName": "BootMode", "Type": "Enumeration", "Value": []any{map[string]any{"ValueName": "Uefi"}, map[string]any{"ValueName": "Bios"}}, "ReadOnly": false, "ResetRequired": true},
		map[string]any{"AttributeName": "Cores", "Type": "Integer", "LowerBound": 1, "UpperBound": 64},
		map[string]any{"AttributeName": "AdminPassword", "Type": "Password", "MaxLength": 32},
	}}},
}
