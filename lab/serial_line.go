package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// serialPoll is how often it is looked whether the machine has written more.
const serialPoll = 50 * time.Millisecond

// serialLine gives what a machine writes on its serial line to a BMC that connects by TCP, from then on. QEMU writes to a file, so the line outlives each
// start of the machine, as a real one does. Nothing goes to the machine.
type serialLine struct {
	listener net.Listener
	path     string
	end      context.CancelFunc
	done     sync.WaitGroup
}

func openSerialLine(at netip.AddrPort, path string) (*serialLine, error) {
	listener, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	l := &serialLine{listener: listener, path: path, end: end}
	l.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.done.Go(func() { l.serve(ctx, conn) })
		}
	})
	return l, nil
}

func (l *serialLine) close() {
	l.end()
	_ = l.listener.Close()
	l.done.Wait()
}

// serve sends what comes until one side ends it.
func (l *serialLine) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.done.Go(func() {
		_, _ = io.Copy(io.Discard, conn)
		cancel()
	})
	defer conn.Close()
	at := int64(0)
	if info, err := os.Stat(l.path); err == nil {
		at = info.Size()
	}
	look := time.NewTicker(serialPoll)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		n, err := sendFrom(conn, l.path, at)
		if err != nil {
			return
		}
		at += n
	}
}

// sendFrom sends the rest of a file, which may not be there yet.
func sendFrom(w io.Writer, path string, at int64) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return 0, err
	}
	return io.Copy(w, f)
}
