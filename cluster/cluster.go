package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Options select the source of the cluster's objects: Kubeconfig, Dir, Embedded or
// Objects. If none of them is set, it is the cluster in which the process runs.
type Options struct {
	Kubeconfig string           // kubeconfig file for the API server, or several as in the variable KUBECONFIG
	Context    string           // context of the kubeconfig; if empty, the current one
	Dir        string           // folder with .yaml, .yml and .json files, read once
	Embedded   bool             // the objects of a new cluster, without a cluster; every namespace exists, with its default ServiceAccount
	Objects    []runtime.Object // with their defaults, as an API server would return them
	UserAgent  string           // User-Agent of requests, shown in the API server's logs; if empty, client-go's default
	Log        *slog.Logger     // may be nil
	Metrics    *metrics.Set     // set for the metrics; may be nil

	// Authorize answers SubjectAccessReviews if there is no API server. If it is nil,
	// they fail.
	Authorize func(ctx context.Context, review *authorizationv1.SubjectAccessReview)

	// Kinds are additional kinds that files may contain: those that plugins define
	// themselves. Files may always contain the kinds of the function Kinds.
	Kinds []*Kind

	// Others says what is wrong with an object in the files of Dir of a kind that files need not contain. Objects with which
	// nothing is wrong are ignored. It gets all CustomResourceDefinitions, then the first object of each other kind. If it is nil,
	// such objects are errors.
	Others func(kind schema.GroupVersionKind, document []byte) error
}

// A State has the objects of the cluster, cached or from files. Several goroutines may
// call its methods at the same time.
type State struct {
	options Options
	kinds   []*Kind

	// dial returns a client for a kind, which shares connections and the limit of
	// requests with all others; nil if there is no API server.
	dial func(kind *Kind) (rest.Interface, error)

	mu     sync.Mutex         // held while stores are added
	series map[string]*series // by resource
	// The numbers of watches of kinds that were named at run time. The second one is of Views that are read-only.
	dynamic, dynamicReadOnly atomic.Int64

	stores  atomic.Pointer[[]*store] // of the needed kinds; with files, of all kinds
	groups  atomic.Pointer[[]*GroupObjects]
	account *account // nil if there is no API server
}

// New returns a State. It reads files, but does not connect to an API server yet. The
// error describes invalid options, or joins all errors in the files.
func New(o Options) (*State, error) {
	sources := 0
	for _, given := range []bool{o.Kubeconfig != "", o.Dir != "", o.Embedded, o.Objects != nil} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		return nil, errors.New("cluster state: got more than one of a kubeconfig, a folder, objects and the embedded state, want one")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = metrics.NewSet()
	}
	s := &State{options: o, kinds: Kinds(), series: make(map[string]*series)}
	for _, kind := range o.Kinds {
		if !slices.Contains(s.kinds, kind) && kind != discovered && kind != dynamic && kind.group == nil {
			s.kinds = append(s.kinds, kind)
		}
	}
	s.stores.Store(new([]*store))
	s.groups.Store(new([]*GroupObjects))
	if o.Dir == "" && !o.Embedded && o.Objects == nil {
		s.account = newAccount()
		return s, s.connect()
	}
	for _, kind := range s.kinds {
		if err := s.add(kind); err != nil {
			return nil, err
		}
	}
	return s, s.read()
}

// Kinds returns the kinds that the State can have objects of: those of the function
// Kinds and of Options.Kinds.
func (s *State) Kinds() []*Kind { return slices.Clone(s.kinds) }

// add adds a store for a kind, unless there is one.
func (s *State) add(kind *Kind) error {
	if s.find(kind) != nil {
		return nil
	}
	store := newStore(kind, s.options.Log)
	if s.dial == nil {
		store.files = newFileAPI(store)
		store.files.authorize = s.options.Authorize
		store.now.bounds = bounds{}                   // whoever chose the files bounds them
		store.sync.Do(func() { close(store.synced) }) // New reads the files before it returns
	} else {
		client, err := s.dial(kind)
		if err != nil {
			return err
		}
		store.client, store.account = client, s.account
		s.account.add(store)
	}
	stores := append(slices.Clip(*s.stores.Load()), store)
	s.stores.Store(&stores)
	return nil
}

// find returns the store of a kind, nil if there is none.
func (s *State) find(kind *Kind) *store {
	for _, store := range *s.stores.Load() {
		if store.kind == kind {
			return store
		}
	}
	return nil
}

// Follow starts the watches that the needs require and that do not run yet. It does not
// wait for objects. The watches run until ctx ends. After that, the State still answers
// from the cache, and sends requests for objects that are not cached.
func (s *State) Follow(ctx context.Context, needs ...Need) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, need := range needs {
		if need.Kind == dynamic {
			continue
		}
		if need.group != nil {
			if err := s.followGroup(ctx, &need); err != nil {
				return err
			}
			continue
		}
		if err := s.add(need.Kind); err != nil {
			return err
		}
		store := s.find(need.Kind)
		store.neededBy(need.plugin)
		if store.client != nil {
			store.addLiveMetrics(s.options.Metrics, need.Verbs)
		}
		if need.isWatched() && !store.followed.Swap(true) {
			s.addMetrics(store)
			if store.client != nil {
				go store.follow(ctx)
			}
		}
		if need.isWatched() && !need.aside {
			store.required.Store(true)
		}
	}
	return nil
}

// Ready returns nil when the objects of all watched kinds have been listed. From then
// on, the State answers even if the API server is down. Before, the error names the
// kinds that are missing, each with its last error. Returning nil does not allocate.
func (s *State) Ready() error { return ready(*s.stores.Load(), *s.groups.Load(), false) }

// ready returns the errors of those that are not listed. aside says whether those count that only needs
// which are Aside have.
func ready(stores []*store, groups []*GroupObjects, aside bool) error {
	var errs []error
	for _, group := range groups {
		if err := group.Err(); err != nil && (aside || group.required.Load()) {
			errs = append(errs, err)
		}
	}
	for _, store := range stores {
		if !store.isReady() && (aside || store.required.Load()) {
			errs = append(errs, store.unsynced())
		}
	}
	return errors.Join(errs...)
}

// Wait waits until Ready returns nil. If ctx ends before, it returns the errors of
// Ready and of ctx.
func (s *State) Wait(ctx context.Context) error {
	for _, store := range *s.stores.Load() {
		if store.isReady() || !store.required.Load() {
			continue
		}
		select {
		case <-store.synced:
		case <-ctx.Done():
			return errors.Join(s.Ready(), context.Cause(ctx))
		}
	}
	for _, group := range *s.groups.Load() {
		if !group.required.Load() {
			continue
		}
		select {
		case <-group.synced:
		case <-ctx.Done():
			return errors.Join(s.Ready(), context.Cause(ctx))
		}
	}
	return nil
}

// View returns access to the State for these needs. Call Follow for them before.
func (s *State) View(needs ...Need) *View {
	v := &View{state: s, needs: needs}
	for _, need := range needs {
		if store := s.find(need.Kind); store != nil && need.isWatched() {
			v.watched = append(v.watched, store)
		}
		if need.group != nil {
			v.groups = append(v.groups, s.group(need.group))
		}
	}
	return v
}
