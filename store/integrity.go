package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"salvor/problem"
)

// What a SQLite file is looked at for before it is served: SQLite itself makes a new database where the file is gone or empty,
// and passes over a log that it cannot read, with all that was committed there.

// pageCheckTime bounds the look at all pages of a file; of one that is too big for it the part is looked at that the time suffices for.
const pageCheckTime = 3 * time.Second

// madeMark in the file of the lock says that the database beside it has had its tables.
const madeMark = "made\n"

// corruptFile says what is wrong with a file and what to do about it.
func corruptFile(path, format string, args ...any) error {
	return problem.Invalidf("database: %s: %w; nothing was changed: restore the newest file that salvor db backup made, in place of %s and without %s-wal and %s-shm",
		path, fmt.Errorf(format, args...), path, path, path)
}

// checkFiles looks at the files before anybody opens them.
func checkFiles(path string, lock *os.File) error {
	f, err := os.Open(path)
	made := hasMadeMark(lock)
	switch {
	case errors.Is(err, fs.ErrNotExist) && made:
		return corruptFile(path, "the file is gone (to begin with an empty one, remove %s)", lock.Name())
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("database: %w", err)
	}
	defer f.Close()
	head := make([]byte, 100)
	n, err := io.ReadFull(f, head)
	switch {
	case n == 0 && made:
		return corruptFile(path, "the file is empty, and was not (to begin anew, remove it and %s)", lock.Name())
	case n == 0:
		return nil // a first start that was cut short
	case err != nil || !bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return corruptFile(path, "this is no SQLite file any more: its first bytes are others")
	}
	return checkWAL(path)
}

func hasMadeMark(lock *os.File) bool {
	b := make([]byte, len(madeMark))
	n, _ := lock.ReadAt(b, 0)
	return string(b[:n]) == madeMark
}

// writeMadeMark is best effort: where the disk is full the next start does it.
func writeMadeMark(lock *os.File) {
	if !hasMadeMark(lock) {
		_, _ = lock.WriteAt([]byte(madeMark), 0)
		_ = lock.Sync()
	}
}

// checkPages has SQLite look at the structure of all tables and indexes.
func checkPages(ctx context.Context, db *sql.DB, path string) error {
	bounded, cancel := context.WithTimeout(ctx, pageCheckTime)
	defer cancel()
	var result string
	err := db.QueryRowContext(bounded, "PRAGMA quick_check(1)").Scan(&result)
	switch {
	case err != nil && bounded.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case result != "ok":
		return corruptFile(path, "%s", strings.Join(strings.Fields(result), " "))
	}
	return nil
}

// isCorruptionError tells whether SQLite found that a file is not what it wrote.
func isCorruptionError(err error) bool {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return false
	}
	code := se.Code() & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

const (
	logHead   = 32
	frameHead = 24
)

// checkWAL reads the write-ahead log that a process left which was killed. A log ends at its first frame that is not whole:
// power that failed leaves one there. That a later transaction follows it cannot be, for each is on the disk before the next begins.
func checkWAL(path string) error {
	name := path + "-wal"
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer f.Close()
	head := make([]byte, logHead)
	if _, err := io.ReadFull(f, head); err != nil || bytes.Equal(head, make([]byte, logHead)) {
		return nil // nothing was ever committed to it
	}
	l := walLog{order: binary.LittleEndian}
	size := binary.BigEndian.Uint32(head[8:])
	switch magic := binary.BigEndian.Uint32(head); {
	case magic|1 != 0x377f0683, size < 512 || size > 65536 || size&(size-1) != 0:
		return corruptFile(path, "its write-ahead log %s is no log any more: what was committed there last is lost", name)
	case magic&1 == 1:
		l.order = binary.BigEndian
	}
	l.add(head[:24])
	if !l.matches(head[24:]) {
		return corruptFile(path, "its write-ahead log %s is no log any more: what was committed there last is lost", name)
	}
	frame, whole, commits := make([]byte, frameHead+int(size)), true, 0
	for {
		if _, err := io.ReadFull(f, frame); err != nil {
			return nil
		}
		if !bytes.Equal(frame[8:16], head[16:24]) {
			return nil // of an earlier round of the log
		}
		if whole {
			l.add(frame[:8])
			l.add(frame[frameHead:])
			whole = l.matches(frame[16:])
		}
		switch ends := binary.BigEndian.Uint32(frame[4:]) != 0; {
		case whole:
		case commits > 0:
			return corruptFile(path, "its write-ahead log %s is damaged before its end: what was committed there later is lost", name)
		case ends:
			commits++
		}
	}
}

// walLog is the running checksum of a log.
type walLog struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (l *walLog) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		l.s0 += l.order.Uint32(b) + l.s1
		l.s1 += l.order.Uint32(b[4:]) + l.s0
	}
}

func (l *walLog) matches(b []byte) bool {
	return binary.BigEndian.Uint32(b) == l.s0 && binary.BigEndian.Uint32(b[4:]) == l.s1
}
