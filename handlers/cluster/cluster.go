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
	"k8s.io/client-go/rest"
)

// Options say where what is known about the cluster comes from: Kubeconfig,
// Dir, Embedded or Objects, and the cluster that the process runs in if none of
// them is set.
type Options struct {
	Kubeconfig string           // file that says how to reach the API server
	Dir        string           // folder with .yaml, .yml and .json files, read once
	Embedded   bool             // the objects of a new cluster, without a cluster; every namespace exists, with its default ServiceAccount
	Objects    []runtime.Object // with their defaults, as an API server would return them
	UserAgent  string           // how the API server's logs name this process; client-go's default if empty
	Log        *slog.Logger     // may be nil
	Metrics    *metrics.Set     // where series are made; may be nil

	// Authorize answers a SubjectAccessReview where there is no API server; nil if
	// nobody can.
	Authorize func(ctx context.Context, review *authorizationv1.SubjectAccessReview)

	// Kinds are those that objects in files may have beside the ones of the function
	// Kinds: what plugins define themselves.
	Kinds []*Kind
}

// A State is what is known about the cluster. Its methods may be called by
// several goroutines.
type State struct {
	options Options
	kinds   []*Kind

	// dial returns a client for a kind, which shares connections and the limit of
	// requests with all others; nil if there is no API server.
	dial func(kind *Kind) (rest.Interface, error)

	mu      sync.Mutex               // for those who add stores
	series  map[string]*series       // by the resource
	dynamic dynamicKinds             // those that were named at run time
	stores  atomic.Pointer[[]*store] // of the kinds that are needed; with files, of all
}

// New returns a State of what is in the files, which it reads, or of a cluster,
// with which it does not speak yet. The error says what is wrong with the
// options or, all at once, with the files.
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
		if !slices.Contains(s.kinds, kind) && kind != discovered && kind != dynamic {
			s.kinds = append(s.kinds, kind)
		}
	}
	s.stores.Store(new([]*store))
	if o.Dir == "" && !o.Embedded && o.Objects == nil {
		return s, s.connect()
	}
	for _, kind := range s.kinds {
		if err := s.add(kind); err != nil {
			return nil, err
		}
	}
	return s, s.read()
}

// Kinds returns the kinds that there may be objects of: those of the function Kinds
// and of Options.Kinds.
func (s *State) Kinds() []*Kind { return slices.Clone(s.kinds) }

// add adds the store of a kind, if there is none.
func (s *State) add(kind *Kind) error {
	if s.find(kind) != nil {
		return nil
	}
	store := newStore(kind, s.options.Log)
	if s.dial == nil {
		store.files = newStored(store)
		store.files.authorize = s.options.Authorize
		if !slices.Contains(s.kinds, kind) { // no file can have one
			store.sync.Do(func() { close(store.synced) })
		}
	} else {
		client, err := s.dial(kind)
		if err != nil {
			return err
		}
		store.client = client
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

// Follow begins to follow the kinds that are to be watched, as far as they are
// not followed yet, until ctx ends. It does not wait. What was known then is
// still answered, and what the cache lacks is still asked for.
func (s *State) Follow(ctx context.Context, needs ...Need) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, need := range needs {
		if need.Kind == dynamic {
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
	}
	return nil
}

// Ready returns nil once each kind that is followed was listed: from then on
// the State answers, whatever becomes of the API server. The error before that
// says which kinds were not, and what was wrong last. The case of nil allocates
// nothing.
func (s *State) Ready() error { return ready(*s.stores.Load()) }

func ready(stores []*store) error {
	var errs []error
	for _, store := range stores {
		if !store.isReady() {
			errs = append(errs, store.unsynced())
		}
	}
	return errors.Join(errs...)
}

// Wait waits for Ready to return nil. If ctx ends before, the error is that of
// Ready and of ctx.
func (s *State) Wait(ctx context.Context) error {
	for _, store := range *s.stores.Load() {
		if store.isReady() {
			continue
		}
		select {
		case <-store.synced:
		case <-ctx.Done():
			return errors.Join(s.Ready(), context.Cause(ctx))
		}
	}
	return nil
}

// View returns the State as far as the needs go, which are followed already.
func (s *State) View(needs ...Need) *View {
	v := &View{state: s, needs: needs}
	for _, need := range needs {
		if store := s.find(need.Kind); store != nil && need.isWatched() {
			v.watched = append(v.watched, store)
		}
	}
	return v
}
