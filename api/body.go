package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"salvor/problem"
)

const (
	// MaxBody bounds a request's body, in bytes.
	MaxBody = 1 << 20
	// MaxProvisionBody bounds a body that may hold a config drive, in bytes.
	MaxProvisionBody = 64 << 20
	// MaxDepth bounds how deep JSON may be nested.
	MaxDepth = 25
)

// ReadBody reads at most limit bytes of the body: 413 beyond, 400 if the client breaks off.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body := http.MaxBytesReader(w, r.Body, limit)
	read := func() ([]byte, error) { return io.ReadAll(body) }
	v := requestStateOf(r)
	isStranger := v != nil && !v.isProved() && (v.open || v.login)
	if isStranger {
		read = func() ([]byte, error) { return v.readStranger(w, body) }
	}
	b, err := read()
	var large *http.MaxBytesError
	var ours *Error
	if errors.As(err, &large) {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Guard: true, Text: fmt.Sprintf("Request body is larger than %d bytes.", limit)}
	}
	if errors.As(err, &ours) || problem.Is(err, problem.Invalid) {
		return nil, err
	}
	if err != nil {
		return nil, problem.Invalidf("read the request body: %w", err)
	}
	if err := checkValues(b); err != nil {
		return nil, err
	}
	if isStranger {
		if err := v.workOn(r.Context(), b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Decode reads one JSON value of bounded depth: numbers as float64, objects as
// map[string]any. Whatever a database cannot keep (NUL, broken UTF-8) is refused here.
func Decode(b []byte) (any, error) {
	if err := checkDepth(b); err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, problem.Invalidf("The request body is not valid UTF-8.")
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&v); err != nil {
		return nil, problem.Invalidf("Malformed JSON in the request body: %s", jsonWords(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, problem.Invalidf("Malformed JSON in the request body: more than one value")
	}
	if err := checkStrings(v); err != nil {
		return nil, err
	}
	return v, nil
}

// DecodeObject is Decode for bodies that must be a JSON object.
func DecodeObject(b []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, problem.Invalidf("A JSON object is required in the request body.")
	}
	v, err := Decode(b)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, problem.Invalidf("The request body must be a JSON object.")
	}
	return o, nil
}

// jsonWords keeps what a JSON error says of the place and leaves Go's words out.
func jsonWords(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("%s (at byte %d)", syntax.Error(), syntax.Offset)
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return "a number is out of range"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "it ends too early"
	}
	return err.Error()
}

// checkDepth counts brackets outside of strings, so that a bomb costs no memory.
func checkDepth(b []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return &Error{Status: http.StatusBadRequest, Guard: true, Text: fmt.Sprintf("The request body is nested deeper than %d levels.", MaxDepth)}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// CheckText refuses text that a database cannot keep or that hides in a log.
func CheckText(s string) error {
	if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
		return problem.Invalidf("Text must be valid UTF-8 without NUL characters.")
	}
	return nil
}

func checkStrings(v any) error {
	switch v := v.(type) {
	case string:
		return CheckText(v)
	case []any:
		for _, e := range v {
			if err := checkStrings(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, e := range v {
			if err := CheckText(k); err != nil {
				return err
			}
			if err := checkStrings(e); err != nil {
				return err
			}
		}
	}
	return nil
}
