package personality

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/driver/drivertest"
	"salvor/test/must"
)

var update = flag.Bool("update", false, "write the tables of docs/lab.md again")

// plainBMC is a personality before a machine that exists only as fields.
type plainBMC struct {
	*testing.T
	*drivertest.BMC
	url string
}

func start(t *testing.T, name Name) *plainBMC {
	t.Helper()
	b := drivertest.NewBMC("admin", "secret")
	server := httptest.NewServer(Redfish(name, b))
	t.Cleanup(func() { b.Release(); server.Close() })
	return &plainBMC{t, b, server.URL}
}

func (b *plainBMC) call(method, at string, body any) (int, object) {
	b.Helper()
	text := must.Get(json.Marshal(body))(b)
	req := must.Get(http.NewRequest(method, b.url+at, bytes.NewReader(text)))(b)
	req.SetBasicAuth("admin", "secret")
	req.Header.Set("If-Match", "*")
	resp := must.Get(http.DefaultClient.Do(req))(b)
	defer resp.Body.Close()
	var doc object
	_ = json.NewDecoder(resp.Body).Decode(&doc)
	return resp.StatusCode, doc
}

const (
	systemAt = drivertest.SystemPath
	resetAt  = systemAt + "/Actions/ComputerSystem.Reset"
	mediaAt  = "/redfish/v1/Managers/bmc/VirtualMedia"
)

// at is the path of a resource, and the method that changes it.
func at(name Name, of resourceKind) (method, path string) {
	cd := cdDrive
	b := bmc{rows: redfish[name]}
	if row, ok := b.first(kindDrives); ok {
		i := slices.IndexFunc(row.drives, func(d virtualDrive) bool { return d.isCD() && !d.noAction })
		cd = row.drives[i].id
	}
	settings, _ := b.first(kindSettings)
	return map[resourceKind]string{ofInsert: "POST", ofEject: "POST", ofReset: "POST"}[of], map[resourceKind]string{
		ofRoot: "/redfish/v1", ofSystem: systemAt, ofSettings: fmt.Sprint(systemAt, "/", settings.value), ofManager: "/redfish/v1/Managers/bmc",
		ofDrive: mediaAt + "/" + cd, ofInsert: mediaAt + "/" + cd + "/Actions/VirtualMedia.InsertMedia",
		ofEject: mediaAt + "/" + cd + "/Actions/VirtualMedia.EjectMedia", ofReset: resetAt,
	}[of]
}

// TestRowsHold asks a BMC of each personality what each row says of it.
func TestRowsHold(t *testing.T) {
	for _, name := range RedfishNames() {
		for i, row := range redfish[name] {
			t.Run(fmt.Sprint(name, "/", i), func(t *testing.T) {
				b := start(t, name)
				if row.source == "" {
					t.Error("the row has no source")
				}
				_, path := at(name, row.of)
				switch row.kind {
				case kindShows:
					_, doc := b.call("GET", path, nil)
					if got, want := asJSON(member(doc, row.member)), asJSON(row.value); got != want {
						t.Errorf("%s shows %s at %s, want %s", path, got, row.member, want)
					}
				case kindReads:
					_, doc := b.call("GET", path, nil)
					if got := member(doc, row.member); !reflect.DeepEqual(got, row.as) {
						t.Errorf("%s reads %v at %s, want %v", path, got, row.member, row.as)
					}
				case kindDrives:
					b.wantDrives(row.drives)
				case kindRefuses:
					b.wantRefusal(name, row)
				case kindForces, kindAssumes:
					b.wantBoot(name, object{target: "Pxe"}, row.member, row.value)
				case kindBoots:
					b.wantBoot(name, object{target: row.value, enabled: "Once", mode: "UEFI"}, target, row.as)
					if _, doc := b.call("GET", systemAt, nil); member(doc, "Boot."+target) != row.value {
						t.Errorf("the BMC reads %v, want %v", member(doc, "Boot."+target), row.value)
					}
				case kindSettings:
					b.wantBoot(name, object{target: "Pxe", enabled: "Once", mode: "UEFI"}, target, "Pxe")
				case kindETag:
					b.wantTag(name, row.value.(string))
				case kindStale, kindEjects:
					b.wantEjected(name, row)
				case kindBasic:
					if status, _ := b.call("POST", "/redfish/v1/SessionService/Sessions", object{"UserName": "admin", "Password": "secret"}); status != 404 {
						t.Errorf("a login was answered %d", status)
					}
				default:
					t.Errorf("nothing asks about a row of kind %q", row.kind)
				}
			})
		}
	}
}

