package conversation

import (
	"context"
	"errors"
	"net/http"

	"salvor/driver"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/problem"
)

// ErrMissing is the refusal of a BMC that does not have a resource. A resource that the BMC had a moment ago is not missing yet.
var ErrMissing = errors.New("the BMC has no such resource")

// ErrForbidden is the answer of a BMC to a user without the right, and of some BMCs to a request that their licence lacks.
var ErrForbidden = errors.New("the BMC does not let this user do it")

// fault gives an error of ask its kind. A refusal of the BMC stays in it, as a *refusal.Refusal.
func (c *Conversation) fault(method, ref string, err error) error {
	path := link.Join(RootPath, ref)
	var r *refusal.Refusal
	if !errors.As(err, &r) {
		if explain := c.settings.Explain; explain != nil && explain(err) != nil {
			return explain(err)
		}
		err = driver.Trouble(err, c.Secrets()...)
		if errors.Is(err, context.DeadlineExceeded) { // a BMC that is silent at one resource answers at others
			return problem.New(problem.KindOf(err), "%w at %s", err, driver.Sanitize(path))
		}
		return err
	}
	text := c.Quote(r.Text)
	switch {
	case r.LacksLicence():
		return problem.Unsupportedf("%w: %w; buy or renew it, or choose interfaces that do without: %s", r, driver.ErrLicence, text)
	case r.Status == http.StatusUnauthorized:
		login := c.settings.Login
		return problem.Invalidf("%w: %w %s or %s: %s", r, driver.ErrLogin, login.UsernameKey, login.PasswordKey, text)
	case r.Has(refusal.Unreachable):
		return problem.Unavailablef("%w: the BMC cannot fetch it: %s", r, text)
	case r.IsTemporary():
		return problem.Unavailablef("%w: the BMC cannot do it now: %s", r, text)
	}
	switch r.Status {
	case http.StatusForbidden:
		return problem.Invalidf("%w: %w: %s", r, ErrForbidden, text)
	case http.StatusNotFound:
		if method != http.MethodDelete && c.settings.Memory.MissesNow(c.settings.Key, path) {
			r.Passing = true
			return problem.Unavailablef("%w: the BMC does not show %s now, which it had a short time ago: %s", r, driver.Sanitize(path), text)
		}
		return problem.Invalidf("%w: %w (%s): %s", r, ErrMissing, driver.Sanitize(path), text)
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return problem.Unsupportedf("%w: the BMC cannot do it at %s: %s", r, driver.Sanitize(path), text)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return problem.Invalidf("%w: the BMC refuses the request: %s", r, text)
	}
	return problem.Unavailablef("%w: %s", r, text)
}
