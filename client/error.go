package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"salvor/problem"
)

const maxMessage = 2000

// Error is what an API said when it refused a request.
type Error struct {
	// Status is the HTTP status, 300 and more.
	Status int
	// Message is the server's own sentence, or the status in words.
	Message string
	// Served is the range of microversions named beside it, if any.
	Served Range
}

func (e *Error) Error() string { return e.Message }

// StatusOf finds the HTTP status in an error of this package; 0 where no server answered.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func (r Request) refused(answer *Answer) error {
	e := &Error{Status: answer.Status, Message: errorMessage(answer.Body), Served: Range{}}
	if e.Message == "" {
		e.Message = http.StatusText(answer.Status)
	}
	if answer.Status == http.StatusNotAcceptable {
		e.Served = answer.versions()
	}
	return problem.New(kindOf(answer.Status), "%s: %d: %w", r, answer.Status, e)
}

func kindOf(status int) problem.Kind {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return problem.Forbidden
	case status == http.StatusNotFound, status == http.StatusGone:
		return problem.NotFound
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return problem.Conflict
	case status == http.StatusNotAcceptable, status == http.StatusNotImplemented:
		return problem.Unsupported
	case status == http.StatusTooManyRequests, status >= 500:
		return problem.Unavailable
	}
	return problem.Invalid
}

// errorBody covers the forms in which Ironic, its router and agents give a reason.
type errorBody struct {
	Wrapped     json.RawMessage `json:"error_message"`
	String      string          `json:"faultstring"`
	Description string          `json:"description"`
	Title       string          `json:"title"`
}

// namedErrorMessage finds the sentence where the one key of the body names the error, as in the Compute API and in salvor's own.
func namedErrorMessage(body []byte) string {
	var byName map[string]json.RawMessage
	if json.Unmarshal(body, &byName) != nil || len(byName) != 1 {
		return ""
	}
	for _, raw := range byName {
		var message struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(raw, &message) == nil {
			return truncateLine(strings.TrimSpace(message.Message))
		}
	}
	return ""
}

// errorMessage finds the sentence in an error body. Ironic puts JSON as a string into
// the JSON, except where it does not.
func errorMessage(body []byte) string {
	if message := namedErrorMessage(body); message != "" {
		return message
	}
	text := body
	for range 3 {
		var f errorBody
		if json.Unmarshal(text, &f) != nil {
			break
		}
		for _, s := range []string{f.String, f.Description, f.Title} {
			if s = strings.TrimSpace(s); s != "" {
				return truncateLine(s)
			}
		}
		var inner string
		switch {
		case len(f.Wrapped) == 0:
			return ""
		case json.Unmarshal(f.Wrapped, &inner) == nil:
			text = []byte(inner)
		default:
			text = f.Wrapped
		}
	}
	return truncateLine(firstLine(string(text)))
}

// firstLine takes from an answer that is no JSON what fits into a log line; a page
// of HTML says less than its status.
func firstLine(s string) string {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "<") {
		return ""
	}
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

func truncateLine(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}
