package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/offline/audit"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/server"
)

// syncMax is how long commands wait until the watched objects are cached.
const syncMax = 30 * time.Second

// knownCluster is the cached state of the cluster. It connects to the API server when
// something first needs it.
type knownCluster struct {
	kubeconfig, dir string
	context         string                                                    // of the kubeconfig; if empty, the current one
	kinds           []*cluster.Kind                                           // the kinds that plugins define
	others          func(kind schema.GroupVersionKind, document []byte) error // see cluster.Options

	// imagined is true for commands that do not serve: if no cluster is named, they use the
	// objects of a new cluster.
	imagined  bool
	userAgent string       // "fastadmit" if empty
	log       *slog.Logger // may be nil
	metrics   *metrics.Set // may be nil

	state      atomic.Pointer[cluster.State] // nil until it is needed
	namespaces namespaces
	access     atomic.Pointer[cluster.Access] // for match conditions
}

// findKubeconfig finds the cluster as kubectl does (k8s.io/client-go tools/clientcmd NewDefaultClientConfigLoadingRules).
func (c *knownCluster) findKubeconfig() error {
	if c.kubeconfig != "" {
		return nil
	}
	if c.kubeconfig = os.Getenv(clientcmd.RecommendedConfigPathEnvVar); c.kubeconfig != "" {
		return nil
	}
	file := filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	if _, err := os.Stat(file); err == nil {
		c.kubeconfig = file
		return nil
	}
	if _, err := rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
		return failed(fmt.Errorf("no cluster is named: want --kubeconfig, the variable %s or the file %s, or a Pod to run in",
			clientcmd.RecommendedConfigPathEnvVar, file))
	}
	if c.context != "" {
		return fmt.Errorf("--context: got %q, want none without a kubeconfig: the cluster is that of the pod", c.context)
	}
	return nil
}

// checkDir returns an error if there is no folder with the state of the cluster.
func (c *knownCluster) checkDir() error {
	info, err := os.Stat(c.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--cluster-state-dir: %s: no such folder", c.dir)
	case err != nil:
		return fmt.Errorf("--cluster-state-dir: %w", err)
	case !info.IsDir():
		return fmt.Errorf("--cluster-state-dir: %s: got a file, want a folder with files in YAML or JSON", c.dir)
	}
	return nil
}

// agent is the User-Agent of the process's requests, by which the API server's log tells them from others.
func (c *knownCluster) agent() string { return cmp.Or(c.userAgent, "fastadmit") }

// matchConditions is the name under which match conditions that check permissions share
// the requests to the API server.
const matchConditions = "matchConditions"

// follow starts the watches for needs; who names the owner of these needs. It does not wait
// for the first objects.
func (c *knownCluster) follow(ctx context.Context, needs []cluster.Need, who []string) error {
	if len(needs) == 0 && c.kubeconfig == "" && c.dir == "" {
		return nil
	}
	state := c.state.Load()
	if state == nil {
		var err error
		state, err = cluster.New(cluster.Options{
			Kubeconfig: c.kubeconfig,
			Context:    c.context,
			Dir:        c.dir,
			Kinds:      c.kinds,
			Others:     c.others,
			Embedded:   c.imagined && c.kubeconfig == "" && c.dir == "",
			UserAgent:  c.agent(),
			Log:        c.log,
			Metrics:    c.metrics,
		})
		if err != nil {
			if len(who) == 0 {
				return fmt.Errorf("cannot read the cluster: %w", err)
			}
			return fmt.Errorf("cannot read the cluster, needed by %s: %w", strings.Join(who, ", "), err)
		}
		c.state.Store(state)
		if !c.imagined {
			limitGarbage()
		}
	}
	if err := state.Follow(ctx, needs...); err != nil {
		return err
	}
	for _, need := range needs {
		if need.Kind == cluster.Namespaces.Kind {
			c.namespaces.known.Store(cluster.Namespaces.In(state.View(need)))
		}
		if need.Kind == cluster.SubjectAccessReviews.Kind && c.access.Load() == nil {
			c.access.Store(cluster.AccessIn(state.View(need).For(matchConditions)))
		}
	}
	return nil
}

// garbagePercent is the value for debug.SetGCPercent while the cluster is watched. Cached
// objects are most of the heap, and requests allocate little, so the collector still runs
// rarely. With Go's default of 100, a process with NodeRestriction in a cluster of 10,000 pods
// had 71 MiB at most; with 50 it has 60.
const garbagePercent = 50

// limitGarbage sets garbagePercent, unless GOGC is set.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}

// put adds objects to the state of the cluster, if plugins read their kinds.
func (c *knownCluster) put(objects []manifest.Item) error {
	state := c.state.Load()
	if state == nil {
		return nil
	}
	putter := state.NewPutter()
	for i := range objects {
		if _, err := putter.Put(objects[i].JSON); err != nil {
			return fmt.Errorf("%s: cannot be used as an object of the cluster: %w", objects[i].Source, err)
		}
	}
	return nil
}

// reach returns an error at once if the API server does not answer, for which await would wait. One that only forbids the
// question answers.
func (c *knownCluster) reach(ctx context.Context) error {
	config, err := cluster.RESTConfig(c.kubeconfig, c.context)
	if err != nil {
		return err
	}
	config.UserAgent = c.agent()
	if err := audit.Ask(ctx, config); !apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

// await waits until the watched objects are cached.
func (c *knownCluster) await(ctx context.Context) error {
	state := c.state.Load()
	if state == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, syncMax)
	defer cancel()
	return state.Wait(waiting)
}

// check is a check of /readyz. It fails until the watched objects are cached. It names the
// namespaces of which the caches do not have all objects.
func (c *knownCluster) check() server.Check {
	return server.Check{Name: "cluster", Ask: func() (bool, string) {
		if state := c.state.Load(); state != nil {
			if err := state.Ready(); err != nil {
				return false, err.Error()
			}
			return true, strings.Join(state.LeftOut(), "\n")
		}
		return true, ""
	}}
}

// namespaces looks up the labels of namespaces for selectors.
type namespaces struct {
	known atomic.Pointer[cluster.Objects[*corev1.Namespace]]
}

// Labels implements match.Namespaces.
func (n *namespaces) Labels(ctx context.Context, name string) (labels.Set, error) {
	known := n.known.Load()
	if known == nil {
		return nil, errors.New("the cluster is not watched") // a chain is used only after follow
	}
	namespace, err := known.Get(ctx, "", name)
	if err != nil {
		return nil, err
	}
	return namespace.Labels, nil
}
