package ironic

import (
	"math"
	"strings"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// The builders of fields that many kinds of record have alike.

// idField is the UUID, which clients may choose.
func idField[R any, P recordOf[R]]() recordField[R] {
	return recordField[R]{
		name: "uuid", since: 1, use: creatable | ordered,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendString(b, P(r).Head().ID) },
		set: func(_ *ironicCall, r *R, v any) error {
			word, err := wantText("uuid", v)
			P(r).Head().ID = strings.ToLower(word)
			return err
		},
	}
}

// lateFields end every record: its times and its links.
func lateFields[R any, P recordOf[R]](path string) []recordField[R] {
	return []recordField[R]{
		timeField("created_at", 1, func(r *R) time.Time { return P(r).Head().CreatedAt }),
		timeField("updated_at", 1, func(r *R) time.Time { return P(r).Head().UpdatedAt }),
		linkField("links", 1, func(r *R) (string, string) { return path + "/" + P(r).Head().ID, "" }),
	}
}

func timeField[R any](name string, since metal.Version, get func(*R) time.Time) recordField[R] {
	return recordField[R]{name: name, since: since, use: ordered, write: func(b []byte, r *R, _ *ironicCall) []byte { return appendTime(b, get(r)) }}
}

// linkField leads to path, and below it.
func linkField[R any](name string, since metal.Version, path func(*R) (at, below string)) recordField[R] {
	return recordField[R]{name: name, since: since, write: func(b []byte, r *R, c *ironicCall) []byte {
		at, below := path(r)
		return appendLinks(b, c.Base, at, below)
	}}
}

// wordField is a string of at most longest characters; an empty one is shown as null.
func wordField[R any](name string, since metal.Version, u fieldUse, longest int, at func(*R) *string) recordField[R] {
	return recordField[R]{
		name: name, since: since, use: u,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendText(b, *at(r)) },
		get:   func(r *R) any { return orNil(*at(r)) },
		set: func(_ *ironicCall, r *R, v any) error {
			word, err := wantText(name, v)
			switch {
			case err != nil:
				return err
			case len([]rune(word)) > longest:
				return problem.Invalidf("Invalid input for field/attribute %s. It is too long: longer than %d characters.", name, longest)
			}
			*at(r) = word
			return nil
		},
	}
}

// requireField makes a field one that every record has.
func requireField[R any](f recordField[R]) recordField[R] {
	f.use |= required
	return f
}

// namedSince is a field that older clients patch and read, and name in no creation and no query.
func namedSince[R any](v metal.Version, f recordField[R]) recordField[R] {
	f.named = v
	return f
}

// rejectEmpty refuses an empty value: null is how a field is reset.
func rejectEmpty[R any](f recordField[R]) recordField[R] {
	set := f.set
	f.set = func(c *ironicCall, r *R, v any) error {
		if v == "" {
			return problem.Invalidf("A non-empty value is required when setting %s", f.name)
		}
		return set(c, r, v)
	}
	return f
}

// flagField is a boolean with the value that it has when nobody says.
func flagField[R any](name string, since metal.Version, u fieldUse, otherwise bool, at func(*R) *bool) recordField[R] {
	return recordField[R]{
		name: name, since: since, use: u,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendBool(b, *at(r)) },
		get:   func(r *R) any { return *at(r) },
		set: func(_ *ironicCall, r *R, v any) (err error) {
			if *at(r) = otherwise; v != nil {
				*at(r), err = wantBool(name, v)
			}
			return err
		},
	}
}

// numberField is a whole number.
func numberField[R any](name string, since metal.Version, u fieldUse, lowest, highest int, at func(*R) *int) recordField[R] {
	return recordField[R]{
		name: name, since: since, use: u,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendAny(b, float64(*at(r))) },
		get:   func(r *R) any { return float64(*at(r)) },
		set: func(_ *ironicCall, r *R, v any) (err error) {
			if *at(r) = 0; v != nil {
				*at(r), err = wantNumber(name, v, lowest, highest)
			}
			return err
		},
	}
}

// freeField is a free-form object that is shown as it is.
func freeField[R any](name string, since metal.Version, u fieldUse, at func(*R) *metal.Object) recordField[R] {
	return recordField[R]{
		name: name, since: since, use: u,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendObject(b, *at(r)) },
		get:   func(r *R) any { return orEmpty(*at(r)) },
		set:   func(_ *ironicCall, r *R, v any) (err error) { *at(r), err = wantObject(name, v); return err },
	}
}

