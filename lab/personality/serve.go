package personality

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// cdDrive is the drive of the plain service that takes CDs.
const cdDrive = "Cd"

const (
	maxBody = 64 << 10
	maxAll  = 1 << 20 // of an answer of the plain service
)

type object = map[string]any

// bmc is a personality before a plain Redfish service, which has one system, one manager and a drive called Cd.
type bmc struct {
	rows []tableRow
	next http.Handler

	mu                   sync.Mutex
	offAt, onAt, ejectAt time.Time
	holder, ejected      string // the drive that has the medium, and the last image that was inserted
	asked, sentFor       string // the boot target as it was asked for, and what the machine was told for it
}

// Redfish puts a personality before a plain Redfish service of one machine. A name that is none of RedfishNames changes nothing.
func Redfish(name Name, next http.Handler) http.Handler {
	rows := redfish[name]
	if len(rows) == 0 {
		return next
	}
	return &bmc{rows: rows, next: next}
}

// all are the rows of a kind.
func (b *bmc) all(k rowKind) []tableRow {
	return slices.DeleteFunc(slices.Clone(b.rows), func(r tableRow) bool { return r.kind != k })
}

func (b *bmc) first(k rowKind) (tableRow, bool) {
	i := slices.IndexFunc(b.rows, func(r tableRow) bool { return r.kind == k })
	if i < 0 {
		return tableRow{}, false
	}
	return b.rows[i], true
}

// resourcePlace is where a request goes.
type resourcePlace struct {
	of    resourceKind
	path  string // without a slash at its end
	drive string // id, for drives and their actions
	list  bool   // the collection of drives
}

// driveActions are the actions of a drive.
var driveActions = map[string]resourceKind{"VirtualMedia.InsertMedia": ofInsert, "VirtualMedia.EjectMedia": ofEject}

func (b *bmc) placeOf(at string) resourcePlace {
	at = strings.TrimRight(at, "/")
	p := resourcePlace{path: at}
	parts := strings.Split(strings.TrimPrefix(at, "/"), "/")
	settings, hasSettings := b.first(kindSettings)
	media := slices.Index(parts, "VirtualMedia")
	switch {
	case len(parts) == 2:
		p.of = ofRoot
	case media >= 0 && media == len(parts)-1:
		p.list = true
	case media >= 0:
		p.drive, p.of = parts[media+1], ofDrive
		if len(parts) > media+2 {
			p.of = driveActions[parts[len(parts)-1]]
		}
	case len(parts) == 4 && parts[2] == "Managers":
		p.of = ofManager
	case len(parts) < 4 || parts[2] != "Systems":
	case len(parts) == 4:
		p.of = ofSystem
	case hasSettings && len(parts) == 5 && parts[4] == settings.value:
		p.of = ofSettings
	case parts[len(parts)-1] == "ComputerSystem.Reset":
		p.of = ofReset
	}
	return p
}

