// Package conversation speaks with one BMC by Redfish. It knows what HTTP and JSON look like where vendors, proxies and firmware are careless,
// so that the rest of the driver reads resources and gives orders and knows neither. Every answer is hostile until it is decoded: one link,
// member or value that cannot be understood costs itself only.
package conversation

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/memory"
	"salvor/driver/redfish/refusal"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/answer"
)

// How to log in.
const (
	Basic   = "basic"   // name and password go with each request
	Session = "session" // a session of the BMC, which is deleted afterwards
	Auto    = "auto"    // a session, or basic where the BMC has none
)

// Paths that every service has, or should have.
const (
	RootPath     = link.RootPath
	sessionsPath = "/redfish/v1/SessionService/Sessions"
	TasksPath    = "/redfish/v1/TaskService/Tasks"
)

// logoutTimeout bounds the deletion of a session, which is sent even if the operation was cut off.
const logoutTimeout = 5 * time.Second

// Settings say which BMC is spoken to, and how.
type Settings struct {
	// Base has the scheme and the authority of the service. No request goes anywhere else, whatever the BMC's links say.
	Base *url.URL
	TLS  *tls.Config
	// Auth is Basic, Session or Auto, and AuthKey the key of driver_info that chooses.
	Auth, AuthKey string
	// Login has the account, and the keys of driver_info that hold it. Its method is that of Auth.
	Login driver.Login
	// Locks let one request at a time through to the BMC.
	Locks *driver.AddressLocks
	// Logins remembers which logins were refused and accepted; nil: nothing is remembered.
	Logins *driver.Logins
	// Control refuses addresses that may not be connected to, as a net.Dialer's; nil: none.
	Control func(network, address string, c syscall.RawConn) error
	// Explain gives an error without an answer the words that help, such as those of TLS; nil: it has none.
	Explain func(error) error
	// Memory is what this process knows of all BMCs, and Key names the BMC of this conversation in Memory.
	Memory *memory.Memory
	Key    memory.Key
}

// Conversation is a series of requests to one BMC. It is not safe for use by several goroutines.
type Conversation struct {
	settings Settings
	ctx      context.Context // of the operation
	http     *http.Client
	release  func() // closes the connections
	session  string // path of the BMC's session; empty: the conversation has none, or none that can be deleted
	token    secret.Value
	basic    bool
	share    *answer.Share  // of the answer in hand
	renewals int            // how many sessions the BMC has forgotten
	asked    bool           // a request has succeeded in the present session
	sent     bool           // the last request had a connection, so that the BMC may have got it
	left     []error        // of what could not be read
	emptied  []error        // lists that are empty, perhaps for the moment
	circles  int            // how many of left are lists that name themselves
	received int            // bytes of answers
	hidden   []secret.Value // further texts to mask in what the BMC says
}

// Open begins a conversation and logs in. The context is that of the operation.
func Open(ctx context.Context, settings Settings) (*Conversation, error) {
	if settings.Memory == nil {
		settings.Memory = new(memory.Memory)
	}
	c := &Conversation{settings: settings, ctx: ctx, share: answer.NewShare()}
	if settings.Auth == Basic {
		c.begin(Basic)
		return c, nil
	}
	c.begin(Session)
	err := c.openSession()
	if err == nil {
		return c, nil
	}
	var r *refusal.Refusal
	full := errors.As(err, &r) && r.IsTemporary() && !problem.Is(err, problem.Invalid)
	noSessions := settings.Auth == Auto && !problem.Is(err, problem.Unavailable) && !errors.Is(err, driver.ErrLogin)
	c.release()
	if !full && !noSessions {
		return nil, err
	}
	c.begin(Basic)
	if !full {
		return c, nil
	}
	// A BMC that is full of sessions may still take name and password with each request.
	if _, basicErr := c.Get("/redfish/v1/Systems", new(struct{})); basicErr != nil { // the root is shown without a login
		c.release()
		return nil, err
	}
	c.noteOnce("the BMC opens no session: %v; salvor sends name and password with each request", err)
	return c, nil
}

// begin makes the client. With name and password in each request a login costs no request of its own.
func (c *Conversation) begin(auth string) {
	s := c.settings
	s.Login.Method = auth
	wire := driver.HTTPConfig{Protocol: "redfish", Base: s.Base, TLS: s.TLS, Locks: s.Locks, Control: s.Control, Logins: s.Logins, LogsIn: logsIn, Login: s.Login}
	client, release := wire.Client()
	c.http, c.release = client, func() { c.share.End(); release() }
	c.settings.Login, c.basic = s.Login, auth == Basic
}

// Resume goes on with a conversation in another operation. What was masked for the former one is forgotten.
func (c *Conversation) Resume(ctx context.Context) *Conversation {
	return &Conversation{settings: c.settings, ctx: ctx, http: c.http, release: c.release, session: c.session, token: c.token, basic: c.basic, asked: true, share: c.share}
}

// HasSession tells whether the conversation has a session of the BMC, which another operation can go on with.
func (c *Conversation) HasSession() bool { return c.session != "" }

// Key names the BMC.
func (c *Conversation) Key() memory.Key { return c.settings.Key }

// IsBasic tells whether name and password go with each request.
func (c *Conversation) IsBasic() bool { return c.basic }

// Received is how many bytes of answers the conversation has read.
func (c *Conversation) Received() int { return c.received }

// Context is the operation's.
func (c *Conversation) Context() context.Context { return c.ctx }

