package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

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
	if status, ok := statuses[problem.KindOf(err)]; ok {
		return status
	}
	if outOfTime(err) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// outOfTime tells whether the request's own time ended, or its client went away.
func outOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Words gives the text of an error for the user: nothing of the inside of an internal one.
func Words(err error, requestID string) string {
	if Status(err) == http.StatusInternalServerError {
		return "internal error; request id " + requestID
	}
	if problem.KindOf(err) == problem.Internal && outOfTime(err) {
		return "The request could not be worked off in its time; ask again."
	}
	return err.Error()
}

// WordsFor is Words for who asked: tenants are not shown what BMCs, agents and hosts wrote.
func (r *Request) WordsFor(err error) string {
	words := Words(err, r.ID)
	if !r.User.SeesQuotations() {
		words = problem.Redact(words)
	}
	return words
}
