package conversation

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/problem"
	"salvor/wire/answer"
	"salvor/wire/loose"
)

const jsonType = "application/json"

// maxHops bounds how many redirects one request follows.
const maxHops = 4

// reply is the answer to a request that succeeded.
type reply struct {
	status int
	header http.Header
	body   []byte
	path   string           // of the request, after redirects
	doubt  *refusal.Refusal // in an answer that says both that the request succeeded and that it did not; nil: none
}

// ask sends a request with what the login gave, and follows redirects of the BMC to another spelling of the path. An answer that is no success
// is a *refusal.Refusal. Each order has a connection of its own, because a BMC that cuts a connection at its second use would leave open
// whether the BMC took the order.
func (c *Conversation) ask(method, ref string, body any, headers map[string]string) (*reply, error) {
	c.sent = false
	to, err := link.Resolve(RootPath, ref)
	switch {
	case err != nil:
		return nil, problem.Unavailablef("it links to %s, which is no path on it", c.Quote(ref))
	case method != http.MethodGet && !strings.Contains(ref, "/"):
		return nil, problem.Unavailablef("the target %s of an action is no path on the BMC", c.Quote(ref))
	}
	var content []byte
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	hops, refused := 0, 0
	for {
		if method != http.MethodGet {
			c.release()
		}
		resp, text, err := c.send(method, to, content, headers)
		if driver.IsCut(err) {
			err = problem.Unavailablef("%w: it cut the connection before the end of what it answers to %s %s", errPage, method, driver.Sanitize(to.Path))
		}
		if err != nil {
			return nil, err
		}
		c.sent = false // the answer says what became of the order
		switch {
		case resp.StatusCode/100 == 2:
			within, isSure := refusal.Within(text, method == http.MethodGet)
			if isSure {
				return nil, within
			}
			c.asked = true
			return &reply{resp.StatusCode, resp.Header, text, to.Path, within}, nil
		case resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.Header.Get("Location") != "":
			if to, err = c.redirected(method, to, resp); err != nil {
				return nil, err
			}
			if hops++; hops > maxHops {
				return nil, c.strayRedirect(to, "the BMC redirects in a circle at %s", driver.Sanitize(to.Path))
			}
			continue
		case resp.StatusCode == http.StatusUnauthorized:
			renewed, err := c.renew()
			if c.sent = false; err != nil {
				return nil, err
			} else if renewed {
				continue
			}
			if logsIn(resp.Request) && c.settings.Logins.Lately(c.settings.Login) {
				if refused < len(retryPauses) {
					if err := driver.Pause(c.ctx, retryPauses[refused]); err != nil {
						return nil, err
					}
					refused++
					continue
				}
				c.settings.Logins.Refused(c.ctx, c.settings.Login)
			}
		}
		r := refusal.New(resp.StatusCode, text)
		c.share.End()
		return nil, r
	}
}

