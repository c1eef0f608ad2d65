package app

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReloadReplacedFolder replaces a folder by one with the same files, and then changes a
// file in the new one.
func TestReloadReplacedFolder(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(folder string) {
		t.Helper()
		must(os.Mkdir(folder, 0o700))
		servertest.WriteFile(t, filepath.Join(folder, "a.yaml"), "a")
	}
	for name, replace := range map[string]func(folder string){
		"removed and created": func(folder string) {
			must(os.RemoveAll(folder))
			create(folder)
		},
		"renamed and created": func(folder string) {
			must(os.Rename(folder, folder+".old"))
			create(folder)
		},
		"link to another": func(folder string) {
			create(folder + ".second")
			must(os.Symlink(folder+".second", folder+".new"))
			must(os.Rename(folder+".new", folder))
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "policies")
			if name == "link to another" {
				create(folder + ".first")
				must(os.Symlink(folder+".first", folder))
			} else {
				create(folder)
			}
			var reloads atomic.Int64
			r, err := newReloader(server.NewLog(new(servertest.Buffer)), metrics.NewSet(), &part{
				name: "folder", files: func() []string { return nil }, folders: func() []string { return []string{folder} },
				reload: func(context.Context) error {
					reloads.Add(1)
					return nil
				},
			})
			must(err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go r.run(ctx, nil)
			replace(folder)
			time.Sleep(3 * debounceTime) // so that the folder is checked while the files are the same
			servertest.WriteFile(t, filepath.Join(folder, "a.yaml"), "b")
			servertest.Until(t, "the file was read", func() bool { return reloads.Load() > 0 })
		})
	}
}
