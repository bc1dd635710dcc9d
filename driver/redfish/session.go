package redfish

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// bmcSession is one conversation with a BMC. No login outlives its operation for long: BMCs hold a handful of sessions and forget them
// slowly.
type bmcSession struct {
	conf    *redfishSettings
	ctx     context.Context // of the operation
	http    *http.Client
	release func() // lets go of the connections
	at      string // path of the BMC's session, once there is one
	key     sessionKey
	infos   *actionInfoMemo
	intents *updateIntents
	renewed bool           // the BMC had forgotten the session, and another one was opened
	basic   bool           // name and password go with each request
	token   secret.Value   // of a session login
	system  string         // path of the ComputerSystem, once found
	hidden  []secret.Value // further texts to mask in what the BMC says
}

// logoutTimeout bounds the goodbye, which is sent even if the operation was cut off.
const logoutTimeout = 5 * time.Second

// with runs an operation in a session of its own and names both in the error.
func (d *Driver) with(ctx context.Context, n *metal.Node, op string, fn func(*bmcSession) error) error {
	conf, err := parseDriverInfo(n)
	if err != nil {
		return problem.New(problem.KindOf(err), "%s of node %s: redfish: %w", op, n.ID, err)
	}
	key := newSessionKey(n)
	s := d.Sessions.take(key)
	if s != nil {
		s = &bmcSession{conf: conf, ctx: ctx, http: s.http, release: s.release, at: s.at, token: s.token}
	} else {
		s, err = d.open(ctx, conf)
	}
	if err == nil {
		s.key, s.infos, s.intents = key, &d.infos, &d.intents
		if err = fn(s); err == nil {
			d.Sessions.put(key, s)
		} else {
			s.close()
		}
	}
	if err != nil {
		return problem.New(problem.KindOf(err), "%s of node %s: redfish %s: %w", op, n.ID, conf.base.Host, err)
	}
	return nil
}

func (d *Driver) open(ctx context.Context, conf *redfishSettings) (*bmcSession, error) {
	auth := conf.auth
	if auth == authAuto {
		auth = authSession
	}
	s, err := d.login(ctx, conf, auth)
	if err != nil && conf.auth == authAuto && !problem.Is(err, problem.Unavailable) && !errors.Is(err, driver.ErrLogin) {
		s, err = d.login(ctx, conf, authBasic)
	}
	return s, err
}

// login opens a conversation. With name and password in each request it costs no request of its own: a look at the power is one.
func (d *Driver) login(ctx context.Context, conf *redfishSettings, auth string) (*bmcSession, error) {
	wire := driver.HTTPConfig{Protocol: "redfish", Base: conf.base, TLS: conf.tls, Locks: d.Locks, Redirects: true, Control: d.Control,
		Logins: d.Logins, LogsIn: logsIn, Login: driver.Login{Address: conf.base.Host, Username: conf.username, Password: conf.password, Method: auth, UsernameKey: conf.usernameKey, PasswordKey: conf.passwordKey}}
	client, release := wire.Client()
	s := &bmcSession{conf: conf, ctx: ctx, http: client, release: release}
	if auth == authBasic {
		s.basic = true
		return s, nil
	}
	if err := s.openSession(); err != nil {
		release()
		return nil, err
	}
	return s, nil
}

// openSession creates a session of the BMC, which ends with the conversation.
func (s *bmcSession) openSession() error {
	path := sessionsPath
	resp, err := s.login(path)
	if errors.Is(err, errMissing) || problem.Is(err, problem.Unsupported) { // not every BMC has the sessions there
		var top serviceRoot
		if _, err := s.get(rootPath, &top); err != nil {
			return err
		}
		if path = top.Links.Sessions.Path; path == "" {
			return problem.Unsupportedf("the BMC offers no sessions; set %s to %s", AuthKey, authBasic)
		}
		resp, err = s.login(path)
	}
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	token := resp.Header.Get("X-Auth-Token")
	if token == "" {
		return problem.Unavailablef("the BMC took the login, but gave no X-Auth-Token")
	}
	s.token = secret.New(token)
	at, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || !isLocalPath(at.Path) {
		return nil // nobody can end a session that has no address
	}
	s.at = at.Path
	return nil
}

