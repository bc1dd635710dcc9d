package netboot

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"salvor/test/must"
)

// BenchmarkAnswer is one DHCP packet in and out, without store and socket.
func BenchmarkAnswer(b *testing.B) {
	s, err := New(Config{Plans: &plans{node: testNode()}, HTTPPort: 6385, Interfaces: []Interface{{Name: "br0", Mode: Authoritative, Ranges: []Range{testRange}}}})
	if err != nil {
		b.Fatal(err)
	}
	r := s.responder(s.cfg.Interfaces[0], serverAddr)
	mac, _ := net.ParseMAC(testMAC)
	req, err := dhcpv4.New(dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), firmware("PXEClient", 7), dhcpv4.WithUserClass("iPXE", false))
	if err != nil {
		b.Fatal(err)
	}
	raw := req.ToBytes()
	for b.Loop() {
		req := must.Get(dhcpv4.FromBytes(raw))(b)
		resp, err := r.answer(b.Context(), req, portServer)
		if err != nil || resp == nil {
			b.Fatal(resp, err)
		}
		resp.ToBytes()
	}
}

// BenchmarkRange is a BMC reading 64 KiB of its virtual CD.
func BenchmarkRange(b *testing.B) {
	s := newSite(b)
	req := httptest.NewRequest(http.MethodGet, "/boot/"+testPath+"/boot.iso", nil)
	req.Header.Set("Range", "bytes=32768-98303")
	for b.Loop() {
		w := httptest.NewRecorder()
		s.Config.Handler.ServeHTTP(w, req)
		if w.Code != http.StatusPartialContent {
			b.Fatal(w.Code)
		}
	}
}
