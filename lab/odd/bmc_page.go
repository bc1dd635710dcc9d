package odd

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
)

var pageKinds = []*BMCKind{
	{Name: "page: 404 for ever", Source: "parts that a model lacks", Cost: CostResource, Words: []string{"404"}, serve: changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { sendNotFound(w) })},
	{Name: "page: 500 for ever", Source: "many", Cost: CostResource, Words: []string{"500"}, serve: changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { sendInternalError(w) })},
	{Name: "page: 503 for ever", Source: "many", Cost: CostResource, Words: []string{"503"}, serve: changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { sendBusy(w, "5") })},
	{Name: "page: 403 for ever", Source: "roles without a right", Cost: CostResource, Words: []string{"403"},
		serve: changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
			sendJSON(w, http.StatusForbidden, refusalDocument("Base.1.8.InsufficientPrivilege", "There are insufficient privileges."))
		})},
	{Name: "page: 404 ResourceNotReadyRetry for ever", Source: "check_redfish 170: iLO while the machine is off", Cost: CostResource, Words: []string{"ResourceNotReadyRetry"},
		serve: changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { sendNotReady(w) })},
	{Name: "page: {}", Source: "bmc-toolbox mocks", Cost: CostResource, serve: fixedAnswer(http.StatusOK, "application/json", "{}")},
	{Name: "page: null", Source: "hostile", Cost: CostResource, serve: fixedAnswer(http.StatusOK, "application/json", "null")},
	{Name: "page: a number", Source: "hostile", Cost: CostResource, serve: fixedAnswer(http.StatusOK, "application/json", "7")},
	{Name: "page: login page", Source: "AMI, Supermicro: the web interface for a session that is over", Cost: CostResource, serve: fixedAnswer(http.StatusOK, "text/html", loginPage)},
	{Name: "page: byte order mark in front", Source: "RFC 8259, 8.1: parsers may ignore it", serve: changeBytes(func(b []byte) []byte { return append([]byte("\xef\xbb\xbf"), b...) })},
	{Name: "page: empty", Source: "BMCs out of memory", Cost: CostResource, serve: fixedAnswer(http.StatusOK, "application/json", "")},
	{Name: "page: 204", Source: "BMCs for parts that are off", Cost: CostResource, serve: changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
		w.WriteHeader(http.StatusNoContent)
	})},
	{Name: "page: cut off in the middle", Source: "BMCs with a buffer of 64 KiB", Cost: CostResource, serve: changeBytes(func(b []byte) []byte { return b[:len(b)/2] })},
	{Name: "page: shorter than its Content-Length", Source: "lighttpd in front of a dead backend", Cost: CostResource,
		serve: changeReads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
			w.Header().Set("Content-Length", strconv.Itoa(a.Body.Len()+100))
			w.WriteHeader(a.Code)
			_, _ = w.Write(a.Body.Bytes())
			panic(http.ErrAbortHandler)
		})},
	{Name: "page: Latin-1", Source: "names of parts from SMBIOS", serve: changeBytes(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte("{\"OddName\":\"K\xfchler \xb0C\","), 1)
	})},
	{Name: "page: control characters in texts", Source: "serial numbers padded by NUL and tabs", Cost: CostResource, serve: changeBytes(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte("{\"OddName\":\"a\tb\x01c\","), 1)
	})},
	{Name: "page: NaN", Source: "sensors without a reading", Cost: CostResource, serve: changeBytes(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte(`{"OddReading":NaN,`), 1)
	})},
	{Name: "page: a comma too many", Source: "BMCs that print JSON by hand", Cost: CostResource, serve: changeBytes(func(b []byte) []byte {
		return append(bytes.TrimSuffix(bytes.TrimSpace(b), []byte("}")), []byte(",}")...)
	})},
	{Name: "page: NUL behind the end", Source: "BMCs that send their buffer", Cost: CostResource, serve: changeBytes(func(b []byte) []byte { return append(b, 0, 0) })},
	{Name: "page: twice", Source: "BMCs that print the body again", Cost: CostResource, serve: changeBytes(func(b []byte) []byte { return slices.Concat(b, b) })},
	{Name: "page: a name twice", Source: "RFC 8259, 4: names should be unique", serve: changeBytes(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte(`{"OddName":1,"OddName":"b",`), 1)
	})},
	{Name: "page: gzip unasked", Source: "check_redfish", serve: changeReads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(a.Body.Bytes())
		_ = z.Close()
		header := a.Header().Clone()
		header.Set("Content-Encoding", "gzip")
		sendBytes(w, a.Code, header, zipped.Bytes())
	})},
	{Name: "page: no Content-Type", Source: "old AMI", serve: changeReads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		header := a.Header().Clone()
		header["Content-Type"] = nil
		sendBytes(w, a.Code, header, a.Body.Bytes())
	})},
	{Name: "page: Content-Type text/html", Source: "old Supermicro", serve: changeReads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		header := a.Header().Clone()
		header.Set("Content-Type", "text/html")
		sendBytes(w, a.Code, header, a.Body.Bytes())
	})},
	{Name: "page: in a list", Source: "hostile", Cost: CostResource, serve: changeDocument(func(_ Place, _ *http.Request, doc any) any { return []any{doc} })},
	{Name: "page: names in lower case", Source: "proxies that fold names", Cost: CostResource, serve: changeDocument(func(_ Place, _ *http.Request, doc any) any {
		o, ok := doc.(map[string]any)
		if !ok {
			return doc
		}
		out := map[string]any{}
		for name, v := range o {
			out[strings.ToLower(name)] = v
		}
		return out
	})},
	{Name: "page: 200 with an error in it", Source: "Cisco CIMC", Cost: CostResource, Words: []string{"OddPart"},
		serve: changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
			sendJSON(w, http.StatusOK, refusalDocument("Base.1.8.GeneralError", "OddPart cannot be read."))
		})},
}

func sendNotReady(w http.ResponseWriter) {
	sendJSON(w, http.StatusNotFound, map[string]any{"error": map[string]any{"code": "iLO.0.10.ExtendedInfo", "message": iloText, "@Message.ExtendedInfo": []any{map[string]any{"MessageId": "iLO.2.30.ResourceNotReadyRetry"}}}})
}