// close deletes the session of the BMC, also if the operation was cut off.
func (s *bmcSession) close() {
	defer s.release()
	if s.at == "" {
		return
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), logoutTimeout)
	defer cancel()
	s.ctx, s.renewed = bye, true // of one that is gone nothing is left to delete
	if resp, err := s.ask(http.MethodDelete, s.at, nil, nil); err == nil {
		_ = resp.Body.Close()
	}
}

// renew opens another session in place of one that the BMC has forgotten, once. It deletes the former session first: a BMC that answers 401
// for one resource only, by a privilege or a licence, has it still, and has few.
func (s *bmcSession) renew() (bool, error) {
	if s.token.Empty() || s.renewed {
		return false, nil
	}
	s.renewed = true
	if s.at != "" {
		if resp, err := s.ask(http.MethodDelete, s.at, nil, nil); err == nil {
			_ = resp.Body.Close()
		}
	}
	s.token, s.at = secret.Value{}, ""
	return true, s.openSession()
}

// login sends name and password to the sessions of the BMC.
func (s *bmcSession) login(path string) (*http.Response, error) {
	if !isLocalPath(path) {
		return nil, problem.Unavailablef("it links to %s, which is no path on it", s.quote(path))
	}
	resp, err := s.ask(http.MethodPost, path, map[string]string{"UserName": s.conf.username, "Password": s.conf.password.Reveal()}, nil)
	if err != nil {
		return nil, s.fault(err)
	}
	return resp, nil
}

// logsIn tells whether a request carries user name and password: it has basic authentication, or creates a session.
func logsIn(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || r.Method == http.MethodPost && strings.HasSuffix(strings.TrimRight(r.URL.Path, "/"), "/Sessions")
}

const jsonType = "application/json"

