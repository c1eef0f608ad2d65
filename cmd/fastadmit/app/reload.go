package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/fsnotify/fsnotify"

	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// debounceTime is how long no event may come before files are read. A change of several
	// files, or of a ConfigMap, causes many events.
	debounceTime = 100 * time.Millisecond

	// readsMax is how often files are read again because they changed meanwhile. The
	// events of the last change cause another try.
	readsMax = 3
)

// A reloader reads files again when they change. A valid change takes effect at once; an
// invalid one changes nothing.
type reloader struct {
	log     *slog.Logger
	metrics reloadMetrics
	watcher *fsnotify.Watcher
	watched map[string]os.FileInfo // the folders at the time when the watch began
	parts   []*part

	changed  wake.Signal  // sent when the version of the API server changes
	rules    wake.Signal  // sent when plugins need other reviews
	register func() error // registers the webhooks again
}

// reloadMetrics are about changes of the configuration files.
type reloadMetrics struct {
	successes, failures *metrics.Counter
	lastSuccess         atomic.Int64 // in seconds since 1970
}

func (m *reloadMetrics) register(set *metrics.Set) {
	m.successes = set.NewCounter("fastadmit_config_reload_successes_total")
	m.failures = set.NewCounter("fastadmit_config_reload_failures_total")
	m.lastSuccess.Store(time.Now().Unix())
	set.NewGauge("fastadmit_config_reload_last_success_timestamp_seconds", func() float64 { return float64(m.lastSuccess.Load()) })
}

// A part is a set of files, and of folders with all their files, that are read together.
type part struct {
	name    string
	files   func() []string
	folders func() []string // nil for none
	reload  func(ctx context.Context) error
	works   func() error // why /readyz fails; nil if the version in use always works

	read    [sha256.Size]byte
	refused atomic.Pointer[string] // the error of the last change, nil if it was valid
}

// newReloader watches the files of the parts, which were read just now.
func newReloader(log *slog.Logger, set *metrics.Set, parts ...*part) (*reloader, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	r := &reloader{log: log, watcher: watcher, watched: make(map[string]os.FileInfo), parts: parts}
	r.metrics.register(set)
	for _, p := range parts {
		p.read = p.contents()
		if err := r.watch(p); err != nil {
			return nil, errors.Join(err, watcher.Close())
		}
	}
	return r, nil
}

// watch watches the folders of the files of a part, and of the targets of links: Kubernetes
// changes a mounted ConfigMap by replacing a link in the files' folder, and editors replace
// files.
func (r *reloader) watch(p *part) error {
	watched := p.files()
	for _, folder := range p.allFolders() {
		watched = append(watched, folder, filepath.Join(folder, "any")) // so that both it and its own folder are watched
	}
	for _, file := range watched {
		folders := []string{filepath.Dir(file)}
		if target, err := filepath.EvalSymlinks(file); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
		for _, folder := range folders {
			if err := r.watchFolder(folder); err != nil {
				return fmt.Errorf("cannot watch the folder of %s: %w", file, err)
			}
		}
	}
	return nil
}

// watchFolder watches a folder. If the folder was replaced, it watches the new one.
func (r *reloader) watchFolder(folder string) error {
	now, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if slices.Contains(r.watcher.WatchList(), folder) && os.SameFile(now, r.watched[folder]) {
		return nil
	}
	_ = r.watcher.Remove(folder) // fails if it is not watched
	if err := r.watcher.Add(folder); err != nil {
		return err
	}
	r.watched[folder] = now
	return nil
}

// run reloads until ctx ends: the parts that changed, and all parts after SIGHUP.
func (r *reloader) run(ctx context.Context, asked <-chan os.Signal) {
	defer func() { _ = r.watcher.Close() }() // the process ends
	settled := time.NewTimer(debounceTime)   // changes before the watch began
	defer settled.Stop()
	free := true // memory, after the start and after a part was read
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.watcher.Events:
			settled.Reset(debounceTime)
		case err := <-r.watcher.Errors:
			r.log.Error("cannot watch files", "error", fmt.Sprint(err))
			settled.Reset(debounceTime) // events may have been lost
		case <-asked:
			r.log.Info("reading all files again because of SIGHUP")
			for _, p := range r.parts {
				r.reload(ctx, p, true)
			}
		case <-r.changed:
			r.report(r.parts[0], r.parts[0].reload(ctx)) // the configuration
		case <-r.rules:
			if err := r.register(); err != nil {
				r.log.Error("cannot register the rules of the plugins, the previous ones stay registered", "error", err.Error())
			}
		case <-settled.C:
			for _, p := range r.parts {
				free = r.reload(ctx, p, false) || free
			}
			if free {
				debug.FreeOSMemory() // compiling 10,000 policies takes twice the memory that they need afterwards
				free = false
			}
		}
	}
}

