package canary

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"

	"salvor/test/must"
	"salvor/test/program"
)

// ids are what was made, by kind.
type ids struct{ node, server, volume, image string }

// plantMetal puts birds into the records of machines.
func (w *world) plantMetal() (made ids) {
	var node struct{ UUID string }
	w.must("POST", "/v1/nodes", object{"name": "fake", "driver": "fake-hardware",
		"driver_info": object{"fake_password": w.bird("metal.Node.DriverInfo"), "list": []any{object{"deep_token": w.bird("metal.Node.DriverInfo")}},
			"ipmi_password": w.bird("metal.Node.DriverInfo"), "deploy_kernel": "http://user:" + w.bird("an URL with a password") + "@127.0.0.1:9/kernel"},
		"properties":    object{"admin_pass": w.bird("metal.Node.Properties")},
		"instance_info": object{"image_password": w.bird("metal.Node.InstanceInfo")}}, &node)
	made.node = node.UUID
	w.patch("/v1/nodes/"+made.node, object{"/instance_info/image_url": "http://127.0.0.1:9/i?signature=" + w.bird("a signed URL"),
		"/instance_info/image_source": "http://user:" + w.bird("an URL with a password") + "@127.0.0.1:9/image",
		"/instance_info/configdrive":  base64.StdEncoding.EncodeToString([]byte(w.bird("metal.Document.Body")))})
	w.must("POST", "/v1/portgroups", object{"node_uuid": made.node, "properties": object{"bond_secret": w.bird("metal.Portgroup.Properties")}}, nil)
	w.must("POST", "/v1/ports", object{"node_uuid": made.node, "address": "52:54:00:ca:00:01", "local_link_connection": object{"switch_id": "0a:1b:2c:3d:4e:5f", "port_id": "1"}}, nil)
	chap := w.bird("metal.Target.Properties")
	w.must("POST", "/v1/volume/targets", object{"node_uuid": made.node, "volume_type": "iscsi", "boot_index": 0, "volume_id": "v",
		"properties": object{"target_portal": "127.0.0.1:9", "target_iqn": "iqn.2001-04.com.example:x", "target_lun": 0, "auth_method": "CHAP",
			"auth_username": chap, "auth_password": chap, "discovery_auth_username": chap, "discovery_auth_password": chap}}, nil)
	w.must("POST", "/v1/deploy_templates", object{"name": "CUSTOM_CANARY", "steps": []any{w.step(object{"priority": 10})}}, nil)
	w.must("POST", "/v1/runbooks", object{"name": "CUSTOM_CANARY", "steps": []any{w.step(object{"order": 1})}}, nil)
	w.try("POST", "/v1/inspection_rules", object{"phase": "main", "sensitive": true, "conditions": []any{},
		"actions": []any{object{"op": "set-attribute", "args": object{"path": "/driver_info/ipmi_password", "value": w.bird("metal.InspectionRule.Actions")}}}})
	return made
}

// step updates firmware that wants a password.
func (w *world) step(more object) object {
	update := object{"component": "bmc", "url": "http://127.0.0.1:9/2.0", "admin_password": w.bird("metal.Step.Args")}
	step := object{"interface": "firmware", "step": "update", "args": object{"settings": []any{update}}}
	maps.Copy(step, more)
	return step
}

func (w *world) patch(path string, values object) {
	w.Helper()
	var ops []any
	for at, v := range values {
		ops = append(ops, object{"op": "add", "path": at, "value": v})
	}
	w.must("PATCH", path, ops, nil)
}

// verb asks a node for a verb and waits until nothing works on it.
func (w *world) verb(node, verb string, more object) {
	w.Helper()
	body := object{"target": verb}
	for k, v := range more {
		body[k] = v
	}
	status := 0
	w.until(verb, func() bool {
		status = w.try("PUT", "/v1/nodes/"+node+"/states/provision", body)
		return status != http.StatusConflict
	})
	w.Logf("%s: %d, %s", verb, status, w.settled(node))
}

