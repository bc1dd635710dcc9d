// Package problem holds the kinds of error that salvor tells apart. A kind says
// who can mend what went wrong; it knows nothing of HTTP, SQL or hardware. All
// errors without a kind are internal: users see "internal error" and a request id.
package problem

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the class of an error.
type Kind int

const (
	// Internal is every error that nobody gave a kind: ours to mend.
	Internal Kind = iota
	// Invalid: the request or the configuration is wrong; asking again as is cannot help.
	Invalid
	// NotFound: the named thing does not exist, or the asker may not see it.
	NotFound
	// Conflict: the thing is in a state, or held by somebody, that forbids the request now.
	Conflict
	// Forbidden: the asker may not do this.
	Forbidden
	// Unsupported: this driver or interface cannot do it.
	Unsupported
	// Unavailable: something needed does not answer now; asking again may help.
	Unavailable
)

var kindNames = [...]string{"internal", "invalid", "not found", "conflict", "forbidden", "unsupported", "unavailable"}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// Error is an error with a kind. Its text is written for the user.
type Error struct {
	Kind Kind
	text string
	err  error
}

func (e *Error) Error() string { return e.text }

// Unwrap gives the error that was wrapped by %w, if any.
func (e *Error) Unwrap() error { return e.err }

// New makes an error of a kind chosen at run time; a format may wrap with %w, more than once too.
func New(kind Kind, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	wrapped := errors.Unwrap(err)
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		wrapped = errors.Join(several.Unwrap()...)
	}
	return &Error{Kind: kind, text: err.Error(), err: wrapped}
}

// Invalidf makes an Invalid error; the format may wrap with %w, as in all of its siblings.
func Invalidf(format string, args ...any) error { return New(Invalid, format, args...) }

// NotFoundf makes a NotFound error.
func NotFoundf(format string, args ...any) error { return New(NotFound, format, args...) }

// Conflictf makes a Conflict error.
func Conflictf(format string, args ...any) error { return New(Conflict, format, args...) }

// Forbiddenf makes a Forbidden error.
func Forbiddenf(format string, args ...any) error { return New(Forbidden, format, args...) }

// Unsupportedf makes an Unsupported error.
func Unsupportedf(format string, args ...any) error { return New(Unsupported, format, args...) }

// Unavailablef makes an Unavailable error.
func Unavailablef(format string, args ...any) error { return New(Unavailable, format, args...) }

// KindOf finds the outermost kind in the chain of err; Internal if there is none.
func KindOf(err error) Kind {
	var p *Error
	if errors.As(err, &p) {
		return p.Kind
	}
	return Internal
}

// Is reports whether err is of the kind. It is false for a nil error.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// ParseKind reads the name of a kind; Internal for any other word.
func ParseKind(name string) Kind {
	for k, n := range kindNames {
		if n == name {
			return Kind(k)
		}
	}
	return Internal
}

// few is an error that some more tries may heal, and many will not.
type few struct {
	error
	most int
}

func (f few) Unwrap() error { return f.error }

// Tries bounds how often in a row what failed so is tried at all: 3 for a name that nobody knows. Without it, only time bounds that.
func Tries(most int, err error) error { return few{err, most} }

// MostTries is the bound that Tries gave the error; 0 if there is none.
func MostTries(err error) int {
	var f few
	if errors.As(err, &f) {
		return f.most
	}
	return 0
}

// ofDatabase is an error of salvor's own database.
type ofDatabase struct{ error }

func (o ofDatabase) Unwrap() error { return o.error }

// Database marks an error of salvor's own database, which says nothing about a machine or a user's request.
func Database(err error) error { return ofDatabase{err} }

// IsDatabase tells whether an error, or one that it wraps, was marked by Database.
func IsDatabase(err error) bool {
	var o ofDatabase
	return errors.As(err, &o)
}

// retryAfter is an error with the time after which a client may send the request again.
type retryAfter struct {
	error
	after time.Duration
}

func (r retryAfter) Unwrap() error { return r.error }

// RetryAfter adds to an error the time after which a client may send the request again.
func RetryAfter(after time.Duration, err error) error { return retryAfter{err, after} }

// RetryAfterOf is the time that RetryAfter gave the error; 0 if there is none.
func RetryAfterOf(err error) time.Duration {
	var r retryAfter
	if errors.As(err, &r) {
		return r.after
	}
	return 0
}