// ask sends a request with what the login gave. An answer that is no success is a *bmcRefusal.
func (s *bmcSession) ask(method, path string, body any, headers map[string]string) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(s.ctx, method, s.conf.base.String()+path, content)
	if err != nil {
		return nil, err
	}
	// Some BMCs want the type of a body even where there is none.
	for name, value := range map[string]string{"User-Agent": "salvor", "Accept": jsonType, "Content-Type": jsonType} {
		req.Header.Set(name, value)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	switch {
	case !s.token.Empty():
		req.Header.Set("X-Auth-Token", s.token.Reveal())
	case s.basic && s.conf.username != "" && !s.conf.password.Empty():
		req.SetBasicAuth(s.conf.username, s.conf.password.Reveal())
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized {
		_ = resp.Body.Close() // the BMC takes one request at a time
		if renewed, err := s.renew(); err != nil {
			return nil, err
		} else if renewed {
			return s.ask(method, path, body, headers)
		}
	}
	return nil, newRefusal(resp.StatusCode, text)
}

// get reads a resource into doc, which holds only what the operation needs: a BMC
// that gets something else wrong is still of use. The ETag is empty if there is none.
func (s *bmcSession) get(path string, doc any) (etag string, err error) {
	body, header, err := s.exchange(http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, doc); err != nil {
		return "", problem.Unavailablef("its answer for %s makes no sense: %s", driver.Sanitize(path), s.quote(err.Error()))
	}
	return header.Get("ETag"), nil
}

// exchange sends a request to a path of the BMC and reads the whole answer.
func (s *bmcSession) exchange(method, path string, body any) ([]byte, http.Header, error) {
	if !isLocalPath(path) {
		return nil, nil, problem.Unavailablef("it links to %s, which is no path on it", s.quote(path))
	}
	resp, err := s.ask(method, path, body, nil)
	if err != nil {
		return nil, nil, s.fault(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, s.fault(err)
	}
	return text, resp.Header, nil
}

// post runs an action. definite tells that a failure was the BMC's word, not the
// wire's, so that the order was surely not taken.
func (s *bmcSession) post(path string, body any) (definite bool, err error) {
	if !isLocalPath(path) {
		return true, problem.Unavailablef("it links to %s, which is no path on it", s.quote(path))
	}
	resp, err := s.ask(http.MethodPost, path, body, nil)
	if err != nil {
		var refusal *bmcRefusal
		return errors.As(err, &refusal), s.fault(err)
	}
	_ = resp.Body.Close()
	return true, nil
}

// patch changes a resource under its ETag. Some BMCs demand If-Match, some refuse the
// very tag that they gave, some want it without its weak mark: all three are tried,
// for 412 and 428 mean that nothing was changed.
func (s *bmcSession) patch(path, etag string, body any) error {
	if !isLocalPath(path) {
		return problem.Unavailablef("it links to %s, which is no path on it", s.quote(path))
	}
	tags := []string{""}
	if etag != "" {
		tags = []string{etag, strings.TrimPrefix(etag, "W/"), "*", ""}
	}
	var err error
	for i, tag := range tags {
		if i > 0 && tag == tags[i-1] {
			continue
		}
		var resp *http.Response
		headers := map[string]string{}
		if tag != "" {
			headers["If-Match"] = tag
		}
		if resp, err = s.ask(http.MethodPatch, path, body, headers); err == nil {
			_ = resp.Body.Close()
			return nil
		}
		var refusal *bmcRefusal
		if !errors.As(err, &refusal) || (refusal.status != http.StatusPreconditionFailed && refusal.status != http.StatusPreconditionRequired) {
			break
		}
	}
	return s.fault(err)
}

// quote quotes text of the BMC, with every form of the credentials masked.
func (s *bmcSession) quote(text string) string {
	return problem.Quote(driver.Sanitize(text, s.secrets()...))
}

func (s *bmcSession) secrets() []secret.Value {
	all := append([]secret.Value{s.token}, s.hidden...)
	password := s.conf.password.Reveal()
	if password == "" {
		return all
	}
	basic := base64.StdEncoding.EncodeToString([]byte(s.conf.username + ":" + password))
	return append(all, s.conf.password, secret.New(basic))
}

var errMissing = errors.New("the BMC has no such resource")

// fault gives an error of ask its kind. A refusal of the BMC stays in it, as a *bmcRefusal.
func (s *bmcSession) fault(err error) error {
	var refusal *bmcRefusal
	if !errors.As(err, &refusal) {
		if refused := refusedTLS(err); refused != nil {
			return refused
		}
		return driver.Trouble(err, s.secrets()...)
	}
	text := s.quote(refusal.text)
	switch {
	case refusal.lacksLicence():
		return problem.Unsupportedf("%w: %w; buy or renew it, or choose interfaces that do without: %s", refusal, driver.ErrLicence, text)
	case refusal.status == http.StatusUnauthorized:
		return problem.Invalidf("%w: %w %s or %s: %s", refusal, driver.ErrLogin, s.conf.usernameKey, s.conf.passwordKey, text)
	case refusal.has(messageUnreachable):
		return problem.Unavailablef("%w: the BMC cannot fetch it: %s", refusal, text)
	case refusal.isTemporary():
		return problem.Unavailablef("%w: the BMC cannot do it now: %s", refusal, text)
	}
	switch refusal.status {
	case http.StatusForbidden:
		return problem.Invalidf("%w: %w: %s", refusal, errForbidden, text)
	case http.StatusNotFound:
		return problem.Invalidf("%w: %w (%s?): %s", refusal, errMissing, SystemKey, text)
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return problem.Unsupportedf("%w: the BMC cannot do it: %s", refusal, text)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return problem.Invalidf("%w: the BMC refuses the request: %s", refusal, text)
	}
	return problem.Unavailablef("%w: %s", refusal, text)
}