func (w *world) settled(node string) (state string) {
	w.Helper()
	w.until("node "+node+" settles", func() bool {
		n := w.node(node)
		state = fmt.Sprint(n["provision_state"])
		return n["reservation"] == nil && (n["target_provision_state"] == nil || strings.HasSuffix(state, "wait") || strings.HasSuffix(state, "failed"))
	})
	return state
}

func (w *world) node(node string) (n map[string]any) {
	w.must("GET", "/v1/nodes/"+node, nil, &n)
	return n
}

// driveFake has a machine of no BMC go through all that it can.
func (w *world) driveFake(node string) {
	w.verb(node, "manage", nil)
	step := []any{w.step(nil)}
	w.verb(node, "clean", object{"clean_steps": step})
	w.verb(node, "inspect", nil)
	w.verb(node, "provide", nil)
	w.verb(node, "active", object{"configdrive": object{"user_data": w.bird("metal.Document.Body"), "meta_data": object{"admin_pass": w.bird("metal.Document.Body")}}})
	w.must("POST", "/salvor/v1/nodes/"+node+"/diagnoses", object{"luks_keys": []object{
		{"key": base64.StdEncoding.EncodeToString([]byte(w.bird("a LUKS key")))},
		{"uuid": "0dd1e5c4-0000-4000-8000-00000000000a", "key": base64.StdEncoding.EncodeToString([]byte(w.bird("a LUKS key")))}}}, nil)
	w.repair(node)
	w.verb(node, "rescue", object{"rescue_password": w.bird("a rescue password")})
	w.verb(node, "unrescue", nil)
	w.verb(node, "service", object{"service_steps": step})
	for _, target := range []string{"power off", "power on", "rebooting"} {
		w.try("PUT", "/v1/nodes/"+node+"/states/power", object{"target": target})
		w.settled(node)
	}
	w.verb(node, "rebuild", object{"configdrive": w.bird("metal.Document.Body")})
}

// repair asks for a repair with keys of LUKS containers, which ends before a ramdisk runs, because the machine is on.
func (w *world) repair(node string) {
	w.Helper()
	path := "/salvor/v1/nodes/" + node + "/repairs"
	keys := []object{{"key": base64.StdEncoding.EncodeToString([]byte(w.bird("a LUKS key")))},
		{"uuid": "0dd1e5c4-0000-4000-8000-00000000000a", "key": base64.StdEncoding.EncodeToString([]byte(w.bird("a LUKS key")))}}
	w.try("POST", path, object{"luks_keys": append(keys, object{"key": w.bird("a LUKS key") + "!"})}) // no base64: the refusal names no key
	w.must("POST", path, object{"luks_keys": keys}, nil)
	w.until("the repair ends", func() bool {
		var newest struct {
			FinishedAt string `json:"finished_at"`
		}
		w.must("GET", path+"/newest", nil, &newest)
		return newest.FinishedAt != ""
	})
	for _, below := range []string{"", "/newest"} {
		w.try("GET", path+below, nil)
	}
}

// driveRedfish rescues a machine whose BMC is good and whose agent tells in errors all that it was sent; then its BMC does, too.
func (w *world) driveRedfish() string {
	var node struct{ UUID string }
	w.must("POST", "/v1/nodes", object{"name": "redfish", "driver": "redfish", "network_interface": "noop", "boot_interface": "redfish-virtual-media",
		"driver_info": object{"redfish_address": w.bmcURL, "redfish_username": "admin", "redfish_password": w.bird("metal.Node.DriverInfo")}}, &node)
	id := node.UUID
	w.must("POST", "/v1/ports", object{"node_uuid": id, "address": "52:54:00:ca:00:02"}, nil)
	w.verb(id, "manage", nil)
	w.verb(id, "adopt", nil)
	w.verb(id, "rescue", object{"rescue_password": w.bird("a rescue password")})
	w.until("the ramdisk is in the drive", func() bool { return w.bmc.Image() != "" })
	token := w.tokenIn(w.bmc.Image())
	w.watch("an agent token", token)
	w.until("rescue wait", func() bool { return w.node(id)["provision_state"] == "rescue wait" })
	beat := object{"callback_url": w.agent.URL, "agent_version": "9.9", "agent_token": token, "agent_status_message": "all well"}
	w.until("a heartbeat is taken", func() bool {
		status, _ := w.send("admin", "POST", "/v1/heartbeat/"+id, beat)
		return status == http.StatusAccepted
	})
	w.until("the agent is told the hash", func() bool { return cryptHash.MatchString(w.finals.String()) })
	w.look("while the agent refuses")
	w.agent.Close() // an agent that is gone after it was told has taken it
	program.Until(w, "rescue", 2*patience, func() error {
		if state := w.node(id)["provision_state"]; state != "rescue" {
			return fmt.Errorf("the node is %v", state)
		}
		return nil
	})
	w.quote(true)
	w.verb(id, "unrescue", nil)
	w.try("GET", "/v1/nodes/"+id+"/management/boot_device", nil)
	w.try("PUT", "/v1/nodes/"+id+"/states/power", object{"target": "power off"})
	w.settled(id)
	w.quote(false)
	return id
}

