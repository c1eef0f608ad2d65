package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/internal/files"
)

const (
	// qps and burst bound what the process asks the API server for, watches
	// apart: what kube-scheduler may ask for (k8s.io/kubernetes
	// pkg/scheduler/apis/config/v1 clientConnection). client-go's own 5 and 10
	// would make calls for new namespaces wait for longer than their budget.
	// While requests wait, a fairLimiter shares them.
	qps   = 50
	burst = 100

	// quietMax is how long a list or a watch may send nothing before it is started
	// anew. Bookmarks arrive once a minute (k8s.io/apiserver pkg/storage/cacher
	// defaultBookmarkFrequency), so three were lost.
	quietMax = 3 * time.Minute

	// liveMax is the time for a live request, which several callers may share: half
	// of a webhook's default timeoutSeconds of 10.
	liveMax = 5 * time.Second

	// contentType is the shortest and cheapest of what kube-apiserver speaks.
	contentType = runtime.ContentTypeProtobuf
)

// timing is how long is waited for the API server.
type timing struct {
	// quiet is how long a list or a watch may send nothing before it is started
	// anew. Without it, a watch through a proxy that hangs would last as long as
	// the process.
	quiet time.Duration

	// live is the time for a live request, whoever waits for it.
	live time.Duration

	// backoff is how long is waited before an attempt after one that failed.
	// client-go waits for up to a minute. The state is that much behind when the
	// API server is back, and an attempt of each kind each ten seconds is nothing
	// to it.
	backoff wait.Backoff

	// absent is how often an API server is asked whether it has an optional resource
	// now: as often as one that fails.
	absent time.Duration
}

var defaultTiming = timing{
	quiet:   quietMax,
	live:    liveMax,
	absent:  10 * time.Second,
	backoff: wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second},
}

// connect makes dial.
func (s *State) connect() error {
	o := &s.options
	shared, err := RESTConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	shared.UserAgent = o.UserAgent
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	shared.RateLimiter = newFairLimiter(qps, burst, o.Metrics)
	shared.WarningHandler = rest.NoWarnings{} // it would write them to stderr, as text
	connections, err := rest.HTTPClientFor(shared)
	if err != nil {
		return fmt.Errorf("cluster state: cannot make a client: %w", err)
	}
	s.dial = func(kind *Kind) (rest.Interface, error) {
		config := rest.CopyConfig(shared)
		config.GroupVersion = &kind.version
		config.NegotiatedSerializer = kind.codecs().WithoutConversion()
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if kind.protobuf {
			config.ContentType, config.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
		}
		config.APIPath = "/apis"
		if kind.version.Group == "" {
			config.APIPath = "/api"
		}
		client, err := rest.RESTClientForConfigAndClient(config, connections)
		if err != nil {
			return nil, fmt.Errorf("cluster state: cannot make a client for %s: %w", kind, err)
		}
		return client, nil
	}
	return nil
}

// RESTConfig returns the client configuration of the kubeconfig file or, if the name is
// empty, of the cluster in which the process runs.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("this process does not run in a Pod; name a kubeconfig with --kubeconfig or a folder of manifests with --cluster-state-dir")
		}
		if err != nil {
			return nil, fmt.Errorf("cluster state: %w", err)
		}
		return config, nil
	}
	config, err := readKubeconfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cluster state: cannot read kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// readKubeconfig does what clientcmd.BuildConfigFromFlags does. That one opens the
// files that the kubeconfig names and waits if one is a FIFO; here they are checked
// before.
func readKubeconfig(name string) (*rest.Config, error) {
	content, err := files.Read(name)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = name
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = name
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, err
	}
	if used := config.Contexts[config.CurrentContext]; used != nil {
		if cluster := config.Clusters[used.Cluster]; cluster != nil {
			err = files.Check(cluster.CertificateAuthority)
		}
		if user := config.AuthInfos[used.AuthInfo]; user != nil {
			err = errors.Join(err, files.Check(user.ClientCertificate, user.ClientKey, user.TokenFile))
		}
	}
	if err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*config, new(clientcmd.ConfigOverrides)).ClientConfig()
}

// follow keeps the store as the API server says, until ctx ends. client-go logs
// nothing here: faults are noted where they happen.
func (s *store) follow(ctx context.Context) {
	if !s.kind.optional {
		s.reflect(ctx)
		return
	}
	for s.awaitResource(ctx) {
		following, gone := context.WithCancel(ctx)
		s.gone = gone
		s.reflect(following)
		select {
		case <-ctx.Done():
		case <-time.After(s.timing.backoff.Duration): // some API servers may have it and others not
		}
	}
}

