// Package glance reads images of OpenStack's image service: what it says of them, and their bytes. It changes nothing there. It must not
// know what an image is used for.
package glance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"salvor/metal"
	"salvor/openstack"
	"salvor/problem"
)

// Client reads images. It is safe for use by several goroutines.
type Client struct{ glance *openstack.Client }

// New makes a client; nothing is asked yet.
func New(c *openstack.Client) *Client { return &Client{c} }

// stallTimeout is how long the bytes of an image may stand still.
const stallTimeout = time.Minute

// Image gives what Glance says of an image. NotFound: it has none that salvor's user may see. Unavailable: Glance or Keystone does not
// answer. Invalid: one of them refuses the credentials.
func (c *Client) Image(ctx context.Context, id string) (metal.GlanceImage, error) {
	op := "read image " + id + " in Glance"
	service, err := c.glance.Service(ctx)
	if err != nil {
		return metal.GlanceImage{}, err
	}
	var image struct {
		ID         string `json:"id"`
		Name       string `json:"name"`
		Status     string `json:"status"`
		Visibility string `json:"visibility"`
		Owner      string `json:"owner"`
		Disk       string `json:"disk_format"`
		Container  string `json:"container_format"`
		Algorithm  string `json:"os_hash_algo"`
		Sum        string `json:"os_hash_value"`
		Size       int64  `json:"size"`
		MinDisk    int    `json:"min_disk"`
		Type       any    `json:"img_type"`
		Kernel     any    `json:"kernel_id"`
		Ramdisk    any    `json:"ramdisk_id"`
	}
	if _, err := service.Get(ctx, service.ServiceURL("images", id), &image, nil); err != nil {
		if gophercloud.ResponseCodeIs(err, http.StatusForbidden) {
			return metal.GlanceImage{}, problem.NotFoundf("%s: refused (403): salvor's user may not see it", op)
		}
		return metal.GlanceImage{}, c.glance.Classify(err, op)
	}
	if !strings.EqualFold(image.ID, id) {
		return metal.GlanceImage{}, problem.Unavailablef("%s: the answer is about another image", op)
	}
	out := metal.GlanceImage{
		ID: id, Name: image.Name, Status: image.Status, Visibility: image.Visibility, Owner: image.Owner, DiskFormat: image.Disk, ContainerFormat: image.Container,
		HashAlgo: image.Algorithm, HashValue: image.Sum, Size: image.Size, MinDisk: image.MinDisk, Type: text(image.Type), KernelID: text(image.Kernel), RamdiskID: text(image.Ramdisk),
	}
	if out.Visibility == "shared" {
		out.Members, err = c.members(ctx, service, id)
	}
	return out, err
}

// text is a property that is text; others say nothing.
func text(v any) string {
	s, _ := v.(string)
	return s
}

// members are the projects that an image is shared with and that accepted it. Who may not list them knows none.
func (c *Client) members(ctx context.Context, service *gophercloud.ServiceClient, id string) ([]string, error) {
	var list struct {
		Members []struct {
			Project string `json:"member_id"`
			Status  string `json:"status"`
		} `json:"members"`
	}
	_, err := service.Get(ctx, service.ServiceURL("images", id, "members"), &list, nil)
	if gophercloud.ResponseCodeIs(err, http.StatusForbidden) || gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, c.glance.Classify(err, "list the members of image "+id+" in Glance")
	}
	var out []string
	for _, m := range list.Members {
		if m.Status == "accepted" {
			out = append(out, m.Project)
		}
	}
	return out, nil
}

// Open gives the bytes of an image, from any offset, until ctx ends. They are read from Glance as they are asked for, and no copy is made.
// size is how many there must be; 0: as many as Glance says. Conflict: the image has another size. The other errors are Image's, and
// Invalid for an image that is not active.
func (c *Client) Open(ctx context.Context, id string, size int64) (io.ReadSeekCloser, error) {
	image, err := c.Image(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := image.CheckReadable(); err != nil {
		return nil, err
	}
	if size != 0 && image.Size != size {
		return nil, problem.Conflictf("the image %s of Glance has %d bytes, and %d were expected", id, image.Size, size)
	}
	return &content{ctx: ctx, client: c, id: id, size: image.Size}, nil
}

// content is the bytes of one image. A request is open only while they are read in order.
type content struct {
	ctx    context.Context
	client *Client
	id     string
	size   int64

	at     int64         // the offset of the next Read
	body   io.ReadCloser // at that offset; nil: none is open
	cancel context.CancelFunc
	stall  *time.Timer
}

// Seek is io.Seeker's; it asks nothing.
func (b *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the image begins")
	}
	if offset != b.at {
		b.release()
		b.at = offset
	}
	return offset, nil
}

// Read is io.Reader's. An image that ends before its size is Unavailable.
func (b *content) Read(p []byte) (int, error) {
	if b.at >= b.size {
		return 0, io.EOF
	}
	if b.body == nil {
		if err := b.open(); err != nil {
			return 0, err
		}
	}
	b.stall.Reset(stallTimeout)
	if left := b.size - b.at; int64(len(p)) > left { // what Glance adds to an image is none of it
		p = p[:left]
	}
	n, err := b.body.Read(p)
	b.stall.Stop() // a machine that reads slowly is no stall of Glance
	b.at += int64(n)
	if err == io.EOF && b.at == b.size {
		return n, io.EOF
	}
	if err != nil {
		err = problem.Unavailablef("read image %s from Glance: it ended after %d of %d bytes: %w", b.id, b.at, b.size, noEOF(err))
	}
	return n, err
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// open sends the request for the bytes from the present offset on.
func (b *content) open() error {
	op := "read image " + b.id + " from Glance"
	ctx, cancel := context.WithCancel(b.ctx)
	service, err := b.client.glance.Service(ctx)
	if err != nil {
		cancel()
		return err
	}
	opts := &gophercloud.RequestOpts{KeepResponseBody: true, OkCodes: []int{http.StatusOK}, MoreHeaders: map[string]string{"Accept": "application/octet-stream"}}
	if b.at > 0 {
		opts.OkCodes = []int{http.StatusPartialContent}
		opts.MoreHeaders["Range"] = fmt.Sprintf("bytes=%d-", b.at)
	}
	b.stall = time.AfterFunc(stallTimeout, cancel)
	answer, err := service.Get(openstack.Stream(ctx), service.ServiceURL("images", b.id, "file"), nil, opts)
	if err == nil && b.at > 0 && !strings.HasPrefix(answer.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", b.at)) {
		answer.Body.Close()
		err = problem.Unavailablef("the answer has another range than %s", opts.MoreHeaders["Range"])
	}
	if err != nil {
		b.stall.Stop()
		cancel()
		if gophercloud.ResponseCodeIs(err, http.StatusOK) || gophercloud.ResponseCodeIs(err, http.StatusRequestedRangeNotSatisfiable) {
			return problem.Unavailablef("%s: it gives no part of the image, since its store has no random access", op)
		}
		return b.client.glance.Classify(err, op)
	}
	b.body, b.cancel = answer.Body, cancel
	return nil
}

// release ends the request that is open.
func (b *content) release() {
	if b.body == nil {
		return
	}
	b.stall.Stop()
	b.cancel()
	b.body.Close()
	b.body = nil
}

// Close is io.Closer's.
func (b *content) Close() error {
	b.release()
	return nil
}
