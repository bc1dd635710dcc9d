package program

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
)

// varying are the parts of an answer that differ from run to run.
var varying = regexp.MustCompile(`req-[0-9a-f-]{36}|"updated_at":"[^"]*"`)

// longestBody is the number of bytes from which on Answers writes the digest of a body, not the body.
const longestBody = 400

// Answers sends requests to h over a connection each, and gives the answers as text: status, headers in order of their names, body. A
// request is "METHOD PATH Header=value ...".
func Answers(t testing.TB, h http.Handler, requests []string) string {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	var out strings.Builder
	for _, request := range requests {
		conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
		part := strings.Split(request, " ")
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: salvor.example\r\nConnection: close\r\n", part[0], part[1])
		for _, header := range part[2:] {
			fmt.Fprintf(conn, "%s\r\n", strings.Replace(header, "=", ": ", 1))
		}
		fmt.Fprint(conn, "\r\n")
		all := must.Get(io.ReadAll(conn))(t)
		_ = conn.Close()
		head, body, _ := bytes.Cut(varying.ReplaceAll(all, nil), []byte("\r\n\r\n"))
		lines := strings.Split(string(head), "\r\n")
		headers := slices.DeleteFunc(lines[1:], func(s string) bool { return strings.HasPrefix(s, "Date: ") || s == "Connection: close" })
		slices.Sort(headers)
		if len(body) > longestBody {
			body = fmt.Appendf(nil, "%d bytes, SHA-256 %.16x", len(body), sha256.Sum256(body))
		}
		fmt.Fprintf(&out, "%.100s\n%s | %s\n%s\n\n", request, lines[0], strings.Join(headers, " | "), body)
	}
	return out.String()
}

// Golden compares a text with the file at path, line by line. update writes the file again.
func Golden(t testing.TB, path, got string, update bool) {
	t.Helper()
	if update {
		must.OK(t, os.WriteFile(path, []byte(got), 0o644))
	}
	file := must.Get(os.Open(path))(t)
	defer file.Close()
	want := bufio.NewScanner(file)
	above := ""
	for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if !want.Scan() || want.Text() != line {
			t.Fatalf("%s:%d, below %q:\n%s\nwant\n%s", path, i+1, above, line, want.Text())
		}
		above = line
	}
	if want.Scan() {
		t.Errorf("%s has more: %s", path, want.Text())
	}
}
