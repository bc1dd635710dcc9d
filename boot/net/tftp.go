package netboot

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pin/tftp/v3"
)

const (
	tftpTimeout   = time.Second
	tftpRetries   = 5
	tftpTransfers = 64 // at once
)

// errNoFile is what a TFTP client is told, whatever the reason.
var errNoFile = errors.New("file not found")

// tftpServer makes a server of the two boot loaders. What a request names is compared
// with their names; it never becomes a path.
func (s *Server) tftpServer() *tftp.Server {
	slots := make(chan struct{}, tftpTransfers)
	t := tftp.NewServer(func(name string, w io.ReaderFrom) error {
		name = strings.TrimLeft(name, "/")
		served := []string{s.cfg.BIOSLoader, s.cfg.UEFILoader}
		i := slices.Index(served, name)
		if i < 0 {
			return errNoFile
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			return errors.New("busy")
		}
		f, err := os.Open(filepath.Join(s.cfg.TFTPDir, served[i]))
		if err != nil {
			s.log.Warn("boot loader cannot be served", "error", err)
			return errNoFile
		}
		defer f.Close()
		_, err = w.ReadFrom(f) // its failures are the client's going away
		return err
	}, nil)
	t.SetTimeout(tftpTimeout)
	t.SetRetries(tftpRetries)
	t.SetBackoff(func(int) time.Duration { return 0 }) // the time-out is pause enough
	return t
}
