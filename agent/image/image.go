// Package image brings a disk image from a web server to a disk: raw, gzip or qcow2,
// never without a checksum, and never past what the disk holds. The image and its
// server are hostile until the checksum has come out right, the image stays so after
// it. Until then the start of the disk, and with it the partition table, stays zero, so
// nothing half-written boots. It must not know which disk that is, and no step.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"salvor/problem"
	wire "salvor/wire/agent"
)

// Target is the disk.
type Target interface {
	io.ReaderAt
	io.WriterAt
	Size() int64
	// Zero makes a range read as zeros.
	Zero(off, n int64) error
	// Sync returns once all is on the disk.
	Sync() error
}

// Writer writes images.
type Writer struct {
	// HTTP fetches; Client makes one.
	HTTP *http.Client
	// Memory bounds, in bytes, what a qcow2 image may take of it; larger ones are
	// read from the server twice.
	Memory int64
	// MD5 lets checksums of that kind count, as Ironic's agent_md5_checksum_enable.
	MD5 bool
	// Formats that are permitted; none means raw, gpt, qcow2 and iso.
	Formats []string
	Log     *slog.Logger
	// Idle is how long a server may send nothing; Pause lies between two tries.
	Idle, Pause time.Duration
}

const (
	mebi = 1 << 20
	// held is the part of the disk that is written last.
	held = mebi
	// tries at a server that answers with 5xx or not at all.
	tries = 3
	// longest is the time that a download may take.
	longest = 6 * time.Hour
)

