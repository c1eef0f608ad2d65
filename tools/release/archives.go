package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// archiveName is the name of the archive of a platform's binary in the release.
func archiveName(goos, goarch string) string { return "fastadmit-" + goos + "-" + goarch + ".tar.gz" }

// inArchive is the name of the binary in its archive.
func inArchive(goos string) string {
	if goos == "windows" {
		return "fastadmit.exe"
	}
	return "fastadmit"
}

// archives packs each binary under its short name, with the license, which krew requires.
func (r *release) archives(context.Context) error {
	for _, p := range platforms {
		if err := r.archiveFor(p.os, p.arch); err != nil {
			return fmt.Errorf("%s: %w", archiveName(p.os, p.arch), err)
		}
	}
	return nil
}

func (r *release) archiveFor(goos, goarch string) (err error) {
	fmt.Println("packing", archiveName(goos, goarch))
	to, err := os.Create(r.path(archiveName(goos, goarch)))
	if err != nil {
		return err
	}
	defer func() {
		if closed := to.Close(); err == nil {
			err = closed
		}
	}()
	compressed := gzip.NewWriter(to)
	if err := r.pack(compressed, packed{r.path(binaryName(goos, goarch)), inArchive(goos), 0o755},
		packed{filepath.Join(r.root, "LICENSE"), "LICENSE", 0o644}); err != nil {
		return err
	}
	return compressed.Close()
}

// download returns the address of an archive on the page of the release, and its checksum.
func (r *release) download(goos, goarch string) (url, sum string, err error) {
	name := archiveName(goos, goarch)
	sum, err = sumOf(r.path(name))
	return source + "/releases/download/v" + r.version + "/" + name, sum, err
}
