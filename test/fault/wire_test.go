package fault

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
)

// TestBrokenWire sends what no client library would.
func TestBrokenWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	head := func(line string, headers ...string) string {
		return line + "\r\nHost: x\r\n" + strings.Join(append(headers, "", ""), "\r\n")
	}
	chunked := []string{"Transfer-Encoding: chunked", "Content-Type: application/json"}
	for name, text := range map[string]string{
		"no HTTP":                 "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
		"no host":                 "GET /v1/nodes HTTP/1.1\r\n\r\n",
		"negative length":         head("POST /v1/nodes HTTP/1.1", "Content-Length: -5"),
		"length of words":         head("POST /v1/nodes HTTP/1.1", "Content-Length: many"),
		"two lengths":             head("POST /v1/nodes HTTP/1.1", "Content-Length: 5", "Content-Length: 6") + "{}   ",
		"chunk of words":          head("POST /v1/nodes HTTP/1.1", chunked...) + "zz\r\n{}\r\n0\r\n\r\n",
		"chunk too short":         head("POST /v1/nodes HTTP/1.1", chunked...) + "2\r\n{}}}}\r\n0\r\n\r\n",
		"endless chunk":           head("POST /v1/nodes HTTP/1.1", chunked...) + "fffffffffffffffff\r\n{}",
		"unknown coding":          head("POST /v1/nodes HTTP/1.1", "Transfer-Encoding: gzip, identity") + "{}",
		"huge header":             head("GET /v1/nodes HTTP/1.1", "X-A: "+strings.Repeat("a", 200<<10)),
		"header with a NUL":       head("GET /v1/nodes HTTP/1.1", "X-A: a\x00b"),
		"space in the header":     head("GET /v1/nodes HTTP/1.1", "X A : b"),
		"absolute target":         head("GET http://elsewhere.invalid/v1/nothing HTTP/1.1"),
		"target without a slash":  head("GET v1/nodes HTTP/1.1"),
		"control in the target":   head("GET /v1/nodes/\x01 HTTP/1.1"),
		"bad escape in the path":  head("GET /v1/nodes/%zz HTTP/1.1"),
		"strange host":            "GET /v1/nothing HTTP/1.1\r\nHost: a b<script>\r\n\r\n",
		"later HTTP":              head("GET /v1/nothing HTTP/9.9"),
		"expectation":             head("GET /v1/nothing HTTP/1.1", "Expect: the-unexpected"),
		"connect":                 head("CONNECT elsewhere.invalid:443 HTTP/1.1"),
		"asterisk":                head("BREW * HTTP/1.1"),
		"smuggled second request": head("POST /v1/nothing HTTP/1.1", "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\nGET /v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, err := raw(w.server.URL, text)
			if err != nil || status < 400 || status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	t.Run("body that ends early", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
		must.OK(t, err)
		_, err = io.WriteString(conn, strings.Replace(head("POST /v1/nodes HTTP/1.1", "Content-Length: 500"), "Host: x\r\n", "Host: 127.0.0.1\r\n", 1)+`{"driver":`)
		must.OK(t, err)
		must.OK(t, conn.(*net.TCPConn).CloseWrite())
		status, err := statusOf(conn)
		if err != nil || status != http.StatusBadRequest {
			t.Errorf("%d, %v", status, err)
		}
	})
}

// raw sends bytes and reads the first answer's status.
func raw(base, text string) (int, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		return 0, err
	}
	go func() { _, _ = io.WriteString(conn, text) }()
	return statusOf(conn)
}

func statusOf(conn net.Conn) (int, error) {
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(promptly)); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
