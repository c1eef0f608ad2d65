package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// platforms are the platforms of the binaries. The image has those of linux.
var platforms = []struct{ os, arch string }{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
}

// binaryName is the name of a platform's binary in the release.
func binaryName(goos, goarch string) string {
	name := "fastadmit-" + goos + "-" + goarch
	if goos == "windows" {
		name += ".exe"
	}
	return name
}

// binaries builds the command for all platforms. -s omits the tables that only debuggers read: the
// binary is a third smaller, and profiles and stacks are the same.
func (r *release) binaries(ctx context.Context) error {
	for _, p := range platforms {
		name := binaryName(p.os, p.arch)
		fmt.Println("building", name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -X main.version="+r.version,
			"-o", r.path(name), "./cmd/fastadmit")
		cmd.Dir = r.root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOOS="+p.os, "GOARCH="+p.arch)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", cmd, err)
		}
	}
	return nil
}

// A packed file is in a tar under a name of its own.
type packed struct {
	file, as string
	mode     int64
}

// pack writes a tar of the files, owned by root, with the time of the commit.
func (r *release) pack(to io.Writer, files ...packed) error {
	archive := tar.NewWriter(to)
	for _, f := range files {
		content, err := os.ReadFile(f.file)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: f.as, Mode: f.mode, Size: int64(len(content)), ModTime: r.time, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// archive writes the files below dir to a tar, ordered by name.
func (r *release) archive(dir, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	archive := tar.NewWriter(out)
	if err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return r.add(archive, dir, path)
	}); err != nil {
		return err
	}
	return archive.Close()
}

func (r *release) add(archive *tar.Writer, dir, path string) error {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: info.Size(), ModTime: r.time}); err != nil {
		return err
	}
	_, err = io.Copy(archive, from)
	return err
}