// reload reads a part again if it changed or, if always is true, in any case. A part without
// files, such as a certificate in memory, is never read again. If a part changes while it is
// read, or gets other files, it is read once more. reload returns whether it was read.
func (r *reloader) reload(ctx context.Context, p *part, always bool) bool {
	unwatched := r.watch(p) // the folder may have been replaced by one with the same files
	now := p.contents()
	if now == p.read && unwatched != nil {
		r.log.Error("cannot watch files", "error", unwatched.Error())
	}
	if now == p.read && (!always || len(p.files()) == 0) {
		return false // something else in these folders changed
	}
	var err error
	for range readsMax {
		p.read = now
		err = errors.Join(p.reload(ctx), r.watch(p))
		if now = p.contents(); now == p.read {
			break
		}
	}
	r.report(p, err)
	return true
}

// report logs and counts the result of reading a part again.
func (r *reloader) report(p *part, err error) {
	if err != nil {
		text := err.Error()
		p.refused.Store(&text)
		r.metrics.failures.Inc()
		r.log.Error(p.name+" refused, the previous version stays in use", "error", text)
		return
	}
	p.refused.Store(nil)
	r.metrics.successes.Inc()
	r.metrics.lastSuccess.Store(time.Now().Unix())
	r.log.Info(p.name + " reloaded")
}

// checks are checks of /readyz that show, for each part, whether the version in use works, and
// whether the last change was refused.
func (r *reloader) checks() []server.Check {
	var checks []server.Check
	for _, p := range r.parts {
		checks = append(checks, server.Check{Name: p.name, Ask: p.check})
	}
	return checks
}

func (p *part) check() (ok bool, about string) {
	var fails, refused error
	if p.works != nil {
		fails = p.works()
	}
	if text := p.refused.Load(); text != nil {
		refused = fmt.Errorf("a change was refused, the previous version stays in use: %s", *text)
	}
	if all := errors.Join(fails, refused); all != nil {
		about = all.Error()
	}
	return fails == nil, about
}

// configPart is the part with the files of the configuration. in was loaded from them.
func (o *serveOptions) configPart(in selected) *part {
	return &part{
		name:    "configuration",
		files:   func() []string { return in.Files },
		folders: func() []string { return in.Folders },
		reload: func(ctx context.Context) error {
			next, err := o.load(ctx, in.chain)
			if err == nil {
				err = o.checkWrites(next.chain)
			}
			if err == nil {
				err = o.cluster.await(ctx)
			}
			if err == nil {
				err = o.managed.reload(&next, o.callers)
			}
			if err != nil {
				in.Files, in.Folders = next.Files, next.Folders
				return err
			}
			o.serveSelected(&next)
			next.chain.Start(ctx, in.chain, o.rules.Send)
			o.shadow.start(ctx, next.shadow, o.rules.Send)
			o.served.changed.Send()
			in = next
			return nil
		},
	}
}

func (p *part) allFolders() []string {
	if p.folders == nil {
		return nil
	}
	return p.folders()
}

// contents identifies the files of the part and what is in them.
func (p *part) contents() [sha256.Size]byte {
	all := sha256.New()
	add := func(name string, content []byte, err error) {
		fmt.Fprintf(all, "%q %d %v\n", name, len(content), err)
		all.Write(content)
	}
	for _, file := range p.files() {
		content, err := files.Read(file)
		add(file, content, err)
	}
	for _, folder := range p.allFolders() {
		read, err := files.ReadFolder(folder, config.ManifestExtensions...)
		add(folder, nil, err)
		for _, file := range read {
			add(file.Name, file.Content, nil)
		}
	}
	return [sha256.Size]byte(all.Sum(nil))
}
