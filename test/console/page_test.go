//go:build e2e

package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"salvor/test/must"
)

// pictures is where what the browser saw is kept.
const pictures = "../../build/console"

func (p *page) open(url string) {
	p.Helper()
	p.do("Page.navigate", object{"url": url}, nil)
	p.until(`document.readyState === "complete" && document.querySelector("h1")`)
}

// eval runs an expression in the page and gives its value.
func (p *page) eval(expression string) any {
	p.Helper()
	var got struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	p.do("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	if got.Exception != nil {
		p.Fatalf("%s: %s", expression, got.Exception.Exception.Description)
	}
	var value any
	if len(got.Result.Value) > 0 {
		p.must(json.Unmarshal(got.Result.Value, &value))
	}
	return value
}

func (p *page) text(selector string) string {
	p.Helper()
	text, _ := p.eval(`document.querySelector(` + quote(selector) + `)?.innerText ?? ""`).(string)
	return text
}

func quote(text string) string {
	b, _ := json.Marshal(text) // a string can always be written
	return string(b)
}

// until waits until an expression is true.
func (p *page) until(expression string) {
	p.Helper()
	limit := time.Now().Add(patience)
	for p.eval(`!!(`+expression+`)`) != true {
		if time.Now().After(limit) {
			p.shot("failed")
			p.Fatalf("in vain: %s\nthe page says:\n%.3000s", expression, p.text("body"))
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// sees waits until the page has a text.
func (p *page) sees(text string) {
	p.Helper()
	p.until(`document.body.innerText.includes(` + quote(text) + `)`)
}

// thing is a node of the accessibility tree, as screen readers know it.
type thing struct {
	ID      string `json:"nodeId"`
	Ignored bool   `json:"ignored"`
	Role    struct {
		Value string `json:"value"`
	} `json:"role"`
	Name struct {
		Value string `json:"value"`
	} `json:"name"`
	Properties []struct {
		Name  string `json:"name"`
		Value struct {
			Value any `json:"value"`
		} `json:"value"`
	} `json:"properties"`
	Backend int `json:"backendDOMNodeId"`
}

func (t *thing) property(name string) any {
	for _, p := range t.Properties {
		if p.Name == name {
			return p.Value.Value
		}
	}
	return nil
}

// tree is all that screen readers are told of the page.
func (p *page) tree() []thing {
	p.Helper()
	var got struct {
		Nodes []thing `json:"nodes"`
	}
	p.do("Accessibility.getFullAXTree", nil, &got)
	var out []thing
	for _, n := range got.Nodes {
		if !n.Ignored {
			out = append(out, n)
		}
	}
	return out
}

// find waits for something with a role and a name that begins so.
func (p *page) find(role, name string) thing {
	p.Helper()
	limit := time.Now().Add(patience)
	for {
		for _, n := range p.tree() {
			if n.Role.Value == role && strings.HasPrefix(n.Name.Value, name) && n.property("disabled") != true {
				return n
			}
		}
		if time.Now().After(limit) {
			p.shot("failed")
			p.Fatalf("there is no %s %q; the page says:\n%.3000s", role, name, p.text("body"))
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// click presses the mouse on what has a role and a name, as somebody would who sees it.
func (p *page) click(role, name string) {
	p.Helper()
	limit := time.Now().Add(patience)
	for {
		err := p.press(p.find(role, name))
		if err == nil {
			return
		}
		if time.Now().After(limit) { // it may have been drawn anew between the look and the click
			p.Fatalf("click on %s %q: %v", role, name, err)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

func (p *page) press(n thing) error {
	if err := p.b.call(p.session, "DOM.scrollIntoViewIfNeeded", object{"backendNodeId": n.Backend}, nil); err != nil {
		return err
	}
	var boxes [2]struct {
		Model struct {
			Content []float64 `json:"content"`
		} `json:"model"`
	}
	for i := range boxes {
		if err := p.b.call(p.session, "DOM.getBoxModel", object{"backendNodeId": n.Backend}, &boxes[i]); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	c := boxes[0].Model.Content
	if !slices.Equal(c, boxes[1].Model.Content) {
		return errors.New("it moves")
	}
	at := object{"x": (c[0] + c[4]) / 2, "y": (c[1] + c[5]) / 2, "button": "left", "clickCount": 1}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		at["type"] = kind
		if err := p.b.call(p.session, "Input.dispatchMouseEvent", at, nil); err != nil {
			return err
		}
	}
	return nil
}

// keys are those that are pressed by name.
var keys = map[string]object{
	"Tab":    {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
	"Enter":  {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
	"Escape": {"key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27},
	"Space":  {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32, "text": " "},
	"Down":   {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40},
	"/":      {"key": "/", "code": "Slash", "windowsVirtualKeyCode": 191, "text": "/"},
}

func (p *page) key(names ...string) {
	p.Helper()
	for _, name := range names {
		down := object{"type": "keyDown"}
		for k, v := range keys[name] {
			down[k] = v
		}
		p.do("Input.dispatchKeyEvent", down, nil)
		p.do("Input.dispatchKeyEvent", object{"type": "keyUp", "key": down["key"], "code": down["code"], "windowsVirtualKeyCode": down["windowsVirtualKeyCode"]}, nil)
	}
}

// write types a text where the focus is.
func (p *page) write(text string) {
	p.Helper()
	p.do("Input.insertText", object{"text": text}, nil)
}

// focus tells what has the focus, and whether it is seen to have it.
func (p *page) focus() (what string, seen bool) {
	p.Helper()
	got, _ := p.eval(`(() => {
		const e = document.activeElement;
		const style = getComputedStyle(e);
		const box = e.getBoundingClientRect();
		return {what: e.tagName.toLowerCase() + " " + (e.getAttribute("aria-label") || e.innerText || e.id || "").split("\n")[0].trim(),
			seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.bottom > 0};
	})()`).(object)
	what, _ = got["what"].(string)
	seen, _ = got["seen"].(bool)
	return what, seen
}

// dark chooses what the system of whoever looks at the page prefers.
func (p *page) dark(on bool) {
	p.Helper()
	p.do("Emulation.setEmulatedMedia", object{"features": []object{
		{"name": "prefers-color-scheme", "value": map[bool]string{true: "dark", false: "light"}[on]}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// shot keeps a picture of the page.
func (p *page) shot(name string) {
	p.Helper()
	var got struct {
		Data string `json:"data"`
	}
	p.do("Page.captureScreenshot", object{"format": "png"}, &got)
	b := must.Get(base64.StdEncoding.DecodeString(got.Data))(p)
	p.must(os.MkdirAll(pictures, 0o755))
	p.must(os.WriteFile(filepath.Join(pictures, name+".png"), b, 0o644))
}
