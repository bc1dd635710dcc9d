package personality

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(text []byte) (int, error) {
	if r.body.Len()+len(text) > maxAll {
		return 0, io.ErrShortWrite
	}
	return r.body.Write(text)
}

// member is the value at a path of names with dots between; nil: there is none. The empty path is the document.
func member(doc object, names string) any {
	var at any = doc
	for _, name := range splitNames(names) {
		inner, _ := at.(object)
		at = inner[name]
	}
	return at
}

// setMember sets the value at a path, or takes the member away for nil. Where the object on the way is missing, it changes nothing.
func setMember(doc object, names string, value any) {
	parts := splitNames(names)
	for _, name := range parts[:len(parts)-1] {
		if doc, _ = doc[name].(object); doc == nil {
			return
		}
	}
	if last := parts[len(parts)-1]; value == nil {
		delete(doc, last)
	} else {
		doc[last] = value
	}
}

// splitNames splits a path at its dots, but for those of annotations such as Target@Redfish.AllowableValues.
func splitNames(names string) []string {
	if names == "" {
		return nil
	}
	plain, annotation, _ := strings.Cut(names, "@")
	parts := strings.Split(plain, ".")
	if annotation != "" {
		parts[len(parts)-1] += "@" + annotation
	}
	return parts
}

func etagOf(doc object) string {
	text, _ := json.Marshal(doc)
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

func writeJSON(w http.ResponseWriter, status int, doc object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

func writeRefusal(w http.ResponseWriter, a answer) {
	if a.id == "" {
		http.Error(w, a.text, a.status)
		return
	}
	writeJSON(w, a.status, errorDocument(a))
}

// errorDocument has the shape of DSP0266, "Extended error response".
func errorDocument(a answer) object {
	args := a.args
	if args == nil {
		args = []string{}
	}
	return object{"error": object{
		"code": a.id, "message": a.text,
		"@Message.ExtendedInfo": []object{{"MessageId": a.id, "Message": a.text, "MessageArgs": args}},
	}}
}
