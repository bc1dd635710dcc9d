package netboot

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"salvor/durable"
	"salvor/metal"
	"salvor/problem"
	wire "salvor/wire/native"
)

// siteFiles are the centre's boot files, kept by their version. They hold no node's parameters.
type siteFiles struct {
	dir  string
	open func(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error)

	ctx     context.Context // of all transfers
	stop    context.CancelFunc
	work    sync.WaitGroup
	mu      sync.Mutex
	fetches map[string]*siteFetch
}

// siteFetch is one transfer. err is set when done is closed.
type siteFetch struct {
	done chan struct{}
	err  error
	at   time.Time
}

const siteFilesDir = "files"

var versionForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func openSiteFiles(dir string, open func(context.Context, string, string, http.Header, io.Reader) (*http.Response, error)) (*siteFiles, error) {
	f := &siteFiles{dir: filepath.Join(dir, siteFilesDir), open: open, fetches: map[string]*siteFetch{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, problem.Invalidf("site: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(f.dir, "*.part"))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	return f, err
}

// Dir is where boot files of plans lie.
func (s *Site) Dir() string { return s.files.dir }

// ref is what a plan names a boot file by here.
func (f *siteFiles) ref(file wire.SiteFile) string {
	switch {
	case file.URL != "":
		return file.URL
	case versionForm.MatchString(file.Version):
		return filepath.Join(f.dir, file.Version)
	}
	return ""
}

// SignedLoaders is Config.SignedLoaders: those that the centre gave for a plan with this kernel.
func (s *Site) SignedLoaders(kernel string) (shim, grub string) {
	c, ok := s.find(func(p wire.SitePlan) bool {
		return p.SecureBoot && s.files.ref(p.Kernel) == kernel && p.Shim.Version != "" && p.GRUB.Version != ""
	})
	if !ok {
		return "", ""
	}
	return s.files.ref(c.Shim), s.files.ref(c.GRUB)
}

// siteFilesOf are the versions of a plan's files of the centre, by name.
func siteFilesOf(p wire.SitePlan) map[string]string {
	out := map[string]string{}
	for name, file := range map[string]wire.SiteFile{metal.BootKernel: p.Kernel, metal.BootRamdisk: p.Ramdisk, metal.BootImage: p.Image, metal.BootISO: p.ISO, metal.BootShim: p.Shim, metal.BootGRUB: p.GRUB} {
		if versionForm.MatchString(file.Version) {
			out[name] = file.Version
		}
	}
	return out
}

// prefetch begins to fetch the files of a plan that are not here.
func (f *siteFiles) prefetch(p wire.SitePlan) {
	for name, version := range siteFilesOf(p) {
		f.fetch(p.Path, name, version)
	}
}

// fetch gives the transfer of a file, which it begins where there is none; nil: the file is here.
func (f *siteFiles) fetch(path, name, version string) *siteFetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := os.Stat(filepath.Join(f.dir, version)); err == nil {
		return nil
	}
	if t := f.fetches[version]; t != nil {
		select {
		case <-t.done:
			if time.Since(t.at) < retryAfter {
				return t
			}
		default:
			return t
		}
	}
	t := &siteFetch{done: make(chan struct{})}
	if f.ctx.Err() != nil {
		t.err = errAway
		close(t.done)
		return t
	}
	f.fetches[version] = t
	f.work.Go(func() {
		err := f.download(path, name, version)
		f.mu.Lock()
		t.err, t.at = err, time.Now()
		f.mu.Unlock()
		close(t.done)
	})
	return t
}

// download fetches a file under its final name, whole or not at all.
func (f *siteFiles) download(path, name, version string) error {
	ctx, cancel := context.WithTimeout(f.ctx, downloadLimit)
	defer cancel()
	stalled := time.AfterFunc(downloadStall, cancel)
	defer stalled.Stop()
	resp, err := f.open(ctx, http.MethodGet, wire.SiteBootPath+path+"/"+name, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	part := filepath.Join(f.dir, version+".part")
	out, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, &stallReader{r: io.LimitReader(resp.Body, maxDownload+1), timer: stalled})
	if err == nil && (n > maxDownload || resp.ContentLength >= 0 && n != resp.ContentLength) {
		err = problem.Unavailablef("the centre gave %d bytes of %s", n, name)
	}
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	// When a site loses power it often loses its centre too, and has to begin with what it has.
	return durable.Rename(part, filepath.Join(f.dir, version))
}

// keepOnly removes files that no plan names.
func (f *siteFiles) keepOnly(plans []wire.SitePlan) {
	used := map[string]bool{}
	for _, p := range plans {
		for _, version := range siteFilesOf(p) {
			used[version] = true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	here, err := os.ReadDir(f.dir)
	if err != nil {
		return
	}
	for _, e := range here {
		// One that was used a moment ago is soon used again.
		info, err := e.Info()
		if err == nil && !used[e.Name()] && versionForm.MatchString(e.Name()) && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(f.dir, e.Name()))
			delete(f.fetches, e.Name())
		}
	}
}

// close ends the transfers that are at work, and begins no other.
func (f *siteFiles) close() {
	f.mu.Lock()
	f.stop()
	f.mu.Unlock()
	f.work.Wait()
}

// Handler serves the boot files of next, once the centre's bytes that they need are here. Where there is nothing it
// is silent: the connection ends without an answer.
func (s *Site) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, _ := strings.CutPrefix(r.URL.Path, metal.FilePrefix)
		path, name, _ := strings.Cut(rest, "/")
		if validPath(path) && name != metal.BootScript && name != metal.BootFailed {
			n, err := s.NodeByBootPath(r.Context(), path)
			if err == nil {
				err = s.fetched(r.Context(), n, name)
			}
			if problem.Is(err, problem.NotFound) {
				panic(http.ErrAbortHandler) // next would ask the centre once more
			}
			if err != nil {
				s.cfg.Log.Warn("boot file cannot be fetched from the centre", "file", name, "error", err)
				plainError(w, http.StatusServiceUnavailable)
				return
			}
		}
		next.ServeHTTP(&abortingWriter{w}, r)
	})
}

// fetched waits for the files that one of a plan needs.
func (s *Site) fetched(ctx context.Context, n *metal.Node, name string) error {
	p, ok := s.known(n)
	if !ok {
		return errNoPlan
	}
	for needed, version := range siteFilesOf(p) {
		if name == metal.BootISO || name == metal.BootEFI {
			if needed == metal.BootImage {
				continue
			}
		} else if needed != name {
			continue
		}
		t := s.files.fetch(p.Path, needed, version)
		if t == nil {
			continue
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return problem.Unavailablef("fetch %s: %w", needed, ctx.Err())
		}
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

// abortingWriter says nothing where there is nothing.
type abortingWriter struct{ http.ResponseWriter }

func (w *abortingWriter) WriteHeader(status int) {
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		panic(http.ErrAbortHandler)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *abortingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
