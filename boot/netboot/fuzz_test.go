package netboot

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"salvor/test/must"
)

func FuzzHandler(f *testing.F) {
	for _, path := range []string{"/boot/" + testPath + "/kernel", "/boot/" + testPath + "/../kernel", "/boot//", "//boot/x/boot.ipxe", "/boot/" + testPath + "/boot.efi/x", "/boot/\x00/kernel"} {
		f.Add("GET", path, "bytes=0-9")
	}
	f.Add("HEAD", "/boot/"+testPath+"/boot.ipxe", "bytes=-1,5-2")
	f.Add("POST", "/boot/"+testPath+"/ramdisk", "")
	dir := f.TempDir()
	p := &plans{node: testNode()}
	p.node.Plan.Kernel, p.node.Plan.Ramdisk = filepath.Join(dir, "kernel"), filepath.Join(dir, "ramdisk")
	srv := must.Get(New(Config{Plans: p, Token: testTokenOf, Roots: []string{dir}}))(f)
	write(f, p.node.Plan.Kernel, "kernel")
	write(f, p.node.Plan.Ramdisk, "ramdisk")
	write(f, filepath.Join(dir, "secret"), "not for you")
	f.Fuzz(func(t *testing.T, method, path, ranges string) {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Method, req.URL = method, &url.URL{Path: path}
		req.Header["Range"] = []string{ranges}
		w := httptest.NewRecorder()
		srv.Handler().ServeHTTP(w, req)
		named := strings.HasPrefix(path, "/boot/"+testPath+"/") && isBootFile(strings.TrimPrefix(path, "/boot/"+testPath+"/"))
		switch w.Code {
		case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
			if !named || method != "GET" && method != "HEAD" {
				t.Errorf("%s %q: %d", method, path, w.Code)
			}
		case http.StatusNotFound, http.StatusMethodNotAllowed:
			if named && (method == "GET" || method == "HEAD") {
				t.Errorf("%s %q: %d", method, path, w.Code)
			}
		default:
			t.Errorf("%s %q: %d %s", method, path, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "not for you") {
			t.Errorf("%q gave another file", path)
		}
	})
}
