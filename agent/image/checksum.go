package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"path"
	"strings"

	"salvor/problem"
	wire "salvor/wire/agent"
)

const maxSums = 1 << 20

// expectedChecksum is a checksum that is expected; value may be the URL of a checksum file.
type expectedChecksum struct{ algo, value string }

// algorithms by name, with the length of their text.
var algorithms = map[string]struct {
	digits int
	make   func() hash.Hash
}{
	"md5": {32, md5.New}, "sha256": {64, sha256.New}, "sha512": {128, sha512.New}, "sha384": {96, sha512.New384},
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// wanted finds the checksum in the order; os_hash_* comes first.
func (w Writer) wanted(info wire.Image) (expectedChecksum, error) {
	s := expectedChecksum{algo: strings.ToLower(info.HashAlgo), value: info.HashValue}
	if (info.HashAlgo == "") != (info.HashValue == "") {
		return s, problem.Invalidf("image %s: 'os_hash_algo' and 'os_hash_value' go together", info.ID)
	}
	if info.HashAlgo == "" {
		s = expectedChecksum{value: info.Checksum}
		if s.value == "" {
			return s, problem.Invalidf("Image checksum is not available, either the 'checksum' field or the 'os_hash_algo' and 'os_hash_value' fields pair must be set for image verification.")
		}
	}
	if isURL(s.value) {
		_, err := parseURL(s.value)
		return s, err
	}
	return w.settle(info, s)
}

// settle checks algorithm and value of a checksum.
func (w Writer) settle(info wire.Image, s expectedChecksum) (expectedChecksum, error) {
	s.value = strings.ToLower(strings.TrimSpace(s.value))
	if s.algo == "" {
		for name, a := range algorithms {
			if len(s.value) == a.digits {
				s.algo = name
			}
		}
	}
	a, ok := algorithms[s.algo]
	if !ok {
		return s, problem.Invalidf("image %s: the algorithm of its checksum (%.20q) is not known: want sha256 or sha512", info.ID, s.algo)
	}
	if s.algo == "md5" && !w.MD5 {
		return s, problem.Invalidf("image %s: MD5 checksums are not taken: give one of sha256 or sha512", info.ID)
	}
	if _, err := hex.DecodeString(s.value); err != nil || len(s.value) != a.digits {
		return s, problem.Invalidf("image %s: its %s checksum is not %d hex digits", info.ID, s.algo, a.digits)
	}
	return s, nil
}

// expected is wanted, with a checksum file fetched and read.
func (w Writer) expected(ctx context.Context, info wire.Image) (expectedChecksum, error) {
	s, err := w.wanted(info)
	if err != nil || !isURL(s.value) {
		return s, err
	}
	of := info
	of.ID = "checksum of image " + info.ID
	text, err := w.fetch(ctx, of, s.value, maxSums)
	if err != nil {
		return s, err
	}
	u, err := parseURL(info.URLs[0])
	if err != nil {
		return s, err
	}
	name := path.Base(u.Path)
	value := findSum(text, name)
	if value == "" {
		return s, newFailure(wire.ErrDownload, "image %s: its checksum file names no checksum of %q", info.ID, name)
	}
	return w.settle(info, expectedChecksum{algo: s.algo, value: value})
}

// findSum reads the forms of checksum files: "SUM", "SUM  name", "SUM *name" and
// "SHA256 (name) = SUM".
func findSum(text []byte, name string) string {
	var lines []string
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for scanner.Scan() {
		if line := strings.TrimSpace(scanner.Text()); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 1 && isSum(lines[0]) {
		return lines[0]
	}
	for _, line := range lines {
		fields := strings.Fields(line)
		last := fields[len(fields)-1]
		switch {
		case len(fields) == 2 && isSum(fields[0]) && strings.TrimPrefix(strings.TrimPrefix(last, "*"), "./") == name:
			return fields[0]
		case len(fields) == 4 && fields[1] == "("+name+")" && fields[2] == "=" && isSum(last):
			return last
		}
	}
	return ""
}

func isSum(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && (len(text) == 32 || len(text) == 64 || len(text) == 96 || len(text) == 128)
}

// check compares what came with what was expected.
func (j *imageWrite) check(h hash.Hash, from *imageStream) error {
	is := hex.EncodeToString(h.Sum(nil))
	if is == j.want.value {
		return nil
	}
	return newFailure(wire.ErrChecksum, "image %s from %s: %s is %s, expected %s", j.info.ID, redactURL(from.url), j.want.algo, is, j.want.value)
}

func (s expectedChecksum) hash() hash.Hash { return algorithms[s.algo].make() }
