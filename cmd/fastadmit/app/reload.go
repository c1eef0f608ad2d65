package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fastadmit/fastadmit/handlers"
)

const (
	// settleTime is how long files must be left alone before they are read: a
	// change of several files, or of a ConfigMap, is many events.
	settleTime = 100 * time.Millisecond

	// syncMax bounds how long a change waits for the state of the cluster that
	// it needs.
	syncMax = 30 * time.Second
)

// A reloader reads the configuration anew when its files change. A change that
// is good is served at once; one that is not changes nothing.
type reloader struct {
	selection *selection
	server    *server
	watcher   *fsnotify.Watcher
	chain     *handlers.Chain // in use
	read      [sha256.Size]byte
	refused   atomic.Pointer[string] // why the last change was not good, nil if it was
}

// newReloader watches the files that the configuration in use was read from.
func newReloader(s *selection, server *server, in selected) (*reloader, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch the configuration: %w", err)
	}
	r := &reloader{selection: s, server: server, watcher: watcher, chain: in.chain, read: contents(in.Files)}
	if err := r.watch(in.Files); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot watch the configuration: %w", err), watcher.Close())
	}
	return r, nil
}

// watch watches the folders of the files, and of what they are links to:
// Kubernetes changes a mounted ConfigMap by replacing a link beside the files,
// and editors replace files.
func (r *reloader) watch(files []string) error {
	var errs []error
	for _, file := range files {
		folders := []string{filepath.Dir(file)}
		if target, err := filepath.EvalSymlinks(file); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
		for _, folder := range folders {
			if !slices.Contains(r.watcher.WatchList(), folder) {
				errs = append(errs, r.watcher.Add(folder))
			}
		}
	}
	return errors.Join(errs...)
}

// run reloads until ctx ends.
func (r *reloader) run(ctx context.Context) {
	defer r.watcher.Close()
	settled := time.NewTimer(settleTime) // what changed before it was watched
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.watcher.Events:
			settled.Reset(settleTime)
		case err := <-r.watcher.Errors:
			r.server.log.Error("cannot watch the configuration", "error", fmt.Sprint(err))
			settled.Reset(settleTime) // events may have been lost
		case <-settled.C:
			r.reload(ctx)
		}
	}
}

func (r *reloader) reload(ctx context.Context) {
	in, err := r.selection.load(r.chain)
	read := contents(in.Files)
	if read == r.read {
		return // something else in these folders changed
	}
	r.read = read
	if err == nil {
		err = r.follow(ctx, in)
	}
	err = errors.Join(err, r.watch(in.Files))
	metrics := &r.server.metrics.reloads
	if err != nil {
		text := err.Error()
		r.refused.Store(&text)
		metrics.failures.Inc()
		r.server.log.Error("configuration refused, the one before stays in use", "error", text)
		return
	}
	r.chain = in.chain
	r.server.use(in.chain)
	r.refused.Store(nil)
	metrics.successes.Inc()
	metrics.lastSuccess.Store(time.Now().Unix())
	r.server.log.Info("configuration reloaded", "plugins", strings.Join(in.names(), ","))
}

// follow waits for what the configuration needs to know of the cluster.
func (r *reloader) follow(ctx context.Context, in selected) error {
	if err := r.selection.follow(ctx, in.Loaded, false, r.server.log, r.server.metrics.set); err != nil {
		return err
	}
	state := r.selection.namespaces.state.Load()
	if state == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, syncMax)
	defer cancel()
	return state.Wait(waiting)
}

// contents identifies the files and what is in them.
func contents(files []string) (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(file)
		fmt.Fprintf(all, "%q %q %v\n", file, content, err)
	}
	return [sha256.Size]byte(all.Sum(nil))
}