func (w *world) quote(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hostile = yes
}

var tokenParameter = regexp.MustCompile(`ipa-agent-token=([A-Za-z0-9_-]+)`)

// tokenIn reads the agent token from a boot medium: that is the one place where it has to be.
func (w *world) tokenIn(url string) string {
	w.Helper()
	resp := must.Get(http.Get(url))(w)
	defer resp.Body.Close()
	medium := must.Get(io.ReadAll(resp.Body))(w)
	m := tokenParameter.FindSubmatch(medium)
	if m == nil {
		w.Fatalf("the medium of %d bytes carries no token", len(medium))
	}
	w.secretive("boot-medium "+url, bytes.ReplaceAll(medium, m[1], nil))
	return string(m[1])
}

// driveIPMI asks by ipmitool a BMC that is not there: its process is what is looked at.
func (w *world) driveIPMI() {
	var node struct{ UUID string }
	w.must("POST", "/v1/nodes", object{"name": "ipmi", "driver": "ipmi", "driver_info": object{"ipmi_address": "127.0.0.1", "ipmi_port": 9, "ipmi_username": "admin",
		"ipmi_password": w.bird("metal.Node.DriverInfo")}}, &node)
	w.try("PUT", "/v1/nodes/"+node.UUID+"/states/provision", object{"target": "manage"})
}

// plantServers puts birds into the records of servers, and drives a server on a simulated host.
func (w *world) plantServers() (made ids) {
	quoting := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		http.Error(rw, fmt.Sprintf("%s %s is refused: %s", r.Header.Get("Authorization"), password, body), http.StatusUnauthorized)
	}))
	w.Cleanup(quoting.Close)
	for kind, more := range map[string]object{"ganeti": {}, "ironic": {"auth_url": quoting.URL + "/v3", "project": "p", "login": "keystone"}} {
		body := object{"name": "c-" + kind, "kind": kind, "url": quoting.URL, "user": "salvor", "password": w.bird("compute.Cluster.Password"), "insecure": true}
		for k, v := range more {
			body[k] = v
		}
		if status := w.try("POST", "/salvor/v1/clusters", body); status >= 300 {
			w.Errorf("a cluster of kind %s is refused: %d", kind, status)
		}
	}
	var flavor struct{ Flavor struct{ ID string } }
	w.must("POST", "/compute/v2.1/flavors", object{"flavor": object{"name": "small", "ram": 256, "disk": 1, "vcpus": 1}}, &flavor)
	var image struct{ ID string }
	w.must("POST", "/image/v2/images", object{"name": "debian", "disk_format": "raw", "container_format": "bare"}, &image)
	w.must("PUT", "/image/v2/images/"+image.ID+"/file", bytes.Repeat([]byte("disk"), 4096), nil)
	var far struct{ ID string }
	w.must("POST", "/image/v2/images", object{"name": "far", "disk_format": "raw", "container_format": "bare"}, &far)
	w.try("POST", "/image/v2/images/"+far.ID+"/import", object{"method": object{"name": "web-download", "uri": quoting.URL + "/i?signature=" + w.bird("compute.Image.URL")}})
	w.try("POST", "/image/v2/images/"+far.ID+"/import", object{"method": object{"name": "web-download", "uri": "http://u:" + w.bird("an URL with a password") + "@127.0.0.1:9/"}})
	var volume struct{ Volume struct{ ID string } }
	w.must("POST", "/volume/v3/volumes", object{"volume": object{"name": "v", "size": 1, "metadata": object{"salvor:portal": "192.0.2.7:3260", "salvor:iqn": "iqn.2001-04.com.example:disks",
		"salvor:lun": "1", "salvor:chap_user": "ann", "salvor:chap_password": w.bird("compute.Volume.CHAPPassword")}}}, &volume)
	made.volume, made.image = volume.Volume.ID, image.ID
	w.driveServer(&made, flavor.Flavor.ID)
	return made
}

