package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"salvor/problem"
)

// openedFiles are the files of a database that a process serves, as they lay when it opened them: the database, the two that SQLite keeps beside it,
// and the lock. SQLite goes on with an open file that has lost its name, and whatever it commits there is gone when the process ends.
type openedFiles struct {
	path string
	all  []openedFile
}

type openedFile struct {
	path string
	info os.FileInfo
}

// misplacedError says that a file is not as it was opened, and what to do.
type misplacedError struct {
	text string
	// lacksLog tells that the log has no name any more, and the database itself lies where it was opened: a checkpoint can bring the log into the
	// database. Another file in the place of the log may be in use by another process.
	lacksLog bool
}

func (e *misplacedError) Error() string { return e.text }

// recordOpenedFiles looks at the files that are open now. It opens none, because closing a file ends every lock of the process on the file.
func recordOpenedFiles(path string, lock *os.File) (*openedFiles, error) {
	held, err := lock.Stat()
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	f := &openedFiles{path: path}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("database: %w", err)
		}
		f.all = append(f.all, openedFile{name, info})
	}
	f.all = append(f.all, openedFile{lock.Name(), held})
	return f, nil
}

// check compares the files with what was opened. It costs four calls of stat, a few microseconds. A nil receiver has nothing to compare.
func (f *openedFiles) check() error {
	if f == nil {
		return nil
	}
	for _, opened := range f.all {
		info, err := os.Stat(opened.path)
		isDatabase := opened.path == f.path
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return &misplacedError{fmt.Sprintf("%s cannot be looked at: %v", opened.path, err), false}
		case err == nil && os.SameFile(info, opened.info):
			if n := linkCount(info); isDatabase && n > 1 {
				return &misplacedError{hardLinked(f.path, n) + "; then all goes on by itself", false}
			}
			continue
		}
		word := "another file was put in the place of %s"
		if err != nil {
			word = "%s was moved or removed"
		}
		next := "; stop salvor serve in order (no kill -9: at its end it writes what it committed into the database) and start it again"
		if isDatabase {
			next = "; move the former file back, and all goes on by itself, or stop salvor serve and restore a backup"
		}
		return &misplacedError{fmt.Sprintf(word, opened.path) + " while salvor serves the database" + next, !isDatabase && err != nil}
	}
	return nil
}

func linkCount(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

func hardLinked(path string, links uint64) string {
	return fmt.Sprintf("%s has %d names (hard links): a program that opens another name keeps a log of its own, and both destroy the file; find the names with find DIR -xdev -samefile %s, and remove all names but this one",
		path, links, path)
}

// checkHardLinks refuses a file that a program could open by another name, beside another lock and another log.
func checkHardLinks(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if n := linkCount(info); n > 1 {
		return problem.Invalidf("database: %s", hardLinked(path, n))
	}
	return nil
}

// resolveLink gives the file that a symbolic link names, because the lock lies beside the file. A path that is no link stays as it is.
func resolveLink(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil
	}
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", problem.Invalidf("database: the link %s: %w; let it name the file of a database, or remove it", path, err)
	}
	return to, nil
}

// checkedConnector opens connections only while the files are in place. SQLite would open another file beside those of the open connections.
type checkedConnector struct {
	driver driver.Driver
	dsn    string
	files  *openedFiles
}

func (c checkedConnector) Driver() driver.Driver { return c.driver }

func (c checkedConnector) Connect(context.Context) (driver.Conn, error) {
	if err := c.files.check(); err != nil {
		return nil, err
	}
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	if err := c.files.check(); err != nil { // the files may have gone while the connection opened them
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
