// Package answer reads the answers of peers, such as agents, BMCs, VM hosts and services, of which any may lie. An answer is bounded in bytes and in
// JSON values, and all answers that a process has in work at one time share one budget of memory. It must not know what an answer is about.
package answer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"unicode"
	"unicode/utf8"

	"salvor/problem"
	"salvor/wire/loose"
)

// ErrTooLarge says that an answer has more bytes than its reader takes.
var ErrTooLarge = errors.New("the answer is larger than one may be")

// Costs of an answer, in bytes of memory.
const (
	// byteCost is the cost of a byte: the buffer is copied while it grows.
	byteCost = 2
	// valueCost is the cost of a JSON value. A value of two characters, such as [], becomes a struct, an interface or a map.
	valueCost = 128
	// firstBuffer is the size of the first buffer.
	firstBuffer = 16 << 10
)

// Read reads an answer of at most limit bytes, which has at most loose.MaxValues values if it is JSON. The memory for the bytes, and for the values
// that the caller will decode, is taken from the share. A share of nil takes no memory from the budget. Read stops at the first value too many, so
// the rest of a hostile answer is neither received nor decrypted.
//
// The error is ErrTooLarge, one of Grow, or that of the reader.
func Read(ctx context.Context, s *Share, from io.Reader, limit int64) ([]byte, error) {
	return ReadUpTo(ctx, s, from, limit, loose.MaxValues)
}

// ReadUpTo is Read for an answer with another bound of its values.
func ReadUpTo(ctx context.Context, s *Share, from io.Reader, limit int64, values int) ([]byte, error) {
	from = io.LimitReader(from, limit+1)
	buffer := make([]byte, 0, min(firstBuffer, limit+1))
	var counted meter
	for {
		n, err := from.Read(buffer[len(buffer):cap(buffer)])
		counted.add(buffer[len(buffer):len(buffer)+n], values)
		buffer = buffer[:len(buffer)+n]
		switch {
		case int64(len(buffer)) > limit:
			return nil, ErrTooLarge
		case counted.values > values:
			return nil, problem.Unavailablef("the answer holds more than %d values", values)
		case err == io.EOF:
			return buffer, s.Grow(ctx, valueCost*int64(counted.values))
		case err != nil:
			return nil, err
		}
		if len(buffer) == cap(buffer) {
			grown := min(2*cap(buffer), int(limit)+1)
			if err := s.Grow(ctx, byteCost*int64(grown-cap(buffer))); err != nil {
				return nil, err
			}
			buffer = append(make([]byte, 0, grown), buffer...)
		}
	}
}

// meter counts the values of an answer while it comes. A text that begins neither as a list nor as an object has none that count.
type meter struct {
	begun, isJSON bool
	counter       loose.ValueCounter
	values        int
}

func (m *meter) add(piece []byte, most int) {
	if !m.begun {
		// A byte order mark may be cut in two, so its bytes are skipped one by one.
		piece = bytes.TrimLeftFunc(piece, func(r rune) bool { return r == '\ufeff' || r == utf8.RuneError || unicode.IsSpace(r) })
		m.begun = len(piece) > 0
		m.isJSON = m.begun && (piece[0] == '{' || piece[0] == '[')
	}
	if m.isJSON {
		m.values = m.counter.Add(piece, most)
	}
}

// Admit takes the memory for the values of a text that the caller has already read, and refuses a text of more than most values.
func Admit(ctx context.Context, s *Share, text []byte, most int) error {
	count := loose.CountValues(text, most)
	if count > most {
		return problem.Invalidf("it holds more than %d values", most)
	}
	return s.Grow(ctx, byteCost*int64(len(text))+valueCost*int64(count))
}
