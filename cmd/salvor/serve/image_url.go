package serve

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"salvor/problem"
	"salvor/secret"
)

// Images are lent to machines that are being deployed: an endpoint of the Bare Metal API, or the ramdisk that it boots, fetches them
// at an address that nobody can guess and that is of no use after a while. Nothing is kept of it.
const (
	lendPrefix  = "/lent-image/"
	imageURLTTL = 6 * time.Hour
	// lendWithin bounds one transfer.
	lendWithin = time.Hour
)

// imageURL makes the address of an image's bytes; empty: machines reach us nowhere.
func (p *ControlPlane) imageURL(digest string) string {
	base := ramdiskURL(p.cfg)
	if base == "" {
		base = strings.TrimRight(p.cfg.API.PublicEndpoint, "/")
	}
	sum, ok := strings.CutPrefix(digest, "sha256:")
	if base == "" || !ok {
		return ""
	}
	until := strconv.FormatInt(time.Now().Add(imageURLTTL).Unix(), 10)
	return base + lendPrefix + sum + "/" + until + "/" + p.key.Token("lent image", sum, until).Reveal()
}

// signedImage gives an image's bytes to who has its address. Whatever is wrong with the address, there is nothing at it.
func (p *ControlPlane) signedImage(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, lendPrefix), "/")
	if r.Method != http.MethodGet && r.Method != http.MethodHead || len(parts) != 3 || !p.isSigned(parts[0], parts[1], parts[2]) {
		http.NotFound(w, r)
		return
	}
	bytes, err := p.blobs.Open(r.Context(), "sha256:"+parts[0])
	if problem.Is(err, problem.NotFound) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		p.log.Error("open an image that was lent", "error", err)
		http.Error(w, "the image cannot be read", http.StatusServiceUnavailable)
		return
	}
	defer bytes.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "private")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lendWithin)) // longer than an answer of the API may take
	http.ServeContent(w, r, "", time.Time{}, bytes)
}

func (p *ControlPlane) isSigned(sum, until, token string) bool {
	end, err := strconv.ParseInt(until, 10, 64)
	if err != nil || time.Now().After(time.Unix(end, 0)) {
		return false
	}
	return p.key.Derived(secret.Life{Now: time.Now(), For: imageURLTTL}, secret.New(token), "lent image", sum, until)
}
