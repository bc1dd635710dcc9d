package ironic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/agent"
)

const someInventory = `{"inventory":{"interfaces":[{"name":"eth0","mac_address":"52:54:00:AA:00:01"}],"bmc_address":"10.0.0.9","cpu":{"count":4}},"root_disk":{"name":"/dev/sda"},"logs":"large","error":null}`

func TestContinueInspection(t *testing.T) {
	w := newWorld(t)
	n := w.node(func(n *metal.Node) {
		n.ProvisionState, n.DriverInfo = metal.InspectWait, metal.Object{"redfish_address": "https://10.0.0.9:8000/", "redfish_password": "hush"}
		n.BootNumber, n.Plan, n.InspectionStart = 3, &metal.BootPlan{Method: metal.BootIPXE, Path: "p", BootNumber: 3}, born
	})
	other := w.node(func(n *metal.Node) {
		n.ID, n.Name, n.ProvisionState = strings.Replace(nodeID, "1", "2", 1), "n2", metal.Active
	})
	post := func(status int, query, version, body string) answer {
		t.Helper()
		return w.want(status, "POST", "/v1/continue_inspection"+query, version, body)
	}
	again := func() { // as a new inspection does
		t.Helper()
		must.OK(t, w.store.Do(t.Context(), func(tx job.Tx) error { return w.store.DeleteDocument(tx, n.ID, metal.Inventory) }))
	}
	a := post(202, "", "1.84", someInventory)
	node, config := a.Object(t)["node"].(map[string]any), a.Object(t)["config"].(map[string]any)
	if node["uuid"] != n.ID || config["agent_token"] != "******" || strings.Contains(a.Body, "hush") || strings.Contains(a.Body, w.token(n)) {
		t.Errorf("answer: %s", a.Body)
	}
	for kind, want := range map[metal.DocumentKind]string{
		metal.Inventory:  `{"bmc_address":"10.0.0.9","cpu":{"count":4},"interfaces":[{"mac_address":"52:54:00:AA:00:01","name":"eth0"}]}`,
		metal.PluginData: `{"error":null,"root_disk":{"name":"/dev/sda"}}`,
	} {
		if doc, err := w.store.Document(t.Context(), nil, n.ID, kind); err != nil || string(doc.Body) != want {
			t.Errorf("%s: %s %v, want %s", kind, doc.Body, err, want)
		}
	}
	if got := w.want(200, "GET", "/v1/nodes/n1/inventory", "1.81", "").Object(t); got["inventory"] == nil {
		t.Errorf("inventory: %v", got)
	}
	post(404, "", "1.84", someInventory) // once is enough
	again()
	if got := post(202, "", "1.1", someInventory).Body; got != `{"uuid":"`+n.ID+`"}` {
		t.Errorf("at 1.1: %s", got)
	}
	again()
	post(404, "", "1.2", someInventory)
	post(404, "", "1.83", someInventory)
	post(404, "?node_uuid="+n.ID, "1.1", someInventory)
	none := strings.Replace(someInventory, "10.0.0.9", "10.0.0.8", 1)
	post(404, "", "1.84", none)
	post(202, "?node_uuid="+strings.ToUpper(n.ID), "1.84", none)
	again()
	must.OK(t, w.ports.Create(t.Context(), &metal.Port{NodeID: n.ID, Address: "52:54:00:aa:00:01"}, record.Asker{}))
	post(202, "", "1.84", none)
	again()
	post(404, "?node_uuid="+other.ID, "1.84", none) // the NIC is another node's
	w.edit(n.ID, func(n *metal.Node) { n.ProvisionState = metal.Inspecting })
	post(202, "", "1.84", none) // faster than the job that waits
	again()
	w.edit(n.ID, func(n *metal.Node) { n.BootNumber = 4 })
	post(404, "", "1.84", none)
	for _, state := range []metal.State{metal.Active, metal.Manageable, metal.InspectFailed, metal.RescueWait} {
		w.edit(n.ID, func(n *metal.Node) { n.ProvisionState = state })
		post(404, "", "1.84", none)
	}
	w.refuse([]refusal{
		{"POST", "/v1/continue_inspection", "1.84", `{}`, 400, "inventory"}, {"POST", "/v1/continue_inspection", "1.84", ``, 400, ""},
		{"POST", "/v1/continue_inspection", "1.84", `{"inventory":{"interfaces":[]}}`, 400, "interfaces"},
		{"POST", "/v1/continue_inspection", "1.84", `{"inventory":{"interfaces":[{}]}}`, 400, "mac_address"},
		{"POST", "/v1/continue_inspection", "1.84", `{"inventory":{"interfaces":[{"mac_address":"x"}]}}`, 400, "No lookup information"},
		{"POST", "/v1/continue_inspection", "1.84", `{"inventory":{"interfaces":[{"mac_address":"x"}],"bmc_address":1}}`, 400, "bmc_address"},
		{"POST", "/v1/continue_inspection?node_uuid=x", "1.84", someInventory, 400, "UUID"},
		{"POST", "/v1/continue_inspection?x=1", "1.84", someInventory, 400, "x"},
		{"POST", "/v1/continue_inspection", "1.84", `{"inventory":{"interfaces":[{"mac_address":"` + strings.Repeat("x", 17<<20) + `"}]}}`, 413, ""},
	})
}

// TestFindingsWantTheBootsToken: the machine that booted has the token of its boot, so findings without it are somebody else's.
func TestFindingsWantTheBootsToken(t *testing.T) {
	w := newWorld(t)
	n := w.node(func(n *metal.Node) {
		n.ProvisionState, n.DriverInfo = metal.InspectWait, metal.Object{"redfish_address": "https://10.0.0.9:8000/"}
		n.BootNumber, n.Plan, n.InspectionStart = 3, &metal.BootPlan{Method: metal.BootMedia, Path: "p", BootNumber: 3, CarryToken: true}, born
	})
	post := func(token string) answer {
		return answer{fixture.Ask(w.handler, "POST", "/v1/continue_inspection?node_uuid="+n.ID, someInventory, "X-OpenStack-Ironic-API-Version", "1.84", agent.TokenHeader, token)}
	}
	for _, wrong := range []string{"", "wrong", w.token(n) + "x", strings.Repeat("x", 4096)} {
		if a := post(wrong); a.Status != 404 && a.Status != 400 {
			t.Errorf("findings with the token %.10q: %d %s", wrong, a.Status, a.Body)
		}
	}
	if _, err := w.store.Document(t.Context(), nil, n.ID, metal.Inventory); !problem.Is(err, problem.NotFound) {
		t.Errorf("findings of a stranger are stored: %v", err)
	}
	right := w.token(n)
	if a := post(right); a.Status != 202 || strings.Contains(a.Body, right) {
		t.Errorf("findings with the token: %d %s", a.Status, a.Body)
	}
	if doc, err := w.store.Document(t.Context(), nil, n.ID, metal.PluginData); err != nil || strings.Contains(string(doc.Body), right) {
		t.Errorf("stored: %s, %v", doc.Body, err)
	}
}

// stockInspection is what ironic-python-agent posts: its default collector, the logs and the error, and no token.
const stockInspection = `{"inventory": {"interfaces": [
  {"name": "eno1", "mac_address": "52:54:00:aa:00:01", "ipv4_address": "192.0.2.7", "ipv6_address": "fe80::5054:ff:feaa:1%eno1", "has_carrier": true, "lldp": null,
   "vendor": "0x8086", "product": "0x1572", "client_id": null, "biosdevname": null, "speed_mbps": 10000, "pci_address": "0000:01:00.0", "driver": "i40e"}],
  "cpu": {"model_name": "Intel(R) Xeon(R) Gold 6130", "frequency": "2100.0000", "count": 64, "architecture": "x86_64", "flags": ["fpu", "vmx"], "socket_count": 2},
  "disks": [{"name": "/dev/sda", "model": "PERC H730", "size": 479559942144, "rotational": false, "wwn": "0x61866da0", "serial": "61866da0", "vendor": "DELL",
   "wwn_with_extension": "0x61866da0d07d", "wwn_vendor_extension": "0xd07d", "hctl": "0:2:0:0", "by_path": "/dev/disk/by-path/pci-0000:02:00.0-scsi-0:2:0:0"}],
  "memory": {"total": 201320366080, "physical_mb": 196608}, "bmc_address": "10.0.0.9", "bmc_v6address": "::/0",
  "system_vendor": {"product_name": "PowerEdge R640", "serial_number": "ABC1234", "manufacturer": "Dell Inc.", "firmware": {"vendor": "Dell Inc.", "version": "2.1.8", "build_date": "04/30/2019"}},
  "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:aa:00:01"}, "hostname": "localhost.localdomain"},
 "root_disk": {"name": "/dev/sda", "size": 479559942144}, "boot_interface": "52:54:00:aa:00:01",
 "configuration": {"collectors": ["default", "logs"], "managers": [{"name": "generic_hardware_manager", "version": "1.2"}]}, "logs": "H4sIAAAA", "error": null}`

