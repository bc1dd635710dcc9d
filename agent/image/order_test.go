package image

import (
	"bytes"
	"context"
	"testing"
)

// watched is a disk that counts what is written to its start, and to the rest after that.
type watched struct {
	*file
	starts, after int
}

func (w *watched) WriteAt(p []byte, off int64) (int, error) {
	if off < held && len(bytes.Trim(p, "\x00")) > 0 {
		w.starts++
	} else if w.starts > 0 && len(bytes.Trim(p, "\x00")) > 0 {
		w.after++
	}
	return w.file.WriteAt(p, off)
}

// TestTheStartIsWrittenLast: a machine that loses its power during the copy must have no disk that boots. So the agent writes the
// start of the disk last, after the checksum is known to be right.
func TestTheStartIsWrittenLast(t *testing.T) {
	body := content()
	for name, c := range map[string]struct {
		format string
		b      []byte
	}{"raw": {"raw", body}, "gzip": {"raw", zipped(t, body)}, "qcow2": {"qcow2", qemuImg(t, body, "-O", "qcow2")}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			order := f.order(name, c.format, c.b)
			to := &watched{file: newDisk(diskSize)}
			if err := f.writer.Write(context.Background(), order, to); err != nil || to.starts != 1 || to.after > 0 {
				t.Errorf("%v; the start was written %d times, and the rest %d times after it", err, to.starts, to.after)
			}
			written(t, to.file, body)
			order.Checksum = sha([]byte("another image"))
			to = &watched{file: newDisk(diskSize)}
			if err := f.writer.Write(context.Background(), order, to); err == nil || to.starts > 0 {
				t.Errorf("with a wrong checksum: %v; the start was written %d times", err, to.starts)
			}
		})
	}
}