// Failure is an error with the type that the agent's wire gives it (wire.Err...).
type Failure struct {
	Type string
	Err  error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap gives the error without its type.
func (f *Failure) Unwrap() error { return f.Err }

// CommandType is the type on the wire.
func (f *Failure) CommandType() string { return f.Type }

func newFailure(kind, format string, args ...any) error {
	return &Failure{Type: kind, Err: fmt.Errorf(format, args...)}
}

// Check tells what is wrong with an order before anything is done.
func (w Writer) Check(info wire.Image) error {
	switch {
	case info.ID == "":
		return problem.Invalidf("Image is missing 'id' field.")
	case len(info.URLs) == 0:
		return problem.Invalidf("Image 'urls' must be a list with at least one element.")
	case info.Type != "" && info.Type != "whole-disk":
		return problem.Invalidf("image %s: its image_type is %s: only whole-disk images are written", info.ID, info.Type)
	case info.ContainerFormat != "" && info.ContainerFormat != "bare":
		return problem.Invalidf("image %s: its container_format is %s, want bare", info.ID, info.ContainerFormat)
	}
	permitted := w.Formats
	if len(permitted) == 0 {
		permitted = []string{"raw", "gpt", "qcow2", "iso"}
	}
	if f := info.DiskFormat; f != "" && (!slices.Contains(permitted, f) || !slices.Contains([]string{"raw", "gpt", "qcow2", "iso"}, f)) {
		return problem.Invalidf("image %s: disk_format %s is not written; permitted are %s", info.ID, f, strings.Join(permitted, ", "))
	}
	for _, text := range info.URLs {
		if _, err := parseURL(text); err != nil {
			return problem.Invalidf("image %s: %w", info.ID, err)
		}
	}
	_, err := w.wanted(info)
	return err
}

// Write writes the image and returns once it is on the disk, whole and verified. On
// failure the ends of the disk read as zeros.
func (w Writer) Write(ctx context.Context, info wire.Image, to Target) error {
	if err := w.Check(info); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	want, err := w.expected(ctx, info)
	if err != nil {
		return err
	}
	job := &imageWrite{Writer: w, info: info, want: want, to: to}
	if err := job.wipeEnds(0); err != nil {
		return newFailure(wire.ErrWrite, "image %s: clear the disk: %w", info.ID, err)
	}
	err = job.run(ctx)
	if err == nil {
		return nil
	}
	if wipe := job.wipeEnds(job.reached); wipe != nil {
		err = errors.Join(err, fmt.Errorf("the bytes already written could not be wiped: %w", wipe))
	}
	var known *Failure
	var kind *problem.Error
	if !errors.As(err, &known) && !errors.As(err, &kind) {
		return newFailure(wire.ErrWrite, "image %s: %w", info.ID, err)
	}
	return err
}

// imageWrite is one image on its way.
type imageWrite struct {
	Writer
	info wire.Image
	want expectedChecksum
	to   Target
	// reached is the end of what may have been written.
	reached int64
}

// wipeEnds clears both ends of the disk and the end of what was written, where the
// second header of a GPT may lie.
func (j *imageWrite) wipeEnds(reached int64) error {
	size := j.to.Size()
	n := min(held, size)
	for _, off := range []int64{0, size - n, max(0, min(reached, size)-n)} {
		if err := j.to.Zero(off, n); err != nil {
			return err
		}
	}
	return j.to.Sync()
}

// run tries all servers; one that fails after it has begun is tried again from the start.
func (j *imageWrite) run(ctx context.Context) error {
	var last error
	for try := range tries {
		for _, text := range j.info.URLs {
			err := j.from(ctx, text)
			var again *transientError
			if err == nil || !errors.As(err, &again) {
				return err
			}
			last = err
			j.Log.Warn("image download failed", "image", j.info.ID, "try", try+1, "error", err)
		}
		if try+1 < tries {
			if err := sleepContext(ctx, j.Pause); err != nil {
				break
			}
		}
	}
	return newFailure(wire.ErrDownload, "image %s: %w", j.info.ID, last)
}

func sleepContext(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// from reads the image from one server and decides by its first bytes what it is.
func (j *imageWrite) from(ctx context.Context, text string) error {
	s, err := j.open(ctx, j.info, text)
	if err != nil {
		return err
	}
	defer s.close()
	head, err := s.peek()
	if err != nil {
		return err
	}
	zipped := isGzip(head)
	is := detectFormat(head)
	j.Log.Info("image found", "image", j.info.ID, "server", redactURL(s.url), "bytes", s.length, "format", is, "gzip", zipped)
	if err := j.agrees(is, zipped); err != nil {
		return err
	}
	switch {
	case is == "qcow2":
		return j.qcow2(ctx, s, text)
	case zipped:
		return j.gzip(s)
	}
	return j.raw(s)
}

// agrees refuses an image that is not what it was said to be.
func (j *imageWrite) agrees(is string, zipped bool) error {
	declared := j.info.DiskFormat
	switch {
	case is != "raw" && is != "qcow2":
		return newFailure(wire.ErrImage, "image %s: its content is %s, which is not written; said was %s", j.info.ID, is, orNone(declared))
	case declared == "qcow2" && (is != "qcow2" || zipped):
		return newFailure(wire.ErrImage, "image %s: it was said to be qcow2, but its content is not", j.info.ID)
	case declared != "" && declared != "qcow2" && is == "qcow2":
		return newFailure(wire.ErrImage, "image %s: it was said to be %s, but its content is qcow2", j.info.ID, declared)
	}
	return nil
}

func orNone(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// formatSignature is how a format of disk images begins.
type formatSignature struct {
	format string
	at     int
	magic  string
}

var signatures = []formatSignature{
	{"qcow2", 0, "QFI\xfb"}, {"qed", 0, "QED\x00"}, {"vmdk", 0, "KDMV"}, {"vmdk", 0, "COWD"}, {"vmdk", 0, "# Disk DescriptorFile"},
	{"vhdx", 0, "vhdxfile"}, {"vhd", 0, "conectix"}, {"vdi", 0x40, "\x7f\x10\xda\xbe"}, {"parallels", 0, "WithoutFreeSpace"}, {"parallels", 0, "WithouFreSpacExt"},
	{"luks", 0, "LUKS\xba\xbe"}, {"xz", 0, "\xfd7zXZ\x00"}, {"zstd", 0, "\x28\xb5\x2f\xfd"}, {"bzip2", 0, "BZh"}, {"zip", 0, "PK\x03\x04"}, {"tar", 257, "ustar"},
	{"HTML", 0, "<!DOCTYPE"}, {"HTML", 0, "<!doctype"}, {"HTML", 0, "<html"},
}

// detectFormat names the format of what begins like head; what is nothing else is raw.
func detectFormat(head []byte) string {
	for _, s := range signatures {
		if len(head) >= s.at+len(s.magic) && string(head[s.at:s.at+len(s.magic)]) == s.magic {
			return s.format
		}
	}
	return "raw"
}

func isGzip(head []byte) bool { return len(head) > 2 && head[0] == 0x1f && head[1] == 0x8b }

// parseURL takes http and https with a host.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, problem.Invalidf("its URL is not http(s)://host/path")
	}
	return u, nil
}

// redactURL is a URL fit for messages: queries and users may be secrets.
func redactURL(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }
