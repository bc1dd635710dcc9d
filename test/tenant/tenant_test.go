// Package tenant proves by the real program that projects which share a control plane without Keystone see nothing of each other.
package tenant

import (
	"regexp"
	"strings"
	"testing"
)

// door is a route with an argument: a path below which {WORD} stands for what somebody has.
type door struct{ method, path, body string }

// doorsTo is every route of every face that takes what belongs to a project.
var doorsTo = map[string]string{
	"/v1/nodes/{node}": `
		GET
		PATCH [{"op":"add","path":"/extra/a","value":"b"}]
		DELETE
		GET /validate
		PUT /maintenance {"reason":"r"}
		DELETE /maintenance
		GET /states
		PUT /states/power {"target":"power on"}
		PUT /states/provision {"target":"manage"}
		PUT /states/raid {"logical_disks":[]}
		GET /states/console
		PUT /states/console {"enabled":true}
		PUT /states/boot_mode {"target":"uefi"}
		PUT /states/secure_boot {"target":true}
		GET /management/boot_device
		PUT /management/boot_device {"boot_device":"pxe"}
		GET /management/boot_device/supported
		PUT /management/inject_nmi {}
		GET /management/indicators
		GET /vendor_passthru/methods
		POST /vendor_passthru?method=first_method {"bar":"x"}
		GET /traits
		PUT /traits {"traits":["CUSTOM_B"]}
		PUT /traits/CUSTOM_B
		DELETE /traits
		DELETE /traits/CUSTOM_A
		GET /vifs
		POST /vifs {"id":"v"}
		DELETE /vifs/v
		GET /vmedia
		POST /vmedia {"device_type":"cdrom","image_url":"http://192.0.2.9/i.iso"}
		DELETE /vmedia
		GET /bios
		GET /firmware
		GET /history
		GET /inventory
		GET /children
		GET /ports
		GET /ports/detail
		GET /portgroups
		GET /portgroups/detail
		GET /volume
		GET /volume/connectors
		GET /volume/targets
		GET /allocation
		DELETE /allocation`,
	"/v1/nodes/{name}":                  "\nGET\nGET /states\nGET /history\nDELETE",
	"/v1/ports/{port}":                  "\nGET\nPATCH [{\"op\":\"add\",\"path\":\"/extra/a\",\"value\":\"b\"}]\nDELETE",
	"/v1/portgroups/{group}":            "\nGET\nPATCH [{\"op\":\"add\",\"path\":\"/extra/a\",\"value\":\"b\"}]\nDELETE\nGET /ports",
	"/v1/volume/connectors/{connector}": "\nGET\nPATCH [{\"op\":\"add\",\"path\":\"/extra/a\",\"value\":\"b\"}]\nDELETE",
	"/v1/volume/targets/{target}":       "\nGET\nPATCH [{\"op\":\"add\",\"path\":\"/extra/a\",\"value\":\"b\"}]\nDELETE",
	"/v1/allocations/{allocation}":      "\nGET\nPATCH [{\"op\":\"add\",\"path\":\"/extra/a\",\"value\":\"b\"}]\nDELETE",
	"/v1/runbooks/{runbook}":            "\nGET\nPATCH [{\"op\":\"add\",\"path\":\"/extra/a\",\"value\":\"b\"}]\nDELETE\nGET /traits",
	"/compute/v2.1/servers/{server}": `
		GET
		PUT {"server":{"name":"n"}}
		DELETE
		POST /action {"os-stop":null}
		POST /action {"os-start":null}
		POST /action {"reboot":{"type":"HARD"}}
		POST /action {"pause":null}
		POST /action {"unpause":null}
		POST /action {"suspend":null}
		POST /action {"resume":null}
		POST /action {"lock":null}
		POST /action {"unlock":null}
		POST /action {"rescue":null}
		POST /action {"unrescue":null}
		POST /action {"rebuild":{"imageRef":"11111111-1111-4111-8111-111111111111"}}
		POST /action {"forceDelete":null}
		POST /action {"os-getConsoleOutput":{}}
		POST /action {"createImage":{"name":"x"}}
		POST /action {"migrate":null}
		POST /action {"os-resetState":{"state":"active"}}
		GET /metadata
		POST /metadata {"metadata":{"a":"b"}}
		PUT /metadata {"metadata":{"a":"b"}}
		GET /metadata/color
		PUT /metadata/color {"meta":{"color":"b"}}
		DELETE /metadata/color
		GET /tags
		PUT /tags {"tags":["a"]}
		DELETE /tags
		GET /tags/red
		PUT /tags/blue
		DELETE /tags/red
		GET /ips
		GET /ips/n
		GET /os-interface
		GET /os-interface/p
		GET /os-security-groups
		GET /os-instance-actions
		GET /os-instance-actions/req-1
		GET /os-volume_attachments
		POST /os-volume_attachments {"volumeAttachment":{"volumeId":"11111111-1111-4111-8111-111111111111"}}
		GET /os-volume_attachments/11111111-1111-4111-8111-111111111111
		DELETE /os-volume_attachments/11111111-1111-4111-8111-111111111111
		GET /migrations
		GET /diagnostics`,
	"/compute/v2.1/os-keypairs/{keypair}":        "\nGET\nDELETE",
	"/compute/v2.1/os-networks/{network}":        "\nGET",
	"/compute/v2.1/os-tenant-networks/{network}": "\nGET",
	"/cyclades/compute/v2.0/servers/{number}": `
		GET
		DELETE
		POST /action {"start":{}}
		POST /action {"shutdown":{}}
		POST /action {"reboot":{"type":"SOFT"}}
		POST /action {"rescue":{}}
		POST /action {"unrescue":{}}`,
	"/cyclades/compute/v2.0/images/{image}": "\nGET",
	"/volume/v3/{own}/volumes/{volume}": `
		GET
		PUT {"volume":{"name":"n"}}
		DELETE
		POST /action {"os-set_bootable":{"bootable":true}}
		GET /metadata
		POST /metadata {"metadata":{"a":"b"}}
		PUT /metadata {"metadata":{"a":"b"}}
		GET /metadata/color
		PUT /metadata/color {"meta":{"color":"b"}}
		DELETE /metadata/color`,
	"/image/v2/images/{image}": `
		GET
		PATCH [{"op":"replace","path":"/name","value":"n"}]
		DELETE
		GET /file
		PUT /file x
		PUT /tags/a
		DELETE /tags/a
		POST /actions/deactivate
		POST /actions/reactivate
		GET /members
		POST /members {"member":"m"}`,
	"/salvor/v1/events?subject=node:{node}": "\nGET",
	"/salvor/v1/nodes/{node}":               "\nGET /why\nGET /preflight",
	"/salvor/v1/servers/{server}":           "\nGET /why\nPOST /modify {}",
	"/salvor/v1/tokens/{token}":             "\nGET\nDELETE",
}

