package netboot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/metal"
	"salvor/problem"
)

const (
	// stall is how long a request may take beside the transfer itself.
	stall = time.Minute
	// slowest is the slowest transfer that is waited for, in bytes per second.
	slowest = 128 << 10
)

// Handler serves the boot files of plans under /boot/PATH/. Any listener that a machine
// or its BMC reaches may mount it. It reads nothing of a request but path, method and
// range; nothing in a path names a file.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		plainError(w, http.StatusMethodNotAllowed)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, metal.FilePrefix)
	path, name, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 || !validPath(path) || !isBootFile(name) {
		plainError(w, http.StatusNotFound)
		return
	}
	node, err := s.cfg.Plans.NodeByBootPath(r.Context(), path)
	var plan *metal.BootPlan
	if err == nil {
		plan, err = currentPlan(node)
	}
	// A store that answers for another path must not give a machine's token away.
	if err == nil && plan.Path != path {
		err, plan = errNoPlan, nil
	}
	if err == nil && !planHasFile(plan, name) {
		err = errNoPlan
	}
	if err == nil && name == metal.BootFailed {
		s.serveFailed(w, r, node)
		return
	}
	if err == nil {
		err = s.serveFile(w, r, node, plan, name)
	}
	if err != nil && plan != nil && r.Context().Err() == nil {
		s.refused(r.Context(), node, name, err)
	}
	switch {
	case err == nil:
	case problem.Is(err, problem.NotFound):
		plainError(w, http.StatusNotFound)
	default:
		attrs := []any{"file", name, "error", err}
		if node != nil {
			attrs = append(attrs, "node", node.ID)
		}
		s.log.WarnContext(r.Context(), "boot file cannot be served", attrs...)
		plainError(w, http.StatusServiceUnavailable)
	}
}

// serveFile answers with one file of a plan. An error means that nothing was written yet.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, node *metal.Node, plan *metal.BootPlan, name string) error {
	var content io.ReadSeeker
	kind := "application/octet-stream"
	switch name {
	case metal.BootConfigDrive:
		image, err := s.configDrive(r.Context(), node)
		if err != nil {
			return err
		}
		content = bytes.NewReader(image)
	case metal.BootShim, metal.BootGRUB:
		at, grub := s.SignedLoaders(node)
		if name == metal.BootGRUB {
			at = grub
		}
		if at == "" || !plan.SecureBoot {
			return errNoPlan
		}
		f, _, err := openInstalled(at)
		if err != nil {
			return err
		}
		defer f.Close()
		content = f
	case metal.BootKernel, metal.BootRamdisk, metal.BootImage, readyISO(plan):
		ref := map[string]string{metal.BootKernel: plan.Kernel, metal.BootRamdisk: plan.Ramdisk, metal.BootImage: plan.Image, metal.BootISO: plan.ISO}[name]
		if ref == "" {
			return errNoPlan
		}
		if metal.IsURL(ref) {
			target, err := scriptSource(ref, name)
			if err != nil {
				return err
			}
			http.Redirect(w, r, target, http.StatusFound)
			return nil
		}
		f, err := s.openRef(r.Context(), plan, ref)
		if err != nil {
			return err
		}
		defer f.Close()
		content = f
	default:
		made, release, err := s.render(r.Context(), node, plan, name)
		if err != nil {
			return err
		}
		defer release()
		content = made
	}
	switch name {
	case metal.BootScript:
		kind = "text/plain; charset=us-ascii"
	case metal.BootEFI:
		kind = "application/efi" // UEFI tells images by it
	}
	w.Header().Set("Content-Type", kind)
	limitTime(w, content)
	if r.Method == http.MethodGet {
		s.contacts.record(node, "fetching "+name)
	}
	if _, isFile := content.(*os.File); !isFile { // a file is sent by the kernel, without a look at its bytes
		read := &readErrors{ReadSeeker: content}
		defer func() {
			if read.err != nil && r.Context().Err() == nil {
				s.refused(r.Context(), node, name, read.err)
			}
		}()
		content = read
	}
	http.ServeContent(w, r, "", time.Time{}, content)
	return nil
}

