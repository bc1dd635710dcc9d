// Package answer reads the answers of peers, such as agents, BMCs, VM hosts and services, of which any may lie. An answer is bounded in bytes and in
// JSON values, and all answers that a process has in work at one time share one budget of memory. It must not know what an answer is about.
package answer

import (
	"bytes"
	"context"
	"errors"
	"io"

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
// that the caller will decode, is taken from the share. A share of nil takes no memory from the budget.
//
// The error is ErrTooLarge, one of Grow, or that of the reader.
func Read(ctx context.Context, s *Share, from io.Reader, limit int64) ([]byte, error) {
	return ReadUpTo(ctx, s, from, limit, loose.MaxValues)
}

// ReadUpTo is Read for an answer with another bound of its values.
func ReadUpTo(ctx context.Context, s *Share, from io.Reader, limit int64, values int) ([]byte, error) {
	from = io.LimitReader(from, limit+1)
	buffer := make([]byte, 0, min(firstBuffer, limit+1))
	for {
		n, err := from.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		switch {
		case int64(len(buffer)) > limit:
			return nil, ErrTooLarge
		case err == io.EOF:
			return buffer, s.growValues(ctx, buffer, values)
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

// growValues takes the memory for the values of a text, and refuses a text with too many.
func (s *Share) growValues(ctx context.Context, text []byte, most int) error {
	if !isJSON(text) {
		return nil
	}
	count := loose.CountValues(text, most)
	if count > most {
		return problem.Unavailablef("the answer holds more than %d values", most)
	}
	return s.Grow(ctx, valueCost*int64(count))
}

// isJSON tells whether a text begins as a list or an object. Any other text is one value at most.
func isJSON(text []byte) bool {
	text = bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// Admit takes the memory for the values of a text that the caller has already read, and refuses a text of more than most values.
func Admit(ctx context.Context, s *Share, text []byte, most int) error {
	count := loose.CountValues(text, most)
	if count > most {
		return problem.Invalidf("it holds more than %d values", most)
	}
	return s.Grow(ctx, byteCost*int64(len(text))+valueCost*int64(count))
}