func doors() []door {
	var out []door
	for at, text := range doorsTo {
		for line := range strings.Lines(strings.TrimPrefix(text, "\n")) {
			method, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			d := door{method: method, path: at, body: rest}
			if strings.HasPrefix(rest, "/") {
				below, body, _ := strings.Cut(rest, " ")
				d.path, d.body = at+below, body
			}
			out = append(out, d)
		}
	}
	return out
}

var absentThings = map[string]string{
	"name": "nobodys-node", "keypair": "nobodys-key", "number": "987654", "": "99999999-9999-4999-8999-999999999999",
}

var word = regexp.MustCompile(`\{[a-z]+\}`)

func (d door) to(things map[string]string, own string) (path, ident string) {
	path = word.ReplaceAllStringFunc(d.path, func(w string) string {
		w = strings.Trim(w, "{}")
		if w == "own" {
			return own
		}
		if ident = things[w]; ident == "" {
			ident = things[""]
		}
		return ident
	})
	return path, ident
}

// noise is what differs in two answers that say the same.
var noise = regexp.MustCompile(`req-[0-9a-f-]{36}`)

// TestProjectsSeeNothingOfEachOther walks every door with what belongs to another project, and with what is not there: nobody can
// tell them apart, whatever the role in the own project.
func TestProjectsSeeNothingOfEachOther(t *testing.T) {
	s := newSite(t, "alpha", "beta")
	s.made("root", "POST", "/compute/v2.1/flavors", `{"flavor": {"id": "tiny", "name": "tiny", "ram": 64, "vcpus": 1, "disk": 1}}`)
	alphas, betas := s.furnish("alpha"), s.furnish("beta")
	for _, d := range doors() {
		if d.method == "GET" { // so that a wrong path does not pass for a closed door
			path, _ := d.to(alphas, alphas["project"])
			if a := s.ask("root", d.method, path, d.body); a.Status == 403 || a.Status >= 500 && a.Status != 501 || a.Status == 404 && !strings.Contains(strings.Join(mayLack, " "), d.path) {
				t.Errorf("%s %s by root: %d %s", d.method, path, a.Status, a.Body)
			}
		}
		for _, role := range []string{"reader", "member", "admin"} {
			told := func(things map[string]string) (int, string) {
				path, ident := d.to(things, betas["project"])
				a := s.ask("beta-"+role, d.method, path, d.body)
				return a.Status, noise.ReplaceAllString(strings.ReplaceAll(a.Body, ident, "IDENT"), "REQUEST")
			}
			hidden, words := told(alphas)
			absent, others := told(absentThings)
			if hidden != absent || words != others {
				t.Errorf("%s %s by beta's %s\nhidden: %d %s\nabsent: %d %s", d.method, d.path, role, hidden, words, absent, others)
			}
			if hidden != 404 && (hidden != 403 || d.method == "GET" && role != "reader" && !strings.Contains(strings.Join(forAdministrators, " "), d.path)) {
				t.Errorf("%s %s by beta's %s: %d %s", d.method, d.path, role, hidden, words)
			}
		}
	}
	s.listsHide(alphas, betas)
	s.bodiesHide(alphas, betas)
	for _, d := range doors() {
		if path, _ := d.to(alphas, alphas["project"]); d.method == "GET" && strings.HasSuffix(d.path, "}") && !strings.Contains(d.path, "/tokens/") && !strings.Contains(d.path, "{keypair}") {
			if a := s.ask("alpha-reader", "GET", path, ""); a.Status != 200 {
				t.Errorf("GET %s by alpha's reader, after all that: %d %s", path, a.Status, a.Body)
			}
		}
	}
}