// reflect follows the objects until ctx ends.
func (s *store) reflect(ctx context.Context) {
	silent := logr.Discard()
	calls := &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
	cache.NewReflectorWithOptions(calls, s.kind.object, s, cache.ReflectorOptions{
		Name: s.kind.String(), Logger: &silent, Backoff: &s.timing.backoff,
	}).RunWithContext(klog.NewContext(ctx, silent))
}

// awaitResource waits until the API server has the resource, or fails in another
// way than by not having it; false if ctx ends before. Until then, there is
// nothing of the kind.
func (s *store) awaitResource(ctx context.Context) bool {
	for {
		asking, cancel := context.WithTimeout(ctx, s.timing.live)
		err := s.client.Get().Resource(s.kind.resource).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(asking).Error()
		cancel()
		if !apierrors.IsNotFound(err) {
			return ctx.Err() == nil
		}
		_ = s.Replace(nil, "") // no object can be wrong
		select {
		case <-ctx.Done(): // which ends the next request
		case <-time.After(s.timing.absent):
		}
	}
}

var (
	errQuiet = errors.New("the API server says nothing")
	errEmpty = errors.New("the API server ended a watch without saying anything")
)

// list implements cache.ListWithContextFunc.
func (s *store) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	asking, cancel := context.WithTimeoutCause(ctx, s.timing.quiet, errQuiet)
	defer cancel()
	list, err := s.client.Get().Resource(s.kind.resource).VersionedParams(&options, metav1.ParameterCodec).Do(asking).Get()
	if err != nil && ctx.Err() == nil {
		s.refused(err)
	}
	return list, err
}

// refused notes that the API server refused to list or watch. It has no such
// resource if it says that nothing is found: an optional one is gone then.
func (s *store) refused(err error) {
	switch {
	case !apierrors.IsNotFound(err):
		s.failed(err)
	case s.kind.optional:
		s.gone()
	default:
		s.failed(fmt.Errorf("the API server does not have the resource %s of %s; "+
			"if it is one of a CustomResourceDefinition, install that: %w", s.kind.resource, s.kind.version, err))
	}
}

// watch implements cache.WatchFuncWithContext.
func (s *store) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	watching, cancel := context.WithCancelCause(ctx)
	quiet := time.AfterFunc(s.timing.quiet, func() { cancel(errQuiet) })
	events, err := s.client.Get().Resource(s.kind.resource).VersionedParams(&options, metav1.ParameterCodec).Watch(watching)
	if err != nil {
		quiet.Stop()
		cancel(nil)
		if ctx.Err() == nil && (!initial || !listsInstead(err)) {
			s.refused(err)
		}
		return nil, err
	}
	out := make(chan watch.Event)
	passed := watch.NewProxyWatcher(out)
	go func() {
		err := s.pass(watching, events.ResultChan(), out, passed.StopChan(), quiet, initial)
		if err != nil && ctx.Err() == nil {
			s.failed(err)
		}
		quiet.Stop()
		cancel(nil)
		events.Stop()
		close(out)
	}()
	return passed, nil
}

// listsInstead reports whether the reflector sends a list request after this
// answer to a watch that asked for initial events. An API server without the
// feature WatchList answers 422. One whose etcd is older than v3.4.31 or v3.5.13,
// or was not asked for its version yet, answers 500, "the required storage feature
// RequestWatchProgress is disabled" (k8s.io/apiserver pkg/storage/cacher/cacher.go).
// Neither is a fault: the list follows at once, and list notes it if that fails.
// After the answers excluded here the reflector repeats the watch (k8s.io/client-go
// tools/cache/reflector.go watchList).
func listsInstead(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return answered && !apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err) &&
		!apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
}

// pass hands events on until there are no more, or until stop or ctx ends. The
// error says what was wrong with the API server. Initial says that the watch asked
// for initial events.
func (s *store) pass(ctx context.Context, events <-chan watch.Event, out chan<- watch.Event, stop <-chan struct{}, quiet *time.Timer, initial bool) error {
	end := errEmpty
	for {
		var event watch.Event
		var more bool
		select {
		case event, more = <-events:
		case <-stop:
			return nil
		}
		switch {
		case ctx.Err() != nil: // which ends events, or makes one of type Error
			return context.Cause(ctx)
		case !more:
			return end
		case event.Type == watch.Error:
			if err := apierrors.FromObject(event.Object); !initial || !listsInstead(err) {
				s.failed(err)
			}
		default:
			quiet.Reset(s.timing.quiet)
			s.contacted()
		}
		end = nil
		select {
		case out <- event:
		case <-stop:
			return nil
		}
	}
}