func asJSON(v any) string { text, _ := json.Marshal(v); return string(text) }

func (b *plainBMC) wantDrives(drives []virtualDrive) {
	b.Helper()
	_, doc := b.call("GET", mediaAt, nil)
	var got []string
	for _, m := range doc["Members"].([]any) {
		path, _ := m.(object)["@odata.id"].(string)
		_, one := b.call("GET", path, nil)
		actions, _ := one["Actions"].(object)
		insert, eject := actions["#VirtualMedia.InsertMedia"], actions["#VirtualMedia.EjectMedia"]
		got = append(got, fmt.Sprint(one["Id"], one["MediaTypes"], insert == nil, eject == nil))
		if strings.Contains(asJSON(one), "/VirtualMedia/Cd/") && one["Id"] != "Cd" {
			b.Errorf("the drive %v names another one: %v", one["Id"], one)
		}
	}
	var want []string
	for _, d := range drives {
		want = append(want, fmt.Sprint(d.id, d.types, d.noAction, d.noEjectEmpty))
	}
	if !slices.Equal(got, want) {
		b.Errorf("drives %q, want %q", got, want)
	}
}

// wantRefusal sends the request that a row refuses.
func (b *plainBMC) wantRefusal(name Name, row tableRow) {
	b.Helper()
	c := row.when
	body := object{}
	set := func(names string, value any) {
		parts, in := splitNames(names), body
		for _, part := range parts[:len(parts)-1] {
			if in[part] == nil {
				in[part] = object{}
			}
			in = in[part].(object)
		}
		if in[parts[len(parts)-1]] == nil {
			in[parts[len(parts)-1]] = value
		}
	}
	_, path := at(name, row.of)
	for _, m := range []string{target, enabled, mode} {
		if len(c.lacks) > 0 && !slices.Contains(c.lacks, "Boot."+m) {
			set("Boot."+m, map[string]string{target: "Pxe", enabled: "Once", mode: "UEFI"}[m])
		}
	}
	switch {
	case c.value != nil:
		set(c.has, c.value)
	case c.has == "Boot":
		set("Boot."+target, "Pxe")
	case c.has != "":
		set(c.has, "Strange")
	}
	if row.of == ofInsert {
		body["Image"] = "http://192.0.2.1/a.iso"
	}
	b.SetOn(c.power == on || c.afterOff > 0)
	if c.afterOff > 0 {
		b.call("POST", resetAt, object{"ResetType": "ForceOff"})
	}
	if c.afterOn > 0 {
		b.SetOn(false)
		b.call("POST", resetAt, object{"ResetType": on})
		b.SetOn(true)
	}
	if c.afterEject > 0 {
		_, eject := at(name, ofEject)
		b.call("POST", eject, object{})
	}
	method := "PATCH"
	if m, _ := at(name, row.of); m != "" {
		method = m
	}
	status, doc := b.call(method, path, body)
	if id, _ := member(doc, "error.code").(string); status != row.answer.status || id != row.answer.id {
		b.Errorf("%s %s %v was answered %d %q, want %d %q", method, path, body, status, id, row.answer.status, row.answer.id)
	}
}

// wantBoot changes the boot override, and looks at what the machine was told.
func (b *plainBMC) wantBoot(name Name, boot object, of string, want any) {
	b.Helper()
	_, path := at(name, ofSystem)
	if _, ok := (&bmc{rows: redfish[name]}).first(kindSettings); ok {
		_, path = at(name, ofSettings)
	}
	if status, doc := b.call("PATCH", path, object{"Boot": boot}); status != http.StatusNoContent {
		b.Fatalf("%v was answered %d %v", boot, status, doc)
	}
	var told object
	must.OK(b, json.Unmarshal([]byte(asJSON(b.Boot())), &told))
	if told[of] != want {
		b.Errorf("the machine was told %v, want %s %v", told, of, want)
	}
}

