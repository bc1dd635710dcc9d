//go:build e2e

// Package console uses the web console as people do: with the real program and Debian's Chromium without a screen. It drives Chromium over
// the DevTools protocol through a pipe.
package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/test/must"
)

// patience bounds every wait for the browser.
const patience = 30 * time.Second

// browser is a Chromium of our own. Messages of the protocol are JSON, each ended by a zero byte.
type browser struct {
	out *os.File

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	heard   map[string]func(method string, params json.RawMessage) // by session
	gone    error
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

type reply struct {
	result json.RawMessage
	err    error
}

// newBrowser starts Chromium until the test ends. It reaches this machine only.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	const program = "/usr/bin/chromium"
	if _, err := os.Stat(program); err != nil {
		t.Fatal("this test needs the Debian package chromium: make prove-packages")
	}
	in, toChromium := pipe(t)
	fromChromium, out := pipe(t)
	cmd := exec.Command(program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--no-default-browser-check", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*", "--user-data-dir="+t.TempDir(), "--lang=en-GB", "--font-render-hinting=none", "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // 3 is read by it, 4 is written
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "LANG=C.UTF-8", "TZ=UTC")
	must.OK(t, cmd.Start())
	in.Close()
	out.Close()
	b := &browser{out: toChromium, waiting: map[int]chan reply{}, heard: map[string]func(string, json.RawMessage){}}
	go b.listen(fromChromium)
	t.Cleanup(func() {
		_ = b.call("", "Browser.close", nil, nil)
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
		}
		toChromium.Close()
	})
	return b
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func (b *browser) listen(from *os.File) {
	defer from.Close()
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.gone = fmt.Errorf("chromium ended: %w", err)
			for id, c := range b.waiting {
				c <- reply{err: b.gone}
				delete(b.waiting, id)
			}
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		c, heard := b.waiting[m.ID], b.heard[m.SessionID]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID == 0:
			if heard != nil {
				heard(m.Method, m.Params)
			}
		case c == nil:
		case m.Error != nil:
			c <- reply{err: fmt.Errorf("%s", m.Error.Message)}
		default:
			c <- reply{result: m.Result}
		}
	}
}

// call asks the browser, or one page of it; out may be nil.
func (b *browser) call(session, method string, params, out any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	c := make(chan reply, 1)
	b.mu.Lock()
	if b.gone != nil {
		b.mu.Unlock()
		return b.gone
	}
	b.next++
	id := b.next
	b.waiting[id] = c
	text, err := json.Marshal(message{ID: id, SessionID: session, Method: method, Params: raw})
	if err == nil {
		_, err = b.out.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r := <-c:
		if r.err != nil {
			return fmt.Errorf("%s: %w", method, r.err)
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(r.result, out)
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer within %v", method, patience)
	}
}

// page is a tab. What goes wrong in it fails the test at its end.
type page struct {
	*testing.T
	b       *browser
	session string

	mu    sync.Mutex
	wrong []string // errors of the page's program, violations of its policy
	asked []string // URLs
	mayBe []string // what wrong may contain
}

type object = map[string]any

// newPage opens a tab of its own context: no storage is shared with others.
func newPage(t *testing.T, b *browser, width, height int) *page {
	t.Helper()
	p := &page{T: t, b: b}
	var context struct {
		ID string `json:"browserContextId"`
	}
	var target struct {
		ID string `json:"targetId"`
	}
	var session struct {
		ID string `json:"sessionId"`
	}
	p.must(b.call("", "Target.createBrowserContext", object{}, &context))
	p.must(b.call("", "Target.createTarget", object{"url": "about:blank", "browserContextId": context.ID}, &target))
	p.must(b.call("", "Target.attachToTarget", object{"targetId": target.ID, "flatten": true}, &session))
	p.session = session.ID
	b.mu.Lock()
	b.heard[p.session] = p.hear
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "DOM", "Accessibility"} {
		p.do(domain+".enable", nil, nil)
	}
	p.size(width, height)
	t.Cleanup(func() {
		_ = b.call("", "Target.disposeBrowserContext", object{"browserContextId": context.ID}, nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, w := range p.wrong {
			if !containsAny(w, p.mayBe) {
				t.Errorf("in the page: %s", w)
			}
		}
	})
	return p
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func (p *page) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *page) do(method string, params, out any) {
	p.Helper()
	if params == nil {
		params = object{}
	}
	p.must(p.b.call(p.session, method, params, out))
}

// hear notes what goes wrong, and who is asked.
func (p *page) hear(method string, params json.RawMessage) {
	var said struct {
		ExceptionDetails struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
	}
	if json.Unmarshal(params, &said) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Runtime.exceptionThrown":
		p.wrong = append(p.wrong, said.ExceptionDetails.Text+" "+said.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		if said.Entry.Level == "error" {
			p.wrong = append(p.wrong, said.Entry.Text+" "+said.Entry.URL)
		}
	case "Network.requestWillBeSent":
		p.asked = append(p.asked, said.Request.URL)
	}
}

func (p *page) size(width, height int) {
	p.Helper()
	p.do("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}