// secretField is a free-form object that is shown with the mask over the values of keys
// that the rule names; who sends the mask back keeps what is stored.
func secretField[R any](name string, since metal.Version, u fieldUse, rule maskRule, at func(*R) *metal.Object) recordField[R] {
	f := freeField(name, since, u, at)
	f.write = func(b []byte, r *R, _ *ironicCall) []byte { return rule.appendMap(b, *at(r)) }
	f.set = func(_ *ironicCall, r *R, v any) error {
		o, err := wantObject(name, v)
		if err == nil {
			o, err = rule.restoreSecrets(name, o, *at(r))
		}
		if err == nil {
			*at(r) = o
		}
		return err
	}
	return f
}

// nodeRef is the UUID of the node that a record belongs to.
func nodeRef[R any](u fieldUse, at func(*R) *string) recordField[R] {
	return recordField[R]{
		name: "node_uuid", since: 1, use: u,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendText(b, *at(r)) },
		get:   func(r *R) any { return orNil(*at(r)) },
		set: func(_ *ironicCall, r *R, v any) error {
			word, err := wantText("node_uuid", v)
			if err == nil && !record.IsUUID(word) {
				err = problem.Invalidf("Invalid input for field/attribute node_uuid. Value: '%s'. Expected a UUID but received %s.", truncateInput(word), truncateInput(word))
			}
			*at(r) = strings.ToLower(word)
			return err
		},
	}
}

// uuidField is the UUID of another thing; none is shown as null.
func uuidField[R any](name string, since metal.Version, u fieldUse, at func(*R) *string) recordField[R] {
	f := wordField(name, since, u, maxText, at)
	f.set = func(_ *ironicCall, r *R, v any) error {
		word, err := wantText(name, v)
		if err == nil && word != "" && !record.IsUUID(word) {
			err = problem.Invalidf("Invalid input for field/attribute %s. Value: '%s'. Expected a UUID but received %s.", name, truncateInput(word), truncateInput(word))
		}
		*at(r) = strings.ToLower(word)
		return err
	}
	return f
}

func missingField(name string) error {
	return problem.Invalidf("Missing mandatory field: %s", name)
}

// wantNumber takes a whole number, as JSON writes it.
func wantNumber(name string, v any, lowest, highest int) (int, error) {
	n, ok := v.(float64)
	if !ok || n != math.Trunc(n) {
		return 0, wrongType(name, v, "an integer")
	}
	if n < float64(lowest) || n > float64(highest) {
		return 0, problem.Invalidf("Invalid input for field/attribute %s. It must be from %d to %d.", name, lowest, highest)
	}
	return int(n), nil
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func boolOrNil(b *bool) any {
	if b == nil {
		return nil
	}
	return *b
}

func orEmpty(o metal.Object) any {
	if o == nil {
		return metal.Object{}
	}
	return o
}

// maxText bounds a string of a record, in bytes; metal bounds most of them closer.
const maxText = 64 << 10

func wantText(name string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		if len(v) > maxText {
			return "", problem.Invalidf("%s is longer than %d bytes", name, maxText)
		}
		return v, nil
	}
	return "", wrongType(name, v, "a string")
}

func wantBool(name string, v any) (bool, error) {
	switch v := v.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case string: // as oslo reads them
		if b, ok := parseBool(v); ok {
			return b, nil
		}
	}
	return false, wrongType(name, v, "a boolean")
}

func wantObject(name string, v any) (metal.Object, error) {
	switch v := v.(type) {
	case nil:
		return metal.Object{}, nil
	case map[string]any:
		return v, nil
	}
	return nil, wrongType(name, v, "an object")
}

func wrongType(name string, v any, want string) error {
	switch s := v.(type) {
	case map[string]any:
		v = "an object" // which may hold a secret
	case []any:
		v = "a list"
	case string:
		if secret.IsKey(name) {
			v = strings.Repeat("*", min(len(s), 6))
		}
	}
	return problem.Invalidf("Invalid input for field/attribute %s. Value: '%.100v'. It must be %s.", name, v, want)
}