// ServeHTTP is the whole service.
func (b *bmc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, basic := b.first(kindBasic); basic {
		if r.Header.Get("X-Auth-Token") != "" {
			writeRefusal(w, answer{status: http.StatusUnauthorized, id: "Base.1.0.GeneralError"})
			return
		}
		if strings.Contains(r.URL.Path, "/SessionService") {
			writeRefusal(w, answer{status: http.StatusNotFound, id: "Base.1.0.GeneralError"})
			return
		}
	}
	p := b.placeOf(r.URL.Path)
	if r.Method == http.MethodGet {
		status, doc := b.read(r, p)
		if row, tagged := b.first(kindETag); tagged && status == http.StatusOK {
			mark, _ := row.value.(string)
			w.Header().Set("ETag", mark+etagOf(doc))
		}
		writeJSON(w, status, doc)
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(text) > maxBody {
		writeRefusal(w, answer{status: http.StatusRequestEntityTooLarge, text: "the body is too large"})
		return
	}
	var body object
	_ = json.Unmarshal(text, &body)
	b.change(w, r, p, body, text)
}

// read gives a resource as this BMC shows it.
func (b *bmc) read(r *http.Request, p resourcePlace) (int, object) {
	at, one := p.path, virtualDrive{}
	_, hasDrives := b.first(kindDrives)
	switch {
	case p.of == ofSettings:
		at = path.Dir(p.path)
	case p.of == ofDrive && hasDrives:
		var ok bool
		if one, ok = b.driveOf(p.drive); !ok {
			return http.StatusNotFound, errorDocument(answer{id: "Base.1.0.ResourceMissingAtURI", args: []string{p.path}})
		}
		at = path.Dir(p.path) + "/" + cdDrive
	}
	status, doc := b.ask(r, http.MethodGet, at, nil)
	if status != http.StatusOK || doc == nil {
		return status, doc
	}
	switch {
	case p.list:
		b.showList(doc, p.path)
	case p.of == ofDrive && hasDrives:
		doc = b.showDrive(doc, p.path, one)
	case p.of == ofSettings:
		doc = object{"@odata.id": p.path, "@odata.type": doc["@odata.type"], "Id": path.Base(p.path), "Name": "Settings", "Boot": doc["Boot"]}
	}
	if settings, ok := b.first(kindSettings); ok && p.of == ofSystem {
		doc["@Redfish.Settings"] = object{"SettingsObject": object{"@odata.id": p.path + "/" + settings.value.(string)}}
	}
	b.showBoot(doc)
	for _, row := range b.rows {
		switch was := member(doc, row.member); {
		case row.of != p.of:
		case row.kind == kindShows, row.kind == kindReads && was == row.value:
			setMember(doc, row.member, map[bool]any{true: row.value, false: row.as}[row.kind == kindShows])
		}
	}
	return status, doc
}

func (b *bmc) driveOf(id string) (virtualDrive, bool) {
	row, _ := b.first(kindDrives)
	i := slices.IndexFunc(row.drives, func(d virtualDrive) bool { return d.id == id })
	if i < 0 {
		return virtualDrive{}, false
	}
	return row.drives[i], true
}

func (d virtualDrive) isCD() bool {
	return slices.Contains(d.types, "CD") || slices.Contains(d.types, "DVD")
}

func (b *bmc) showList(doc object, at string) {
	row, ok := b.first(kindDrives)
	if !ok {
		return
	}
	members := []object{}
	for _, d := range row.drives {
		members = append(members, object{"@odata.id": at + "/" + d.id})
	}
	doc["Members"], doc["Members@odata.count"] = members, len(members)
}

// showDrive makes the document of a drive of the one of the plain service. The medium is in the drive that it was inserted into.
func (b *bmc) showDrive(doc object, at string, d virtualDrive) object {
	b.mu.Lock()
	holds, ejected := b.holder == d.id, b.ejected
	b.mu.Unlock()
	text, _ := json.Marshal(doc)
	text = bytes.ReplaceAll(text, []byte("/VirtualMedia/"+cdDrive), []byte("/VirtualMedia/"+d.id))
	doc = object{}
	_ = json.Unmarshal(text, &doc)
	doc["@odata.id"], doc["Id"], doc["MediaTypes"] = at, d.id, d.types
	if !holds {
		doc["Image"], doc["ImageName"], doc["Inserted"], doc["ConnectedVia"] = nil, nil, false, "NotConnected"
		if _, stale := b.first(kindStale); stale && ejected != "" {
			doc["Image"] = ejected
		}
	}
	actions, _ := doc["Actions"].(object)
	if d.noAction {
		delete(actions, "#VirtualMedia.InsertMedia")
	}
	if d.noEjectEmpty && !holds {
		delete(actions, "#VirtualMedia.EjectMedia")
	}
	return doc
}

// showBoot shows the boot target as it was asked for.
func (b *bmc) showBoot(doc object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if boot, ok := doc["Boot"].(object); ok && b.asked != "" && boot[target] == b.sentFor {
		boot[target] = b.asked
	}
}

// systemPath is the path of the only system.
func (b *bmc) systemPath(r *http.Request) string {
	_, doc := b.ask(r, http.MethodGet, "/redfish/v1/Systems", nil)
	list, _ := doc["Members"].([]any)
	if len(list) == 0 {
		return ""
	}
	link, _ := list[0].(object)
	at, _ := link["@odata.id"].(string)
	return at
}

// ask sends a request to the plain service, with the credentials of another request.
func (b *bmc) ask(r *http.Request, method, at string, text []byte) (int, object) {
	req := r.Clone(r.Context())
	req.Method, req.URL.Path, req.URL.RawPath = method, at, ""
	req.Header.Del("If-Match") // the tags of this BMC are its own
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	out := &recorder{header: http.Header{}, status: http.StatusOK}
	b.next.ServeHTTP(out, req)
	var doc object
	if json.Unmarshal(out.body.Bytes(), &doc) != nil {
		return out.status, nil
	}
	return out.status, doc
}
