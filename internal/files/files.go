// Package files reads files that an operator names in flags and configuration files. A
// read never blocks and never uses unlimited memory, even if the name is that of a FIFO, a
// device or a huge file.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
)

// BytesMax is the maximum size of a file that Read reads. A Secret or ConfigMap has at most
// 1 MiB (k8s.io/api/core/v1 MaxSecretSize), but a list of tokens may be larger.
const BytesMax = 16 << 20

// Read returns the contents of a regular file. It follows symbolic links, as in a mounted
// ConfigMap. It returns an error if the file has more than BytesMax bytes or is not a
// regular file. It does not block on a FIFO.
func Read(name string) ([]byte, error) { return ReadAtMost(name, BytesMax) }

// ReadAtMost is Read with the limit bytesMax instead of BytesMax.
func ReadAtMost(name string, bytesMax int64) ([]byte, error) {
	return Tree("").ReadAtMost(name, bytesMax)
}

// ReadAtMost is the function ReadAtMost for the files of the Tree.
func (t Tree) ReadAtMost(name string, bytesMax int64) ([]byte, error) {
	f, size, err := t.open(name, bytesMax)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content := make([]byte, 0, size+1) // one more byte, so that the read at the end does not grow it
	for {
		if len(content) == cap(content) {
			content = append(content, 0)[:len(content)]
		}
		n, err := f.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		if int64(len(content)) > bytesMax { // the file has grown since open
			return nil, tooLarge(name, int64(len(content)), bytesMax)
		}
		if errors.Is(err, io.EOF) {
			return content, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Check opens files without reading them, and returns the first error that Read would
// return for their type and size. It is for files that other packages read. It ignores
// empty names.
func Check(names ...string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		f, _, err := Tree("").open(name, BytesMax)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Open opens a regular file of any size for reading. It does not block on a FIFO.
func (t Tree) Open(name string) (*os.File, error) {
	f, _, err := t.open(name, math.MaxInt64)
	return f, err
}

func (t Tree) open(name string, bytesMax int64) (f *os.File, size int64, err error) {
	f, err = t.openFile(name, os.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		if errors.Is(err, syscall.ENXIO) { // a socket, or the file of a missing device
			return nil, 0, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
		}
		return nil, 0, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("got %s, want a regular file", kind(info.Mode()))}
	case info.Size() > bytesMax:
		err = tooLarge(name, info.Size(), bytesMax)
	default:
		return f, info.Size(), nil
	}
	return nil, 0, errors.Join(err, f.Close())
}

func tooLarge(name string, got, want int64) error {
	return &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("got %d bytes, want at most %d", got, want)}
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a file of mode " + mode.Type().String()
}
