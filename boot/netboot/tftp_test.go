package netboot

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pin/tftp/v3"

	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

var loaderContent = map[string]string{"undionly.kpxe": strings.Repeat("b", 70_001), "snponly.efi": strings.Repeat("u", 1024)}

// tftpBench serves loaders to the node of the plans on a loopback address.
func tftpBench(t *testing.T, p *plans) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range loaderContent {
		write(t, filepath.Join(dir, name), text)
	}
	write(t, filepath.Join(dir, "secret"), "not for you")
	s := must.Get(New(Config{Plans: p, TFTPDir: dir}))(t)
	conn := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.serveTFTP(ctx, conn, 1500); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		conn.Close()
		wg.Wait()
		if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
			t.Error("an upload left a file")
		}
	})
	return conn.LocalAddr().String()
}

func TestTFTP(t *testing.T) {
	at := tftpBench(t, &plans{node: testNode()})
	for _, size := range []int{0, 512, 1024, 1432, 65464} {
		client := must.Get(tftp.NewClient(at))(t)
		if size > 0 {
			client.SetBlockSize(size)
			client.RequestTSize(true)
		}
		for name, want := range loaderContent {
			// The last ones are firmware that asks for bytes behind the DHCP option too.
			for _, asked := range []string{testPath + "/" + name, "/" + testPath + "/" + name, testPath + "/" + name + "\xff", testPath + "/" + name + "\xff\xff", testPath + "/" + name + "\xaf\x80\xff", testPath + "/" + name + "\r\n"} {
				from, err := client.Receive(asked, "octet")
				if err != nil {
					t.Fatalf("%s: %v", asked, err)
				}
				if n, ok := from.(tftp.IncomingTransfer).Size(); size > 0 && (!ok || n != int64(len(want))) {
					t.Errorf("%s: said to have %d bytes", asked, n)
				}
				var got bytes.Buffer
				if _, err := from.WriteTo(&got); err != nil || got.String() != want {
					t.Errorf("%s in blocks of %d: %d bytes, %v", asked, size, got.Len(), err)
				}
			}
		}
		// Whose boot is open is told at once that a file is not there.
		for _, name := range []string{"secret", "autoexec.ipxe", "../snponly.efi", "./snponly.efi", "", "etc/passwd", "snponly.efi/", "SNPONLY.EFI"} {
			if _, err := client.Receive(testPath+"/"+name, "octet"); err == nil || !strings.Contains(err.Error(), "file not found") {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// packetOf is a packet as firmware sends it.
func packetOf(code byte, words ...string) []byte {
	return append([]byte{0, code}, strings.Join(words, "\x00")+"\x00"...)
}

// TestTFTPIsSilent: who is in no operation hears nothing over TFTP, be it a loader or a refusal.
func TestTFTPIsSilent(t *testing.T) {
	ended, media, other := testNode(), testNode(), testNode()
	ended.BootNumber++
	media.Plan.Method = metal.BootMedia
	other.Plan.Path = "another-path-of-a-boot"
	loader := packetOf(tftpRead, testPath+"/snponly.efi", "octet", "tsize", "0")
	for name, c := range map[string]struct {
		plans  *plans
		packet []byte
	}{
		"no node in an operation": {&plans{}, loader},
		"the operation ended":     {&plans{node: ended}, loader},
		"another boot":            {&plans{node: other}, loader},
		"booted by media":         {&plans{node: media}, loader},
		"the store is away":       {&plans{err: problem.Unavailablef("away")}, loader},
		"no path":                 {&plans{node: testNode()}, packetOf(tftpRead, "snponly.efi", "octet")},
		"a guess":                 {&plans{node: testNode()}, packetOf(tftpRead, strings.Repeat("a", 32)+"/snponly.efi", "octet")},
		"a path of directories":   {&plans{node: testNode()}, packetOf(tftpRead, "../etc/passwd", "octet")},
		"an upload":               {&plans{node: testNode()}, packetOf(2, testPath+"/new", "octet")},
		"as text":                 {&plans{node: testNode()}, packetOf(tftpRead, testPath+"/snponly.efi", "netascii")},
		"no end":                  {&plans{node: testNode()}, []byte("\x00\x01" + testPath + "/snponly.efi\x00octet")},
		"an acknowledgement":      {&plans{node: testNode()}, []byte{0, tftpAck, 0, 1}},
		"nothing":                 {&plans{node: testNode()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := must.Get(net.ResolveUDPAddr("udp4", tftpBench(t, c.plans)))(t)
			conn := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
			defer conn.Close()
			must.Get(conn.WriteTo(c.packet, at))(t)
			must.OK(t, conn.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
			buf := make([]byte, 600)
			if n, _, err := conn.ReadFrom(buf); err == nil {
				t.Errorf("heard %.40q", buf[:n])
			}
		})
	}
}

// TestTFTPRepeats: a packet that is lost is sent again, and an acknowledgement that comes twice doubles nothing.
func TestTFTPRepeats(t *testing.T) {
	at := must.Get(net.ResolveUDPAddr("udp4", tftpBench(t, &plans{node: testNode()})))(t)
	conn := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer conn.Close()
	must.OK(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 600)
	must.Get(conn.WriteTo(packetOf(tftpRead, testPath+"/snponly.efi", "octet"), at))(t)
	var sequence []byte
	slow, before := false, time.Now()
	for i := range 20 {
		n, from, err := conn.ReadFrom(buf)
		if err != nil || n < 4 || buf[1] != tftpData {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		sequence = append(sequence, buf[3])
		if i == 0 {
			continue // lost
		}
		for range 2 {
			must.Get(conn.WriteTo([]byte{0, tftpAck, 0, buf[3]}, from))(t)
		}
		// After a second without an acknowledgement a block is rightly sent again.
		slow = slow || i > 1 && time.Since(before) > tftpTimeout/2
		before = time.Now()
		if buf[3] == 3 {
			if n != 4 {
				t.Errorf("the end has %d bytes", n)
			}
			break
		}
	}
	if slow {
		sequence = append([]byte{1}, slices.Compact(sequence)...)
	}
	if !bytes.Equal(sequence, []byte{1, 1, 2, 3}) {
		t.Errorf("blocks %v", sequence)
	}
}

// TestTFTPAsUEFIAsks: firmware first asks for the size alone and breaks off, then asks for blocks by options of which some are not known here.
func TestTFTPAsUEFIAsks(t *testing.T) {
	at := must.Get(net.ResolveUDPAddr("udp4", tftpBench(t, &plans{node: testNode()})))(t)
	for _, ask := range []struct{ words, want string }{
		{"tsize\x000", "\x00\x06tsize\x0070001\x00"},
		{"blksize\x001468\x00windowsize\x004", "\x00\x06blksize\x001468\x00"},
		{"BLKSIZE\x009000\x00tsize\x000", "\x00\x06blksize\x001468\x00tsize\x0070001\x00"},
		{"windowsize\x004", "\x00\x03\x00\x01" + loaderContent["undionly.kpxe"][:512]},
	} {
		conn := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
		must.OK(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		must.Get(conn.WriteTo(packetOf(tftpRead, testPath+"/undionly.kpxe", "octet", ask.words), at))(t)
		buf := make([]byte, 2000)
		n, from, err := conn.ReadFrom(buf)
		if err != nil || string(buf[:n]) != ask.want {
			t.Errorf("%q: %.60q, %v", ask.words, buf[:n], err)
		} else if _, err := conn.WriteTo([]byte("\x00\x05\x00\x08User aborted the transfer\x00"), from); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}

func FuzzTFTPRequest(f *testing.F) {
	f.Add(packetOf(tftpRead, testPath+"/snponly.efi", "octet", "blksize", "1468", "tsize", "0"))
	f.Add(packetOf(tftpRead, "/"+testPath+"//x", "OCTET", "blksize", "-1", "tsize"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		ask, ok := parseAsk(packet)
		if ok && (!validPath(ask.path) || ask.block < 0 || ask.block > 65464 || strings.ContainsRune(ask.name, 0)) {
			t.Errorf("%+v", ask)
		}
	})
}
