package problem

import (
	"errors"
	"strings"
)

// hiding is an error whose text is for the log: clients see other words in its place.
type hiding struct {
	error
	public string
}

func (h hiding) Unwrap() error { return h.error }

// Hide gives an error words for clients. The error's own text, which may name users and addresses behind the program, is for the log.
func Hide(public string, err error) error { return hiding{err, public} }

// Public is the text of an error for clients. The public words of each hidden error replace that error's own text.
func Public(err error) string {
	text := err.Error()
	replaced := map[string]bool{}
	for _, h := range hidden(err) {
		whole := h.Error()
		switch {
		case replaced[whole]:
		case strings.Contains(text, whole):
			text = strings.ReplaceAll(text, whole, h.public)
			replaced[whole] = true
		default:
			return h.public // a caller reworded the error and may have kept a part of its text
		}
	}
	return text
}

// IsHidden tells whether the error has a part whose own text clients must not see.
func IsHidden(err error) bool { return len(hidden(err)) > 0 }

// hidden lists the outermost hidden errors of a tree.
func hidden(err error) []hiding {
	for err != nil {
		if h, ok := err.(hiding); ok {
			return []hiding{h}
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			var all []hiding
			for _, one := range many.Unwrap() {
				all = append(all, hidden(one)...)
			}
			return all
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// unconfirmed marks the error of a change that may have been made.
type unconfirmed struct{ error }

func (u unconfirmed) Unwrap() error { return u.error }

// Unconfirmed marks the error of a change that may or may not have been made. A client must look before it repeats the request.
func Unconfirmed(err error) error { return unconfirmed{err} }

// IsUnconfirmed tells whether the change may have been made in spite of the error.
func IsUnconfirmed(err error) bool {
	var u unconfirmed
	return errors.As(err, &u)
}