func (b *plainBMC) wantTag(name Name, mark string) {
	b.Helper()
	_, path := at(name, ofSettings)
	send := func(method, tag string) *http.Response {
		req := must.Get(http.NewRequest(method, b.url+path, strings.NewReader(asJSON(object{"Boot": object{target: "Pxe", enabled: "Once", mode: "UEFI"}}))))(b)
		req.SetBasicAuth("admin", "secret")
		if tag != "" {
			req.Header.Set("If-Match", tag)
		}
		resp := must.Get(http.DefaultClient.Do(req))(b)
		resp.Body.Close()
		return resp
	}
	tag := send("GET", "").Header.Get("ETag")
	for _, c := range []struct {
		tag    string
		status int
	}{{"", 428}, {`"other"`, 412}, {tag, map[bool]int{true: 204, false: 412}[mark == ""]}, {strings.TrimPrefix(tag, mark), 204}} {
		if got := send("PATCH", c.tag).StatusCode; got != c.status {
			b.Errorf("If-Match %s was answered %d, want %d", c.tag, got, c.status)
		}
	}
}

func (b *plainBMC) wantEjected(name Name, row tableRow) {
	b.Helper()
	const image = "http://192.0.2.1/a.iso"
	_, insert := at(name, ofInsert)
	_, eject := at(name, ofEject)
	_, path := at(name, ofDrive)
	if status, doc := b.call("POST", insert, object{"Image": image}); status != http.StatusNoContent {
		b.Fatalf("the insertion was answered %d %v", status, doc)
	}
	b.call("POST", eject, object{})
	_, doc := b.call("GET", path, nil)
	if doc["Inserted"] != false || (doc["Image"] == image) != (row.kind == kindStale) {
		b.Errorf("after the ejection, the drive shows %v", doc)
	}
	var told object
	must.OK(b, json.Unmarshal([]byte(asJSON(b.Boot())), &told))
	for k, v := range asObject(row.value) {
		if told[k] != v {
			b.Errorf("after the ejection, the machine was told %v, want %v", told, row.value)
		}
	}
}

func asObject(v any) object { o, _ := v.(object); return o }

