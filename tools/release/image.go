package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user of the image, as in dist/Containerfile. A volume keeps the number.
const imageUser = 6385

// imageFile is a file of the image, or a directory if it has no text. Its owner is root where none is named.
type imageFile struct {
	name  string
	mode  int64
	owner int
	text  []byte
}

// writeImage writes one container image for all architectures as an OCI archive. It asks no registry and no daemon.
func (s *source) writeImage(work, out string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		files, err := s.imageFiles(filepath.Join(work, "bin", arch))
		if err != nil {
			return err
		}
		image, err := s.imageOf(arch, files)
		if err != nil {
			return err
		}
		platform := v1.Platform{OS: "linux", Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	dir := filepath.Join(work, "image")
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": s.release})); err != nil {
		return err
	}
	files, err := filesBelow(dir)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(out, fmt.Sprintf("salvor-%s-oci.tar", s.release)))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeTar(f, s.time, files); err != nil {
		return err
	}
	return f.Close()
}

// imageFiles are the programs and what a static program needs from a system: names of users, certificate authorities, directories.
func (s *source) imageFiles(programDir string) ([]imageFile, error) {
	licence, err := os.ReadFile(filepath.Join(s.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	users := fmt.Sprintf("root:x:0:0:root:/root:/usr/sbin/nologin\nsalvor:x:%d:%d:salvor:/var/lib/salvor:/usr/sbin/nologin\n", imageUser, imageUser)
	groups := fmt.Sprintf("root:x:0:\nsalvor:x:%d:\n", imageUser)
	files := []imageFile{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, text: []byte(groups)},
		{name: "etc/passwd", mode: 0o644, text: []byte(users)},
		{name: "etc/salvor/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: certificateAuthorities()},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/share/", mode: 0o755},
		{name: "usr/share/doc/", mode: 0o755},
		{name: "usr/share/doc/salvor/", mode: 0o755},
		{name: "usr/share/doc/salvor/copyright", mode: 0o644, text: licence},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/salvor/", mode: 0o700, owner: imageUser},
	}
	for _, p := range productive {
		text, err := os.ReadFile(filepath.Join(programDir, p))
		if err != nil {
			return nil, err
		}
		files = append(files, imageFile{name: "usr/bin/" + p, mode: 0o755, text: text})
	}
	return files, nil
}

// certificateAuthorities are Mozilla's, as the Go project publishes them. A file cannot say that an authority is trusted for old certificates
// only, so those authorities are left out.
func certificateAuthorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

func (s *source) imageOf(arch string, files []imageFile) (v1.Image, error) {
	var content bytes.Buffer
	if err := writeTar(&content, s.time, files); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: s.time}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		Created: created, OS: "linux", Architecture: arch,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         fmt.Sprint(imageUser),
			Entrypoint:   []string{"/usr/bin/salvor"},
			Cmd:          []string{"serve", "--config", "/etc/salvor/salvor.conf", "--state-dir", "/var/lib/salvor"},
			Env:          []string{"PATH=/usr/bin"},
			ExposedPorts: map[string]struct{}{"6385/tcp": {}, "6386/tcp": {}},
			Volumes:      map[string]struct{}{"/var/lib/salvor": {}},
			StopSignal:   "SIGTERM",
			Labels: map[string]string{
				"org.opencontainers.image.title":    "salvor",
				"org.opencontainers.image.version":  s.release,
				"org.opencontainers.image.revision": s.commit,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: "make release"}})
}

// filesBelow reads a directory in the order of its names.
func filesBelow(dir string) (files []imageFile, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, dir+string(filepath.Separator)))
		if d.IsDir() {
			files = append(files, imageFile{name: name + "/", mode: 0o755})
			return nil
		}
		text, err := os.ReadFile(path)
		files = append(files, imageFile{name: name, mode: 0o644, text: text})
		return err
	})
	return files, err
}

// writeTar writes an archive whose bytes depend on nothing but its arguments.
func writeTar(to io.Writer, at time.Time, files []imageFile) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), ModTime: at, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.text); err != nil {
			return err
		}
	}
	return w.Close()
}
