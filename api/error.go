package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"salvor/problem"
)

// Error is an error that HTTP knows and the other rooms do not, as 406 or 413.
type Error struct {
	Status int
	Text   string
	// Router marks errors about the path or the version, which Ironic spells another way than the rest.
	Router bool
	// Guard marks errors about the size or depth of a body, found before anything read it: Ironic encodes their JSON once, not twice.
	Guard bool
	// Header is added to the answer.
	Header http.Header
	// Cause is the error that this one tells in HTTP's terms; nil: it is none but its own.
	Cause error
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.Cause }

// NotAcceptablef makes a 406: the request needs another microversion.
func NotAcceptablef(format string, args ...any) error {
	return &Error{Status: http.StatusNotAcceptable, Text: fmt.Sprintf(format, args...)}
}

// statuses says which status a kind of problem is.
var statuses = map[problem.Kind]int{
	problem.Invalid:     http.StatusBadRequest,
	problem.NotFound:    http.StatusNotFound,
	problem.Conflict:    http.StatusConflict,
	problem.Forbidden:   http.StatusForbidden,
	problem.Unsupported: http.StatusBadRequest,
	problem.Unavailable: http.StatusServiceUnavailable,
}

// Status finds the HTTP status of an error; 500 for all that has no kind.
func Status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	if problem.IsUnconfirmed(err) {
		// Some clients repeat a 503 by themselves, but this change may have been made.
		return http.StatusGatewayTimeout
	}
	if status, ok := statuses[problem.KindOf(err)]; ok {
		return status
	}
	if outOfTime(err) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// setHeaders sets the headers of an error: its own, and Retry-After if the client may send the request again later.
func setHeaders(h http.Header, err error) {
	var known *Error
	if errors.As(err, &known) {
		for k, values := range known.Header {
			h[k] = values
		}
	}
	if after := problem.RetryAfterOf(err); after > 0 {
		h.Set("Retry-After", retryAfterSeconds(after))
	}
}

// outOfTime tells whether the request's own time ended, or its client went away.
func outOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// UserText gives the text of an error for the user: nothing of the inside of an internal one.
func UserText(err error, requestID string) string {
	if Status(err) == http.StatusInternalServerError {
		return "internal error; request id " + requestID
	}
	if problem.KindOf(err) == problem.Internal && outOfTime(err) {
		return "The request could not be worked off in its time; ask again."
	}
	if problem.IsHidden(err) && requestID != "" {
		return problem.Public(err) + "; request id " + requestID
	}
	return problem.Public(err)
}

// hiddenRetry is the Retry-After of a request that failed because the store did not answer.
const hiddenRetry = 5 * time.Second

// Explain gives status and text of the answer to a request that failed, and sets the answer's headers. The hidden part of the error
// goes into the log line of the request.
func Explain(w http.ResponseWriter, r *http.Request, err error) (status int, message string) {
	info := Of(r.Context())
	status = Status(err)
	setHeaders(w.Header(), err)
	if problem.IsHidden(err) {
		info.hidden = err.Error()
		if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", retryAfterSeconds(hiddenRetry))
		}
	}
	if !reads(r) && info.changed.Load() && status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "" {
		// A client that repeats the request would do twice what is committed already.
		w.Header().Del("Retry-After")
		return http.StatusGatewayTimeout, info.WordsFor(err) + "; a part of the request was done: look before you repeat it"
	}
	return status, info.WordsFor(err)
}

// WordsFor is Words for the principal of the request: tenants do not see text of BMCs, agents and hosts.
func (r *Request) WordsFor(err error) string {
	return r.User.Redact(UserText(err, r.ID))
}
