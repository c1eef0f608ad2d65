// Command site builds the site of the documents: it gives each document of pages.yaml a page, runs hugo, writes the
// index that the search reads, and checks all links. It runs in its own folder.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	out := flag.String("out", "../../bin/site", "folder to write the site to; it is replaced")
	repository := flag.String("repository", "../..", "folder of the repository")
	flag.Parse()
	if err := build(*repository, *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func build(repository, out string) error {
	dir, err := os.MkdirTemp("", "fastadmit-site-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	groups, err := navigation(repository)
	if err != nil {
		return err
	}
	if err := writeSources(repository, dir, groups); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	hugo := exec.Command("go", "tool", "hugo", "--quiet", "--panicOnWarning",
		"--contentDir", filepath.Join(dir, "content"), "--destination", out, "--config", "hugo.yaml,"+filepath.Join(dir, "mounts.yaml"))
	hugo.Stdout, hugo.Stderr = os.Stderr, os.Stderr
	// This keeps the user's settings from causing a rebuild of hugo.
	hugo.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := hugo.Run(); err != nil {
		return fmt.Errorf("cannot run hugo: %w", err)
	}
	pages, err := readPages(out)
	if err != nil {
		return err
	}
	if err := writeIndex(out, groups, pages); err != nil {
		return err
	}
	if err := checkLinks(repository, out, pages); err != nil {
		return err
	}
	fmt.Printf("%d pages without broken links in %s\n", len(pages), out)
	return nil
}
