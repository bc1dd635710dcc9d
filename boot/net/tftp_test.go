package netboot

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pin/tftp/v3"
)

func TestTFTP(t *testing.T) {
	dir := t.TempDir()
	content := map[string]string{"undionly.kpxe": strings.Repeat("b", 70_001), "snponly.efi": strings.Repeat("u", 1024)}
	for name, text := range content {
		write(t, filepath.Join(dir, name), text)
	}
	write(t, filepath.Join(dir, "secret"), "not for you")
	s, err := New(Config{Plans: &plans{}, TFTPDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	srv := s.tftpServer()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := serveTFTP(srv, conn); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { srv.Shutdown(); wg.Wait() })

	client, err := tftp.NewClient(conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	client.SetBlockSize(1432)
	for name, want := range content {
		for _, asked := range []string{name, "/" + name} {
			from, err := client.Receive(asked, "octet")
			if err != nil {
				t.Fatalf("%s: %v", asked, err)
			}
			var got bytes.Buffer
			if _, err := from.WriteTo(&got); err != nil || got.String() != want {
				t.Errorf("%s: %d bytes, %v", asked, got.Len(), err)
			}
		}
	}
	for _, name := range []string{"secret", "../" + filepath.Base(dir) + "/snponly.efi", "./snponly.efi", "", "/etc/passwd", "snponly.efi/", "SNPONLY.EFI"} {
		if _, err := client.Receive(name, "octet"); err == nil {
			t.Errorf("%q was served", name)
		}
	}
	if up, err := client.Send("new", "octet"); err == nil {
		if _, err := up.ReadFrom(strings.NewReader("x")); err == nil {
			t.Error("an upload was taken")
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Error("an upload left a file")
	}
}