// TestFindingsOfAStockAgent: ironic-python-agent posts to the URL of its kernel parameter as it stands there, without a token, a
// version or a type of the body. salvor accepts the proof in that URL once, and only for the boot that it was made for.
func TestFindingsOfAStockAgent(t *testing.T) {
	w := newWorld(t)
	n := w.node(func(n *metal.Node) {
		n.ProvisionState, n.DriverInfo = metal.InspectWait, metal.Object{"redfish_address": "https://10.0.0.9:8000/"}
		n.BootNumber, n.Plan, n.InspectionStart = 3, &metal.BootPlan{Method: metal.BootMedia, Path: "p", BootNumber: 3, CarryToken: true}, born
	})
	post := func(url string) answer {
		return answer{fixture.Ask(w.handler, "POST", url, stockInspection, "User-Agent", "python-requests/2.32.3", "Accept", "*/*", "Accept-Encoding", "gzip, deflate", "Connection", "keep-alive")}
	}
	const at = "http://salvor.example/v1/continue_inspection"
	given, _ := strings.CutPrefix(metal.AddFindingsProof(metal.CallbackParam+"="+at, w.token(n)), metal.CallbackParam+"=")
	for _, wrong := range []string{at, at + "?boot_proof=", at + "?boot_proof=" + w.token(n), given + "x", strings.Replace(given, metal.FindingsProof(w.token(n)), metal.FindingsProof("another boot's"), 1), at + "?boot_proof=" + strings.Repeat("x", 4096)} {
		if a := post(wrong); a.Status != 404 && a.Status != 400 {
			t.Errorf("%.100s: %d %s", wrong, a.Status, a.Body)
		}
	}
	if a := post(given); a.Status != 202 || a.Body != `{"uuid":"`+n.ID+`"}` {
		t.Fatalf("%s: %d %s", given, a.Status, a.Body)
	}
	doc, err := w.store.Document(t.Context(), nil, n.ID, metal.Inventory)
	if err != nil || !strings.Contains(string(doc.Body), "PowerEdge R640") {
		t.Errorf("stored: %s, %v", doc.Body, err)
	}
	if a := post(given); a.Status != 404 {
		t.Errorf("a second time: %d %s", a.Status, a.Body)
	}
	if a := w.ask("POST", "/v1/heartbeat/"+n.ID, "1.82", `{"callback_url": "https://192.0.2.7:9999", "agent_version": "11.0", "agent_token": "`+metal.FindingsProof(w.token(n))+`"}`); a.Status < 400 {
		t.Errorf("a heartbeat with the proof in the place of the token: %d", a.Status)
	}
}

// FuzzContinueInspection lets no ramdisk break the endpoint or reach a node that is not inspected.
func FuzzContinueInspection(f *testing.F) {
	w := newWorld(f)
	w.node(func(n *metal.Node) {
		n.DriverInfo = metal.Object{"redfish_address": "https://10.0.0.9", "redfish_password": "hush"}
	})
	for _, s := range []string{someInventory, `{"inventory":{"interfaces":[{"mac_address":null}]}}`, `{"inventory":[]}`, `{"inventory":{"interfaces":[{"mac_address":"52:54:00:00:00:01"}],"bmc_v6address":"::1"}}`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := w.on(t)
		a := w.ask("POST", "/v1/continue_inspection", "1.84", body)
		w.fine(t, a, body)
		if a.Status < 400 {
			t.Fatalf("%d for %q", a.Status, body)
		}
	})
}

// FuzzRecords creates records without hardware from anything.
func FuzzRecords(f *testing.F) {
	w := newWorld(f)
	for _, s := range []string{
		`{"name":"CUSTOM_A","steps":[{"interface":"bios","step":"x","args":{},"priority":1}]}`, `{"name":"a","steps":[{"interface":"bios","step":"x","order":"1"}],"public":"yes"}`,
		`{"actions":[{"op":"fail","args":["x"]}],"conditions":[{"op":"eq","args":{"values":[]},"loop":{}}],"priority":1e3}`, `{"resource_class":"x","traits":["CUSTOM_A"],"candidate_nodes":[]}`,
		`{"events":[{"event":"network.bind_port"}]}`, `{"uuid":"X"}`, `{"node":"n1","extra":null}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := w.on(t)
		for _, path := range []string{"allocations", "deploy_templates", "runbooks", "inspection_rules", "events"} {
			a := w.ask("POST", "/v1/"+path, "latest", body)
			w.fine(t, a, body)
			if a.Status == 201 {
				var made struct{ UUID string }
				if err := json.Unmarshal([]byte(a.Body), &made); err != nil {
					t.Fatalf("%v in %s", err, a.Body)
				}
				w.want(200, "GET", "/v1/"+path+"/"+made.UUID, "latest", "")
				w.want(204, "DELETE", "/v1/"+path+"/"+made.UUID, "latest", "")
			}
		}
	})
}