func (w *world) driveServer(made *ids, flavor string) {
	var server struct {
		Server struct{ ID, AdminPass string }
	}
	w.until("a server is taken", func() bool {
		status, answer := w.send("admin", "POST", "/compute/v2.1/servers", object{"server": object{"name": "s", "flavorRef": flavor, "imageRef": made.image, "networks": "none",
			"config_drive": true, "adminPass": w.bird("an admin password"), "user_data": base64.StdEncoding.EncodeToString([]byte("#!" + w.bird("compute.Server.UserData")))}})
		if status != http.StatusAccepted {
			w.Logf("%d %s", status, answer)
			return false
		}
		return json.Unmarshal(answer, &server) == nil
	})
	made.server = server.Server.ID
	status := func() string {
		var s struct{ Server struct{ Status string } }
		w.must("GET", "/compute/v2.1/servers/"+made.server, nil, &s)
		return s.Server.Status
	}
	act := func(what object, want ...string) {
		w.Helper()
		at := "/compute/v2.1/servers/" + made.server + "/action"
		w.until(fmt.Sprint(what), func() bool {
			code, answer := w.send("admin", "POST", at, what)
			if code >= 400 && code != http.StatusConflict {
				w.Logf("%v: %d %s", what, code, answer)
			}
			return code != http.StatusConflict
		})
		w.until("server is "+strings.Join(want, " or "), func() bool { return slices.Contains(want, status()) })
	}
	w.until("the server runs", func() bool { s := status(); return s == "ACTIVE" || s == "ERROR" })
	w.try("POST", "/compute/v2.1/servers/"+made.server+"/os-volume_attachments", object{"volumeAttachment": object{"volumeId": made.volume}})
	act(object{"rescue": object{"adminPass": w.bird("a rescue password")}}, "RESCUE", "ERROR", "ACTIVE")
	w.look("while a server is in rescue", "reader")
	act(object{"unrescue": nil}, "ACTIVE", "ERROR")
	act(object{"rebuild": object{"imageRef": made.image, "adminPass": w.bird("an admin password"), "user_data": base64.StdEncoding.EncodeToString([]byte(w.bird("compute.Server.UserData")))}}, "ACTIVE", "ERROR")
	act(object{"reboot": object{"type": "HARD"}}, "ACTIVE", "ERROR")
	act(object{"os-stop": nil}, "SHUTOFF", "ERROR")
	w.diagnoseServer(made.server, func() { act(object{"os-start": nil}, "ACTIVE", "ERROR") })
}

// diagnoseServer gives the LUKS keys of a server that is off to its host.
func (w *world) diagnoseServer(server string, restart func()) {
	w.Helper()
	at := "/salvor/v1/servers/" + server + "/diagnoses"
	w.must("POST", at, object{"luks_keys": []object{
		{"key": base64.StdEncoding.EncodeToString([]byte(w.bird("a LUKS key of a server")))},
		{"uuid": "0dd1e5c4-0000-4000-8000-00000000000a", "key": base64.StdEncoding.EncodeToString([]byte(w.bird("a LUKS key of a server")))}}}, nil)
	w.look("while the disks of a server are examined")
	restart() // which ends an examination
	w.until("the diagnosis of the server ends", func() bool {
		var d struct{ State, Problem string }
		w.must("GET", at+"/newest", nil, &d)
		if d.State != "running" {
			w.Logf("the diagnosis of a server: %s: %s", d.State, d.Problem)
		}
		return d.State != "running"
	})
}