// openSession creates a session of the BMC.
func (c *Conversation) openSession() error {
	path := sessionsPath
	a, err := c.login(path)
	if errors.Is(err, ErrMissing) || problem.Is(err, problem.Unsupported) { // not every BMC has the sessions there
		var top struct{ Links struct{ Sessions link.Link } }
		if _, err := c.Get(RootPath, &top); err != nil {
			return err
		}
		if path = top.Links.Sessions.Path; path == "" {
			return problem.Unsupportedf("the BMC offers no sessions; set %s to %s", c.settings.AuthKey, Basic)
		}
		a, err = c.login(path)
	}
	if err != nil {
		return err
	}
	c.token = secret.New(a.header.Get("X-Auth-Token"))
	c.session, c.asked = newOrder(a).Created, false
	if what := notRedfish(a.body); c.token.Empty() && len(a.body) > 0 && what != "" {
		return c.strangePage(a, what)
	}
	if c.token.Empty() {
		c.deleteSession()
		return problem.Unsupportedf("the BMC took the login, but gave no X-Auth-Token; set %s to %s", c.settings.AuthKey, Basic)
	}
	if c.session == "" {
		c.noteOnce("the BMC does not say where its session is, so the session stays open until the BMC forgets it; %s=%s opens none", c.settings.AuthKey, Basic)
	}
	return nil
}

// login sends name and password to the sessions of the BMC.
func (c *Conversation) login(path string) (*reply, error) {
	a, err := c.ask(http.MethodPost, path, map[string]string{"UserName": c.settings.Login.Username, "Password": c.settings.Login.Password.Reveal()}, nil)
	defer c.share.End()
	if err != nil {
		return nil, c.fault(http.MethodPost, path, err)
	}
	return a, nil
}

// logsIn tells whether a request carries user name and password: it has basic authentication, or creates a session.
func logsIn(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || r.Method == http.MethodPost && strings.HasSuffix(strings.TrimRight(r.URL.Path, "/"), "/Sessions")
}

// Close deletes the session of the BMC, also if the operation was cut off.
func (c *Conversation) Close() {
	defer c.release()
	if c.session == "" {
		return
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), logoutTimeout)
	defer cancel()
	c.ctx = bye
	c.deleteSession()
}

// deleteSession has the BMC forget the session. A BMC that refuses has forgotten the session, or forgets it later.
func (c *Conversation) deleteSession() {
	if c.session == "" {
		return
	}
	at := c.session
	c.session, c.renewals = "", maxRenewals // nothing is left to open anew
	_, _ = c.ask(http.MethodDelete, at, nil, nil)
}

// maxRenewals bounds how many sessions one conversation opens in place of those that the BMC has forgotten.
const maxRenewals = 100

// renew opens another session in place of one that the BMC has forgotten. A session in which nothing has succeeded yet is not renewed twice.
// It deletes the former session first: a BMC that answers 401 for one resource only, by a privilege or a licence, has it still, and has few.
func (c *Conversation) renew() (bool, error) {
	if c.token.Empty() || c.renewals >= maxRenewals || c.renewals > 0 && !c.asked {
		return false, nil
	}
	renewals := c.renewals + 1
	c.deleteSession()
	former := c.token
	c.token = secret.Value{}
	err := c.openSession()
	c.renewals = renewals
	if err != nil && !errors.Is(err, driver.ErrLogin) {
		c.token = former // the next refusal opens a session again; and this refusal is not that of the request in hand
		err = problem.New(problem.KindOf(err), "the BMC has forgotten the session, and opens no other: %s", err)
	}
	return true, err
}

// Hide has texts masked in what this conversation says from now on.
func (c *Conversation) Hide(texts ...string) {
	for _, text := range texts {
		c.hidden = append(c.hidden, secret.New(text))
	}
}

// HideURL has the credentials in a URL masked.
func (c *Conversation) HideURL(text string) {
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	c.Hide(text, u.RawQuery)
	if password, ok := u.User.Password(); ok {
		c.Hide(u.User.String(), password, url.QueryEscape(password))
	}
}

// Secrets are the texts that are masked: those that are hidden, and the credentials in every form in which they are sent.
func (c *Conversation) Secrets() []secret.Value {
	all := append([]secret.Value{c.token}, c.hidden...)
	login := c.settings.Login
	if login.Password.Empty() {
		return all
	}
	basic := base64.StdEncoding.EncodeToString([]byte(login.Username + ":" + login.Password.Reveal()))
	return append(all, login.Password, secret.New(basic))
}

// Reading is what the BMC says a value is, quoted as Quote does; "nothing" for an empty text.
func (c *Conversation) Reading(text string) string {
	if text == "" {
		return "nothing"
	}
	return c.Quote(text)
}

// Quote quotes text of the BMC, with the secrets masked.
func (c *Conversation) Quote(text string) string {
	return problem.Quote(driver.Sanitize(text, c.Secrets()...))
}

// noteOnce notes an oddity of the BMC in the node's history, unless this process has done so before.
func (c *Conversation) noteOnce(format string, args ...any) {
	if driver.TakesNotes(c.ctx) && c.settings.Memory.FirstNote(c.settings.Key, format, args...) {
		driver.Note(c.ctx, format, args...)
	}
}

// retryPauses are the pauses before a login is repeated that the BMC accepted a short time ago and refuses now. They are few, because BMCs
// lock an account after some refusals, and the password may have been changed.
var retryPauses = []time.Duration{300 * time.Millisecond, 2 * time.Second}