// mayLack are doors behind which nothing is in this test, for its owner either.
var mayLack = []string{
	"/v1/nodes/{node}/allocation", "/v1/nodes/{node}/inventory", "/compute/v2.1/servers/{server}/ips/n", "/compute/v2.1/servers/{server}/os-interface/p",
	"/compute/v2.1/servers/{server}/os-instance-actions/req-1", "/compute/v2.1/servers/{server}/os-volume_attachments/11111111-1111-4111-8111-111111111111",
	"/compute/v2.1/os-keypairs/{keypair}",
}

// forAdministrators are doors that are closed to all others, whatever is behind them.
var forAdministrators = []string{"/compute/v2.1/servers/{server}/migrations", "/compute/v2.1/servers/{server}/diagnostics", "/salvor/v1/tokens/{token}"}

// listsHide: no list tells of what another project has, whatever it is asked to show.
func (s *site) listsHide(alphas, betas map[string]string) {
	s.Helper()
	for _, path := range []string{
		"/v1/nodes", "/v1/nodes/detail", "/v1/nodes?owner=" + alphas["project"], "/v1/nodes?resource_class=alpha", "/v1/ports", "/v1/ports/detail", "/v1/ports?address=52:54:00:00:00:" + alphas["project"][:2],
		"/v1/portgroups/detail", "/v1/volume/connectors?detail=true", "/v1/volume/targets?detail=true", "/v1/allocations", "/v1/runbooks?detail=true",
		"/compute/v2.1/servers", "/compute/v2.1/servers/detail", "/compute/v2.1/servers/detail?all_tenants=1", "/compute/v2.1/servers/detail?all_tenants=1&project_id=" + alphas["project"],
		"/compute/v2.1/servers/detail?name=alpha", "/compute/v2.1/os-keypairs", "/compute/v2.1/os-networks", "/compute/v2.1/os-tenant-networks",
		"/cyclades/compute/v2.0/servers/detail", "/cyclades/compute/v2.0/images/detail", "/volume/v3/" + betas["project"] + "/volumes/detail?all_tenants=1",
		"/volume/v3/" + betas["project"] + "/attachments/detail?all_tenants=1", "/image/v2/images", "/image/v2/images?owner=" + alphas["project"], "/image/v2/images?visibility=all",
		"/salvor/v1/fleet", "/salvor/v1/fleet/nodes", "/salvor/v1/fleet/nodes?q=alpha", "/salvor/v1/tokens", "/salvor/v1/rescue-sessions", "/salvor/v1/events", "/salvor/v1/events?subject=node:" + alphas["node"],
	} {
		for _, role := range []string{"reader", "member", "admin"} {
			a := s.ask("beta-"+role, "GET", path, "")
			for what, id := range alphas {
				if a.Status == 200 && what != "project" && what != "number" && strings.Contains(a.Body, id) || strings.Contains(a.Body, "alphas-") {
					s.Errorf("GET %s tells beta's %s of alpha's %s: %s", path, role, what, a.Body)
					break
				}
			}
			if a.Status >= 500 {
				s.Errorf("GET %s by beta's %s: %d %s", path, role, a.Status, a.Body)
			}
		}
	}
}

