package personality

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// change takes an order, or refuses it.
func (b *bmc) change(w http.ResponseWriter, r *http.Request, p resourcePlace, body object, text []byte) {
	if _, tagged := b.first(kindETag); tagged && r.Method == http.MethodPatch {
		_, doc := b.read(r, p)
		switch match := r.Header.Get("If-Match"); {
		case match == "":
			writeRefusal(w, answer{status: http.StatusPreconditionRequired, id: "Base.1.0.PreconditionRequired"})
			return
		case match != "*" && match != etagOf(doc): // a tag with the mark W/ matches without it
			writeRefusal(w, answer{status: http.StatusPreconditionFailed, id: "Base.1.0.PreconditionFailed"})
			return
		}
	}
	for _, row := range b.all(kindRefuses) {
		if row.of == p.of && b.applies(r, row.when, body) {
			writeRefusal(w, row.answer)
			return
		}
	}
	at := p.path
	switch p.of {
	case ofSettings:
		at = path.Dir(p.path)
		text = b.bootBody(body)
	case ofSystem:
		text = b.bootBody(body)
	case ofDrive, ofInsert, ofEject:
		if _, hasDrives := b.first(kindDrives); !hasDrives {
			break
		}
		d, ok := b.driveOf(p.drive)
		if !ok || !d.isCD() || p.of == ofInsert && d.noAction {
			writeRefusal(w, answer{status: http.StatusMethodNotAllowed, id: "Base.1.0.OperationNotAllowed"})
			return
		}
		at = strings.Replace(p.path, "/VirtualMedia/"+p.drive, "/VirtualMedia/"+cdDrive, 1)
	}
	status, doc := b.ask(r, r.Method, at, text)
	if status < 300 {
		b.taken(r, p, body)
	}
	if status == http.StatusNoContent || doc == nil {
		w.WriteHeader(status)
		return
	}
	writeJSON(w, status, doc)
}

// applies tells whether a condition is so.
func (b *bmc) applies(r *http.Request, c rowCondition, body object) bool {
	b.mu.Lock()
	off, on, eject := time.Since(b.offAt), time.Since(b.onAt), time.Since(b.ejectAt)
	b.mu.Unlock()
	has := member(body, c.has)
	switch {
	case c.has != "" && (has == nil || c.value != nil && has != c.value || len(c.isNot) > 0 && slices.Contains(c.isNot, has)),
		slices.ContainsFunc(c.lacks, func(name string) bool { return member(body, name) != nil }),
		c.afterOff > 0 && off > c.afterOff, c.afterOn > 0 && on > c.afterOn, c.afterEject > 0 && eject > c.afterEject:
		return false
	}
	if c.power == "" {
		return true
	}
	_, doc := b.ask(r, http.MethodGet, b.systemPath(r), nil)
	return doc["PowerState"] == c.power
}

// bootBody is what the machine is told for a change of the boot override.
func (b *bmc) bootBody(body object) []byte {
	if boot, ok := body["Boot"].(object); ok {
		boot = maps.Clone(boot)
		for _, row := range b.rows {
			if row.kind == kindForces || row.kind == kindAssumes && boot[row.member] == nil {
				boot[row.member] = row.value
			}
		}
		if other, ok := b.bootsFor(boot[target]); ok {
			boot[target] = other
		}
		body = maps.Clone(body)
		body["Boot"] = boot
	}
	text, _ := json.Marshal(body)
	return text
}

// bootsFor is the target that the machine boots for one that is asked for; false: the same.
func (b *bmc) bootsFor(asked any) (string, bool) {
	for _, row := range b.all(kindBoots) {
		if row.value == asked {
			other, ok := row.as.(string)
			return other, ok
		}
	}
	return "", false
}

// taken notes what an order that was taken changes in what this BMC shows.
func (b *bmc) taken(r *http.Request, p resourcePlace, body object) {
	b.mu.Lock()
	now := time.Now()
	switch reset := body["ResetType"]; {
	case p.of == ofInsert:
		b.holder = p.drive
		b.ejected, _ = body["Image"].(string)
	case p.of == ofEject:
		b.holder, b.ejectAt = "", now
	case p.of == ofReset && (reset == "ForceOff" || reset == "GracefulShutdown"):
		b.offAt = now
	case p.of == ofReset:
		b.onAt = now
	}
	if asked, ok := member(body, "Boot."+target).(string); ok {
		b.asked, b.sentFor = "", ""
		if other, ok := b.bootsFor(asked); ok {
			b.asked, b.sentFor = asked, other
		}
	}
	b.mu.Unlock()
	if row, ok := b.first(kindEjects); ok && p.of == ofEject {
		text, _ := json.Marshal(object{"Boot": row.value})
		b.ask(r, http.MethodPatch, b.systemPath(r), text)
	}
}
