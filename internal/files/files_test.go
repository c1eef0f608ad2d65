package files_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fastadmit/fastadmit/internal/files"
)

func write(t *testing.T, name string, size int) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(strings.Repeat("a", size)), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRead(t *testing.T) {
	f := func(name string, want int) {
		t.Helper()
		got, err := files.Read(name)
		if err != nil || string(got) != strings.Repeat("a", want) {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, want)
		}
		if err := files.Check("", name); err != nil {
			t.Errorf("checked: got %v", err)
		}
	}
	f(write(t, "empty", 0), 0)
	f(write(t, "some", 1000), 1000)
	f(write(t, "largest-but-one", files.BytesMax-1), files.BytesMax-1)
	f(write(t, "largest", files.BytesMax), files.BytesMax)

	// The links that kubelet makes for a mounted ConfigMap.
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_01_01")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "file"), []byte("aaa"), 0o600),
		os.Symlink("..2026_01_01", filepath.Join(dir, "..data")), os.Symlink("..data/file", filepath.Join(dir, "file"))); err != nil {
		t.Fatal(err)
	}
	f(filepath.Join(dir, "file"), 3)

	// A file whose reported size is 0.
	if got, err := files.Read("/proc/self/status"); err != nil || !strings.Contains(string(got), "Pid:") {
		t.Errorf("got %q, %v, want all of a file whose size is 0", got, err)
	}
}

// TestNotRead reads files whose reads would block, or never end.
func TestNotRead(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		for _, err := range []error{files.Check(name), func() error { _, err := files.Read(name); return err }()} {
			var path *fs.PathError
			if !errors.As(err, &path) || path.Path != name || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s: %s", err, name, want)
			}
		}
	}
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	f(fifo, "got a named pipe, want a regular file")
	f(link, "got a named pipe, want a regular file")
	f(dir, "got a directory, want a regular file")
	f("/dev/zero", "got a device, want a regular file")
	socket := filepath.Join(dir, "socket")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f(socket, "not a regular file")
	f(write(t, "too-large", files.BytesMax+1), "got 16777217 bytes, want at most 16777216")

	huge := filepath.Join(dir, "huge")
	if err := errors.Join(os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	f(huge, "got 1099511627776 bytes, want at most 16777216")
	f(filepath.Join(dir, "none"), "no such file")
	if _, err := files.ReadAtMost(write(t, "small", 11), 10); err == nil ||
		!strings.Contains(err.Error(), "got 11 bytes, want at most 10") {
		t.Errorf("got %v, want the bound", err)
	}
	// A file whose reported size is 0, with more content than the limit allows.
	if _, err := files.ReadAtMost("/proc/self/status", 10); err == nil || !strings.Contains(err.Error(), "want at most 10") {
		t.Errorf("got %v, want the bound", err)
	}
}