// send sends one request and reads the whole answer, whose memory the conversation holds until the text is decoded or the next request is sent.
func (c *Conversation) send(method string, to *url.URL, content []byte, headers map[string]string) (*http.Response, []byte, error) {
	at := *c.settings.Base
	at.Path, at.RawPath, at.RawQuery = to.Path, to.RawPath, to.RawQuery
	c.sent = false
	c.share.End()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { c.sent = true }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(answer.With(c.ctx, c.share), trace), method, at.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	if content != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	}
	// Some BMCs want the type of a body even where there is none.
	for name, value := range map[string]string{"User-Agent": "salvor", "Accept": jsonType, "Content-Type": jsonType} {
		req.Header.Set(name, value)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	login := c.settings.Login
	switch {
	case !c.token.Empty():
		req.Header.Set("X-Auth-Token", c.token.Reveal())
	case c.basic && login.Username != "" && !login.Password.Empty():
		req.SetBasicAuth(login.Username, login.Password.Reveal())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	text := driver.Body(resp)
	c.received += len(text)
	return resp, bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
}

// redirected is where a redirect leads that keeps method and body: to the same path with or without its last slash, and for reads and the
// statuses 307 and 308 to another resource of the service. An error names any other redirect.
func (c *Conversation) redirected(method string, from *url.URL, resp *http.Response) (*url.URL, error) {
	ref := resp.Header.Get("Location")
	to, err := link.Resolve(from.Path, ref)
	if err != nil {
		return nil, c.strayRedirect(from, "the BMC redirects %s %s to %s, which is no path on it", method, driver.Sanitize(from.Path), c.Quote(ref))
	}
	keepsMethod := resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect
	switch {
	case to.Path == from.Path && to.RawQuery == from.RawQuery:
		return nil, c.strayRedirect(from, "the BMC answers %s %s only at %s; set its address to that", method, driver.Sanitize(from.Path), c.Quote(ref))
	case link.Trim(to.Path) == link.Trim(from.Path):
		return to, nil
	case strings.HasPrefix(to.Path, "/redfish/") && (method == http.MethodGet || keepsMethod):
		return to, nil
	}
	return nil, c.strayRedirect(from, "the BMC redirects %s %s to %s, which salvor does not follow", method, driver.Sanitize(from.Path), c.Quote(ref))
}

// strayRedirect is the error of a redirect that is not followed.
func (c *Conversation) strayRedirect(from *url.URL, format string, args ...any) error {
	err := problem.Unavailablef(format, args...)
	if c.settings.Memory.MissesNow(c.settings.Key, from.Path) { // as a BMC does that starts
		return err
	}
	return problem.Tries(strangeTries, err)
}

// laterPauses are the pauses before a resource is read again that the BMC could not show.
var laterPauses = []time.Duration{200 * time.Millisecond, 600 * time.Millisecond}

// Get reads a resource into doc, a pointer to a struct or a map. A value that cannot be understood stays as it was, and is noted once. A
// resource that the BMC cannot show now is asked for again after a pause. The ETag is empty if there is none.
func (c *Conversation) Get(ref string, doc any) (etag string, err error) {
	etag, err = c.getOnce(ref, doc)
	for i, pause := range laterPauses {
		isPassing := problem.Is(err, problem.Unavailable) && (!isOfAll(err) || c.isSilentNow(err) && i == 0 && c.hasTime())
		isHidden := errors.Is(err, ErrMissing) && c.settings.Memory.MayHide(c.settings.Key, ref)
		if !isPassing && !isHidden || driver.Pause(c.ctx, pause) != nil {
			break
		}
		etag, err = c.getOnce(ref, doc)
	}
	if errors.Is(err, ErrMissing) {
		c.settings.Memory.Lacks(c.settings.Key, ref)
	}
	return etag, err
}

// hasTime tells whether the operation has time for a request that may get no answer, and for others after it.
func (c *Conversation) hasTime() bool {
	deadline, bounded := c.ctx.Deadline()
	return !bounded || time.Until(deadline) > 2*driver.CallTimeout
}

func (c *Conversation) getOnce(ref string, doc any) (etag string, err error) {
	a, err := c.read(ref)
	if err != nil {
		return "", err
	}
	text := a.body
	if hasRelative(text) {
		text = withPaths(text, a.path)
	}
	odd, err := loose.DecodeTrimmed(text, doc)
	c.share.End()
	if err != nil {
		return "", problem.Unavailablef("%w: what it answers for %s is cut off or damaged", errPage, driver.Sanitize(a.path))
	}
	if len(odd) > 0 {
		c.noteOnce("the BMC's answer for %s has values that salvor cannot read and takes as not told: %s", driver.Sanitize(a.path), driver.Sanitize(strings.Join(odd[:min(len(odd), 8)], ", "), c.Secrets()...))
	}
	return a.header.Get("ETag"), nil
}

// read reads a page of Redfish: an object. A page of something else, such as a login page, is called that.
func (c *Conversation) read(ref string) (*reply, error) {
	a, err := c.ask(http.MethodGet, ref, nil, nil)
	if err != nil {
		return nil, c.fault(http.MethodGet, ref, err)
	}
	if what := notRedfish(a.body); what != "" {
		return nil, c.strangePage(a, what)
	}
	c.settings.Memory.Saw(c.settings.Key, a.path)
	return a, nil
}

// errPage is the error of a page that is no Redfish.
var errPage = errors.New("the BMC's answer is no Redfish")

// notRedfish says what a page is that is no object; empty: the page begins as one.
func notRedfish(body []byte) string {
	text := bytes.TrimSpace(body)
	switch {
	case len(text) == 0:
		return "an empty page"
	case text[0] == '{' && string(bytes.TrimSpace(text[1:])) == "}":
		return "an empty object"
	case text[0] == '<':
		return "a page of HTML, such as a login page"
	case text[0] != '{' && text[0] != '[':
		return "text"
	}
	return ""
}

// strangeTries is how often in a row an answer that is no Redfish is asked for: a BMC that starts may give one for a moment.
const strangeTries = 3

// strangePage is the error of a page that is no Redfish. Where the resource answered a short time ago, the BMC may be starting, and only time
// bounds how often the page is asked for.
func (c *Conversation) strangePage(a *reply, what string) error {
	text := ""
	if len(bytes.TrimSpace(a.body)) > 0 {
		text = ": " + c.Quote(refusal.PlainPage(a.body))
	}
	if c.settings.Memory.MissesNow(c.settings.Key, a.path) {
		return problem.Unavailablef("%w: it answers %s with %s, as a BMC does that starts%s", errPage, driver.Sanitize(a.path), what, text)
	}
	return problem.Tries(strangeTries, problem.Unavailablef("%w: it answers %s with %s; is this the address of its Redfish service?%s", errPage, driver.Sanitize(a.path), what, text))
}

// Order is a write that the BMC has taken, or may have taken.
type Order struct {
	// Task is the path of the BMC's task; empty: it made none.
	Task string
	// Created is the path of what the BMC has made; empty: it does not say.
	Created string
	// Unsure is the error of a connection that ended before the answer: whether the BMC took the order, a look at the machine tells.
	Unsure error
	body   []byte
}

// Post runs an action, or creates a resource. An error means that the BMC has surely not taken the order.
func (c *Conversation) Post(ref string, body any) (Order, error) {
	return c.write(http.MethodPost, ref, body, nil)
}

// Delete removes a resource; one that is gone is success.
func (c *Conversation) Delete(ref string) (Order, error) {
	o, err := c.write(http.MethodDelete, ref, nil, nil)
	if errors.Is(err, ErrMissing) {
		return Order{}, nil
	}
	return o, err
}

// Patch changes a resource under its ETag. Some BMCs demand If-Match, some refuse the very tag that they gave, some want it without its
// weak mark: all are tried, for 412 and 428 mean that nothing was changed.
func (c *Conversation) Patch(ref, etag string, body any) (o Order, err error) {
	tags := []string{"", "*"}
	if etag != "" {
		tags = []string{etag, strings.TrimPrefix(etag, "W/"), "*", ""}
	}
	for i, tag := range tags {
		if i > 0 && tag == tags[i-1] {
			continue
		}
		headers := map[string]string{}
		if tag != "" {
			headers["If-Match"] = tag
		}
		o, err = c.write(http.MethodPatch, ref, body, headers)
		var r *refusal.Refusal
		if !errors.As(err, &r) || r.Status != http.StatusPreconditionFailed && r.Status != http.StatusPreconditionRequired {
			break
		}
	}
	return o, err
}

func (c *Conversation) write(method, ref string, body any, headers map[string]string) (Order, error) {
	a, err := c.ask(method, ref, body, headers)
	defer c.share.End()
	c.settings.Memory.Ordered(c.settings.Key)
	if err == nil {
		o := newOrder(a)
		if a.doubt != nil {
			o.Unsure = problem.Unavailablef("its answer has words that may refuse the order: %s", c.Quote(a.doubt.Text))
		}
		return o, nil
	}
	fault := c.fault(method, ref, err)
	var r *refusal.Refusal
	isCut := c.sent && !errors.As(err, &r) && problem.Is(fault, problem.Unavailable)
	if isCut || refusal.IsOfGateway(fault) { // which may have passed the order on
		return Order{Unsure: fault}, nil
	}
	return Order{}, fault
}

// Doc reads what the BMC answered to an order into doc; false: it answered nothing that can be read.
func (o Order) Doc(doc any) bool {
	if len(o.body) == 0 {
		return false
	}
	_, err := loose.DecodeTrimmed(o.body, doc)
	return err == nil
}

// Sure is the error of an order of which nobody can tell whether the BMC took it.
func (o Order) Sure(err error) error {
	if err != nil {
		return err
	}
	return o.Unsure
}