// readErrors keeps the first error of reading: the status is sent by then, so that the machine sees a short file.
type readErrors struct {
	io.ReadSeeker
	err error
}

func (c *readErrors) Read(b []byte) (int, error) {
	n, err := c.ReadSeeker.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && c.err == nil {
		c.err = err
	}
	return n, err
}

// refused tells that a machine did not get a file of its plan.
func (s *Server) refused(ctx context.Context, n *metal.Node, name string, err error) {
	if s.cfg.Refused == nil || !s.reports.fresh(seenKey{n.ID, n.BootNumber, name}) {
		return
	}
	why := err.Error()
	if problem.Is(err, problem.NotFound) {
		why = "its boot plan has no such file"
	}
	needs := slices.Contains(n.Plan.FirmwareFiles(), name) || slices.Contains(s.networkLoaders(""), name)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	s.cfg.Refused(bounded, n, metal.BootRefusal{File: name, Why: why, Final: needs && !problem.Is(err, problem.Unavailable) && !problem.Is(err, problem.NotFound)})
}

// openRef opens a file of ours, or an image of Glance.
func (s *Server) openRef(ctx context.Context, plan *metal.BootPlan, ref string) (io.ReadSeekCloser, error) {
	if metal.GlanceID(ref) != "" {
		return s.openImage(ctx, plan, ref)
	}
	f, _, err := openFile(s.cfg.Roots, ref)
	return f, err
}

// readyISO is the name of the ISO image if the plan has a ready-made one, so that none is made.
func readyISO(plan *metal.BootPlan) string {
	if plan.ISO == "" {
		return ""
	}
	return metal.BootISO
}

// configDrive gives the image of the config drive of the node's instance.
func (s *Server) configDrive(ctx context.Context, n *metal.Node) ([]byte, error) {
	if s.cfg.ConfigDrive == nil {
		return nil, errNoPlan
	}
	return s.cfg.ConfigDrive(ctx, n)
}

// render makes what holds the machine's kernel parameters: script or image.
func (s *Server) render(ctx context.Context, node *metal.Node, plan *metal.BootPlan, name string) (io.ReadSeeker, func(), error) {
	if plan.Volumes {
		text, err := s.volumeScript(ctx, node)
		return strings.NewReader(text), func() {}, err
	}
	line, err := kernelParams(node, plan, s.cfg.Token)
	if err != nil {
		return nil, nil, err
	}
	if name == metal.BootScript {
		text, err := renderScript(plan, line)
		return strings.NewReader(text), func() {}, err
	}
	img, release, err := s.images.get(ctx, imageKindOf(plan, name), plan.Kernel, plan.Ramdisk)
	if err != nil {
		return nil, nil, err
	}
	blob, err := img.Open(line)
	if err != nil {
		release()
		return nil, nil, err
	}
	return blob, release, nil
}

// limitTime replaces the listener's time-out, which is made for short answers, by one
// that suits the size. Writers without deadlines keep what they have.
func limitTime(w http.ResponseWriter, content io.Seeker) {
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return
	}
	deadline := time.Now().Add(stall + time.Duration(size/slowest)*time.Second)
	_ = http.NewResponseController(w).SetWriteDeadline(deadline)
}

func isBootFile(name string) bool {
	switch name {
	case metal.BootScript, metal.BootKernel, metal.BootRamdisk, metal.BootISO, metal.BootEFI, metal.BootImage, metal.BootConfigDrive, metal.BootFailed, metal.BootShim, metal.BootGRUB:
		return true
	}
	return false
}

// validPath keeps what can be no boot path from the store.
func validPath(path string) bool {
	if len(path) < 8 || len(path) > 128 {
		return false
	}
	for _, c := range path {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// plainError says the status and nothing else.
func plainError(w http.ResponseWriter, status int) {
	text := http.StatusText(status) + "\n"
	w.Header().Set("Content-Type", "text/plain; charset=us-ascii")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