// TestABodyIsBounded: a request is read up to its bound.
func TestABodyIsBounded(t *testing.T) {
	b := start(t, SushyTools)
	if status, _ := b.call("PATCH", systemAt, object{"Boot": strings.Repeat("x", maxBody)}); status != http.StatusRequestEntityTooLarge {
		t.Errorf("it was answered %d", status)
	}
	if err := Name("abacus").Check(); err == nil || !strings.Contains(err.Error(), "sushy-tools") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestOddRequests: whatever is sent, the BMC answers.
func TestOddRequests(t *testing.T) {
	odd := []any{nil, 7, []any{}, "x", object{}, object{"Boot": 7}, object{"Boot": object{target: object{}, enabled: []any{}, mode: nil}}, object{"ResetType": []any{}}, object{"Image": object{}}}
	for _, name := range RedfishNames() {
		b := start(t, name)
		for _, path := range []string{"/", "/redfish", "/redfish/v1", systemAt, systemAt + "/SD", systemAt + "/", resetAt, mediaAt, mediaAt + "/", mediaAt + "/x/y/z/u/v", mediaAt + "/Cd/Actions/VirtualMedia.InsertMedia",
			"/redfish/v1/Systems", "/redfish/v1/Systems//", "/VirtualMedia/VirtualMedia", "//"} {
			for _, method := range []string{"GET", "PATCH", "POST", "DELETE"} {
				for _, body := range odd {
					if status, _ := b.call(method, path, body); status < 200 {
						t.Errorf("%s: %s %s %v was answered %d", name, method, path, body, status)
					}
				}
			}
		}
	}
}

// text is a row as docs/lab.md has it.
func (r tableRow) text() string {
	where := ""
	if r.of != ofOther {
		where = string(r.of) + " "
	}
	switch r.kind {
	case kindShows:
		if r.value == nil {
			return fmt.Sprintf("%slacks `%s`", where, r.member)
		}
		return fmt.Sprintf("%sshows `%s` `%s`", where, r.member, asJSON(r.value))
	case kindReads:
		if r.as == nil {
			return fmt.Sprintf("%sleaves out `%s` where it is null", where, r.member)
		}
		return fmt.Sprintf("%sreads `%s` `%s` for `%s`", where, r.member, asJSON(r.as), asJSON(r.value))
	case kindDrives:
		var all []string
		for _, d := range r.drives {
			text := "`" + d.id + "` for " + strings.Join(d.types, ", ")
			if d.noAction {
				text += " without an action that inserts"
			}
			if d.noEjectEmpty {
				text += " without an action that ejects while it is empty"
			}
			all = append(all, text)
		}
		return "drives: " + strings.Join(all, "; ")
	case kindRefuses:
		id := r.answer.id
		if id == "" {
			id = "plain text"
		}
		return fmt.Sprintf("%srefuses with %d `%s`: %s", where, r.answer.status, id, r.when.text())
	case kindForces:
		return fmt.Sprintf("`%s` is `%v` whatever is asked", r.member, r.value)
	case kindAssumes:
		return fmt.Sprintf("`%s` is `%v` where a change leaves it out", r.member, r.value)
	case kindBoots:
		return fmt.Sprintf("target `%v` boots `%v`", r.value, r.as)
	case kindSettings:
		return fmt.Sprintf("the settings resource `%v` takes the boot override", r.value)
	case kindETag:
		return fmt.Sprintf("a change needs `If-Match`; the ETag has the mark `%v`, which must be left out", r.value)
	case kindEjects:
		return fmt.Sprintf("an ejection sets the boot override `%s`", asJSON(r.value))
	case kindStale:
		return "a drive goes on to show the image that was ejected"
	case kindBasic:
		return "there are no sessions"
	}
	return string(r.kind)
}

func (c rowCondition) text() string {
	var all []string
	if c.has != "" && c.value != nil {
		all = append(all, fmt.Sprintf("`%s` is `%v`", c.has, c.value))
	} else if len(c.isNot) > 0 {
		all = append(all, fmt.Sprintf("`%s` is none of `%s`", c.has, asJSON(c.isNot)))
	} else if c.has != "" {
		all = append(all, fmt.Sprintf("`%s` is there", c.has))
	}
	for _, name := range c.lacks {
		all = append(all, "`"+name+"` is missing")
	}
	if c.power != "" {
		all = append(all, "the power is "+c.power)
	}
	for _, soon := range []struct {
		time time.Duration
		what string
	}{{c.afterOff, "a power off"}, {c.afterOn, "a power on"}, {c.afterEject, "an ejection"}} {
		if soon.time > 0 {
			all = append(all, "soon after "+soon.what)
		}
	}
	return strings.Join(all, ", ")
}

// TestPage: docs/lab.md has each row; with -update it is written.
func TestPage(t *testing.T) {
	const file, begin, end = "../../docs/lab.md", "<!-- begin of the personalities -->\n", "<!-- end of the personalities -->\n"
	page := string(must.Get(os.ReadFile(file))(t))
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the personalities", file)
	}
	var out strings.Builder
	for _, name := range RedfishNames() {
		fmt.Fprintf(&out, "### %s\n\n| fact | source |\n|---|---|\n", name)
		for _, row := range redfish[name] {
			fmt.Fprintf(&out, "| %s | %s |\n", row.text(), row.source)
		}
		out.WriteString("\n")
	}
	for _, name := range IPMINames() {
		fmt.Fprintf(&out, "### %s\n\n| fact | source |\n|---|---|\n", name)
		for _, row := range ipmi[name] {
			fmt.Fprintf(&out, "| %s | %s |\n", row.what, row.source)
		}
		out.WriteString("\n")
	}
	want := before + begin + "\n" + out.String() + end + after
	if *update {
		must.OK(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	if page != want {
		t.Errorf("%s is out of date; write it with go test ./lab/personality -run TestPage -update", file)
	}
}
