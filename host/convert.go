package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

// toRaw writes an image to a new raw file of at least size bytes and has it on the disk. An
// image that is larger is Invalid if a size is asked for. The format is the one that was
// recorded, never guessed from the bytes: a guest could write whatever makes a guess go wrong.
func toRaw(ctx context.Context, from, format, to string, size int64) error {
	var err error
	switch format {
	case rawFormat, "iso", "aki", "ari", "":
		err = copySparse(ctx, from, to, size)
	case "qcow2":
		err = convert(ctx, from, to, size)
	default:
		return problem.Unsupportedf("images of format %.20q are not taken; want raw or qcow2", format)
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size > info.Size() {
		if err := f.Truncate(size); err != nil {
			return err
		}
	}
	return f.Sync()
}

func tooLarge(have, size int64) error {
	return problem.Invalidf("the image is a disk of %d bytes and does not fit into %d", have, size)
}

const copyStep = 1 << 20

// copySparse copies a file; what is zero takes no room.
func copySparse(ctx context.Context, from, to string, size int64) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if size > 0 && info.Size() > size {
		return tooLarge(info.Size(), size)
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	buffer, zero := make([]byte, copyStep), make([]byte, copyStep)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := src.ReadAt(buffer, at)
		if n > 0 && !bytes.Equal(buffer[:n], zero[:n]) {
			if _, err := dst.WriteAt(buffer[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// convert has qemu-img read a qcow2 image. One that names other files is refused: they would be this host's.
func convert(ctx context.Context, from, to string, size int64) error {
	var info struct {
		VirtualSize int64           `json:"virtual-size"`
		Backing     string          `json:"backing-filename"`
		Specific    json.RawMessage `json:"format-specific"`
	}
	out, err := qemuImg(ctx, time.Minute, "info", "--output=json", "-f", "qcow2", from)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, &info); err != nil {
		return problem.Invalidf("qemu-img info: %w", err)
	}
	if info.Backing != "" || bytes.Contains(info.Specific, []byte(`"data-file"`)) {
		return problem.Invalidf("the qcow2 image is not whole: it names another file")
	}
	if size > 0 && info.VirtualSize > size {
		return tooLarge(info.VirtualSize, size)
	}
	_, err = qemuImg(ctx, time.Hour, "convert", "-q", "-f", "qcow2", "-O", "raw", "-S", "64k", from, to)
	if err != nil {
		return err
	}
	return os.Chmod(to, 0o600)
}

func qemuImg(ctx context.Context, within time.Duration, args ...string) ([]byte, error) {
	tool, err := exec.LookPath("qemu-img")
	if err != nil {
		return nil, problem.Unsupportedf("qcow2 images need qemu-img (Debian: package qemu-utils)")
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "LC_ALL=C", "TMPDIR=" + os.TempDir()}
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("qemu-img %s: %w", args[0], ctx.Err())
	}
	if err != nil {
		text := strings.TrimSpace(words.String())
		if len(text) > 300 {
			text = text[:300]
		}
		return nil, problem.Invalidf("qemu-img %s: %s: %w", args[0], text, err)
	}
	return out, nil
}