// bodiesHide: what is named in a body is as hidden as what is named in a path.
func (s *site) bodiesHide(alphas, betas map[string]string) {
	s.Helper()
	for _, tt := range []struct{ method, path, body, word string }{
		{"POST", "/v1/ports", `{"address":"52:54:00:00:01:01","node_uuid":"{node}"}`, "node"},
		{"POST", "/v1/portgroups", `{"node_uuid":"{node}"}`, "node"},
		{"POST", "/v1/volume/connectors", `{"node_uuid":"{node}","type":"iqn","connector_id":"iqn.2026-01.example:x"}`, "node"},
		{"POST", "/v1/volume/targets", `{"node_uuid":"{node}","volume_type":"iscsi","volume_id":"x","boot_index":1}`, "node"},
		{"PATCH", "/v1/ports/" + betas["port"], `[{"op":"replace","path":"/node_uuid","value":"{node}"}]`, "node"},
		{"POST", "/v1/allocations", `{"resource_class":"alpha","candidate_nodes":["{node}"]}`, "node"},
		{"PUT", "/v1/nodes/" + betas["node"] + "/states/provision", `{"target":"clean","runbook":"{runbook}"}`, "runbook"},
		{"POST", "/compute/v2.1/servers", `{"server":{"name":"n","flavorRef":"tiny","imageRef":"{image}","networks":"none"}}`, "image"},
		{"POST", "/compute/v2.1/servers", `{"server":{"name":"n","flavorRef":"tiny","imageRef":"` + betas["image"] + `","networks":[{"uuid":"{network}"}]}}`, "network"},
		{"POST", "/compute/v2.1/servers", `{"server":{"name":"n","flavorRef":"tiny","imageRef":"` + betas["image"] + `","networks":"none","key_name":"{keypair}"}}`, "keypair"},
		{"POST", "/compute/v2.1/servers/" + betas["server"] + "/os-volume_attachments", `{"volumeAttachment":{"volumeId":"{volume}"}}`, "volume"},
		{"POST", "/compute/v2.1/servers/" + betas["server"] + "/action", `{"rebuild":{"imageRef":"{image}"}}`, "image"},
		{"POST", "/compute/v2.1/servers/" + betas["server"] + "/action", `{"rescue":{"rescue_image_ref":"{image}"}}`, "image"},
	} {
		for _, role := range []string{"member", "admin"} {
			told := func(things map[string]string) string {
				ident := things[tt.word]
				if ident == "" {
					ident = things[""]
				}
				a := s.ask("beta-"+role, tt.method, tt.path, strings.ReplaceAll(tt.body, "{"+tt.word+"}", ident))
				if a.Status/100 != 4 {
					s.Errorf("%s %s %s by beta's %s: %d %s", tt.method, tt.path, tt.body, role, a.Status, a.Body)
				}
				return noise.ReplaceAllString(strings.ReplaceAll(a.Body, ident, "IDENT"), "REQUEST")
			}
			if hidden, absent := told(alphas), told(absentThings); hidden != absent {
				s.Errorf("%s %s %s by beta's %s\nhidden: %s\nabsent: %s", tt.method, tt.path, tt.body, role, hidden, absent)
			}
		}
	}
}
