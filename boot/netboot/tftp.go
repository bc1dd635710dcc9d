package netboot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/metal"
	"salvor/problem"
)

const (
	tftpTransfers = 64 // at once, with what is being looked up
	tftpTries     = 6  // of each packet
	tftpBlock     = 512
	maxTFTPBlock  = 1468 // with its headers one frame of Ethernet
	tftpHeaders   = 32   // bytes of IP, UDP and TFTP before the data of a packet
)

// tftpTimeout is how long an acknowledgement is waited for before a packet is sent again.
const tftpTimeout = time.Second

// Codes of packets (RFC 1350, RFC 2347) and of errors.
const (
	tftpRead   = 1
	tftpData   = 3
	tftpAck    = 4
	tftpError  = 5
	tftpOption = 6

	tftpNotFound = 1
)

var errTransferOver = errors.New("the client ended the transfer")

// loaderAsk is a request for a file: the boot path and the name below it, and the options that we know.
type loaderAsk struct {
	path, name string
	block      int // asked for; 0: not
	size       bool
}

// parseAsk reads a request. False is for all that no firmware sends that was told where its boot loader is.
func parseAsk(packet []byte) (loaderAsk, bool) {
	if len(packet) < 4 || binary.BigEndian.Uint16(packet) != tftpRead || packet[len(packet)-1] != 0 {
		return loaderAsk{}, false
	}
	fields := strings.Split(string(packet[2:len(packet)-1]), "\x00")
	if len(fields) < 2 || !strings.EqualFold(fields[1], "octet") {
		return loaderAsk{}, false
	}
	path, name, ok := strings.Cut(strings.TrimLeft(cutForeignEnd(fields[0]), "/"), "/")
	if !ok || !validPath(path) {
		return loaderAsk{}, false
	}
	ask := loaderAsk{path: path, name: name}
	for pair := range slices.Chunk(fields[2:], 2) {
		if len(pair) < 2 {
			break
		}
		switch strings.ToLower(pair[0]) {
		case "blksize":
			if n, err := strconv.Atoi(pair[1]); err == nil && n >= 8 && n <= 65464 {
				ask.block = n
			}
		case "tsize":
			ask.size = true
		}
	}
	return ask, true
}

// cutForeignEnd cuts off what stands behind a file name: some firmware reads the name out of the DHCP option without regard to its length, and asks
// for the bytes behind the option too, such as the 255 that ends all options.
func cutForeignEnd(name string) string {
	end := len(name)
	for end > 0 && (name[end-1] <= ' ' || name[end-1] >= 0x7f) {
		end--
	}
	return name[:end]
}

// serveTFTP gives the two boot loaders, below the path of a boot that is open: that is where DHCP names them. To
// all else it is silent. What a request names is compared with their names; it never becomes a path.
func (s *Server) serveTFTP(ctx context.Context, conn *net.UDPConn, mtu int) error {
	ctx, cancel := context.WithCancel(ctx)
	slots := make(chan struct{}, tftpTransfers)
	defer func() {
		cancel()
		for range cap(slots) {
			slots <- struct{}{}
		}
	}()
	local := conn.LocalAddr().(*net.UDPAddr).IP
	buf := make([]byte, maxPacket)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			if ctx.Err() != nil || isClosed(err) {
				return nil
			}
			return fmt.Errorf("read TFTP: %w", err)
		}
		ask, ok := parseAsk(buf[:n])
		if !ok {
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			continue // it asks again
		}
		go func() {
			defer func() { <-slots }()
			if err := s.giveLoader(ctx, ask, &net.UDPAddr{IP: local}, from, mtu); err != nil {
				s.log.Warn("boot loader cannot be served", "error", err)
			}
		}()
	}
}

// giveLoader answers one request. An error is one of ours: how the client fares is its own matter.
func (s *Server) giveLoader(ctx context.Context, ask loaderAsk, local *net.UDPAddr, to netip.AddrPort, mtu int) error {
	looking, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	node, err := s.cfg.Plans.NodeByBootPath(looking, ask.path)
	var plan *metal.BootPlan
	if err == nil {
		plan, err = currentPlan(node)
	}
	if problem.Is(err, problem.NotFound) || err == nil && (plan.Path != ask.path || plan.Method == metal.BootMedia) {
		return nil
	}
	if err != nil {
		return err
	}
	conn, err := net.DialUDP("udp4", local, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if !slices.Contains(s.networkLoaders(""), ask.name) {
		// iPXE looks for a script beside its loader, and would wait long for an answer.
		_, _ = conn.Write(tftpRefusal)
		return nil
	}
	f, info, err := s.openNetworkLoader(ask.name)
	if err != nil {
		_, _ = conn.Write(tftpRefusal)
		s.refused(ctx, node, ask.name, err)
		return err
	}
	defer f.Close()
	_ = sendFile(conn, f, info.Size(), ask, min(maxTFTPBlock, max(mtu-tftpHeaders, tftpBlock)))
	return nil
}

var tftpRefusal = append([]byte{0, tftpError, 0, tftpNotFound}, "file not found\x00"...)

// sendFile sends a file block by block, the next when the last was acknowledged.
func sendFile(conn *net.UDPConn, f io.Reader, size int64, ask loaderAsk, largest int) error {
	block := tftpBlock
	taken := []byte{0, tftpOption}
	if ask.block > 0 {
		block = min(ask.block, largest)
		taken = fmt.Appendf(taken, "blksize\x00%d\x00", block)
	}
	if ask.size {
		taken = fmt.Appendf(taken, "tsize\x00%d\x00", size)
	}
	if len(taken) > 2 {
		if err := sendUntilAcked(conn, taken, 0); err != nil {
			return err
		}
	}
	packet := make([]byte, 4+block)
	packet[1] = tftpData
	for number := uint16(1); ; number++ { // it begins again at 0 after 65535
		n, err := io.ReadFull(f, packet[4:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		binary.BigEndian.PutUint16(packet[2:], number)
		if err := sendUntilAcked(conn, packet[:4+n], number); err != nil || n < block {
			return err
		}
	}
}

// sendUntilAcked sends a packet until it is acknowledged. Another acknowledgement sends nothing again: two that cross
// would double every packet from there on.
func sendUntilAcked(conn *net.UDPConn, packet []byte, number uint16) error {
	want := binary.BigEndian.AppendUint16([]byte{0, tftpAck}, number)
	buf := make([]byte, tftpBlock)
	for range tftpTries {
		if _, err := conn.Write(packet); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(tftpTimeout)); err != nil {
			return err
		}
		for {
			n, err := conn.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if bytes.Equal(buf[:n], want) {
				return nil
			}
			if n >= 2 && binary.BigEndian.Uint16(buf) == tftpError {
				return errTransferOver
			}
		}
	}
	return os.ErrDeadlineExceeded
}
