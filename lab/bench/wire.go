package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// targetServer is a server that is measured.
type targetServer struct {
	address string // host:port
	host    string // of the Host header
	base    string // path before /v1
	tls     bool
	header  string // of every request: version and credentials
	source  string // address that connections come from; empty: any
}

// from is the target for another client, which connects from the given source address.
func (t *targetServer) from(source string) *targetServer {
	other := *t
	other.source = source
	return &other
}

// serverCredentials is how a server lets us in.
type serverCredentials struct{ user, password, token string }

// newTarget reads an endpoint such as http://127.0.0.1:6385; a /v1 at its end is dropped.
func newTarget(endpoint, version string, a serverCredentials) (*targetServer, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("endpoint %q: want http://HOST:PORT", endpoint)
	}
	t := &targetServer{address: u.Host, host: u.Host, tls: u.Scheme == "https", base: strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")}
	if u.Port() == "" {
		t.address = net.JoinHostPort(u.Hostname(), map[bool]string{false: "80", true: "443"}[t.tls])
	}
	t.header = "X-OpenStack-Ironic-API-Version: " + version + "\r\nAccept: application/json\r\n"
	switch {
	case a.token != "":
		t.header += "X-Auth-Token: " + a.token + "\r\n"
	case a.user != "":
		t.header += "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(a.user+":"+a.password)) + "\r\n"
	}
	if strings.ContainsAny(a.token, "\r\n") {
		return nil, fmt.Errorf("the token holds a line break")
	}
	return t, nil
}

// httpConn is one kept connection. The server under test shares the machine's processors
// with us, so it parses no more of an answer than its length and its status.
type httpConn struct {
	t    *targetServer
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
	// retryAfter is the Retry-After of the newest answer; 0: it had none.
	retryAfter time.Duration
}

const (
	dialTime   = 5 * time.Second
	answerTime = 2 * time.Minute
	maxAnswer  = 256 << 20
)

func (w *httpConn) dial() error {
	dialer := net.Dialer{Timeout: dialTime}
	if w.t.source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(w.t.source)}
	}
	conn, err := dialer.Dial("tcp", w.t.address)
	if err != nil {
		return err
	}
	if w.t.tls {
		name, _, _ := net.SplitHostPort(w.t.address)
		// What is measured is speed; who answers is the operator's choice of endpoint.
		conn = tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	}
	w.conn = conn
	if w.in == nil {
		w.in = newReader(conn)
	}
	w.in.Reset(conn)
	return nil
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 64<<10) }

func (w *httpConn) close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// send asks and gives the status and the body, which holds until the next send. A kept
// connection that the server has closed meanwhile is opened again, once.
func (w *httpConn) send(method, path, body string) (int, []byte, error) {
	reused := w.conn != nil
	status, answer, err := w.try(method, path, body)
	if err != nil && reused {
		status, answer, err = w.try(method, path, body)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return status, answer, nil
}

func (w *httpConn) try(method, path, body string) (status int, answer []byte, err error) {
	if w.conn == nil {
		if err := w.dial(); err != nil {
			return 0, nil, err
		}
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	b := append(w.out[:0], method...)
	b = append(append(append(b, ' '), w.t.base...), path...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), w.t.host...)
	b = append(append(b, "\r\n"...), w.t.header...)
	if body != "" {
		b = append(b, "Content-Type: application/json\r\n"...)
	}
	if body != "" || method != "GET" {
		b = strconv.AppendInt(append(b, "Content-Length: "...), int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(append(b, "\r\n"...), body...)
	w.out = b
	if err := w.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, nil, err
	}
	if _, err := w.conn.Write(b); err != nil {
		return 0, nil, err
	}
	return w.read()
}

// read takes one answer off the connection.
func (w *httpConn) read() (int, []byte, error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return 0, nil, fmt.Errorf("no HTTP answer: %.60q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, nil, fmt.Errorf("no HTTP status: %.60q", line)
	}
	length, chunked, last := -1, false, line[7] == '0'
	w.retryAfter = 0
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case equalFoldBytes(name, "content-length"):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 || length > maxAnswer {
				return 0, nil, fmt.Errorf("content length %.20q", value)
			}
		case equalFoldBytes(name, "transfer-encoding"):
			chunked = equalFoldBytes(value, "chunked")
		case equalFoldBytes(name, "retry-after"):
			after, _ := strconv.Atoi(string(value))
			w.retryAfter = time.Duration(after) * time.Second
		case equalFoldBytes(name, "connection"):
			last = equalFoldBytes(value, "close")
		}
	}
	err = w.readBody(status, length, chunked)
	if last || err != nil {
		w.close()
	}
	return status, w.body, err
}

func (w *httpConn) readBody(status, length int, chunked bool) error {
	w.body = w.body[:0]
	switch {
	case status == 204 || status == 304:
		return nil
	case chunked:
		return w.readChunks()
	case length >= 0:
		return w.take(length)
	}
	// The end of the connection is the end of the answer.
	defer w.close()
	rest, err := io.ReadAll(io.LimitReader(w.in, maxAnswer))
	w.body = rest
	return err
}

func (w *httpConn) take(n int) error {
	from := len(w.body)
	if from+n > maxAnswer {
		return fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if cap(w.body) < from+n {
		w.body = append(make([]byte, 0, 2*(from+n)), w.body...)
	}
	w.body = w.body[:from+n]
	_, err := io.ReadFull(w.in, w.body[from:])
	return err
}

func (w *httpConn) readChunks() error {
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(string(line)), ";")
		n, err := strconv.ParseUint(size, 16, 31)
		if err != nil {
			return fmt.Errorf("chunk size %.20q", size)
		}
		if n > 0 {
			if err := w.take(int(n)); err != nil {
				return err
			}
		}
		if line, err = w.in.ReadSlice('\n'); err != nil {
			return err
		}
		if n == 0 {
			// Trailers, up to an empty line.
			for len(bytes.TrimRight(line, "\r\n")) > 0 {
				if line, err = w.in.ReadSlice('\n'); err != nil {
					return err
				}
			}
			return nil
		}
	}
}

// equalFoldBytes compares with a word in lower case.
func equalFoldBytes(b []byte, word string) bool { return strings.EqualFold(string(b), word) }
