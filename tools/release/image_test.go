package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImage unpacks the archive with tar, and reads the images as a container engine does.
func TestImage(t *testing.T) {
	work, out, dir := t.TempDir(), t.TempDir(), t.TempDir()
	s := testSource(t, work)
	if err := s.writeImage(work, out); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), "tar", "-xf", filepath.Join(out, "salvor-0.2.0-dev-oci.tar"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, said)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	names, err := top.IndexManifest()
	if err != nil || len(names.Manifests) != 1 || names.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != s.release {
		t.Fatalf("the archive has %+v, %v; want one image, named %s", names, err, s.release)
	}
	index, err := top.ImageIndex(names.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.Architecture)
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, s, image, m.Platform.Architecture)
	}
	if !slices.Equal(platforms, architectures) {
		t.Errorf("the image is for %v, want %v", platforms, architectures)
	}
}

func checkImage(t *testing.T, s *source, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != arch || config.Config.User != "6385" || !config.Created.Equal(s.time) || config.Config.Labels["org.opencontainers.image.revision"] != s.commit {
		t.Errorf("the configuration of the image is %+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers: %v, %v", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	files := map[string]member{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(s.time) {
			t.Errorf("%s is of %v", h.Name, h.ModTime)
		}
		files["/"+h.Name] = member{*h, string(text)}
	}
	if entry := files[config.Config.Entrypoint[0]]; entry.Mode != 0o755 || entry.text == "" {
		t.Errorf("the image starts %v, which is no program of it", config.Config.Entrypoint)
	}
	if state := files["/var/lib/salvor/"]; state.Mode != 0o700 || state.Uid != imageUser || state.Gid != imageUser {
		t.Errorf("the state directory is %+v", state.Header)
	}
	if temporary := files["/tmp/"]; temporary.Mode != 0o1777 {
		t.Errorf("/tmp has the mode %o", temporary.Mode)
	}
	checkAuthorities(t, []byte(files["/etc/ssl/certs/ca-certificates.crt"].text))
}

func checkAuthorities(t *testing.T, text []byte) {
	t.Helper()
	count := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err != nil || !c.IsCA {
			t.Errorf("certificate %d: %v", count, err)
		}
		count++
	}
	if count < 80 {
		t.Errorf("the image trusts %d authorities", count)
	}
}

// TestModules lists the modules of the program that runs this test.
func TestModules(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := testSource(t, t.TempDir())
	var printed [2][]byte
	for i := range printed {
		to := filepath.Join(t.TempDir(), "modules.json")
		if err := s.writeModules(self, "salvor", to); err != nil {
			t.Fatal(err)
		}
		if printed[i], err = os.ReadFile(to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(printed[0], printed[1]) {
		t.Error("two lists of one program differ")
	}
	var bom cdx.BOM
	if err := json.Unmarshal(printed[0], &bom); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
		if c.Version == "" || c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%+v", c)
		}
	}
	for _, want := range []string{"std", "github.com/CycloneDX/cyclonedx-go", "github.com/google/go-containerregistry"} {
		if !slices.Contains(names, want) {
			t.Errorf("the list lacks %s: %v", want, names)
		}
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" || bom.Metadata.Component.Version != s.release {
		t.Errorf("serial number %q, metadata %+v", bom.SerialNumber, bom.Metadata)
	}
}
