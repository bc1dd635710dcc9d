package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"salvor/access"
	"salvor/problem"
	"salvor/record"
)

// Call is a request on its way through a Router.
type Call struct {
	W         http.ResponseWriter
	R         *http.Request
	Principal access.Principal
	Base      string // begins every link, no trailing slash
	Query     url.Values
	// Minor is the microversion that the request speaks, where the dialect's Before reads one.
	Minor int
	// Args are the arguments of the path, in its order.
	Args     []string
	argNames []string
}

// Permitted refuses (Forbidden) what the policy file denies by a rule. The rule's target is the asker's own project: what belongs to
// another is not there for whoever is no administrator.
func (c *Call) Permitted(p access.Policy, rule string) error {
	if allowed, decided := p.Overruled(rule, c.Principal, access.Target{Owner: c.Project()}); rule != "" && decided && !allowed {
		return problem.Forbiddenf("Policy doesn't allow %s to be performed.", rule)
	}
	return nil
}

// Again is the call with who asks proved anew, for answers that go on for longer than a request.
func (c *Call) Again(ctx context.Context, auth Authenticator) (*Call, error) {
	again := *c
	again.R = c.R.WithContext(ctx)
	var err error
	if again.Principal, err = auth.Authenticate(again.R); err != nil {
		return nil, err
	}
	return &again, again.allow(access.Read, c.R.Method+" "+c.R.URL.Path)
}

// Rank is what the asker is to rules that know three roles and no owner.
func (c *Call) Rank() access.Rank {
	return c.Principal.Rank(reads(c.R))
}

// Admin tells whether the asker may see, or with this request change, what belongs to others.
func (c *Call) Admin() bool { return c.Rank() == access.Oversight }

// Project is the id of the project that the asker works in; empty: none.
func (c *Call) Project() string { return c.Principal.Scope.Project }

// BaseURL is what every link of an answer begins with, without a trailing slash.
func BaseURL(r *http.Request, public string) string {
	if public != "" {
		return strings.TrimSuffix(public, "/")
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Arg is an argument of the path; UUIDs are in lower case.
func (c *Call) Arg(name string) string {
	i := slices.Index(c.argNames, name)
	if i < 0 {
		return ""
	}
	if a := c.Args[i]; !record.IsUUID(a) {
		return a
	}
	return strings.ToLower(c.Args[i])
}

// Asker is who asks, for the timeline.
func (c *Call) Asker() record.Asker {
	info := Of(c.R.Context())
	return record.Asker{RequestID: info.ID, User: c.Principal.User}
}

// ReadInto decodes the body, a JSON object of bounded size and depth, into v.
func (c *Call) ReadInto(v any) error { return c.readInto(v, false) }

// ReadExactly is ReadInto for what costs data if it is not understood: a key that v has not is refused.
func (c *Call) ReadExactly(v any) error { return c.readInto(v, true) }

func (c *Call) readInto(v any, exact bool) error {
	b, err := ReadBody(c.W, c.R, MaxBody)
	if err != nil {
		return err
	}
	if _, err := DecodeObject(b); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if exact {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		if key, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
			return problem.Invalidf("Unknown field/attribute %.100s; nothing was done.", key)
		}
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return problem.Invalidf("Invalid input for field/attribute %s: a %s is not what belongs there.", kind.Field, kind.Value)
		}
		return problem.Invalidf("Malformed JSON in the request body: %s", jsonWords(err))
	}
	return nil
}

// JSON answers with a value.
func (c *Call) JSON(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return c.Raw(status, b)
}

// Raw answers with JSON that is encoded already.
func (c *Call) Raw(status int, body []byte) error {
	WriteJSON(c.W, status, body)
	return nil
}

// WriteJSON answers with JSON that is encoded already.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	WriteJSONHeader(w, status, len(body))
	_, _ = w.Write(body) // a client that went away needs no answer
}

// WriteJSONHeader begins an answer with a JSON body of so many bytes.
func WriteJSONHeader(w http.ResponseWriter, status, length int) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(status)
}

// Empty answers without a body.
func (c *Call) Empty(status int) error {
	c.W.WriteHeader(status)
	return nil
}
