package drivertest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// Replay is a Redfish service of a machine whose documents somebody has recorded: the one at /redfish/v1/X is the file redfish/v1/X/index.json
// of the tree. It follows changes: a PATCH is merged into its document, a reset changes the power, media come and go. It takes any login.
// A Replay shows which requests a driver sends to such a BMC, and boots nothing.
type Replay struct {
	tree fs.FS
	// refuse gives the status, the id of the message and its arguments with which a change is refused, as a BMC of this make is known to
	// do; 0: it is taken. Nil: nothing is refused but what the allowable values in the tree exclude.
	refuse func(method, path string, body map[string]any) (status int, id string, args []string)

	mu      sync.Mutex
	changed map[string]map[string]any // documents by path, as they are now
	writes  []string
	logins  int // each has a session of its own
}

// NewReplay serves a tree.
func NewReplay(tree fs.FS, refuse func(method, path string, body map[string]any) (status int, id string, args []string)) *Replay {
	return &Replay{tree: tree, refuse: refuse, changed: map[string]map[string]any{}}
}

// Writes are the changes that were taken so far, as "METHOD PATH BODY", and clears them.
func (r *Replay) Writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.writes
	r.writes = nil
	return out
}

// On tells whether the system at a path is on.
func (r *Replay) On(system string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.document(system)["PowerState"] == "On"
}

// SetOn switches the system at a path on or off, as a hand at the button does.
func (r *Replay) SetOn(system string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(system, map[string]any{"PowerState": map[bool]string{true: "On", false: "Off"}[on]})
}

// Images are the URLs of the media that are in virtual drives by an order.
func (r *Replay) Images() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, doc := range r.changed {
		if image, _ := doc["Image"].(string); image != "" && doc["Inserted"] == true {
			out = append(out, image)
		}
	}
	return out
}

// ServeHTTP is the whole service.
func (r *Replay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := strings.TrimRight(req.URL.Path, "/")
	if req.Method == http.MethodGet {
		if doc := r.document(at); doc != nil {
			writeJSON(w, doc)
			return
		}
		writeRedfishError(w, http.StatusNotFound, "no resource "+at)
		return
	}
	var body map[string]any
	_ = json.NewDecoder(req.Body).Decode(&body)
	if strings.HasSuffix(at, "/Sessions") && req.Method == http.MethodPost {
		r.logins++
		w.Header().Set("X-Auth-Token", fmt.Sprint("token-s", r.logins))
		w.Header().Set("Location", fmt.Sprint(at, "/s", r.logins))
		w.WriteHeader(http.StatusCreated)
		return
	}
	if r.lacksAction(at) {
		writeRedfishError(w, http.StatusNotFound, "no action "+at)
		return
	}
	if status, id, args := r.refusal(req.Method, at, body); status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": id, "@Message.ExtendedInfo": []any{map[string]any{"MessageId": id, "Message": "refused: " + strings.Join(args, " "), "MessageArgs": args}}}})
		return
	}
	text, _ := json.Marshal(body)
	r.writes = append(r.writes, req.Method+" "+strings.TrimPrefix(at, "/redfish/v1")+" "+string(text))
	r.follow(req.Method, at, body)
	w.WriteHeader(http.StatusNoContent)
}

// lacksAction tells whether a path names an action that its resource does not have.
func (r *Replay) lacksAction(at string) bool {
	resource, action, found := strings.Cut(at, "/Actions/")
	doc := r.document(resource)
	if !found || doc == nil {
		return false
	}
	var targets []string
	collectTargets(doc["Actions"], &targets)
	return len(targets) > 0 && !slices.ContainsFunc(targets, func(target string) bool {
		return strings.HasSuffix(strings.ToLower(strings.TrimRight(target, "/")), strings.ToLower("/"+action))
	})
}

// collectTargets collects the targets of all actions, those of vendors too.
func collectTargets(v any, into *[]string) {
	doc, _ := v.(map[string]any)
	for name, value := range doc {
		if target, ok := value.(string); ok && name == "target" {
			*into = append(*into, target)
		}
		collectTargets(value, into)
	}
}

