package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Options say what is to be known about the cluster, and where it comes from:
// Kubeconfig, Dir or Embedded, and the cluster that the process runs in if none
// of them is set.
type Options struct {
	Kinds      []*Kind      // what will be asked for; nothing else is watched
	Kubeconfig string       // file that says how to reach the API server
	Dir        string       // folder with .yaml, .yml and .json files, read once
	Embedded   bool         // the objects of a new cluster, without a cluster
	UserAgent  string       // how the API server's logs name this process; client-go's default if empty
	Log        *slog.Logger // may be nil
	Metrics    *metrics.Set // where series are made; may be nil
}

// A State is what is known about the cluster. Its methods may be called by
// several goroutines.
type State struct {
	stores []*store // of Options.Kinds
}

// New returns a State of what is in the files, which it reads, or of a cluster,
// with which it does not speak before Start. The error says what is wrong with
// the options or, all at once, with the files.
func New(o Options) (*State, error) {
	sources := 0
	for _, given := range []bool{o.Kubeconfig != "", o.Dir != "", o.Embedded} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		return nil, errors.New("cluster state: got more than one of a kubeconfig, a folder and the embedded state, want one")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = metrics.NewSet()
	}
	s := new(State)
	for i, kind := range o.Kinds {
		if !slices.Contains(o.Kinds[:i], kind) { // several plugins may need it
			s.stores = append(s.stores, newStore(kind, o.Log))
		}
	}
	codecs := serializer.NewCodecFactory(newScheme(append(Kinds(), o.Kinds...)), serializer.EnableStrict)
	if o.Dir != "" || o.Embedded {
		if err := s.read(&o, codecs); err != nil {
			return nil, err
		}
	} else if len(s.stores) > 0 {
		if err := s.connect(&o, codecs); err != nil {
			return nil, err
		}
	}
	for _, store := range s.stores {
		store.addMetrics(o.Metrics)
	}
	return s, nil
}

// Start begins to follow the cluster, until ctx ends. It does not wait. What
// was known then is still answered, and what the cache lacks is still asked for.
func (s *State) Start(ctx context.Context) {
	for _, store := range s.stores {
		if store.client != nil {
			go store.follow(ctx)
		}
	}
}

// Ready returns nil once each kind was listed: from then on the State answers,
// whatever becomes of the API server. The error before that says which kinds
// were not, and what was wrong last. The case of nil allocates nothing.
func (s *State) Ready() error {
	var errs []error
	for _, store := range s.stores {
		if !store.isSynced() {
			errs = append(errs, store.unsynced())
		}
	}
	return errors.Join(errs...)
}

// Wait waits for Ready to return nil. If ctx ends before, the error is that of
// Ready and of ctx.
func (s *State) Wait(ctx context.Context) error {
	for _, store := range s.stores {
		select {
		case <-store.synced:
		case <-ctx.Done():
			return errors.Join(s.Ready(), context.Cause(ctx))
		}
	}
	return nil
}

// store returns the store of a kind, or an error if it was not declared.
func (s *State) store(kind *Kind) (*store, error) {
	for _, store := range s.stores {
		if store.kind == kind {
			return store, nil
		}
	}
	return nil, fmt.Errorf("cluster state: %s are asked for, but not declared as needed", kind)
}
