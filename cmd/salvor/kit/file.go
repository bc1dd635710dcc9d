package kit

import (
	"fmt"
	"io"
	"os"
)

// MaxArgumentFile bounds a file that is named as an argument, in bytes.
const MaxArgumentFile = 16 << 20

// ReadArgument reads a file of at most limit bytes, or standard input for -.
func ReadArgument(stdin io.Reader, name string, limit int64) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", name, limit)
	}
	return text, nil
}
