// Command release makes a release of fastadmit in one folder: binaries, alone and in archives, the image for several
// architectures, the chart, what krew and Homebrew install the archives with, an SBOM of each binary, the provenance,
// checksums and their signature, and the release notes.
//
// Two runs at one commit with the same Go toolchain produce the same bytes, because all times are
// the commit's. "release publish" pushes the image and the chart to a registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

const usage = `usage: release -version 1.2.3 -registry registry.example.com/owner [-key minisign.key] [-cosign-key cosign.key] [-out dist/1.2.3]
       release publish -version 1.2.3 -registry registry.example.com/owner [-out dist/1.2.3]
`

// A release describes the release to make.
type release struct {
	version  string // without the v
	root     string // of the repository
	registry string // has the image below it once it is published
	out      string // the folder that is made
	commit   string
	time     time.Time // of the commit
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	publishes := len(arguments) > 0 && arguments[0] == "publish"
	if publishes {
		arguments = arguments[1:]
	}
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}
	version := flags.String("version", "", "what is released, a semantic version without v")
	key := flags.String("key", "", "minisign's secret key that signs the checksums; its password is read from MINISIGN_PASSWORD; empty "+
		"for no signature")
	cosignKey := flags.String("cosign-key", "", "cosign's secret key that signs the checksums, too; its password is read from COSIGN_PASSWORD")
	registry := flags.String("registry", "", "where the image (REGISTRY/fastadmit) and the chart (REGISTRY/charts/fastadmit) are "+
		"published; the chart names the image there")
	out := flags.String("out", "", "the folder to make, dist/VERSION below the repository if empty")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	r, err := newRelease(ctx, *version, *out)
	if err != nil {
		return err
	}
	if *registry == "" {
		return errors.New("-registry: got nothing, want where image and chart are published, such as ghcr.io/OWNER")
	}
	r.registry = *registry
	if publishes {
		return r.publish(ctx)
	}
	return r.make(ctx, *key, *cosignKey)
}

// newRelease checks the version and reads the commit.
func newRelease(ctx context.Context, version, out string) (*release, error) {
	if !semver.IsValid("v"+version) || semver.Canonical("v"+version) != "v"+version {
		return nil, fmt.Errorf("-version: got %q, want a semantic version without v, such as 1.2.3 or 1.2.3-rc.1", version)
	}
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	head, err := output(ctx, root, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("time of commit %s: %w", commit, err)
	}
	if out == "" {
		out = filepath.Join(root, "dist", version)
	}
	if out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	return &release{version: version, root: root, out: out, commit: commit, time: time.Unix(unix, 0).UTC()}, nil
}

// make makes all files of the release.
func (r *release) make(ctx context.Context, key, cosignKey string) error {
	changes, err := output(ctx, r.root, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the checkout has changes that are not committed; commit or remove them:\n%s", changes)
	}
	notes, err := r.notes()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(r.path("RELEASE_NOTES.md"), []byte(notes), 0o644); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		r.binaries, r.archives, r.sboms, r.image, r.chart, r.krew, r.homebrew, r.provenance, r.checksums,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(r.sign(key), r.cosign(cosignKey)); err != nil {
		return err
	}
	fmt.Println("made", r.out)
	return nil
}

// notes returns the version's part of CHANGELOG.md. A prerelease without one uses the unreleased
// part.
func (r *release) notes() (string, error) {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	titles := []string{r.version}
	if semver.Prerelease("v"+r.version) != "" {
		titles = append(titles, "Unreleased")
	}
	for _, title := range titles {
		if notes, ok := section(string(changelog), title); ok {
			return "# fastadmit " + r.version + "\n\n" + notes + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md: got no heading \"## %s\"; rename \"## Unreleased\", or release a prerelease such as %s-rc.1",
		r.version, r.version)
}

// section returns the text below the second-level heading that begins with the title.
func section(document, title string) (string, bool) {
	found := false
	var text strings.Builder
	for line := range strings.Lines(document) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			if found {
				break
			}
			first, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
			found = first == title
			continue
		}
		if found {
			text.WriteString(line)
		}
	}
	return strings.TrimSpace(text.String()), found
}

func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// output runs a command and returns its trimmed output.
func output(ctx context.Context, dir, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return strings.TrimSpace(string(text)), nil
}