// document is the one at a path as it is now; nil: there is none.
func (r *Replay) document(at string) map[string]any {
	if doc, ok := r.changed[at]; ok {
		return doc
	}
	for _, file := range []string{at + "/index.json", at, at + ".json"} {
		text, err := fs.ReadFile(r.tree, strings.TrimPrefix(file, "/"))
		if err != nil {
			text, err = fs.ReadFile(r.tree, r.foldCase(file))
		}
		var doc map[string]any
		if err == nil && json.Unmarshal(text, &doc) == nil {
			return doc
		}
	}
	return nil
}

// foldCase is the name of a file whose path somebody wrote in other letters: BMCs such as iLO take both.
func (r *Replay) foldCase(file string) string {
	at := "."
	for _, part := range strings.Split(strings.Trim(file, "/"), "/") {
		entries, err := fs.ReadDir(r.tree, at)
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), part) })
		if err != nil || i < 0 {
			return file
		}
		at = path.Join(at, entries[i].Name())
	}
	return at
}

// refusal is what the BMC refuses: by its make, by its allowable values, or because there is nothing to change.
func (r *Replay) refusal(method, at string, body map[string]any) (int, string, []string) {
	if r.refuse != nil {
		if status, id, args := r.refuse(method, at, body); status != 0 {
			return status, id, args
		}
	}
	if method != http.MethodPatch {
		return 0, "", nil
	}
	doc := r.document(at)
	if doc == nil {
		return http.StatusNotFound, "Base.1.0.ResourceMissingAtURI", []string{at}
	}
	was, _ := doc["Boot"].(map[string]any)
	boot, _ := body["Boot"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(boot)) {
		allowed, ok := was[name+"@Redfish.AllowableValues"].([]any)
		if ok && !slices.Contains(allowed, boot[name]) {
			value, _ := boot[name].(string)
			return http.StatusBadRequest, "Base.1.0.PropertyValueNotInList", []string{value, name}
		}
	}
	return 0, "", nil
}

// follow is the machine doing what it was told.
func (r *Replay) follow(method, at string, body map[string]any) {
	owner, action, isAction := strings.Cut(at, "/Actions/")
	switch {
	case method == http.MethodPatch:
		r.change(at, body)
	case method == http.MethodDelete:
		r.changed[at] = nil
	case isAction && strings.HasSuffix(action, "ComputerSystem.Reset"):
		kind, _ := body["ResetType"].(string)
		if strings.HasSuffix(kind, "Off") || kind == "GracefulShutdown" {
			r.change(owner, map[string]any{"PowerState": "Off"})
			return
		}
		r.change(owner, map[string]any{"PowerState": "On"})
		if boot, _ := r.document(owner)["Boot"].(map[string]any); boot["BootSourceOverrideEnabled"] == "Once" {
			r.change(owner, map[string]any{"Boot": map[string]any{"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}})
		}
	case isAction && strings.HasSuffix(action, "InsertMedia"):
		r.change(owner, map[string]any{"Image": body["Image"], "Inserted": true})
	case isAction && strings.HasSuffix(action, "EjectMedia"):
		r.change(owner, map[string]any{"Image": nil, "Inserted": false})
	}
}

// change merges members into a document.
func (r *Replay) change(at string, members map[string]any) {
	r.changed[at] = merged(r.document(at), members)
}

func merged(doc, members map[string]any) map[string]any {
	out := maps.Clone(doc)
	if out == nil {
		out = map[string]any{}
	}
	for name, v := range members {
		was, _ := out[name].(map[string]any)
		if inner, ok := v.(map[string]any); ok && was != nil {
			v = merged(was, inner)
		}
		out[name] = v
	}
	return out
}

// SystemIn is the path of the only system of a tree, or of the first that has a reset; empty: it has none.
func SystemIn(tree fs.FS) string {
	r := NewReplay(tree, nil)
	list, _ := r.document("/redfish/v1/Systems")["Members"].([]any)
	for _, m := range list {
		link, _ := m.(map[string]any)
		at, _ := link["@odata.id"].(string)
		actions, _ := r.document(strings.TrimRight(at, "/"))["Actions"].(map[string]any)
		if actions["#ComputerSystem.Reset"] != nil {
			return path.Clean(at)
		}
	}
	return ""
}
